"""No path lets one tenant read another's facts, whatever either is called."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, CRPError, StoreError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import Subject
from crp_integrations.relay.turn import Turn
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter

SESSION = "crp_sess_7f3a9bc2d4e1f083"
SHARED = "shared:law"
# Names that a file system, a database or an eye may take for one another.
PAIRS = [
    ("acme", "../acme"),
    ("acme", "acme/../acme"),
    ("acme", "acme "),
    ("acme", "ACME"),
    ("acme", "\u0430cme"),
    ("acme", "acme\x00b"),
    ("a\x00b", "a\x00c"),
    ("acme", "\u202eacme"),
    ("caf\u00e9", "cafe\u0301"),
    ("acme", "'; DROP TABLE facts; --"),
    ("acme", "acme\u241fother"),
    ("x" * 20_000, "x" * 20_001),
    ("law", "local"),
]


def fabric(store: Store, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": FixedKeyRing(b"k" * 32),
    }
    return Fabric(store, **{**chosen, **parts})


def sentence(owner: str, number: int) -> str:
    return f"The owner called {owner[:40]!r} wrote down remark number {number} about the vault."


def everything(view: FabricView, guesses: list[str]) -> Iterator[Fact | str]:
    """What every reading path gives: facts, or ids where a path gives no more."""
    vector = view.embedder.embed_query("vault remark owner")
    for where in (None, Where()):
        yield from (hit.fact_id for hit in view.nearest(vector, 10_000, where))
        yield from (hit.fact_id for hit in view.search_text("vault remark owner", 10_000, where))
    for statuses in (None, tuple(FactStatus)):
        yield from view.find(Where(statuses=statuses))
    yield from view.facts(guesses)
    yield from view.token_counts("words", guesses, lambda texts: [1 for _ in texts])
    for id_ in guesses:
        try:
            view.vectors([id_])
        except StoreError:
            continue
        yield id_


class Tenants(RuleBasedStateMachine):
    """Two tenants, a shared namespace and sessions, in one store."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def store(self) -> Store:
        raise NotImplementedError

    @initialize(names=st.sampled_from(PAIRS))
    def open(self, names: tuple[str, str]) -> None:
        self.opened = self.store()
        made = fabric(self.opened, settings=FabricSettings(shared=("law",)))
        self.spaces: dict[str, Namespace] = {
            name: made.bind(Subject(tenant=name)) for name in names
        }
        self.spaces[SHARED] = made.bind_shared("law")
        self.said: dict[str, dict[str, str]] = {name: {} for name in self.spaces}
        self.held: dict[str, dict[str, str]] = {name: {} for name in self.spaces}
        self.all: list[str] = []

    @rule(place=st.integers(0, 2), number=st.integers(0, 3), common=st.booleans())
    def add(self, place: int, number: int, common: bool) -> None:
        name = list(self.spaces)[place]
        text = sentence("everybody" if common else name, number)
        report = self.spaces[name].add([text])
        for id_ in (*report.facts, *report.unchanged):
            # A withdrawn fact is not brought back by adding its text again.
            self.said[name].setdefault(id_, text)
            self.all.append(id_)

    @rule(place=st.integers(0, 1), number=st.integers(4, 6))
    def hold(self, place: int, number: int) -> None:
        name = list(self.spaces)[place]
        text = sentence(name, number)
        for id_ in self.spaces[name].hold(SESSION, [text]).facts:
            self.held[name][id_] = text
            self.all.append(id_)

    @rule(place=st.integers(0, 2), pick=st.integers(0, 10))
    def withdraw(self, place: int, pick: int) -> None:
        name = list(self.spaces)[place]
        if not self.said[name]:
            return
        id_ = sorted(self.said[name])[pick % len(self.said[name])]
        with self.spaces[name].begin(write=True) as transaction:
            transaction.facts.set_status([id_], FactStatus.QUARANTINED, NOON)
        self.said[name][id_] = ""

    @rule(place=st.integers(0, 1))
    def end(self, place: int) -> None:
        name = list(self.spaces)[place]
        assert self.spaces[name].end_session(SESSION) == len(self.held[name])
        self.held[name].clear()

    @invariant()
    def nobody_reads_what_is_not_theirs(self) -> None:
        if not hasattr(self, "spaces"):
            return
        for name, space in self.spaces.items():
            shared = {} if name == SHARED else self.said[SHARED]
            stored = {**shared, **self.said[name]}
            known = {id_: text for id_, text in stored.items() if text}
            inside = {**self.held[name], **stored}
            inside = {id_: text for id_, text in inside.items() if text}
            for view, allowed in ((space, known), (space.view(SESSION), inside)):
                seen = set()
                for item in everything(view, self.all):
                    id_ = item.fact_id if isinstance(item, Fact) else item
                    assert id_ in allowed, (name, id_)
                    if isinstance(item, Fact):
                        assert item.content == allowed[id_]
                        assert item.namespace in {name, SHARED}
                    seen.add(id_)
                assert seen == set(allowed)

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()
        self.folder.cleanup()


class TenantsInMemory(Tenants):
    def store(self) -> Store:
        return MemoryStore()


