"""`python -m tests.bench.selection` counts evidence rightly, packs all systems alike and reports all it ran."""

from __future__ import annotations

import gzip
import json
import random
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.context_metrics import (
    MRR,
    PER_BUDGET,
    ContextUnit,
    TextAxis,
    squeezed,
)
from crp_integrations.evaluation.data_sets import find, read
from crp_integrations.evaluation.selection import MODEL, SYSTEMS
from tests.bench.fabric_corpus import HashEmbedder
from tests.bench.peers.dense import fused
from tests.bench.selection import (
    ABLATIONS,
    ALL,
    below,
    compared,
    headings,
    interval,
    markdown,
    plan,
    resampled,
    run,
    table,
)
from tests.bench.selection_adapters import ADAPTERS, COMPRESSION, AdapterContexts, places
from tests.bench.selection_passages import main as make_passages
from tests.bench.selection_peers import PEERS, Corpus, cut, pack, units
from tests.bench.selection_pool import main as make_pool
from tests.evaluation.test_selection import TOWNS, made_up

COUNTER = counter_for(MODEL)
# Peers whose libraries are in no extra; the report names them where they are missing.
EXTRA = {"langchain_ensemble", "llama_index_fusion", COMPRESSION}


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


@given(sizes=st.lists(st.integers(1, 60), max_size=12), budget=st.integers(0, 150))
@settings(max_examples=100, deadline=None)
def test_what_does_not_fit_is_skipped_and_the_budget_is_kept(sizes: list[int], budget: int) -> None:
    ranked = []
    for number, size in enumerate(sizes):
        text = " ".join(f"w{number}" for _ in range(size))
        ranked.append(ContextUnit(str(number), "d", text, COUNTER.count(f"[10] {text}\n\n"), ()))
    packed = pack(ranked, budget, COUNTER)
    text = render([unit.text for unit in packed.units])
    assert packed.tokens == (COUNTER.count(text) if packed.units else 0)
    assert packed.tokens <= budget
    used = 0
    for unit in ranked:
        fits = used + unit.tokens <= budget
        assert fits == (unit in packed.units)
        used += unit.tokens if fits else 0


def corpus_of(tmp_path: Path) -> tuple[Corpus, list[str]]:
    whole = read(made_up(tmp_path))
    [collection] = whole.collections
    cut_ = units(collection.texts, TextAxis(collection.texts), COUNTER)
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


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_packs_what_the_search_of_its_framework_gives(name: str, tmp_path: Path) -> None:
    whole = read(made_up(tmp_path))
    [collection] = whole.collections
    axis = TextAxis(collection.texts)
    corpus = Corpus(units(collection.texts, axis, COUNTER), HashEmbedder())
    by_id = {unit.unit_id: unit for unit in corpus.units}
    system = AdapterContexts(name, corpus, axis, COUNTER)
    parts = 0
    for question in collection.questions:
        packs, ranked = system.contexts(question.query, (40, 200))
        assert set(packs) == {40, 200, "auto"}
        for budget in (40, 200):
            packed = packs[budget]
            shown = [unit.text for unit in packed.units]
            assert 0 < packed.tokens == COUNTER.count(render(shown)) <= budget
            for unit in packed.units:
                assert unit.stretches and unit.doc_id == by_id[unit.unit_id].doc_id
                held = "".join(axis.of(one) for one in unit.stretches)
                assert squeezed(unit.text).replace("[…]", "") == held
        assert {unit.unit_id for unit in ranked} == set(packs[200].ranked)
        parts += sum(unit.text != by_id[unit.unit_id].text for unit in packs[40].units)
        (piece,) = question.evidence
        town = next(one for one in collection.texts if one.doc_id == piece.doc_id)
        assert squeezed(town.text[piece.start : piece.end]) in squeezed(packs[200].units[0].text)
    # Fewer tokens than most units have, so parts of them are shown.
    assert parts > 0
    assert system.unplaced == set()


def test_a_part_stands_where_its_unit_holds_it(tmp_path: Path) -> None:
    [collection] = read(made_up(tmp_path)).collections
    axis = TextAxis(collection.texts)
    first, second = units(collection.texts, axis, COUNTER)[:2]
    [found] = places(axis, second, [second.text[5:30], "stands nowhere"])
    assert axis.of(found) == squeezed(second.text[5:30])
    assert list(places(axis, first, [second.text, " \n"])) == []


def test_without_bm25s_words_are_searched_by_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tests.bench.peers.bm25s", None)
    corpus, asked = corpus_of(tmp_path)
    peer = PEERS["bm25"](corpus)
    assert peer.name.startswith("SQLite FTS5")
    towns = [corpus.units[peer.rank(question)[0]].doc_id for question in asked]
    assert towns == list(TOWNS)
    assert peer.rank("¿?") == []


