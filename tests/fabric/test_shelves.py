"""What was used lately: bounded, of one subject alone, and gone with what is erased."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.search.shelves import EMPTY, Shelves, Use
from crp_integrations.fabric.settings import FabricSettings, ShelfSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter

MINE, YOURS = "crp_sess_0000000000000001", "crp_sess_0000000000000002"
TEXTS = [
    "The wind farm off the coast feeds power into the grid through one long cable.",
    "Raw milk of one farmer ripens slowly into cheese in the damp stone cellar here.",
    "Peanuts and walnuts are not served in any canteen of the company since last May.",
]


def use(name: str, source: str = "s", community: str | None = None) -> Use:
    return Use(name, source, community)


def shelves(**most: int) -> Shelves:
    return Shelves(ShelfSettings(**most))


def test_a_shelf_has_what_its_session_and_its_subject_used() -> None:
    kept = shelves()
    kept.note("t", "ann", MINE, [use("a", "s1", "wind"), use("b", "s2")])
    kept.note("t", "ann", YOURS, [use("c", "s3", "milk")])
    mine = kept.shelf("t", "ann", MINE)
    assert mine.facts == {"a", "b"}
    assert mine.communities == {"wind", "milk"}
    # The source of a fact within a community is no subgraph of its own.
    assert mine.sources == {"s2"}
    assert kept.shelf("t", "ann", "").facts == frozenset()


def test_nothing_crosses_tenants_or_subjects() -> None:
    kept = shelves()
    kept.note("t", "ann", MINE, [use("a", "s", "wind")])
    for tenant, subject in (("t", "bob"), ("u", "ann"), ("u", "bob")):
        assert kept.shelf(tenant, subject, MINE) == EMPTY


def test_what_was_used_longest_ago_gives_way() -> None:
    kept = shelves(facts_per_session=2, subgraphs=2, sessions=2, subjects=2)
    kept.note("t", "ann", MINE, [use("a", "s1"), use("b", "s2"), use("a", "s1"), use("c", "s3")])
    assert kept.shelf("t", "ann", MINE).facts == {"a", "c"}
    assert kept.shelf("t", "ann", MINE).sources == {"s1", "s3"}
    kept.note("t", "ann", YOURS, [use("d")])
    kept.note("t", "ann", MINE, [use("c")])
    kept.note("t", "ann", "third", [use("e")])
    assert kept.shelf("t", "ann", YOURS).facts == frozenset()
    assert kept.shelf("t", "ann", MINE).facts == {"a", "c"}
    kept.note("t", "bob", MINE, [use("f")])
    kept.note("t", "cat", MINE, [use("g")])
    assert kept.shelf("t", "ann", "").sources == frozenset()


@given(
    uses=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([None, "w", "m", "x"]))),
        max_size=20,
    ),
    most=st.integers(1, 4),
)
def test_no_shelf_outgrows_its_bound(uses: list[list[tuple[str, str | None]]], most: int) -> None:
    kept = shelves(facts_per_session=most, subgraphs=most)
    for window in uses:
        kept.note("t", "ann", MINE, [use(name, "s", community) for name, community in window])
        shelf = kept.shelf("t", "ann", MINE)
        assert len(shelf.facts) <= most
        assert len(shelf.communities) + len(shelf.sources) <= most
        # The latest use is always there.
        assert not window or window[-1][0] in shelf.facts


def test_a_session_that_ends_leaves_its_subjects_subgraphs() -> None:
    kept = shelves()
    kept.note("t", "ann", MINE, [use("a")])
    kept.end("t", "ann", MINE)
    kept.end("t", "ann", "unknown")
    assert kept.shelf("t", "ann", MINE).facts == frozenset()
    assert kept.shelf("t", "ann", MINE).sources == {"s"}


def test_many_threads_lose_nothing() -> None:
    kept = shelves(facts_per_session=10_000)

    def work(number: int) -> None:
        for step in range(200):
            kept.note("t", "ann", MINE, [use(f"{number}/{step}")])
            kept.shelf("t", "ann", MINE)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept.shelf("t", "ann", MINE).facts) == 800


def bound(fabric: Fabric, tenant: str = "local", name: str = "local") -> Namespace:
    return fabric.bind(Subject(tenant=tenant, name=name))


def fabric(**parts: Any) -> Fabric:
    return Fabric(
        MemoryStore(), HashEmbedder(), WordCounter(), FixedClock(), FixedKeyRing(b"k" * 32), **parts
    )


def test_an_erasure_clears_the_tenants_shelves_alone() -> None:
    made = fabric()
    acme, other = bound(made, "acme"), bound(made, "other")
    acme.add(TEXTS)
    for namespace in (acme, other):
        namespace.shelve(MINE, [use("a", "user", "wind farm")])
    acme.erase("user")
    assert acme.view(MINE).shelf == EMPTY
    assert other.view(MINE).shelf.communities == {"wind farm"}


def test_an_erasure_from_a_shared_namespace_clears_everybodys() -> None:
    made = fabric(settings=FabricSettings(shared=("law",)))
    law = made.bind_shared("law")
    law.add(TEXTS)
    acme = bound(made, "acme")
    acme.shelve(MINE, [use("a", "user", "wind farm")])
    law.erase("user")
    assert acme.view(MINE).shelf == EMPTY


def relay(**options: Any) -> Relay:
    opened = Relay.open(
        MemoryStore(), embedder=HashEmbedder(), key="ab" * 32, clock=NOON, **options
    )
    opened.add(TEXTS)
    return opened


def test_a_released_window_fills_the_shelves_and_nothing_else_does() -> None:
    opened = relay()
    before = opened.fabric.state_hash()
    assert opened.preview("wind farm power", session_id=MINE).facts_included > 0
    assert opened.fabric.view(MINE).shelf == EMPTY
    opened.ask("wind farm power", session_id=MINE, cache="no-store")
    assert opened.fabric.view(MINE).shelf == EMPTY
    answer = opened.ask("wind farm power", session_id=MINE)
    shelf = opened.fabric.view(MINE).shelf
    assert shelf.facts == {fact.fact_id for fact in answer.envelope.facts}
    assert shelf.sources == {"user"}
    assert opened.fabric.state_hash() == before
    assert opened.fabric.view(YOURS).shelf.facts == frozenset()
    opened.end_session(MINE)
    assert opened.fabric.view(MINE).shelf.facts == frozenset()


def test_a_view_keeps_the_shelf_that_it_was_made_with() -> None:
    opened = relay()
    view = opened.fabric.view(MINE)
    opened.ask("wind farm power", session_id=MINE)
    assert view.shelf == EMPTY
    with pytest.raises(AttributeError):
        view.shelf.facts = frozenset()  # type: ignore[misc]