class TenantsOnDisk(Tenants):
    def store(self) -> Store:
        return SqliteStore(Path(self.folder.name) / "kb")


BUDGET = settings(max_examples=7, stateful_step_count=12, deadline=None)
# Each step of this one commits to disk.
DISK_BUDGET = settings(max_examples=3, stateful_step_count=6, deadline=None)


@pytest.mark.requirement("009-9.1-1", "009-9.1-2", "009-9.1-5", "003-16.1-1")
class TestTenantsInMemory(TenantsInMemory.TestCase):  # type: ignore[misc, name-defined]
    settings = BUDGET


@pytest.mark.requirement("009-9.1-1", "009-9.1-2", "009-9.1-5", "003-16.1-1")
class TestTenantsOnDisk(TenantsOnDisk.TestCase):  # type: ignore[misc, name-defined]
    settings = DISK_BUDGET


@pytest.fixture(params=("memory", "sqlite"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "root" / "kb")


@pytest.mark.requirement("009-9.1-1", "009-9.1-5")
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=range(len(PAIRS)))
def test_names_that_look_alike_are_two_tenants(
    store: Store, tmp_path: Path, left: str, right: str
) -> None:
    made = fabric(store)
    one, two = made.bind(Subject(tenant=left)), made.bind(Subject(tenant=right))
    ids = list(one.add([sentence(left, 1)]).facts)
    assert list(everything(two, ids)) == []
    assert two.sources() == []
    assert (two.graph().ids, one.graph().ids) == ((), tuple(ids))
    assert two.size() == 0
    assert ids[0] in set(everything(one, []))
    two.add([sentence(right, 2)])
    assert {fact.namespace for fact in one.facts(ids)} == {left}
    # No name leads out of the store's folder.
    outside = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all((tmp_path / "root" / "kb") in path.parents for path in outside)


@pytest.mark.requirement("009-9.1-4")
def test_a_tenants_write_leaves_anothers_hash_and_generation(store: Store) -> None:
    made = fabric(store)
    one, two = made.bind(Subject(tenant="one")), made.bind(Subject(tenant="two"))
    two.add([sentence("two", 1)])
    before = two.state_hash(), two.generation()
    (mine,) = one.add([sentence("one", 1)]).facts
    with one.begin(write=True) as transaction:
        transaction.facts.set_status([mine], FactStatus.STALE, NOON)
    assert (two.state_hash(), two.generation()) == before
    assert one.state_hash() != two.state_hash()


@pytest.mark.requirement("009-9.1-5")
@pytest.mark.parametrize("tenant", ["", " ", "\t\n", "shared:acme", "\ud800"])
def test_a_name_that_is_none_is_refused(store: Store, tenant: str) -> None:
    refused = StoreError if tenant == "\ud800" else AccessDenied
    with pytest.raises(refused):
        fabric(store).bind(Subject(tenant=tenant))


def _public(kind: type[object]) -> Iterator[tuple[str, inspect.Signature]]:
    for name, member in inspect.getmembers(kind, callable):
        if not name.startswith("_"):
            yield name, inspect.signature(member)


@pytest.mark.requirement("009-9.1-5")
@pytest.mark.parametrize("kind", [Namespace, FabricView, Relay, Turn])
def test_no_method_takes_a_tenant(kind: type[object]) -> None:
    taken = {
        (name, parameter)
        for name, signature in _public(kind)
        for parameter in signature.parameters
        if parameter in {"tenant", "namespace", "subject", "name"}
    }
    assert taken == set()
    assert len(list(_public(kind))) >= 5


@pytest.mark.requirement("009-9.1-5", "003-16.1-1")
def test_no_answer_or_preview_holds_what_is_anothers(store: Store) -> None:
    def opened(tenant: str) -> Relay:
        return Relay.open(
            store,
            subject=Subject(tenant=tenant),
            embedder=HashEmbedder(),
            key="ab" * 32,
            clock=NOON,
        )

    one, two = opened("one"), opened("two")
    secret = "The vault of the first owner is opened with the number 4711 on Fridays."
    ids = one.fabric.add([secret]).facts
    one.add([f"{secret} Or on Mondays."], session_id=SESSION, cache="no-store")
    own = "The vault of the second owner is opened with the number 1234 on Sundays."
    two.fabric.add([own])
    question = "With which number is the vault of the first owner opened?"
    for asking in ({}, {"session_id": SESSION}, {"session_id": SESSION, "cache": "no-store"}):
        answer = two.ask(question, **asking)  # type: ignore[arg-type]
        assert [fact.content for fact in answer.envelope.facts] == [own]
        # A hash may hold the figures by chance.
        assert "number 4711" not in answer.model_dump_json()
        assert two.preview(question, **asking).facts_available == 1  # type: ignore[arg-type]
        streamed = "".join(p for p in two.stream(question, **asking) if isinstance(p, str))  # type: ignore[arg-type]
        assert "4711" not in streamed
    assert two.fabric.facts(ids) == []
    # Nor can the other's window or session be gone on with: each tenant's chain is its own.
    assert one.ask(question, session_id=SESSION).window_number == 1
    assert two.verify().windows == 6
    with pytest.raises(CRPError):
        two.fabric.update(ids[0], content=own)
