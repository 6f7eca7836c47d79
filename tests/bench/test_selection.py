"""`crp bench selection` counts evidence rightly, packs all systems alike and reports all it ran."""

from __future__ import annotations

import gzip
import json
import random
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.bench.fabric.embeddings import HashEmbedder
from crp_integrations.bench.peers.dense import fused
from crp_integrations.bench.selection import peers as peers_module
from crp_integrations.bench.selection.ablations import ABLATIONS, settings_of
from crp_integrations.bench.selection.axis import LEAST_RUN, Axis, squeezed
from crp_integrations.bench.selection.compare import compared
from crp_integrations.bench.selection.data import (
    Collection,
    Evidence,
    Question,
    Text,
    find,
    read,
)
from crp_integrations.bench.selection.intervals import interval, resampled
from crp_integrations.bench.selection.metrics import (
    MRR,
    PER_BUDGET,
    Packed,
    Wanted,
    adjacency,
    measure,
    reciprocal_rank,
    repeated,
)
from crp_integrations.bench.selection.ours import MODEL, Ours
from crp_integrations.bench.selection.packing import pack
from crp_integrations.bench.selection.passages import main as make_passages
from crp_integrations.bench.selection.peers import PEERS, Corpus
from crp_integrations.bench.selection.run import run
from crp_integrations.bench.selection.settle import plan, usual_budget
from crp_integrations.bench.selection.table import below, headings, markdown, table
from crp_integrations.bench.selection.units import Unit, cut, units
from crp_integrations.bench.selection.vectors import Kept
from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import EngineError, RequestError
from crp_integrations.relay.settings import load

COUNTER = counter_for(MODEL)
# Peers whose libraries are in no extra; the report names them where they are missing.
EXTRA = {"langchain_ensemble", "llama_index_fusion"}
TOWNS = {
    "Varde": "wool, salted herring and the bell foundry of the monks",
    "Ostrom": "glass beads, blue ink and a school for clockmakers",
    "Lindau": "barges of rye, the toll bridge and winter fairs",
    "Kaspel": "copper mines, three tanneries and an observatory",
}


def made_up(folder: Path, name: str = "towns") -> Path:
    """A set of four documents about towns, each a paragraph of its own and some more."""
    texts = {
        town: (
            f"{town} is a town by the river.\n\n"
            + " ".join(f"Year {n} of {town} was quiet and wet." for n in range(30))
            + f"\n\nThe town of {town} lived from {what}, as its chronicle of 1640 tells."
        )
        for town, what in TOWNS.items()
    }
    documents = [
        {"doc_id": town, "title": town, "collection": "all", "text": text}
        for town, text in texts.items()
    ]
    queries = []
    for town, what in TOWNS.items():
        start = texts[town].index(f"The town of {town} lived")
        piece = {
            "doc_id": town,
            "start": start,
            "end": start + len(f"The town of {town} lived from {what}"),
        }
        asked = f"What did the town of {town} live from?"
        queries.append(
            {"query_id": town, "query": asked, "collection": "all", "evidence": [piece], "meta": {}}
        )
    return write(folder / name, documents, queries)


