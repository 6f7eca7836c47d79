"""What `crp eval selection` counts: evidence found again in the documents, and its data sets."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.context_metrics import (
    LEAST_RUN,
    PER_BUDGET,
    ContextUnit,
    MeasuredContext,
    TextAxis,
    WantedEvidence,
    adjacency,
    measure,
    reciprocal_rank,
    repeated,
    squeezed,
)
from crp_integrations.evaluation.data_sets import (
    Collection,
    EvidenceSpan,
    SetDocument,
    SetQuestion,
    find,
    read,
)
from crp_integrations.evaluation.selection import (
    MODEL,
    PRESETS,
    SYSTEMS,
    RelayContexts,
    WrappedContexts,
    plan_of,
)
from tests.bench.fabric_corpus import HashEmbedder

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


def unit_of(axis: TextAxis, doc_id: str, start: int, end: int, text: str = "") -> ContextUnit:
    return ContextUnit(
        f"{doc_id}:{start}-{end}", doc_id, text or "x", 1, (axis.at(doc_id, start, end),)
    )


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


DOCUMENT = {"doc_id": "a", "title": "", "collection": "all", "text": "A text."}


QUERY = {
    "query_id": "1",
    "query": "?",
    "collection": "all",
    "evidence": [{"doc_id": "a", "start": 0, "end": 7}],
}


@given(data=st.data(), texts=st.tuples(spaced(), spaced(0x6000)))
@settings(max_examples=150, deadline=None)
def test_the_share_is_that_of_the_characters_that_are_no_white_space(
    data: st.DataObject, texts: tuple[str, str]
) -> None:
    held = dict(zip("ab", texts, strict=True))
    axis = TextAxis([SetDocument(name, "", text) for name, text in held.items()])

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

    wanted = WantedEvidence(
        SetQuestion("q", "?", tuple(EvidenceSpan(*one) for one in marked)), axis
    )
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
    axis = TextAxis([SetDocument("a", "", piece), SetDocument("b", "", f"before {copy} after")])
    wanted = WantedEvidence(SetQuestion("q", "?", (EvidenceSpan("a", 0, size),)), axis)
    found, _ = wanted.found([unit_of(axis, "b", 0, len(copy) + 13)])
    counts = end - start >= LEAST_RUN or end - start == size
    assert found == (end - start if counts else 0)


def test_a_word_or_two_elsewhere_are_no_evidence() -> None:
    axis = TextAxis(
        [SetDocument("a", "", "Yes, of course."), SetDocument("b", "", "Yes, of course. Or no?")]
    )
    wanted = WantedEvidence(SetQuestion("q", "?", (EvidenceSpan("a", 0, 15),)), axis)
    assert wanted.found([unit_of(axis, "b", 0, 22)]) == (0, False)


def test_a_piece_that_stands_twice_within_one_document_counts_from_either_place() -> None:
    said = "The bridge was closed for repairs in the spring of that year."
    text = f"{said} Nothing else is known. {said}"
    axis = TextAxis([SetDocument("a", "", text)])
    wanted = WantedEvidence(SetQuestion("q", "?", (EvidenceSpan("a", 0, len(said)),)), axis)
    again = unit_of(axis, "a", len(text) - len(said), len(text))
    assert wanted.found([again]) == (len(squeezed(said)), True)
    assert wanted.found([again, unit_of(axis, "a", 0, len(said))]) == (wanted.length, True)


def test_rows_of_one_character_are_found_in_reasonable_time() -> None:
    axis = TextAxis([SetDocument("a", "", "-" * 5_000), SetDocument("b", "", "-" * 5_000)])
    wanted = WantedEvidence(SetQuestion("q", "?", (EvidenceSpan("a", 0, 5_000),)), axis)
    assert wanted.found([unit_of(axis, "a", 0, 2_500)])[0] >= 2_500


def test_a_text_is_placed_where_it_is_said_to_be_before_anywhere_else() -> None:
    axis = TextAxis(
        [SetDocument("a", "", "one two. one two."), SetDocument("b", "", "one two. three")]
    )
    assert axis.place("one\n\ntwo.", "a", 9, 17) == axis.at("a", 9, 17)
    assert axis.place("one two.", "b", 9, 14) == axis.at("b", 0, 8)
    assert axis.place("three", "a", 0, 17) == axis.at("b", 9, 14)
    assert axis.place("three", None, 0, 0) == axis.at("b", 9, 14)
    assert axis.place("four", "a", 0, 17) is None
    assert axis.place("two.three", None, 0, 0) is not None
    assert axis.place("two.one two.three", None, 0, 0) is None
    assert axis.place(" \n", "a", 0, 17) is None


def test_the_values_of_a_context() -> None:
    text = "Alpha beta gamma. Delta epsilon zeta."
    axis = TextAxis([SetDocument("a", "", text), SetDocument("b", "", "Eta theta iota.")])
    wanted = WantedEvidence(
        SetQuestion("q", "?", (EvidenceSpan("a", 0, 17), EvidenceSpan("b", 0, 15))), axis
    )
    first = unit_of(axis, "a", 0, 17, "Alpha beta gamma.")
    second = unit_of(axis, "a", 18, 37, "Delta epsilon zeta.")
    values = measure(
        wanted, MeasuredContext((second, first), (first.unit_id, second.unit_id), 20), 40
    )
    assert values["evidence_recall"] == pytest.approx(15 / 28)
    assert values["full_recall"] == 0.0
    assert values["precision"] == pytest.approx(15 / 32)
    assert (values["compliance"], values["adjacency"], values["top3_in_first5"]) == (1.0, 1.0, 1.0)
    assert values["coverage"] == pytest.approx(0.5)
    assert measure(wanted, MeasuredContext((first,), (), 41), 40)["compliance"] == 0.0
    nothing = measure(wanted, MeasuredContext((), (), 0), 40)
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
    axis = TextAxis([SetDocument("a", "", text)])
    start = text.index("The answer")
    wanted = WantedEvidence(SetQuestion("q", "?", (EvidenceSpan("a", start, len(text)),)), axis)
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


def test_one_selection_for_all_budgets_gives_the_envelopes_of_turns_of_their_own(
    tmp_path: Path,
) -> None:
    [collection] = read(made_up(tmp_path)).collections
    axis = TextAxis(collection.texts)
    budgets = (40, 256, 512)
    with closing(RelayContexts(collection, axis, HashEmbedder(), PRESETS["crp"])) as ours:
        for question in collection.questions:
            together = ours.packs(question.query, budgets)
            alone = {budget: ours.packs(question.query, (budget,))[budget] for budget in budgets}
            assert together == alone
            assert all(packed.tokens <= budget for budget, packed in together.items())
        assert ours.unplaced == set()
        assert ours.size > 0


def test_facts_stand_where_the_documents_have_them(tmp_path: Path) -> None:
    [collection] = read(made_up(tmp_path)).collections
    axis = TextAxis(collection.texts)
    with closing(RelayContexts(collection, axis, HashEmbedder(), PRESETS["literal"])) as ours:
        packed = ours.packs(collection.questions[0].query, (4_096,))[4_096]
    for unit in packed.units:
        assert [axis.of(stretch) for stretch in unit.stretches] == [squeezed(unit.text)]
    wanted = WantedEvidence(collection.questions[0], axis)
    assert wanted.found(packed.units) == (wanted.length, True)


@pytest.mark.parametrize("further", [0, 4])
def test_a_wrapped_retriever_s_passages_are_found_in_the_documents(
    tmp_path: Path, further: int
) -> None:
    [collection] = read(made_up(tmp_path)).collections
    axis, counter = TextAxis(collection.texts), counter_for(MODEL)
    with closing(
        WrappedContexts(collection, axis, HashEmbedder(), counter, further=further)
    ) as ours:
        for question in collection.questions:
            packs, ranked = ours.contexts(question.query, (40, 4_096))
            assert all(packs[budget].tokens <= budget for budget in (40, 4_096))
            # What is needed of a few passages is never more than the largest budget.
            assert 0 < packs["auto"].tokens <= 4_096
            assert ranked
            wanted = WantedEvidence(question, axis)
            assert wanted.found(packs[4_096].units) == (wanted.length, True)
        assert ours.unplaced == set()


def test_a_system_that_is_not_known_is_named() -> None:
    assert plan_of([], [], None).systems == SYSTEMS
    with pytest.raises(RequestError, match="'crp_wrapped' is not one of crp, literal, crp_wrap"):
        plan_of(["crp_wrapped"], [], None)


@pytest.mark.parametrize(
    ("documents", "queries", "said"),
    [
        ([DOCUMENT, DOCUMENT], [QUERY], "documents.jsonl.gz line 2: doc_id 'a' occurs twice"),
        ([{**DOCUMENT, "text": 5}], [QUERY], "documents.jsonl.gz line 1: text is int, wanted a text"),
        ([DOCUMENT], [{**QUERY, "evidence": []}], "queries.jsonl.gz line 1: evidence is not a list"),
        ([DOCUMENT], [{**QUERY, "collection": "b"}], "line 1: a piece of evidence is not a doc_id of"),
        ([DOCUMENT], [{**QUERY, "evidence": [{"doc_id": "a", "start": 3, "end": 3}]}], "0 <= start < end"),
        ([DOCUMENT], [{**QUERY, "evidence": [{"doc_id": "a", "start": 0, "end": 8}]}], "0 <= start < end"),
        ([DOCUMENT], [{**QUERY, "evidence": [{"doc_id": "a"}]}], "0 <= start < end"),
        ([DOCUMENT], [[1]], "queries.jsonl.gz line 1 is not a JSON object"),
        ([DOCUMENT], [], "has no question"),
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
    with pytest.raises(RequestError, match=r"queries.jsonl.gz line 1 is not a JSON object"):
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
