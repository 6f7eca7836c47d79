"""Facts that a session holds in memory: for its own questions, and gone when it ends.

What was used lately: bounded, of one subject alone, and gone with what is erased.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.errors import (
    AccessDenied,
    FactRejected,
    LimitReached,
    RequestError,
    StoreError,
)
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.session_memory import EMPTY, FactUse, RecentUses
from crp_integrations.fabric.settings import (
    FabricSettings,
    HotSettings,
    LifecycleSettings,
    ShelfSettings,
)
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter, erase_all

ACME = Subject(tenant="acme")
MINE, YOURS = "crp_sess_0000000000000001", "crp_sess_0000000000000002"
SECRET = "Ada told us in confidence that her allergy is to peanuts and to walnuts."
MORE = "Ada also told us that her brother lives at the harbour with two dogs."
KNOWN = "Peanuts and walnuts are not served in any canteen of the company since May."


class CountingEmbedder(HashEmbedder):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.seen += texts
        return super().embed_passages(texts)


@pytest.fixture(params=("memory", "sqlite"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


def fabric(store: Store | None = None, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": FixedKeyRing(b"k" * 32),
    }
    return Fabric(store or MemoryStore(), **{**chosen, **parts})


def found(view: FabricView, query: str, k: int = 50) -> list[str]:
    return [hit.fact_id for hit in view.nearest(view.embedder.embed_query(query), k)]


def counting(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.requirement("009-7.2-1", "003-16.1-1")
def test_a_session_alone_finds_what_it_holds(store: Store) -> None:
    made = fabric(store)
    acme = made.bind(ACME)
    (known,) = acme.add([KNOWN]).facts
    (secret,) = acme.hold(MINE, [SECRET]).facts
    mine = acme.view(MINE)
    assert found(mine, SECRET) == [secret, known]
    assert {hit.fact_id for hit in mine.search_text("allergy peanuts", 9)} == {secret, known}
    assert [fact.content for fact in mine.facts([known, secret])] == [KNOWN, SECRET]
    assert [fact.namespace for fact in mine.facts([secret])] == ["acme"]
    expected = acme.embedder.embed_passages([SECRET, KNOWN])
    assert np.array_equal(mine.vectors([secret, known]), expected)
    assert mine.token_counts("chars", [secret], counting) == {secret: len(SECRET)}
    assert mine.size() == 2

    strangers = (
        acme,
        acme.view(YOURS),
        acme.view(),
        made.bind(Subject(tenant="other")).view(MINE),
        fabric(store).bind(ACME).view(MINE),
    )
    for other in strangers:
        assert secret not in found(other, SECRET)
        assert secret not in {hit.fact_id for hit in other.search_text("allergy peanuts", 9)}
        assert other.facts([secret]) == []
        assert other.token_counts("chars", [secret], counting) == {}
        assert secret not in other.find(Where())
        with pytest.raises(StoreError):
            other.vectors([secret])


@pytest.mark.requirement("009-7.2-2")
def test_the_end_of_a_session_purges_what_it_holds(store: Store) -> None:
    acme = fabric(store).bind(ACME)
    acme.hold(MINE, [SECRET, MORE])
    acme.hold(YOURS, [MORE])
    assert acme.end_session(MINE) == 2
    assert acme.view(MINE).size() == 0
    assert acme.view(YOURS).size() == 1
    assert acme.end_session(MINE) == 0


@pytest.mark.requirement("009-7.2-2")
def test_an_idle_session_is_purged_and_one_in_use_is_not() -> None:
    clock = FixedClock()
    hours = LifecycleSettings(session_idle_hours=2.0)
    made = fabric(clock=clock, settings=FabricSettings(lifecycle=hours))
    acme = made.bind(ACME)
    acme.hold(MINE, [SECRET])
    acme.hold(YOURS, [SECRET])
    clock.moment = NOON + timedelta(hours=1)
    assert acme.view(YOURS).size() == 1
    assert made.session_memory.purge_idle(NOON + timedelta(hours=2)) == 1
    clock.moment = NOON + timedelta(hours=2, minutes=59)
    assert (acme.view(MINE).size(), acme.view(YOURS).size()) == (0, 1)
    # Without anybody calling purge_idle, a session that was away for too long is gone too.
    clock.moment = NOON + timedelta(hours=5)
    assert acme.view(YOURS).size() == 0
    assert made.session_memory.purge_idle(clock.moment) == 0


@pytest.mark.requirement("009-7.2-3")
def test_holding_and_reading_leave_the_namespace_as_it_was(store: Store) -> None:
    acme = fabric(store).bind(ACME)
    (known,) = acme.add([KNOWN]).facts

    def stored() -> Any:
        with acme.begin(write=False) as transaction:
            facts = transaction.facts
            return (
                facts.generation(),
                facts.mark(),
                facts.find(Where(statuses=tuple(FactStatus))),
                facts.get([known]),
                list(facts.sources()),
                dict(facts.token_counts("chars", [known])),
                acme.state_hash(),
            )

    before = stored()
    report = acme.hold(MINE, [SECRET])
    view = acme.view(MINE, keep_counts=False)
    view.token_counts("chars", [known, *report.facts], counting)
    found(view, SECRET)
    assert report.state_hash == view.state_hash() == acme.state_hash()
    assert view.generation() == acme.generation()
    acme.end_session(MINE)
    assert stored() == before


def test_a_text_is_embedded_once_and_what_is_there_already_is_named() -> None:
    embedder = CountingEmbedder()
    acme = fabric(embedder=embedder).bind(ACME)
    (known,) = acme.add([KNOWN]).facts
    first = acme.hold(MINE, [SECRET, KNOWN, SECRET])
    assert (len(first.facts), first.unchanged) == (1, (known,))
    again = acme.hold(MINE, [SECRET, MORE])
    assert (len(again.facts), again.unchanged) == (1, first.facts)
    embedder.seen.clear()
    for _ in range(3):
        found(acme.view(MINE), "allergy")
    assert set(embedder.seen) == {"allergy"}


@pytest.mark.parametrize("status", [FactStatus.QUARANTINED, FactStatus.DELETED])
def test_a_withdrawn_fact_does_not_come_back_from_a_session(
    store: Store, status: FactStatus
) -> None:
    acme = fabric(store).bind(ACME)
    (secret,) = acme.hold(MINE, [SECRET]).facts
    acme.add([SECRET])
    with acme.begin(write=True) as transaction:
        transaction.facts.set_status([secret], status, NOON)
    view = acme.view(MINE)
    assert found(view, SECRET) == []
    assert view.search_text("allergy", 5) == []
    assert view.facts([secret]) == []
    assert acme.hold(YOURS, [SECRET]).unchanged == (secret,)
    assert acme.view(YOURS).size() == 0


def test_memory_is_bounded_by_facts_and_by_sessions() -> None:
    clock = FixedClock()
    made = fabric(
        clock=clock, settings=FabricSettings(hot=HotSettings(facts_per_session=1, sessions=1))
    )
    acme = made.bind(ACME)
    acme.hold(MINE, [SECRET])
    with pytest.raises(LimitReached, match=r"would hold 2 facts in memory, at most 1"):
        acme.hold(MINE, [MORE])
    with pytest.raises(LimitReached, match="1 sessions hold facts"):
        acme.hold(YOURS, [MORE])
    assert acme.view(MINE).size() == 1
    # A session that is over makes room.
    clock.moment = NOON + timedelta(hours=25)
    acme.hold(YOURS, [MORE])
    assert acme.view(YOURS).size() == 1


class Roles:
    """Lets a subject see and write what carries no label but its roles."""

    name = "roles"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = set(labels) <= set(subject.roles)
        return Decision(allowed=allowed, guard=self.name, reason="by its labels")


def test_held_facts_go_through_the_guard() -> None:
    made = fabric()
    medic = made.bind(Subject(tenant="acme", name="medic", roles=("health",)), Roles())
    clerk = made.bind(Subject(tenant="acme", name="clerk"), Roles())
    private = Fact(content=SECRET, labels=("health",))
    with pytest.raises(AccessDenied):
        clerk.hold(MINE, [private])
    medic.hold(MINE, [private])
    assert found(medic.view(MINE), SECRET) == [private.fact_id]
    assert found(clerk.view(MINE), SECRET) == []
    assert clerk.view(MINE).facts([private.fact_id]) == []
    assert clerk.view(MINE).size() == 0


def test_a_fact_to_be_held_keeps_the_rules_of_stored_ones() -> None:
    acme = fabric().bind(ACME)
    with pytest.raises(FactRejected, match="fact 2 has 2 tokens"):
        acme.hold(MINE, [SECRET, "Too short."])
    with pytest.raises(RequestError, match="session_id"):
        acme.hold("", [SECRET])
    assert acme.view(MINE).size() == 0


def test_the_source_that_is_forgotten_is_forgotten_in_every_session_of_the_tenant() -> None:
    made = fabric()
    acme, other = made.bind(ACME), made.bind(Subject(tenant="other"))
    facts = [Fact(content=SECRET, source_id="ada"), Fact(content=MORE, source_id="bob")]
    for space, session in ((acme, MINE), (acme, YOURS), (other, MINE)):
        space.hold(session, facts)
    acme.hold("crp_sess_0000000000000003", facts[:1])
    assert made.session_memory.forget_source("acme", "ada") == 3
    assert found(acme.view(MINE), "Ada") == [facts[1].fact_id] == found(acme.view(YOURS), "Ada")
    assert acme.view("crp_sess_0000000000000003").size() == 0
    assert other.view(MINE).size() == 2
    assert np.array_equal(
        acme.view(MINE).vectors([facts[1].fact_id]), acme.embedder.embed_passages([MORE])
    )


def test_the_tier_is_1_when_the_session_alone_has_something() -> None:
    acme = fabric().bind(ACME)
    assert acme.view(MINE).memory_tier() == 3
    acme.hold(MINE, [SECRET])
    assert acme.view(MINE).memory_tier() == 1
    acme.add([KNOWN])
    assert acme.view(MINE).memory_tier() == 3


def test_many_threads_hold_every_fact_once() -> None:
    acme: Namespace = fabric().bind(ACME)
    texts = [f"{SECRET} This is remark number {number}." for number in range(40)]

    def hold(part: list[str]) -> None:
        for text in part:
            acme.hold(MINE, [text])

    threads = [threading.Thread(target=hold, args=(texts[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view = acme.view(MINE)
    ids = found(view, SECRET, 99)
    assert len(ids) == len(texts) == len(set(ids))
    held = view.facts(ids)
    assert np.array_equal(
        view.vectors(ids), view.embedder.embed_passages([fact.content for fact in held])
    )


MINE, YOURS = "crp_sess_0000000000000001", "crp_sess_0000000000000002"
TEXTS = [
    "The wind farm off the coast feeds power into the grid through one long cable.",
    "Raw milk of one farmer ripens slowly into cheese in the damp stone cellar here.",
    "Peanuts and walnuts are not served in any canteen of the company since last May.",
]


def use(name: str, source: str = "s", community: str | None = None) -> FactUse:
    return FactUse(name, source, community)


def shelves(**most: int) -> RecentUses:
    return RecentUses(ShelfSettings(**most))


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


def fabric_of_uses(**parts: Any) -> Fabric:
    return Fabric(
        MemoryStore(), HashEmbedder(), WordCounter(), FixedClock(), FixedKeyRing(b"k" * 32), **parts
    )


def test_an_erasure_clears_the_tenants_shelves_alone() -> None:
    made = fabric_of_uses()
    acme, other = bound(made, "acme"), bound(made, "other")
    acme.add(TEXTS)
    for namespace in (acme, other):
        namespace.shelve(MINE, [use("a", "user", "wind farm")])
    erase_all(acme)
    assert acme.view(MINE).shelf == EMPTY
    assert other.view(MINE).shelf.communities == {"wind farm"}


def test_an_erasure_from_a_shared_namespace_clears_everybodys() -> None:
    made = fabric_of_uses(settings=FabricSettings(shared=("law",)))
    law = made.bind_shared("law")
    law.add(TEXTS)
    acme = bound(made, "acme")
    acme.shelve(MINE, [use("a", "user", "wind farm")])
    erase_all(law)
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
    assert shelf.sources == {source.source_id for source in opened.fabric.sources()}
    assert opened.fabric.state_hash() == before
    assert opened.fabric.view(YOURS).shelf.facts == frozenset()
    opened.end_session(MINE)
    assert opened.fabric.view(MINE).shelf.facts == frozenset()
