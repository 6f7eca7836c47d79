"""Step 1.3, community expansion through `gather`, and the communities that are reported."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.retrieval import gather
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from tests.envelope.builders import LITERAL, LetterCounter, made
from tests.envelope.test_communities import MILK, QUESTION, TEXT, clustered, same


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


def select(namespace: Namespace, k: int, question: str = QUESTION, **fields: Any) -> Candidates:
    settings = LITERAL.model_copy(update={"k_nearest": k, **fields})
    return gather(namespace, question, counter=LetterCounter(), settings=settings)


def sources(found: Candidates) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fact in found.facts:
        counts[fact.source_id] = counts.get(fact.source_id, 0) + 1
    return dict(sorted(counts.items()))


@pytest.mark.requirement("003-5.2-6")
@pytest.mark.parametrize("retrieved", [1, 2])
def test_a_community_of_which_fewer_than_three_came_is_expanded(retrieved: int) -> None:
    namespace = labelled(
        {"wind": "wind", "milk": "milk"}, same(TEXT, 10, "wind"), same(MILK, 9, "milk")
    )
    # All ten are as near as the last hit, so all of them come.
    assert sources(select(namespace, retrieved)) == {"wind": 10}


@pytest.mark.requirement("003-5.2-7")
def test_only_what_is_as_near_as_the_last_hit_is_within_reach() -> None:
    # Ten more of the community lie a little further than the second hit: out of reach.
    near, further = same(TEXT, 3, "near"), graded(10, "further")
    namespace = labelled({"near": "wind", "further": "wind"}, near, further)
    assert sources(select(namespace, 2)) == {"near": 2}
    # With eight more at the distance of the last hit there are ten and more in reach.
    namespace = labelled({"near": "wind", "further": "wind"}, same(TEXT, 11, "near"), further)
    assert sources(select(namespace, 2)) == {"near": 11}


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


@pytest.mark.requirement("003-5.2-8")
def test_three_retrieved_members_are_enough() -> None:
    namespace = labelled({"wind": "wind"}, same(TEXT, 30, "wind"))
    assert sources(select(namespace, 3)) == {"wind": 3}
    assert sources(select(namespace, 2)) == {"wind": 12}


@pytest.mark.requirement("003-5.2-8")
def test_nine_members_in_reach_are_too_few() -> None:
    for members, found in ((9, 2), (10, 10)):
        namespace = labelled({"wind": "wind"}, same(TEXT, members, "wind"))
        assert sources(select(namespace, 2)) == {"wind": found}


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
