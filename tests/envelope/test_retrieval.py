"""Phase 1: candidates from a fabric and from a caller's own facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from crp_integrations.envelope.caller_candidates import recount_tokens
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.near_duplicates import split_near_duplicates
from crp_integrations.envelope.retrieval import gather, recount_stored, token_count_key
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import LOCAL
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import FloatRows, cosine, unit_rows
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, HashEmbedder, WordCounter
from tests.envelope.builders import (
    LITERAL,
    SETTINGS,
    LetterCounter,
    build_candidates,
    made,
    near_pairs,
    open_fabric,
)

TEXTS = [
    f"the {n}th note speaks of subject number {n} and of nothing else at all" for n in range(80)
]


class Watching(HashEmbedder):
    """Remembers the questions it was asked to embed."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_query(self, text: str) -> FloatRows:
        self.asked.append(text)
        return super().embed_query(text)


def bound(texts: Sequence[str | Fact] = TEXTS, embedder: HashEmbedder | None = None) -> Namespace:
    namespace = open_fabric(embedder).bind(LOCAL)
    if texts:
        namespace.add(list(texts))
    return namespace


def select(namespace: Namespace, query: str = "subject number 7", **fields: object) -> Candidates:
    fields.setdefault("settings", SETTINGS)
    return gather(namespace, query, counter=LetterCounter(), **fields)  # type: ignore[arg-type]


@pytest.mark.requirement("003-5.2-3", "003-5.2-4", "003-5.2-5", "003-5.2-12")
def test_each_sub_query_brings_its_own_neighbours() -> None:
    embedder = Watching()
    namespace = bound(embedder=embedder)
    assert SETTINGS.k_nearest == LITERAL.k_nearest == 50
    found = select(namespace, settings=LITERAL)
    assert len(found.facts) == 50
    few = LITERAL.model_copy(update={"k_nearest": 2})
    embedder.asked.clear()
    both = select(namespace, sub_queries=("note 3 subject", "note 60 subject"), settings=few)
    assert set(embedder.asked) == {"note 3 subject", "note 60 subject"}
    expected = {
        hit.fact_id
        for need in ("note 3 subject", "note 60 subject")
        for hit in namespace.nearest(embedder.embed_query(need), 2)
    }
    ids = [fact.fact_id for fact in both.facts]
    assert ids == sorted(expected)
    assert len(set(ids)) == len(ids)


@pytest.mark.requirement("003-5.1-1")
def test_select_reads_more_than_fits() -> None:
    found = select(bound())
    envelope = made(found, budget_tokens=200)
    assert envelope.total_facts_available > envelope.total_facts_included > 0
    assert sum(fact.tokens for fact in found.facts) > 200


@pytest.mark.requirement("003-6.3-1")
def test_relevance_is_the_cosine_to_the_question() -> None:
    namespace = bound()
    found = select(namespace, settings=LITERAL)
    hits = namespace.nearest(HashEmbedder().embed_query("subject number 7"), 50)
    assert {fact.fact_id: fact.relevance for fact in found.facts} == {
        hit.fact_id: to_fixed(hit.score) for hit in hits
    }
    assert all(0 <= fact.relevance <= SCALE for fact in found.facts)


@pytest.mark.requirement("003-6.3-2")
def test_relevance_is_the_best_over_the_sub_queries() -> None:
    needs = ("note 3 subject", "nothing else at all")
    found = select(bound(), sub_queries=needs)
    rows = HashEmbedder().embed_passages([fact.content for fact in found.facts])
    best = np.max([cosine(rows, HashEmbedder().embed_query(need)) for need in needs], axis=0)
    assert [fact.relevance for fact in found.facts] == [to_fixed(float(score)) for score in best]


def test_lexical_hits_join_and_are_scored_by_their_vectors() -> None:
    texts = [*TEXTS, "zyzzyva " + " ".join(f"filler{n}" for n in range(60))]
    narrow = SETTINGS.model_copy(update={"k_nearest": 1, "k_lexical": 3})
    query = "subject number 7 zyzzyva"
    contents = {fact.content: fact for fact in select(bound(texts), query, settings=narrow).facts}
    assert texts[-1] in contents
    rows = HashEmbedder().embed_passages([texts[-1]])
    expected = to_fixed(float(cosine(rows, HashEmbedder().embed_query(query))[0]))
    assert contents[texts[-1]].relevance == expected
    vectors_alone = narrow.model_copy(update={"k_lexical": 0})
    assert len(select(bound(texts), query, settings=vectors_alone).facts) == 1


def test_tokens_are_stored_under_counter_and_rendering() -> None:
    namespace = bound(TEXTS[:3])
    found = select(namespace)
    assert [fact.tokens for fact in found.facts] == [len(fact.content) + 7 for fact in found.facts]

    def never(texts: list[str]) -> list[int]:
        raise AssertionError(f"{len(texts)} texts are counted again")

    ids = [fact.fact_id for fact in found.facts]
    counts = namespace.token_counts(token_count_key(LetterCounter()), ids, never)
    assert list(counts.values()) == [fact.tokens for fact in found.facts]
    assert token_count_key(LetterCounter()) == "letters@1|render@1"