def write(folder: Path, documents: list[Any], queries: list[Any]) -> Path:
    folder.mkdir(parents=True)
    for name, rows in (("documents", documents), ("queries", queries)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return folder


def unit_of(axis: Axis, doc_id: str, start: int, end: int, text: str = "") -> Unit:
    return Unit(f"{doc_id}:{start}-{end}", doc_id, text or "x", 1, (axis.at(doc_id, start, end),))


# --- evidence ----------------------------------------------------------------------------


@st.composite
def spaced(draw: st.DrawFn, first: int = 0x4E00) -> str:
    """A text in which no character stands twice, with white space of all kinds between."""
    size = draw(st.integers(1, 60))
    gaps = draw(
        st.lists(
            st.sampled_from(["", "", " ", "\n\n", "\u00a0", "\t", "\u2003"]),
            min_size=size,
            max_size=size,
        )
    )
    return "".join(chr(first + n) + gap for n, gap in enumerate(gaps))


@given(data=st.data(), texts=st.tuples(spaced(), spaced(0x6000)))
@settings(max_examples=150, deadline=None)
def test_the_share_is_that_of_the_characters_that_are_no_white_space(
    data: st.DataObject, texts: tuple[str, str]
) -> None:
    held = dict(zip("ab", texts, strict=True))
    axis = Axis([Text(name, "", text) for name, text in held.items()])

    def stretches(most: int) -> list[tuple[str, int, int]]:
        made = []
        for _ in range(data.draw(st.integers(1, most))):
            name = data.draw(st.sampled_from("ab"))
            start = data.draw(st.integers(0, len(held[name]) - 1))
            made.append((name, start, data.draw(st.integers(start + 1, len(held[name])))))
        return made

    marked, packed = stretches(3), stretches(5)

    def solid(spans: list[tuple[str, int, int]]) -> set[tuple[str, int]]:
        return {
            (name, n)
            for name, start, end in spans
            for n in range(start, end)
            if not held[name][n].isspace()
        }

    wanted = Wanted(Question("q", "?", tuple(Evidence(*one) for one in marked)), axis)
    found, full = wanted.found([unit_of(axis, *one) for one in packed])
    assert wanted.length == len(solid(marked))
    assert found == len(solid(marked) & solid(packed))
    shares = [
        len(solid([one]) & solid(packed)) / len(solid([one])) for one in marked if solid([one])
    ]
    assert full == (bool(shares) and min(shares) >= 0.9)


@given(data=st.data(), size=st.integers(20, 200))
@settings(max_examples=100, deadline=None)
def test_a_long_run_or_a_whole_piece_counts_wherever_it_stands(
    data: st.DataObject, size: int
) -> None:
    piece = "".join(chr(0x4E00 + n) for n in range(size))
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    copy = "\n".join(piece[start:end])
    axis = Axis([Text("a", "", piece), Text("b", "", f"before {copy} after")])
    wanted = Wanted(Question("q", "?", (Evidence("a", 0, size),)), axis)
    found, _ = wanted.found([unit_of(axis, "b", 0, len(copy) + 13)])
    counts = end - start >= LEAST_RUN or end - start == size
    assert found == (end - start if counts else 0)


def test_a_word_or_two_elsewhere_are_no_evidence() -> None:
    axis = Axis([Text("a", "", "Yes, of course."), Text("b", "", "Yes, of course. Or no?")])
    wanted = Wanted(Question("q", "?", (Evidence("a", 0, 15),)), axis)
    assert wanted.found([unit_of(axis, "b", 0, 22)]) == (0, False)


def test_a_piece_that_stands_twice_within_one_document_counts_from_either_place() -> None:
    said = "The bridge was closed for repairs in the spring of that year."
    text = f"{said} Nothing else is known. {said}"
    axis = Axis([Text("a", "", text)])
    wanted = Wanted(Question("q", "?", (Evidence("a", 0, len(said)),)), axis)
    again = unit_of(axis, "a", len(text) - len(said), len(text))
    assert wanted.found([again]) == (len(squeezed(said)), True)
    assert wanted.found([again, unit_of(axis, "a", 0, len(said))]) == (wanted.length, True)


def test_rows_of_one_character_are_found_in_reasonable_time() -> None:
    axis = Axis([Text("a", "", "-" * 5_000), Text("b", "", "-" * 5_000)])
    wanted = Wanted(Question("q", "?", (Evidence("a", 0, 5_000),)), axis)
    assert wanted.found([unit_of(axis, "a", 0, 2_500)])[0] >= 2_500


def test_a_text_is_placed_where_it_is_said_to_be_before_anywhere_else() -> None:
    axis = Axis([Text("a", "", "one two. one two."), Text("b", "", "one two. three")])
    assert axis.place("one\n\ntwo.", "a", 9, 17) == axis.at("a", 9, 17)
    assert axis.place("one two.", "b", 9, 14) == axis.at("b", 0, 8)
    assert axis.place("three", "a", 0, 17) == axis.at("b", 9, 14)
    assert axis.place("three", None, 0, 0) == axis.at("b", 9, 14)
    assert axis.place("four", "a", 0, 17) is None
    assert axis.place("two.three", None, 0, 0) is not None
    assert axis.place("two.one two.three", None, 0, 0) is None
    assert axis.place(" \n", "a", 0, 17) is None


# --- one context -------------------------------------------------------------------------


def test_the_values_of_a_context() -> None:
    text = "Alpha beta gamma. Delta epsilon zeta."
    axis = Axis([Text("a", "", text), Text("b", "", "Eta theta iota.")])
    wanted = Wanted(Question("q", "?", (Evidence("a", 0, 17), Evidence("b", 0, 15))), axis)
    first = unit_of(axis, "a", 0, 17, "Alpha beta gamma.")
    second = unit_of(axis, "a", 18, 37, "Delta epsilon zeta.")
    values = measure(wanted, Packed((second, first), (first.unit_id, second.unit_id), 20), 40)
    assert values["evidence_recall"] == pytest.approx(15 / 28)
    assert values["full_recall"] == 0.0
    assert values["precision"] == pytest.approx(15 / 32)
    assert (values["compliance"], values["adjacency"], values["top3_in_first5"]) == (1.0, 1.0, 1.0)
    assert values["coverage"] == pytest.approx(0.5)
    assert measure(wanted, Packed((first,), (), 41), 40)["compliance"] == 0.0
    nothing = measure(wanted, Packed((), (), 0), 40)
    assert (nothing["evidence_recall"], nothing["precision"], nothing["coverage"]) == (
        0.0,
        0.0,
        0.0,
    )
    assert np.isnan(nothing["adjacency"])
    assert np.isnan(nothing["top3_in_first5"])
    assert set(values) == set(PER_BUDGET)


def test_the_first_hit_of_ten_decides() -> None:
    text = "Alpha beta gamma. " * 30 + "The answer stands here, and here alone."
    axis = Axis([Text("a", "", text)])
    start = text.index("The answer")
    wanted = Wanted(Question("q", "?", (Evidence("a", start, len(text)),)), axis)
    miss, hit = unit_of(axis, "a", 0, 17), unit_of(axis, "a", start + 8, len(text))
    whole, grazed = unit_of(axis, "a", 0, len(text)), unit_of(axis, "a", 0, start + 3)
    assert reciprocal_rank(wanted, [miss, grazed, hit]) == pytest.approx(1 / 3)
    assert reciprocal_rank(wanted, [whole]) == 1.0
    assert reciprocal_rank(wanted, [miss] * 10 + [hit]) == 0.0


@pytest.mark.parametrize(
    ("documents", "share"), [("aabb", 1.0), ("abab", 0.0), ("aaba", 0.5), ("abcaa", 0.5)]
)
def test_adjacency_is_the_share_of_neighbours_that_could_be(documents: str, share: float) -> None:
    assert adjacency(documents) == share


def test_a_text_within_another_is_a_duplicate() -> None:
    words = [f"word{n}" for n in range(24)]
    assert repeated([" ".join(words), " ".join(words[8:20])]) == pytest.approx(5 / 22)
    assert repeated([" ".join(words[:12]), " ".join(words[12:])]) == 0.0


# --- units and packing -------------------------------------------------------------------


@given(
    text=st.text(st.sampled_from("ab é.?!\n-•1 ")) | st.text(),
    limit=st.integers(8, 30),
)
@settings(max_examples=150, deadline=None)
def test_units_hold_everything_once_and_are_never_too_long(text: str, limit: int) -> None:
    spans = list(cut(text, COUNTER, limit))
    assert "".join(squeezed(text[start:end]) for start, end in spans) == squeezed(text)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    for start, end in spans:
        # A single character may be several tokens.
        assert COUNTER.count(text[start:end]) <= limit or end - start == 1


def test_units_are_filled_with_whole_sentences() -> None:
    text = " ".join(f"This is sentence number {n} of the text." for n in range(100))
    spans = list(cut(text, COUNTER, 50))
    assert all(text[start:end].startswith("This") and text[end - 1] == "." for start, end in spans)
    assert all(COUNTER.count(text[start:end]) > 35 for start, end in spans[:-1])


@given(sizes=st.lists(st.integers(1, 60), max_size=12), budget=st.integers(0, 150))
@settings(max_examples=100, deadline=None)
def test_what_does_not_fit_is_skipped_and_the_budget_is_kept(sizes: list[int], budget: int) -> None:
    ranked = []
    for number, size in enumerate(sizes):
        text = " ".join(f"w{number}" for _ in range(size))
        ranked.append(Unit(str(number), "d", text, COUNTER.count(f"[10] {text}\n\n"), ()))
    packed = pack(ranked, budget, COUNTER)
    text = render([unit.text for unit in packed.units])
    assert packed.tokens == (COUNTER.count(text) if packed.units else 0)
    assert packed.tokens <= budget
    used = 0
    for unit in ranked:
        fits = used + unit.tokens <= budget
        assert fits == (unit in packed.units)
        used += unit.tokens if fits else 0


# --- peers -------------------------------------------------------------------------------


def corpus_of(tmp_path: Path) -> tuple[Corpus, list[str]]:
    whole = read(made_up(tmp_path))
    [collection] = whole.collections
    cut_ = units(collection.texts, Axis(collection.texts), COUNTER)
    return Corpus(cut_, HashEmbedder()), [one.query for one in collection.questions]


def test_libraries_rank_as_their_parts_say(tmp_path: Path) -> None:
    corpus, asked = corpus_of(tmp_path)
    ranked = {}
    for name, make in PEERS.items():
        try:
            ranked[name] = make(corpus).rank
        except ImportError:
            assert name in EXTRA
    places = set(range(len(corpus.units)))
    for question in asked:
        exact = ranked["dense"](question)
        scores = corpus.rows @ corpus.embedder.embed_query(question)
        assert sorted(exact) == sorted(places)
        assert all(a >= b for a, b in zip(scores[exact], scores[exact][1:], strict=False))
        assert ranked["rrf"](question) == fused([ranked["bm25"](question), exact])
        vector = ranked["llama_index_vector"](question)
        assert np.allclose(scores[vector], scores[exact], atol=1e-5)
        for name in EXTRA & ranked.keys():
            assert set(ranked[name](question)) == places
        chosen = ranked["langchain_mmr"](question)
        assert scores[chosen[0]] == pytest.approx(scores[exact[0]], abs=1e-5)
        assert len(set(chosen)) == len(chosen)


def test_without_bm25s_words_are_searched_by_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "crp_integrations.bench.peers.bm25s", None)
    corpus, asked = corpus_of(tmp_path)
    peer = PEERS["bm25"](corpus)
    assert peer.name.startswith("SQLite FTS5")
    towns = [corpus.units[peer.rank(question)[0]].doc_id for question in asked]
    assert towns == list(TOWNS)
    assert peer.rank("¿?") == []


