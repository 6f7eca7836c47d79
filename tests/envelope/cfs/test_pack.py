"""The three packings, duplicates, and what an assembled context tells."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations.envelope.cfs.assembly import adjacency, same_context
from crp_integrations.envelope.cfs.pack import (
    SimpleTokenizer,
    deduplicate,
    format_context,
    pack,
    token_set,
)
from crp_integrations.envelope.cfs.records import AssembledContext, AssemblySettings
from crp_integrations.envelope.cfs.search import group_by_document, sort_results
from crp_integrations.errors import RequestError
from crp_integrations.vocabulary import DropReason
from tests.doubles import NOON
from tests.envelope.cfs.builders import LETTERS, QUERY, found, ids, made, room


def overlap(left: frozenset[str], right: frozenset[str]) -> float:
    smaller = min(len(left), len(right))
    return len(left & right) / smaller if smaller else 0.0


def words(first: int, last: int) -> str:
    return " ".join(f"word{number}" for number in range(first, last))


# --- greedy ----------------------------------------------------------------------------


@pytest.mark.requirement("CFS-TV-Packing-1", "CFS-7-4", "CFS-7-10")
@pytest.mark.parametrize("paths", [("a", "a", "a", "a"), ("a", "b", "a", "c")])
def test_the_packing_vector(paths):
    results = [
        found(name, score, tokens=tokens, path=path)
        for name, score, tokens, path in zip(
            "ABCD", (0.9, 0.85, 0.8, 0.75), (50, 100, 30, 80), paths, strict=True
        )
    ]
    context = made(results, 150)
    assert ids(context) == ["A", "C"]
    assert context.total_tokens == 80
    assert context.overhead_tokens == 10
    assert context.truncated is False
    assert [(drop.fact_id, drop.reason, drop.tokens) for drop in context.dropped] == [
        ("B", DropReason.BUDGET, 100), ("D", DropReason.BUDGET, 80),
    ]  # fmt: skip


@pytest.mark.requirement("CFS-7-1")
def test_chunks_of_a_document_stand_in_reading_order():
    results = [found("late", 0.9, sequence=9), found("first", 0.1, sequence=1),
               found("next", 0.5, sequence=2)]  # fmt: skip
    assert ids(made(results)) == ["first", "next", "late"]


@pytest.mark.requirement("CFS-7-2")
@pytest.mark.parametrize(("available", "packed"), [(59, []), (60, ["x"])])
def test_a_chunk_fits_with_its_marker_up_to_the_last_token(available, packed):
    context = made([found("x", tokens=50)], available)
    assert ids(context) == packed
    assert context.truncated is False


@pytest.mark.requirement("CFS-7-3")
def test_a_document_is_charged_one_marker():
    results = [found(str(n), tokens=20, sequence=n) for n in range(4)]
    context = made([*results, found("other", 0.1, tokens=20, path="b.md")], 120)
    assert ids(context) == ["0", "1", "2", "3", "other"]
    assert (context.total_tokens, context.overhead_tokens) == (100, 20)
    assert "other" not in ids(made([*results, found("other", 0.1, tokens=20, path="b.md")], 119))


@pytest.mark.requirement("CFS-7-5", "CFS-7-6")
def test_a_chunk_is_cut_where_that_is_allowed():
    results = [found("A", 0.9, tokens=50), found("B", 0.8, tokens=100, sequence=1)]
    context = made(results, 100, allow_partial=True, count_rendered=False)
    assert ids(context) == ["A", "B"]
    cut = context.chunks[1]
    assert (cut.cut, cut.tokens, cut.text) == (True, 40, "B" * 156 + "...")
    assert (context.total_tokens, context.overhead_tokens) == (90, 10)
    assert context.truncated is True
    assert context.dropped == ()


def test_a_cut_is_shortened_until_the_whole_text_fits():
    results = [found("A", 0.9, tokens=50), found("B", 0.8, tokens=100, sequence=1)]
    context = made(results, 100, allow_partial=True)
    assert context.rendered_tokens <= 100
    assert context.chunks[1].text.endswith("B...")
    # Nothing is cut that has no room for a character.
    assert ids(made([found("x", tokens=50)], 11, allow_partial=True)) == []


def test_a_document_ends_where_a_chunk_of_it_was_cut():
    results = [
        found("A", 0.9, text="a" + " " * 300 + "a" * 200, sequence=1),
        found("B", 0.8, tokens=1, sequence=2),
        found("C", 0.7, tokens=2, path="b"),
    ]
    context = made(results, 50, allow_partial=True)
    # The cut left room, which the next document takes.
    assert [(chunk.chunk_id, chunk.text) for chunk in context.chunks] == [("A", "a..."),
                                                                         ("C", "C" * 8)]  # fmt: skip
    assert [drop.fact_id for drop in context.dropped] == ["B"]


@pytest.mark.requirement("CFS-7-7")
def test_packing_stops_where_the_budget_is_used_up_and_documents_remain():
    first, second = found("A", 0.9, tokens=40), found("B", 0.1, tokens=1, path="b.md")
    for count_rendered in (False, True):
        choices = {"count_rendered": count_rendered}
        assert made([first, second], room(40, 0), **choices).truncated is True
        assert made([first, second], room(41, 0), **choices).truncated is False
        assert made([first], room(40, 0), **choices).truncated is False
    empty = made([first, second], 0)
    assert (ids(empty), empty.text, empty.truncated) == ([], "", True)


# --- interleaved and score-weighted ----------------------------------------------------

DOCUMENTS = [
    found(f"{path}{n}", score - n / 10, path=path, tokens=10, sequence=9 - n)
    for path, score in (("a", 0.9), ("b", 0.85), ("c", 0.8))
    for n in range(3)
]


@pytest.mark.requirement("CFS-8.1-1")
def test_interleaved_takes_one_chunk_of_each_document_a_round():
    every = ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]
    assert ids(made(DOCUMENTS, packing="interleaved")) == every
    # 3 markers and 5 chunks, and with 79 one chunk less.
    assert ids(made(DOCUMENTS, 80, packing="interleaved", count_rendered=False)) == every[:5]
    assert ids(made(DOCUMENTS, 79, packing="interleaved", count_rendered=False)) == every[:4]


@pytest.mark.requirement("CFS-8.1-2")
def test_interleaved_ends_after_a_round_without_a_chunk():
    results = [
        found("A1", 0.9, path="a", tokens=40),
        found("B1", 0.8, path="b", tokens=20),
        found("A2", 0.7, path="a", tokens=90),
        found("B2", 0.6, path="b", tokens=90),
        found("A3", 0.5, path="a", tokens=1),
    ]
    context = made(results, 100, packing="interleaved")
    # A3 would fit, but the second round added nothing.
    assert ids(context) == ["A1", "B1"]
    assert context.truncated is True
    assert made(results[:4], 100, packing="interleaved").truncated is False
    assert made(results[:2], room(60, 0), packing="interleaved").truncated is False
    assert made(results[:3], room(60, 0), packing="interleaved").truncated is True


@pytest.mark.requirement("CFS-8.2-1")
def test_score_weighted_goes_by_score_alone():
    context = made(DOCUMENTS, packing="score_weighted")
    assert ids(context) == [result.chunk.id for result in sort_results(DOCUMENTS)]
    assert ids(context)[:4] == ["a0", "b0", "a1", "c0"]
    assert context.overhead_tokens == 30


@pytest.mark.requirement("CFS-8.2-2")
def test_score_weighted_ends_at_the_first_chunk_that_does_not_fit():
    results = [found("A", 0.9, tokens=50), found("B", 0.8, tokens=100), found("C", 0.7, tokens=5)]
    context = made(results, 150, packing="score_weighted")
    assert ids(context) == ["A"]
    assert context.truncated is True
    assert made(results[:2], 150, packing="score_weighted").truncated is False
    cut = made(results, 150, packing="score_weighted", allow_partial=True)
    assert ids(cut) == ["A", "B"]
    assert cut.chunks[1].cut


@pytest.mark.requirement("CFS-Config-2")
def test_there_are_three_packings():
    greedy, interleaved, weighted = (
        ids(made(DOCUMENTS, packing=name)) for name in ("greedy", "interleaved", "score_weighted")
    )
    assert greedy == ["a2", "a1", "a0", "b2", "b1", "b0", "c2", "c1", "c0"]
    assert len({tuple(greedy), tuple(interleaved), tuple(weighted)}) == 3
    assert made(DOCUMENTS).packing == "greedy"
    with pytest.raises(ValidationError, match="score_weighted"):
        AssemblySettings(packing="random")


# --- grouping vector -------------------------------------------------------------------

GROUPING = [
    found("a1", 0.9, path="a.md", text="Chunk 1", sequence=1),
    found("b1", 0.88, path="b.md", text="Chunk 1", sequence=1),
    found("a2", 0.85, path="a.md", text="Chunk 2", sequence=2),
    found("b2", 0.82, path="b.md", text="Chunk 2", sequence=2),
]


@pytest.mark.requirement("CFS-TV-Grouping-1")
def test_the_grouping_vector():
    groups = group_by_document(sort_results(GROUPING), dict.fromkeys(["a1", "a2", "b1", "b2"], 2))
    assert [
        (g.document.path, [r.chunk.id for r in g.chunks], g.max_score) for g in groups
    ] == [("a.md", ["a1", "a2"], 0.9), ("b.md", ["b1", "b2"], 0.88)]  # fmt: skip


@pytest.mark.requirement("CFS-TV-Grouping-2")
def test_the_grouping_vector_as_text():
    # Through the packing alone: the vector's texts are equal, and one of each would be dropped.
    results = sort_results(GROUPING)
    counts = {result.chunk.id: 2 for result in results}
    packing = pack(
        group_by_document(results, counts), results, packing="greedy", available=100, overhead=10,
        counts=counts, tokenizer=SimpleTokenizer(), allow_partial=False,
    )  # fmt: skip
    assert format_context(packing.placed, separator="") == (
        "[DOC: a.md]\nChunk 1\nChunk 2\n[DOC: b.md]\nChunk 1\nChunk 2\n"
    )
    assert format_context(packing.placed).count("\n\n[DOC: b.md]\n") == 1
    assert packing.truncated is False


# --- duplicates ------------------------------------------------------------------------


@pytest.mark.requirement("CFS-10-1", "CFS-10-4")
def test_of_equal_texts_the_better_one_is_kept():
    text = "§ 4 ¶ 2"
    results = [found("low", 0.1, text=text), found("high", 0.9, text=text, path="b.md")]
    context = made(results)
    assert ids(context) == ["high"]
    (drop,) = context.dropped
    assert (drop.fact_id, drop.reason, drop.kept) == ("low", DropReason.DUPLICATE, "high")
    # Texts without a word overlap with nothing, so only equal ones are duplicates.
    assert (
        len(ids(made([found("a", text="!!!"), found("b", text="!!!"), found("c", text="!!")]))) == 2
    )


@pytest.mark.requirement("CFS-10-2", "CFS-Config-3")
def test_an_overlap_of_exactly_four_fifths_is_kept():
    assert AssemblySettings().dedup_threshold == 0.8
    first = found("first", 0.9, text=words(0, 10))
    at = found("at", 0.8, text=words(2, 12))
    above = found("above", 0.7, text=words(1, 10) + " other")
    context = made([first, at, above])
    assert ids(context) == ["first", "at"]
    assert [(drop.fact_id, drop.kept) for drop in context.dropped] == [("above", "first")]
    assert ids(made([first, at, above], dedup_threshold=0.7)) == ["first"]
    assert len(ids(made([first, at, above], dedup_threshold=1.0))) == 3


@pytest.mark.requirement("CFS-10-3")
def test_overlap_is_shared_tokens_by_the_smaller_set():
    large, small = found("a", 0.9, text=words(0, 20)), found("b", text=words(0, 4) + " Word2 other")
    assert len(token_set(small.chunk.text)) == 5
    for pair in ([large, small], [small, large]):
        assert len(deduplicate(pair, 0.8)[0]) == 2
        assert len(deduplicate(pair, 0.79)[0]) == 1


@pytest.mark.requirement("CFS-10-2", "CFS-10-4")
@given(
    st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=9), max_size=14),
    st.sampled_from([0.0, 0.25, 0.5, 0.6, 0.8, 0.9, 1.0]),
)
def test_the_index_finds_what_comparing_every_pair_finds(texts, threshold):
    results = [found(f"{n:02}", text=" ".join(text)) for n, text in enumerate(texts)]
    kept = []
    dropped = {}
    for result in results:
        tokens = token_set(result.chunk.text)
        equal = [k for k in kept if k.chunk.text == result.chunk.text]
        near = [k for k in kept if overlap(tokens, token_set(k.chunk.text)) > threshold]
        if equal or near:
            dropped[result.chunk.id] = (equal or near)[0].chunk.id
        else:
            kept.append(result)
    assert deduplicate(results, threshold) == (
        kept, [(r, dropped[r.chunk.id]) for r in results if r.chunk.id in dropped],
    )  # fmt: skip


# --- what a context tells --------------------------------------------------------------


@pytest.mark.requirement("CFS-7-8", "CFS-7-9", "CFS-11-4", "CFS-11-5")
def test_a_context_tells_what_it_is_made_of():
    context = made([found("x", 0.25, sequence=3, text="One text.")], 300)
    (chunk,) = context.chunks
    assert chunk.model_dump() == {
        "chunk_id": "x", "document_id": "a.md", "document_path": "a.md", "text": "One text.",
        "score": 0.25, "sequence": 3, "tokens": 3, "cut": False, "metadata": None,
    }  # fmt: skip
    assert (context.total_tokens, context.overhead_tokens, context.truncated) == (3, 10, False)
    assert context.rendered_tokens == SimpleTokenizer().count_tokens(context.text)
    assert context.metadata.query_hash == "blake3:" + blake3(QUERY.encode()).hexdigest()
    assert context.metadata.timestamp == NOON
    assert context.text_hash == "blake3:" + blake3(context.text.encode()).hexdigest()
    assert AssembledContext.model_validate_json(context.model_dump_json()) == context


@pytest.mark.requirement("CFS-4-2")
def test_the_simple_tokenizer_is_the_default():
    assert made([found("x", text="12345")]).tokenizer == "simple@1"
    assert made([found("x", text="12345")]).total_tokens == 2


@pytest.mark.requirement("CFS-11-6")
def test_the_time_enters_neither_hash_nor_text():
    results = [found("x", modified_at=NOON), found("y", path="b")]
    for choices in ({}, {"prefer_recent": True, "include_metadata": True}):
        one = made(results, **choices)
        other = made(results, now=NOON + timedelta(days=700), **choices)
        assert (one.text, one.text_hash) == (other.text, other.text_hash)
        assert one.metadata.timestamp != other.metadata.timestamp
        given = one.model_dump(exclude={"metadata"}), other.model_dump(exclude={"metadata"})
        assert given[0] == given[1]


def test_a_score_that_json_cannot_hold_is_none():
    context = made([found("n", math.nan, semantic_score=math.nan)], include_metadata=True)
    assert context.chunks[0].score is None
    assert AssembledContext.model_validate_json(context.model_dump_json()) == context


@pytest.mark.requirement("CFS-Config-1")
def test_the_settings_carry_what_the_configuration_names():
    settings = AssemblySettings()
    assert settings.packing == "greedy"
    assert settings.dedup_threshold == 0.8
    assert settings.max_chunks_per_doc is None
    assert settings.prefer_recent is settings.include_metadata is False


@pytest.mark.requirement("CFS-Config-4")
@pytest.mark.parametrize("packing", ["greedy", "interleaved", "score_weighted"])
def test_at_most_so_many_chunks_of_a_document_are_packed(packing):
    context = made(DOCUMENTS, packing=packing, max_chunks_per_doc=2)
    assert sorted(ids(context)) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert {(drop.fact_id, drop.reason) for drop in context.dropped} == {
        ("a2", DropReason.K), ("b2", DropReason.K), ("c2", DropReason.K),
    }  # fmt: skip
    with pytest.raises(ValidationError, match="max_chunks_per_doc"):
        AssemblySettings(max_chunks_per_doc=0)


@pytest.mark.requirement("CFS-Config-6")
def test_metadata_of_chunks_are_in_the_record_and_not_in_the_text():
    result = found("x", offset=7, semantic_score=0.5, lexical_score=2.5, modified_at=NOON,
                   metadata={"page": "secret-page"})  # fmt: skip
    plain, told = made([result]), made([result], include_metadata=True)
    assert plain.chunks[0].metadata is None
    assert told.chunks[0].metadata.model_dump() == {
        "byte_offset": 7, "modified_at": NOON, "semantic_score": 0.5, "lexical_score": 2.5,
        "about": {"page": "secret-page"},
    }  # fmt: skip
    assert told.text == plain.text
    assert "secret-page" not in told.text


@pytest.mark.parametrize("query", ["", " \n", "\ud800"])
def test_a_query_that_says_nothing_is_refused(query):
    from crp_integrations.envelope.cfs.assembly import assemble

    with pytest.raises(RequestError, match="query is"):
        assemble(query, [], room(9), now=NOON)
    with pytest.raises(RequestError, match="no time zone"):
        assemble("a question", [], room(9), now=NOON.replace(tzinfo=None))


def test_long_paths_do_not_push_the_text_over_the_budget():
    path = "a/very/long/path/" * 20
    results = [found("A", 0.9, tokens=60, path=path), found("B", 0.8, tokens=60, path="b.md")]
    bound, unbound = made(results, 150), made(results, 150, count_rendered=False)
    assert unbound.rendered_tokens > 150
    assert bound.rendered_tokens <= 150
    assert ids(bound) == ["A"]


# --- properties ------------------------------------------------------------------------


@pytest.mark.requirement("CFS-P3-1")
def test_whether_the_best_chunks_stand_in_front_is_measured():
    seen = made(DOCUMENTS, packing="score_weighted").properties
    assert (seen.best_in_front, seen.best_wanted, seen.relevance_ordered) == (3, 3, True)
    # Best are a0, b0, a1; greedily a2, a1, a0, b2, b1 stand in front.
    seen = made(DOCUMENTS).properties
    assert (seen.best_in_front, seen.best_wanted, seen.relevance_ordered) == (2, 3, False)
    # One that did not fit is one that is not in front, and a duplicate is none of the best.
    results = [found("big", 0.9, tokens=90), found("x", 0.8, text="few words"),
               found("y", 0.7, text="Few words")]  # fmt: skip
    seen = made(results, 50).properties
    assert (seen.best_in_front, seen.best_wanted) == (1, 2)
    assert made([]).properties.relevance_ordered is True


@pytest.mark.requirement("CFS-P4-1")
def test_adjacency_is_measured():
    greedy, interleaved = (made(DOCUMENTS, packing=p).properties for p in ("greedy", "interleaved"))
    assert (greedy.adjacency, greedy.coherent) == (1.0, True)
    assert (interleaved.adjacency, interleaved.coherent) == (0.0, False)
    assert adjacency(list("aabbab")) == 2 / 4
    assert adjacency(list("abc")) is None
    assert made([found("x")]).properties.coherent is None


@pytest.mark.requirement("CFS-P5-1")
def test_coverage_is_measured():
    results = [found("x", text=words(0, 45)), found("y", text=words(30, 90))]
    seen = made(results, room(200, 0)).properties
    assert seen.unique_tokens == 90
    assert seen.coverage == 90 / 200
    assert seen.covering is False
    tight = made([found("x", text="a b c d e f g")], room(5, 0), count_rendered=False).properties
    assert (tight.unique_tokens, tight.coverage, tight.covering) == (7, 1.4, True)
    assert tight.filled == 4 / 5
    assert made([], 0).properties.coverage is None


@pytest.mark.requirement("CFS-12-1", "CFS-12-2")
def test_contexts_are_the_same_by_chunk_ids_and_by_text():
    one = made([found("x", text="Same."), found("y", text="Other.", sequence=1)])
    renamed = made([found("x2", text="Same."), found("y", text="Other.", sequence=1)])
    moved = made([found("x", path="b.md", text="Same."),
                  found("y", path="b.md", text="Other.", sequence=1)])  # fmt: skip
    assert same_context(
        one, made([found("x", text="Same."), found("y", text="Other.", sequence=1)])
    )
    assert one.text == renamed.text
    assert not same_context(one, renamed)
    assert ids(one) == ids(moved)
    assert not same_context(one, moved)


# --- laws ------------------------------------------------------------------------------

RESULTS = st.lists(
    st.builds(
        lambda number, score, path, words, sequence: found(
            f"{number}", score, path=path, text=" ".join(words) or "?", sequence=sequence
        ),
        st.integers(0, 10**6),
        st.floats(allow_nan=True, allow_infinity=True),
        st.sampled_from(["a", "b.md", "docs/" * 9 + "c.md", "d\ne"]),
        st.lists(st.text(alphabet="abcé😀 \n", max_size=7), max_size=12),
        st.integers(0, 3),
    ),
    max_size=14,
    unique_by=lambda result: result.chunk.id,
)
CHOICES = st.fixed_dictionaries(
    {
        "packing": st.sampled_from(["greedy", "interleaved", "score_weighted"]),
        "allow_partial": st.booleans(),
        "max_chunks_per_doc": st.none() | st.integers(1, 3),
        "prefer_recent": st.booleans(),
        "separator": st.sampled_from(["", "\n", "\n---\n"]),
        "dedup_threshold": st.sampled_from([0.0, 0.5, 0.8, 1.0]),
        "count_rendered": st.booleans(),
    }
)
BUDGETS = st.builds(room, st.integers(0, 120), st.integers(0, 12))
TOKENIZERS = st.sampled_from([SimpleTokenizer(), LETTERS])


@pytest.mark.requirement("CFS-P2-1", "CFS-7-6", "CFS-7-10")
@given(RESULTS, BUDGETS, TOKENIZERS, CHOICES)
def test_content_and_markers_never_exceed_what_is_available(results, budget, tokenizer, choices):
    context = made(results, budget, tokenizer, **choices)
    assert context.total_tokens + context.overhead_tokens <= budget.available
    assert context.properties.within_budget
    assert context.total_tokens == sum(tokenizer.count_tokens(c.text) for c in context.chunks)
    documents = {chunk.document_id for chunk in context.chunks}
    assert context.overhead_tokens == budget.per_doc_overhead * len(documents)
    assert context.rendered_tokens == tokenizer.count_tokens(context.text)
    if choices["count_rendered"]:
        assert context.rendered_tokens <= budget.available


@given(RESULTS, BUDGETS, TOKENIZERS, CHOICES)
def test_every_chunk_is_packed_or_dropped_once(results, budget, tokenizer, choices):
    context = made(results, budget, tokenizer, **choices)
    texts = {result.chunk.id: result.chunk.text for result in results}
    told = [*ids(context), *(drop.fact_id for drop in context.dropped)]
    assert sorted(told) == sorted(texts)
    for chunk in context.chunks:
        if chunk.cut:
            assert choices["allow_partial"]
            assert context.truncated
            assert chunk.text.removesuffix("...") in texts[chunk.chunk_id]
        else:
            assert chunk.text == texts[chunk.chunk_id]


@pytest.mark.requirement("CFS-P1-1", "CFS-11-3")
@given(RESULTS, BUDGETS, TOKENIZERS, CHOICES, st.randoms())
def test_the_order_of_the_results_decides_nothing(results, budget, tokenizer, choices, chance):
    shuffled = list(results)
    chance.shuffle(shuffled)
    one, other = (made(order, budget, tokenizer, **choices) for order in (results, shuffled))
    assert one.model_dump_json() == other.model_dump_json()
