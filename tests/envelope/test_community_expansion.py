"""What communities do for a selection: expansion, the header, diversity."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.engines.graphs import engine_for
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.rank import rank, rank_weights
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from crp_integrations.headers import names
from crp_integrations.headers.grammar import slug
from crp_integrations.scores import to_fixed
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import LITERAL, LetterCounter, made, open_fabric

TEXT = "The wind farm off the coast feeds power into the grid through one cable"
MILK = "Raw milk of one farmer ripens slowly into cheese in the damp stone cellar"
QUESTION = "wind farm power grid"


def same(text: str, count: int, source: str) -> list[Fact]:
    """Facts of one text: the same vector, so all of them are as near as the first."""
    return [Fact(content=text, source_id=source, source_location=f"{n:03d}") for n in range(count)]


def clustered(*batches: list[Fact]) -> Namespace:
    namespace = open_fabric(leiden=engine_for("graspologic")).bind()
    for batch in batches:
        namespace.add(batch)
    namespace.recluster()
    return namespace


def select(namespace: Namespace, k: int, **fields: Any) -> Candidates:
    settings = LITERAL.model_copy(update={"k_nearest": k, **fields})
    return gather(namespace, QUESTION, counter=LetterCounter(), settings=settings)


# Of a community fewer than three came, and ten or more are as near as the last hit.
@pytest.mark.requirement("009-5.1-1", "003-5.2-6", "003-5.2-8")
@pytest.mark.parametrize(
    ("members", "k", "found"),
    [(12, 2, 12), (12, 1, 11), (30, 2, 12), (9, 2, 2), (10, 2, 10), (12, 3, 3), (30, 3, 3)],
)
def test_a_community_of_which_little_was_found_is_expanded(
    members: int, k: int, found: int
) -> None:
    namespace = clustered(same(TEXT, members, "wind"), same(MILK, 12, "milk"))
    assert sorted(c.size for c in namespace.communities()) == sorted((members, 12))
    candidates = select(namespace, k)
    assert len(candidates.facts) == found
    assert {fact.source_id for fact in candidates.facts} == {"wind"}


def test_the_numbers_of_the_expansion_are_settings_and_loners_bring_nothing() -> None:
    namespace = clustered(same(TEXT, 12, "wind"))
    assert len(select(namespace, 2).facts) == 12
    assert len(select(namespace, 2, expansion_most=4).facts) == 6
    assert len(select(namespace, 2, expansion_reach=13).facts) == 2
    with namespace.begin(write=True) as transaction:
        ids = [fact_id for fact_id, _ in transaction.facts.retrievable()]
        transaction.facts.set_communities(dict.fromkeys(ids))
    assert len(select(namespace, 2).facts) == 2


@pytest.mark.requirement("009-5.1-1")
def test_communities_feed_diversity() -> None:
    namespace = clustered(same(TEXT, 4, "wind"), same(MILK, 4, "milk"))
    weighed = rank_weights(LITERAL, GroundingMode.PREFERRED, temporal=False)
    share = to_fixed(LITERAL.diversity_share)
    ranking = rank(select(namespace, 8), weighed, share=share, now=NOON)
    bonus: dict[str, list[int]] = {}
    for ranked in ranking.every:
        assert ranked.candidate.community is not None
        bonus.setdefault(ranked.candidate.community, []).append(ranked.diversity)
    assert len(bonus) == 2
    for listed in bonus.values():
        # The first of four, the second, and then more than two fifths are shown.
        assert sorted(listed, reverse=True) == [1_000_000, 750_000, 0, 0]


@pytest.mark.requirement("009-5.1-1")
def test_communities_feed_the_header() -> None:
    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key="ab" * 32, clock=NOON)
    relay.fabric.add([f"{TEXT} number {n}" for n in range(6)])
    assert names.CKF_COMMUNITY not in relay.ask("wind farm power?").headers
    relay.fabric.recluster()
    (community,) = relay.fabric.communities()
    assert relay.ask("wind farm power?").headers[names.CKF_COMMUNITY] == slug(community.label)


def labelled(labels: dict[str, str | None], *batches: list[Fact]) -> Namespace:
    """Facts whose communities are set by their source."""
    namespace = clustered(*batches)
    everything = [fact.fact_id for batch in batches for fact in batch]
    with namespace.begin(write=True) as transaction:
        stored = {fact.fact_id: fact for fact in transaction.facts.get(everything)}
        transaction.facts.set_communities(
            {id_: labels.get(fact.source_id) for id_, fact in stored.items()}
        )
    return namespace


def graded(count: int, source: str, text: str = TEXT) -> list[Fact]:
    """Each a little further from the question than the one before."""
    return [
        Fact(
            content=f"{text} {' '.join(f'word{source}{n}x{i}' for i in range(n))}", source_id=source
        )
        for n in range(1, count + 1)
    ]


def sources(found: Candidates) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fact in found.facts:
        counts[fact.source_id] = counts.get(fact.source_id, 0) + 1
    return dict(sorted(counts.items()))


@pytest.mark.requirement("003-5.2-7")
def test_only_what_is_as_near_as_the_last_hit_is_within_reach() -> None:
    # Ten more of the community lie a little further than the second hit: out of reach.
    near, further = same(TEXT, 3, "near"), graded(10, "further")
    namespace = labelled({"near": "wind", "further": "wind"}, near, further)
    assert sources(select(namespace, 2)) == {"near": 2}
    # With eight more at the distance of the last hit there are ten and more in reach.
    namespace = labelled({"near": "wind", "further": "wind"}, same(TEXT, 11, "near"), further)
    assert sources(select(namespace, 2)) == {"near": 11}


@pytest.mark.requirement("003-5.2-6", "003-5.2-7")
def test_an_island_brings_what_is_a_little_further_and_nothing_that_is_far() -> None:
    # Two of a community are hits; its other facts are each a little further than the last of them.
    near, further = same(TEXT, 2, "near"), graded(40, "further")
    labels: dict[str, str | None] = {"near": "wind", "further": "wind", "milk": "milk"}
    namespace = labelled(labels, near, further, same(MILK, 12, "milk"))
    nearest = {fact.fact_id for fact in select(namespace, 12, expansion_below=0).facts}
    found = {fact.fact_id for fact in select(namespace, 2, expansion_distance=0.7).facts}
    assert found == nearest
    # Fewer than ten of the community are within reach, or three were found: it is no island.
    assert len(select(namespace, 2, expansion_distance=0.98).facts) == 2
    assert len(select(namespace, 3, expansion_distance=0.7).facts) == 3


def test_the_letter_reads_as_near_as_the_last_hit() -> None:
    assert LITERAL.expansion_distance == 1.0
    assert 0.0 < EnvelopeSettings().expansion_distance < 1.0


@pytest.mark.requirement("003-5.2-7")
def test_expansion_goes_nearest_first_and_at_most_ten_a_community() -> None:
    namespace = labelled({"wind": "wind"}, same(TEXT, 40, "wind"))
    found = select(namespace, 2)
    ids = sorted(fact.fact_id for fact in same(TEXT, 40, "wind"))
    # Equally near ones go by id: the two hits, and the ten that follow them.
    assert [fact.fact_id for fact in found.facts] == ids[:12]


@pytest.mark.requirement("003-5.2-7")
def test_ten_a_community_and_not_ten_altogether() -> None:
    both = labelled({"a": "one", "b": "two"}, same(TEXT, 20, "a"), same(TEXT, 20, "b"))
    # Three hits, of which one or two are of either community, and none has three.
    found = sources(select(both, 3))
    hits = sorted(fact.fact_id for source in "ab" for fact in same(TEXT, 20, source))[:3]
    of_a = sum(id_ in {f.fact_id for f in same(TEXT, 20, "a")} for id_ in hits)
    assert found == {
        source: count + (10 if 0 < count < 3 else 0)
        for source, count in (("a", of_a), ("b", 3 - of_a))
        if count
    }


@pytest.mark.requirement("003-3-9")
def test_every_community_that_was_accessed_is_listed_once() -> None:
    parts = [
        same(TEXT, 3, "wind"),
        graded(3, "cable", "The power grid of the wind farm has one cable"),
        same(MILK, 3, "milk"),
        [
            Fact(
                content="A farm of wind and power that belongs to no community at all",
                source_id="loose",
            )
        ],
    ]
    labels = {"wind": "wind farms", "cable": "cables", "milk": "cheese"}
    namespace = labelled(labels, *parts)
    found = select(namespace, 7)
    accessed = {fact.community for fact in found.facts} - {None}
    assert accessed == {"wind farms", "cables"}
    for budget in (10_000, 120, 0):
        envelope = made(found, budget_tokens=budget, settings=LITERAL)
        assert sorted(envelope.ckf_communities) == sorted(accessed), budget
    # The cheese comes in with more hits, and a fact without a community adds nothing.
    everything = made(select(namespace, 50), budget_tokens=120, settings=LITERAL)
    assert sorted(everything.ckf_communities) == sorted(labels.values())
    assert len(everything.facts) < everything.total_facts_available