@given(rankings=st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=4))
def test_fusion_sums_reciprocal_ranks(rankings: list[list[int]]) -> None:
    found = fused(rankings)
    score = {
        place: sum(1 / (61 + one.index(place)) for one in rankings if place in one)
        for place in {place for one in rankings for place in one}
    }
    assert sorted(found) == sorted(score)
    for left, right in pairwise(found):
        assert score[left] > score[right] - 1e-12


# --- our own path ------------------------------------------------------------------------


def test_one_selection_for_all_budgets_gives_the_envelopes_of_turns_of_their_own(
    tmp_path: Path,
) -> None:
    [collection] = read(made_up(tmp_path)).collections
    axis = Axis(collection.texts)
    budgets = (40, 256, 512)
    with Ours(collection, axis, HashEmbedder(), settings_of("crp")) as ours:
        for question in collection.questions:
            together = ours.packs(question.query, budgets)
            alone = {budget: ours.packs(question.query, (budget,))[budget] for budget in budgets}
            assert together == alone
            assert all(packed.tokens <= budget for budget, packed in together.items())
        assert ours.unplaced == set()
        assert ours.facts > 0


def test_facts_stand_where_the_documents_have_them(tmp_path: Path) -> None:
    [collection] = read(made_up(tmp_path)).collections
    axis = Axis(collection.texts)
    with Ours(collection, axis, HashEmbedder(), settings_of("literal")) as ours:
        packed = ours.packs(collection.questions[0].query, (4_096,))[4_096]
    for unit in packed.units:
        assert [axis.of(stretch) for stretch in unit.stretches] == [squeezed(unit.text)]
    wanted = Wanted(collection.questions[0], axis)
    assert wanted.found(packed.units) == (wanted.length, True)