def test_candidates_carry_state_status_and_time() -> None:
    namespace = bound(TEXTS[:3])
    stale = namespace.facts(
        [hit.fact_id for hit in namespace.nearest(HashEmbedder().embed_query("0"), 1)]
    )
    with namespace.begin(True) as transaction:
        transaction.facts.set_status([stale[0].fact_id], FactStatus.STALE, NOON)
    found = select(namespace)
    assert found.state_hash == namespace.state_hash()
    assert found.memory_tier_hit == 3
    assert {fact.fact_id for fact in found.facts if fact.stale} == {stale[0].fact_id}
    assert {fact.ingested_at for fact in found.facts} == {NOON}


def withdraw(namespace: Namespace, fact_id: str) -> None:
    with namespace.begin(True) as transaction:
        transaction.facts.set_status([fact_id], FactStatus.QUARANTINED, NOON)


class Between:
    """A view that does something right after the vectors were read for the first time."""

    def __init__(self, view: FabricView, then: Callable[[], None]) -> None:
        self._view = view
        self._then: Callable[[], None] | None = then

    def __getattr__(self, name: str) -> object:
        return getattr(self._view, name)

    @contextmanager
    def moment(self) -> Iterator[Between]:
        with self._view.moment() as view:
            self._view = view
            yield self

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        rows = self._view.vectors(ids)
        then, self._then = self._then, None
        if then is not None:
            then()
        return rows


@pytest.mark.parametrize("counted", [False, True])
def test_what_is_written_while_candidates_are_read_is_seen_by_the_next_question(
    counted: bool,
) -> None:
    namespace = bound(TEXTS[:5])
    before = select(namespace) if counted else None
    first = min(namespace.find(Where()))
    state = namespace.state_hash()
    found = select(Between(namespace, lambda: withdraw(namespace, first)))  # type: ignore[arg-type]
    # One committed state throughout, and it says which.
    assert found.state_hash == state != namespace.state_hash()
    assert len(found.facts) == 5
    assert before in (None, found)
    assert {fact.fact_id for fact in select(namespace).facts} == {
        fact.fact_id for fact in found.facts
    } - {first}
    # What was counted of the earlier state is not stored for the later one.
    key = token_count_key(LetterCounter())
    with namespace.begin(False) as transaction:
        stored = transaction.facts.token_counts(key, [first])
    assert (first in stored) is counted


def test_facts_that_come_to_an_empty_fabric_are_embedded_for() -> None:
    namespace = bound([])
    assert not namespace.seen_facts()
    namespace.add(list(TEXTS[:3]))
    assert len(select(namespace).facts) == 3


def test_counting_again_leaves_out_what_was_withdrawn_meanwhile() -> None:
    note = "the same long note about one subject and its many units in all"
    twins = [note, f"{note} again", f"{note} once"]
    namespace = bound([*TEXTS[:3], *twins])
    settings = SETTINGS.model_copy(update={"duplicate_similarity": 0.9})
    found = select(namespace, settings=settings)
    assert found.duplicates
    first = found.duplicates[0][0]
    others = [fact for place, fact in enumerate(found.facts) if place != first]
    withdraw(namespace, found.facts[first].fact_id)
    again = recount_stored(found, namespace, WordCounter())
    assert [fact.fact_id for fact in again.facts] == [fact.fact_id for fact in others]
    assert again.tokenizer == "words@1"
    pairs = {
        frozenset((again.facts[i].fact_id, again.facts[j].fact_id)) for i, j in again.duplicates
    }
    wanted = {
        frozenset((found.facts[i].fact_id, found.facts[j].fact_id)) for i, j in found.duplicates
    }
    assert pairs == {pair for pair in wanted if found.facts[first].fact_id not in pair} != set()


# --- near-duplicates -----------------------------------------------------------------------


def pair(similarity: float) -> FloatRows:
    return unit_rows([[1.0, 0.0], [similarity, float(np.sqrt(1 - similarity**2))]])


@pytest.mark.requirement("003-6.6-1")
def test_exactly_the_threshold_is_no_duplicate() -> None:
    assert near_pairs(pair(0.95), 0.95) == ()
    assert near_pairs(pair(0.9499), 0.95) == ()
    assert near_pairs(pair(0.9501), 0.95) == ((0, 1),)


def test_pairs_are_found_across_blocks_and_equal_the_plain_definition() -> None:
    generator = np.random.default_rng(7)
    rows = generator.normal(size=(1100, 8)).astype(np.float32)
    rows[1050] = rows[3] + 0.01
    rows[600] = rows[520]
    block = unit_rows(rows)
    exact = block.astype(np.float64) @ block.astype(np.float64).T
    expected = [
        (int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(exact > 0.99, 1)), strict=True)
    ]
    assert (3, 1050) in expected
    assert list(near_pairs(block, 0.99)) == expected