def test_the_report_holds_every_system_set_and_metric(tmp_path: Path) -> None:
    made_up(tmp_path / "sets", "towns")
    made_up(tmp_path / "sets", "others")
    folders = find(tmp_path / "sets")
    chosen = plan((), (64, 256), None, ablate=False)
    report = run(folders, chosen, embedder=HashEmbedder())
    metrics = {MRR, *(f"{metric}@{budget}" for metric in PER_BUDGET for budget in (64, 256))}
    missing = report["settings"]["missing"].keys()
    assert missing <= EXTRA
    assert set(report["results"]) == set(ALL) - missing
    for sets in report["results"].values():
        assert set(sets) == {"towns", "others"}
        assert all(
            {name for name in values if not name.endswith("@auto")} == metrics
            for values in sets.values()
        )
        assert all(
            values[f"compliance@{budget}"] == 1.0
            for values in sets.values()
            for budget in (64, 256)
        )
    # The words of the questions stand in the evidence, so the word search cannot miss it.
    assert report["results"]["bm25"]["towns"]["evidence_recall@256"] == 1.0
    assert report["results"]["bm25"]["towns"][MRR] == 1.0
    assert report["settings"]["usual_budgets"] == {"towns": 256, "others": 256}
    assert set(report["settings"]["facts_found_in_no_document"].values()) == {0}
    assert report["macro"]["crp"]["evidence_recall"] == pytest.approx(
        np.mean(
            [report["results"]["crp"][name]["evidence_recall@256"] for name in ("towns", "others")]
        )
    )
    for system in {*PEERS, *ADAPTERS} - missing:
        row = report["intervals"][system]["towns"]["evidence_recall@256"]
        ours = report["results"]["crp"]["towns"]["evidence_recall@256"]
        theirs = report["results"][system]["towns"]["evidence_recall@256"]
        assert row["difference"] == pytest.approx(ours - theirs, abs=2e-6)
        assert row["low"] <= row["difference"] <= row["high"]
    assert json.loads(json.dumps(report)) == run(folders, chosen, embedder=HashEmbedder())


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
        "macro": {"crp": {"evidence_recall": 0.45}, "dense": {"evidence_recall": 0.45}},
        **compared(values, usual, (512,)),
        "settings": {"usual_budgets": usual, "missing": {}},
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


def test_the_plan_knows_names_and_the_budget_of_a_set() -> None:
    assert plan((), (), None, ablate=False).systems == ALL
    assert {*SYSTEMS, *ADAPTERS, *PEERS, COMPRESSION} == set(ALL)
    assert plan((), (), None, ablate=True).systems == ("crp", *(name for name, _ in ABLATIONS))
    assert plan(("dense",), (512, 256, 512), None, ablate=False).budgets == (256, 512)
    with pytest.raises(
        RequestError,
        match="system 'other' is not one of crp, literal, crp_wrap, crp_wrap_again, crp_node, bm25",
    ):
        plan(("other",), (), None, ablate=False)
    with pytest.raises(RequestError, match="below 1"):
        plan((), (0,), None, ablate=False)
    assert (
        plan((), (256, 512, 1_024, 2_048), None, ablate=False).headline_budget("codebase") == 2_048
    )
    assert plan((), (256, 512), None, ablate=False).headline_budget("codebase") == 512
    assert plan((), (256, 1_024, 2_048), None, ablate=False).headline_budget("unseen") == 1_024
    assert plan((), (2_048, 4_096), None, ablate=False).headline_budget("unseen") == 2_048


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


def test_a_pool_holds_every_text_once_and_each_question_with_its_evidence(tmp_path: Path) -> None:
    towns = made_up(tmp_path / "sets", "towns")
    again = made_up(tmp_path / "sets", "again")
    questions = [
        {"query": "who built it", "title": "Quay", "passage": "The board built the quay."},
        {"query": "who paid", "title": "Quay", "passage": "The guild paid for the quay."},
    ]
    texts = [{"context": "Nothing is asked about this text."}, questions[0], {"evidence": "short"}]
    for name, found in (("asked", questions), ("texts", texts)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(map(json.dumps, found)))
    given = ["--sets", str(towns), str(again), "--asked", str(tmp_path / "asked.jsonl.gz")]
    given += ["--texts", str(tmp_path / "texts.jsonl.gz")]
    make_pool(["--out", str(tmp_path / "pool"), *given])
    make_pool(["--out", str(tmp_path / "few"), *given, "--queries", "1"])
    (pool,) = read(tmp_path / "pool").collections
    held = {one.doc_id: one.text for one in pool.texts}
    # The second set has the texts of the first, and one of the texts is an asked passage.
    assert list(held) == [
        *(f"towns/all/{town}" for town in TOWNS), "asked/p0", "asked/p1", "texts/t0"
    ]  # fmt: skip
    asked = {one.query_id: one for one in pool.questions}
    assert len(asked) == 2 * len(TOWNS) + len(questions)
    for town in TOWNS:
        for name in ("towns", "again"):
            (piece,) = asked[f"{name}/all/{town}"].evidence
            assert held[piece.doc_id][piece.start : piece.end].startswith(f"The town of {town}")
    (few,) = read(tmp_path / "few").collections
    assert [one.query_id.partition("/")[0] for one in few.questions] == ["towns", "again", "asked"]
    assert [one.text for one in few.texts] == list(held.values())