@pytest.mark.parametrize(("name", "given"), ABLATIONS)
def test_every_ablation_is_another_setting(name: str, given: dict[str, Any]) -> None:
    assert name.startswith("crp - ")
    assert load(**settings_of(name)).digest != load(preset="default").digest
    assert settings_of(name) == {"preset": "default", **given}


# --- the whole run -----------------------------------------------------------------------


def test_the_report_holds_every_system_set_and_metric(tmp_path: Path) -> None:
    made_up(tmp_path / "sets", "towns")
    made_up(tmp_path / "sets", "others")
    folders = find(tmp_path / "sets")
    chosen = plan((), (64, 256), None, ablate=False)
    report = run(folders, chosen, embedder=HashEmbedder())
    metrics = {MRR, *(f"{metric}@{budget}" for metric in PER_BUDGET for budget in (64, 256))}
    missing = report["settings"]["peers"]["missing"].keys()
    assert missing <= EXTRA
    assert set(report["results"]) == {"crp", "literal", *(PEERS.keys() - missing)}
    for sets in report["results"].values():
        assert set(sets) == {"towns", "others"}
        assert all(set(values) == metrics for values in sets.values())
        assert all(
            values[f"compliance@{budget}"] == 1.0
            for values in sets.values()
            for budget in (64, 256)
        )
    # The words of the questions stand in the evidence, so the word search cannot miss it.
    assert report["results"]["bm25"]["towns"]["evidence_recall@256"] == 1.0
    assert report["results"]["bm25"]["towns"][MRR] == 1.0
    assert report["settings"]["usual_budgets"] == {"towns": 256, "others": 256}
    assert report["settings"]["facts_found_in_no_document"] == {"crp": 0, "literal": 0}
    assert report["macro"]["crp"]["evidence_recall"] == pytest.approx(
        np.mean(
            [report["results"]["crp"][name]["evidence_recall@256"] for name in ("towns", "others")]
        )
    )
    for system in PEERS.keys() - missing:
        row = report["intervals"][system]["towns"]["evidence_recall@256"]
        ours = report["results"]["crp"]["towns"]["evidence_recall@256"]
        theirs = report["results"][system]["towns"]["evidence_recall@256"]
        assert row["difference"] == pytest.approx(ours - theirs, abs=2e-6)
        assert row["low"] <= row["difference"] <= row["high"]
    assert json.loads(json.dumps(report)) == run(folders, chosen, embedder=HashEmbedder())


