"""What communities are for: retrieval expansion, the header, diversity."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.engines.leiden import engine_for
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.rank import rank, rank_weights
from crp_integrations.envelope.retrieval import gather
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from crp_integrations.headers import names
from crp_integrations.headers.values import slug
from crp_integrations.scores import to_fixed
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter
from tests.envelope.builders import LITERAL, LetterCounter

TEXT = "The wind farm off the coast feeds power into the grid through one cable"
MILK = "Raw milk of one farmer ripens slowly into cheese in the damp stone cellar"
QUESTION = "wind farm power grid"


def same(text: str, count: int, source: str) -> list[Fact]:
    """Facts of one text: the same vector, so all of them are as near as the first."""
    return [Fact(content=text, source_id=source, source_location=f"{n:03d}") for n in range(count)]


def clustered(*batches: list[Fact]) -> Namespace:
    namespace = Fabric(
        MemoryStore(),
        HashEmbedder(),
        WordCounter(),
        FixedClock(),
        FixedKeyRing(b"k" * 32),
        leiden=engine_for("graspologic"),
    ).bind()
    for batch in batches:
        namespace.add(batch)
    namespace.recluster()
    return namespace


def select(namespace: Namespace, k: int, **fields: Any) -> Candidates:
    settings = LITERAL.model_copy(update={"k_nearest": k, **fields})
    return gather(namespace, QUESTION, counter=LetterCounter(), settings=settings)


@pytest.mark.requirement("009-5.1-1")
@pytest.mark.parametrize(
    ("members", "k", "found"), [(12, 2, 12), (30, 2, 12), (9, 2, 2), (12, 3, 3)]
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


def test_what_is_less_near_than_the_last_hit_stays_out() -> None:
    further = [
        Fact(content=f"{TEXT} and number{n} says a little more", source_id="further")
        for n in range(10)
    ]
    namespace = clustered(same(TEXT, 11, "wind"), further)
    with namespace.begin(write=True) as transaction:
        ids = [fact_id for fact_id, _ in transaction.facts.retrievable()]
        transaction.facts.set_communities(dict.fromkeys(ids, "wind farm"))
    assert {fact.source_id for fact in select(namespace, 2).facts} == {"wind"}


@pytest.mark.requirement("009-5.1-1")
def test_communities_feed_diversity() -> None:
    namespace = clustered(same(TEXT, 4, "wind"), same(MILK, 4, "milk"))
    weighed = rank_weights(LITERAL, GroundingMode.PREFERRED, temporal=False)
    share = to_fixed(LITERAL.diversity_share)
    ranking = rank(select(namespace, 8), weighed, share=share, now=NOON)
    everyone = [*ranking.facts, *(fact for fact, _ in ranking.duplicates)]
    bonus: dict[str, list[int]] = {}
    for ranked in everyone:
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