class SameDirection(HashEmbedder):
    """Every text has the same vector."""

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        return unit_rows(np.ones((len(texts), self.dimensions)))


@pytest.mark.requirement("003-6.6-3")
def test_near_duplicates_that_say_different_things_are_conflicts() -> None:
    texts = [
        "The limit is 20 days for every member of the staff.",
        "The limit is 30 days for every member of the staff.",
        "The limit is not 20 days for every member of the staff.",
        "For every member of the staff the limit is 20 days.",
    ]
    rows = unit_rows(np.ones((4, 2)))
    duplicates, conflicts = split_near_duplicates(texts, rows, 0.95)
    assert duplicates == ((0, 3),)
    assert set(conflicts) == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)}
    found = build_candidates(
        "limit",
        texts[:2],
        embedder=SameDirection(),
        counter=LetterCounter(),
        settings=SETTINGS,
    )
    envelope = made(found)
    assert envelope.total_facts_included == 2
    assert [{c.left, c.right} for c in envelope.conflicts] == [{f.fact_id for f in envelope.facts}]
    # A conflict is reported only while both sides are shown.
    assert made(found, k=1).conflicts == ()


# --- facts of the caller -------------------------------------------------------------------


def offer(facts: Sequence[str | Fact], query: str = "tier of quality", **fields: Any) -> Candidates:
    return build_candidates(
        query,
        facts,
        embedder=HashEmbedder(),
        counter=LetterCounter(),
        settings=SETTINGS,
        **fields,
    )


@pytest.mark.requirement("003-3-6")
def test_strings_become_facts_once_each() -> None:
    found = offer(["the tier", "cats sleep", "the tier"])
    assert len(found.facts) == 2
    assert [fact.fact_id for fact in found.facts] == sorted(
        Fact(content=text).fact_id for text in ("the tier", "cats sleep")
    )
    assert made(found).total_facts_available == 2
    # What is at hand is of tier 0, and no hit of the fabric.
    assert found.memory_tier_hit == 0
    assert found.tier_hits == made(found).tier_hits == (2, 0, 0, 0)


def test_copies_of_a_fact_keep_the_best_whatever_their_order() -> None:
    low = Fact(content="the tier", importance_weight=0.2)
    high = Fact(content="the tier", importance_weight=0.8)
    assert offer([low, high]) == offer([high, low])
    assert offer([low, high]).facts[0].importance == 800_000


@pytest.mark.parametrize("status", [FactStatus.DELETED, FactStatus.QUARANTINED])
def test_facts_that_may_not_be_retrieved_are_no_candidates(status: FactStatus) -> None:
    shut_out, fine = Fact(content="the tier", status=status), Fact(content="the quality")
    found = offer([shut_out, fine, "the tier"])
    assert [fact.content for fact in found.facts] == ["the quality"]
    stale = offer([Fact(content="the tier", status=FactStatus.STALE)])
    assert [fact.stale for fact in stale.facts] == [True]


def test_an_id_for_two_texts_is_refused_without_showing_them() -> None:
    left, right = Fact(content="secret one", fact_id="x"), Fact(content="secret two", fact_id="x")
    with pytest.raises(RequestError, match="fact id x is used for two texts") as caught:
        offer([left, right])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "secret \ud800"])
def test_texts_that_cannot_be_facts_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(FactRejected, match="fact 2") as caught:
        offer(["fine", text])
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.requirement("003-2-1")
def test_a_fact_exposes_what_ranking_needs() -> None:
    ingested = NOON - timedelta(days=3)
    fact = Fact(content=TEXTS[4], source_id="s", importance_weight=0.7, ingested_at=ingested)
    (packed,) = made(offer([fact], TEXTS[4])).facts
    assert (packed.content, packed.source_id) == (TEXTS[4], "s")
    assert packed.importance_weight == 0.7
    assert packed.ingested_at == ingested
    assert packed.relevance_score == 1.0
    namespace = bound([fact])
    assert namespace.vectors([fact.fact_id]).shape == (1, HashEmbedder.dimensions)


def test_the_embedders_card_names_the_floor() -> None:
    class Calibrated(HashEmbedder):
        thresholds = {"relevance_floor": 0.31}

    def floor(embedder: HashEmbedder, **fields: object) -> int | None:
        return build_candidates(
            "q",
            ["a"],
            embedder=embedder,
            counter=LetterCounter(),
            settings=SETTINGS,
            **fields,  # type: ignore[arg-type]
        ).relevant_floor

    assert floor(Calibrated()) == 310_000
    assert floor(HashEmbedder()) is None


def test_counting_again_for_another_model() -> None:
    found = offer(["one two three", "four"])
    again = recount_tokens(found, WordCounter())
    assert again.tokenizer == "words@1"
    assert {fact.content: fact.tokens for fact in again.facts} == {
        "one two three": WordCounter().count("[10] one two three\n\n"),
        "four": WordCounter().count("[10] four\n\n"),
    }
    assert recount_tokens(again, LetterCounter()) == found