def test_a_library_that_is_not_there_is_named_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(corpus: Corpus) -> Any:
        raise ModuleNotFoundError("No module named 'rank_bm25'", name="rank_bm25")

    monkeypatch.setitem(peers_module.PEERS, "langchain_ensemble", absent)
    chosen = plan(("bm25", "langchain_ensemble"), (256,), 2, ablate=False)
    report = run([made_up(tmp_path)], chosen, embedder=HashEmbedder())
    assert set(report["results"]) == {"bm25"}
    assert report["settings"]["peers"]["missing"] == {
        "langchain_ensemble": "rank_bm25 is not installed"
    }
    assert report["settings"]["sets"]["towns"]["questions"] == 2
    assert list(table(report))[-1][-1] == "rank_bm25 is not installed"


def test_the_table_has_the_headline_and_what_is_surely_worse() -> None:
    values = {
        "crp": {"a": {}, "b": {}},
        "dense": {"a": {}, "b": {}},
    }
    draw = random.Random(0)
    for name, more in (("a", 0.2), ("b", -0.2)):
        base = [draw.random() * 0.5 + 0.2 for _ in range(200)]
        for metric in (MRR, "evidence_recall@512", "full_recall@512", "precision@512"):
            values["dense"][name][metric] = base
            values["crp"][name][metric] = [one + more for one in base]
    usual = {"a": 512, "b": 512}
    report = {
        "results": {
            system: {
                name: {metric: float(np.mean(one)) for metric, one in found.items()}
                for name, found in sets.items()
            }
            for system, sets in values.items()
        },
        **compared(values, usual, (512,)),
        "settings": {"usual_budgets": usual, "peers": {"missing": {}}},
    }
    row = report["intervals"]["dense"]["a"]["evidence_recall@512"]
    assert row == {"difference": 0.2, "low": 0.2, "high": 0.2}
    assert report["intervals"]["dense"]["macro"]["evidence_recall"]["difference"] == pytest.approx(
        0.0
    )
    assert below(report) == ["b: -0.200 against dense"]
    assert headings(report)[1:4] == ("a @512", "b @512", "macro")
    ours, theirs = table(report)
    assert ours[0] == "crp" and ours[-1] == ""
    assert theirs[3] == ours[3] == f"{100 * report['macro']['crp']['evidence_recall']:.1f}"
    lines = markdown(report).splitlines()
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1


@given(
    rows=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=20),
    resamples=st.sampled_from([1, 499, 500, 1_003]),
)
@settings(max_examples=40, deadline=None)
def test_resampled_means_are_means_of_rows_drawn_alike(
    rows: list[tuple[float, float]], resamples: int
) -> None:
    table_ = np.array(rows)
    means = resampled(table_, resamples=resamples)
    assert means.shape == (resamples, 2)
    assert (means >= table_.min(axis=0) - 1e-9).all() and (means <= table_.max(axis=0) + 1e-9).all()
    swapped = resampled(table_[:, ::-1], resamples=resamples)
    assert np.allclose(swapped, means[:, ::-1])
    low, high = interval(means)
    assert all(a <= b for a, b in zip(low, high, strict=True))


def test_an_interval_has_the_width_that_theory_gives() -> None:
    drawn = np.random.default_rng(1).normal(0.3, 1.0, size=(400, 1))
    [low], [high] = interval(resampled(drawn))
    error = float(drawn.std()) / 20
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.05)
    assert (low + high) / 2 == pytest.approx(float(drawn.mean()), abs=0.1 * error)


def test_vectors_are_made_once_and_kept(tmp_path: Path) -> None:
    class Counting(HashEmbedder):
        asked = 0

        def embed_query(self, text: str) -> Any:
            self.asked += 1
            return super().embed_query(text)

    first, second = Counting(), Counting()
    kept = Kept(first, tmp_path)
    rows = kept.embed_passages(["one", "two", "one"])
    rows[0] = 0.0
    kept.save()
    again = Kept(second, tmp_path)
    assert first.asked == 2
    assert (
        again.embed_passages(["two", "one"]) == HashEmbedder().embed_passages(["two", "one"])
    ).all()
    assert second.asked == 0
    [file] = tmp_path.iterdir()
    file.write_bytes(b"no archive")
    with pytest.raises(EngineError, match="cannot be read; remove it"):
        Kept(first, tmp_path)


# --- what is read ------------------------------------------------------------------------

DOCUMENT = {"doc_id": "a", "title": "", "collection": "all", "text": "A text."}
QUERY = {
    "query_id": "1",
    "query": "?",
    "collection": "all",
    "evidence": [{"doc_id": "a", "start": 0, "end": 7}],
}


@pytest.mark.parametrize(
    ("documents", "queries", "said"),
    [
        ([DOCUMENT, DOCUMENT], [QUERY], "documents.jsonl.gz line 2: doc_id 'a' is there twice"),
        ([{**DOCUMENT, "text": 5}], [QUERY], "documents.jsonl.gz line 1: text is int, wanted a text"),
        ([DOCUMENT], [{**QUERY, "evidence": []}], "queries.jsonl.gz line 1: evidence is no list"),
        ([DOCUMENT], [{**QUERY, "collection": "b"}], "line 1: a piece of evidence is not a doc_id of"),
        ([DOCUMENT], [{**QUERY, "evidence": [{"doc_id": "a", "start": 3, "end": 3}]}], "0 <= start < end"),
        ([DOCUMENT], [{**QUERY, "evidence": [{"doc_id": "a", "start": 0, "end": 8}]}], "0 <= start < end"),
        ([DOCUMENT], [{**QUERY, "evidence": [{"doc_id": "a"}]}], "0 <= start < end"),
        ([DOCUMENT], [[1]], "queries.jsonl.gz line 1 is no JSON object"),
        ([DOCUMENT], [], "holds no question"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_format_is_refused_with_its_line(
    tmp_path: Path, documents: list[Any], queries: list[Any], said: str
) -> None:
    folder = write(tmp_path / "set", documents, queries)
    with pytest.raises(RequestError, match=said):
        read(folder)


def test_a_file_that_is_no_data_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", [DOCUMENT], [QUERY])
    (folder / "queries.jsonl.gz").write_bytes(b"nothing")
    with pytest.raises(RequestError, match=r"queries.jsonl.gz line 1 is no JSON object"):
        read(folder)


def test_sets_are_found_by_name_and_questions_spread_over_the_file(tmp_path: Path) -> None:
    made_up(tmp_path, "one")
    made_up(tmp_path, "two")
    assert [path.name for path in find(tmp_path)] == ["one", "two"]
    assert [path.name for path in find(tmp_path, ["two"])] == ["two"]
    assert [path.name for path in find(tmp_path / "one")] == ["one"]
    with pytest.raises(RequestError, match="set 'three' is not one of one, two"):
        find(tmp_path, ["three"])
    with pytest.raises(RequestError, match=r"wanted a folder with documents\.jsonl\.gz"):
        find(tmp_path / "nowhere")
    [collection] = read(tmp_path / "one", queries=2).collections
    assert [one.query_id for one in collection.questions] == ["Varde", "Lindau"]
    assert isinstance(collection, Collection) and len(collection.texts) == 4


def test_the_plan_knows_names_and_the_budget_of_a_set() -> None:
    assert plan((), (), None, ablate=False).systems == ("crp", "literal", *PEERS)
    assert plan((), (), None, ablate=True).systems == ("crp", *(name for name, _ in ABLATIONS))
    assert plan(("dense",), (512, 256, 512), None, ablate=False).budgets == (256, 512)
    with pytest.raises(RequestError, match="system 'other' is not one of crp, literal, bm25"):
        plan(("other",), (), None, ablate=False)
    with pytest.raises(RequestError, match="below 1"):
        plan((), (0,), None, ablate=False)
    assert usual_budget("codebase", (256, 512, 1_024, 2_048)) == 2_048
    assert usual_budget("codebase", (256, 512)) == 512
    assert usual_budget("unseen", (256, 1_024, 2_048)) == 1_024
    assert usual_budget("unseen", (2_048, 4_096)) == 2_048


def test_sets_of_passages_are_read_as_they_were_written(tmp_path: Path) -> None:
    claims = [
        {"claim": "The quay is of granite.", "evidence": "The quay was built of granite.", "label": "supported"},
        {"claim": "The quay is of granite.", "evidence": "Granite came from the north.", "label": "refuted"},
        {"claim": "It rained in May.", "evidence": "The crane lifts eighteen tons.", "label": "not_supported"},
        {"claim": "The quay is new.", "evidence": "no", "label": "supported"},
    ]  # fmt: skip
    questions = [{"query": "who built it", "title": "Quay", "passage": "The board built the quay."}]
    for name, found in (("claims", claims), ("asked", questions)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(map(json.dumps, found)))
    out = tmp_path / "sets"
    files = [str(tmp_path / f"{name}.jsonl.gz") for name in ("claims", "asked")]
    make_passages(["--out", str(out), *files])
    (whole,) = read(out / "claims").collections
    assert [one.text for one in whole.texts] == [row["evidence"] for row in claims[:3]]
    (question,) = whole.questions
    assert question.query == claims[0]["claim"]
    assert [(one.doc_id, one.start, one.end) for one in question.evidence] == [
        ("p0", 0, len(claims[0]["evidence"])), ("p1", 0, len(claims[1]["evidence"]))
    ]  # fmt: skip
    (other,) = read(out / "asked").collections
    assert (other.texts[0].title, other.questions[0].query) == ("Quay", "who built it")


@pytest.mark.parametrize(
    ("line", "said"), [('{"claim": "a"}', "line 1 has no 'evidence'"), ("no", "line 1 is no JSON")]
)
def test_another_format_is_refused_by_line(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(gzip.compress(line.encode()))
    with pytest.raises(SystemExit, match=said):
        make_passages(["--out", str(tmp_path / "sets"), str(path)])
