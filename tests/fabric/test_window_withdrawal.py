"""What sessions keep goes with the facts that it was said with, and with time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crp_integrations.errors import AccessDenied, StoreBusy
from crp_integrations.fabric.erasure import WINDOWS_SETTING
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.settings import FabricSettings, LifecycleSettings
from crp_integrations.guard.decisions import Decision
from crp_integrations.seals import iso, sha256
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import prior, report, session, window
from crp_integrations.vocabulary import EventType
from tests.doubles import NOON, PARAGRAPHS
from tests.fabric.lifecycle_fixtures import ACME, document, events, fabric, sentence, setting, store

__all__ = ["store"]

# In what was said; a text that stands nowhere else.
MARK = b"Quorvaxzq"


def at(made: Fabric, moment: Any) -> None:
    made.clock.moment = moment  # type: ignore[attr-defined]


def say(store: Store, number: int, *fact_ids: str, name: str = "s", tenant: str = "acme") -> None:
    """A window that showed some facts, and said something that can be looked for."""
    moment = iso(NOON + timedelta(minutes=number))
    with store.begin(tenant) as transaction:
        sessions = sessions_of(transaction)
        sessions.keep(session(name, modified_at=moment))
        sessions.add_window(
            window(number, name, timestamp=moment),
            prior=prior(number, *fact_ids, answer=f"{MARK.decode()} {number} " * 200),
            report=report(*fact_ids),
        )


def said(store: Store, *names: str, tenant: str = "acme") -> list[str]:
    """Ids of windows of which something is kept."""
    with store.begin(tenant, write=False) as transaction:
        sessions = sessions_of(transaction)
        ids = [node.window_id for name in names or ("s",) for node in sessions.windows(name)]
        return [id_ for id_ in ids if sessions.priors([id_]) or sessions.report(id_)]


def bytes_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


def test_an_erasure_takes_what_was_said_with_the_source(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    gone = namespace.ingest([document("gone", *map(sentence, range(3)))])
    (kept,) = namespace.ingest([document("kept", sentence(9))]).facts
    say(store, 1, kept)
    say(store, 2, kept, gone.facts[1])
    say(store, 3, kept)
    say(store, 1, kept, name="t")
    assert namespace.erase(gone.sources[0]).scrubbed
    assert setting(made, WINDOWS_SETTING) is None
    assert namespace.doctor().findings == ()
    assert said(store, "s", "t") == ["w-s-1", "w-t-1"]
    with store.begin("acme", write=False) as transaction:
        assert len(sessions_of(transaction).windows("s")) == 3
    # A window that was under way when it was erased.
    say(store, 4, gone.facts[0])
    say(store, 5, kept)
    assert said(store) == ["w-s-1", "w-s-5"]
    again = namespace.ingest([document("gone", *map(sentence, range(3)))])
    assert again.facts == gone.facts
    say(store, 6, gone.facts[0])
    assert said(store) == ["w-s-1", "w-s-5", "w-s-6"]


@pytest.mark.parametrize("way", ["facts", "source"])
def test_what_is_forgotten_takes_what_was_said_at_once(store: Store, way: str) -> None:
    """There is no way back from DELETED, and an answer would bring the fact back."""
    made = fabric(store)
    namespace = made.bind(ACME)
    report_ = namespace.ingest([document("gone", sentence(1), sentence(2))])
    say(store, 1, "other")
    say(store, 2, report_.facts[0])
    if way == "facts":
        namespace.forget(facts=report_.facts[:1])
    else:
        namespace.forget(source=report_.sources[0])
    assert said(store) == ["w-s-1"]
    assert setting(made, WINDOWS_SETTING) is None
    say(store, 3, report_.facts[0])
    assert said(store) == ["w-s-1"]


def test_other_changes_take_nothing(store: Store) -> None:
    """A quarantine may be lifted; a correction is for the next window to tell."""
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    a, b, c, d = namespace.ingest([document("doc", *map(sentence, range(4)))]).facts
    say(store, 1, a, b, c, d)
    namespace.quarantine([a])
    namespace.archive([b])
    namespace.mark_stale([c])
    namespace.update(d, content=sentence(77))
    assert said(store) == ["w-s-1"]


def test_retention_takes_what_was_said_since(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([sentence(1)]).facts
    namespace.forget(facts=[id_])
    at(made, NOON + timedelta(days=30))
    # A strange relay that shows what is deleted, more than a day later.
    with store.begin("acme") as transaction:
        sessions_of(transaction).keep(session("s", modified_at=iso(NOON + timedelta(days=29))))
        sessions_of(transaction).add_window(
            window(1, timestamp=iso(NOON + timedelta(days=29))), prior=prior(1, id_)
        )
    assert said(store) == ["w-s-1"]
    assert namespace.maintain().purged == 1
    assert said(store) == []


@pytest.mark.parametrize("change", ["erase", "forget", "forget one"])
def test_what_tenants_said_with_shared_facts_goes_too(store: Store, change: str) -> None:
    made = fabric(store, settings=FabricSettings(shared=("law",), chunking=PARAGRAPHS))
    operator = made.bind_shared("law")
    law = operator.ingest([document("law", sentence(1))])
    acme = made.bind(ACME)
    (own,) = acme.add([sentence(2)]).facts
    say(store, 1, own)
    say(store, 2, law.facts[0])
    say(store, 1, own, tenant="globex")
    if change == "erase":
        assert operator.erase(law.sources[0]).scrubbed
    elif change == "forget":
        operator.forget(source=law.sources[0])
    else:
        operator.forget(facts=law.facts)
    assert said(store) == ["w-s-1"]
    assert said(store, tenant="globex") == ["w-s-1"]
    # Windows of both that were under way.
    say(store, 3, law.facts[0])
    say(store, 2, law.facts[0], tenant="globex")
    say(store, 4, own)
    assert said(store) == ["w-s-1", "w-s-4"]
    assert said(store, tenant="globex") == ["w-s-1"]


def test_an_erasure_of_shared_facts_is_finished_by_the_tenants_maintenance(tmp_path: Path) -> None:
    """A reader of the tenant's old state holds the bytes; its maintenance takes them."""
    own = SqliteStore(tmp_path / "kb", busy_seconds=0.05)
    made = fabric(own, settings=FabricSettings(shared=("law",), chunking=PARAGRAPHS))
    operator = made.bind_shared("law")
    law = operator.ingest([document("law", sentence(1))])
    made.bind(ACME).add([sentence(2)])
    say(own, 1, law.facts[0])
    with own.begin("acme", write=False) as reader:
        assert sessions_of(reader).priors(["w-s-1"])
        assert operator.erase(law.sources[0]).scrubbed is False
        assert sessions_of(reader).priors(["w-s-1"])
    assert setting(made, WINDOWS_SETTING) is not None
    assert made.bind(ACME).maintain().scrubbed is True
    assert setting(made, WINDOWS_SETTING) is None
    assert MARK not in bytes_of(tmp_path)


def test_sessions_are_forgotten_after_their_days(store: Store) -> None:
    """From that moment on, to their bytes; the journal tells it."""
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.add([sentence(1)])
    say(store, 1, "f", name="old")
    say(store, 3 * 24 * 60, "f", name="new")
    at(made, NOON + timedelta(days=30, minutes=1))
    told = len(events(made))
    assert namespace.maintain().forgotten == 0
    at(made, NOON + timedelta(days=30, minutes=1, microseconds=1))
    report_ = namespace.maintain()
    assert (report_.forgotten, report_.scrubbed) == (1, True)
    assert setting(made, WINDOWS_SETTING) is None
    with store.begin("acme", write=False) as transaction:
        assert list(sessions_of(transaction).session_ids()) == ["new"]
    (last,) = events(made)[told:]
    assert last.event_type is EventType.SESSION_TERMINATED
    assert (last.session_id, last.data["cause"]) == ("old", "retention")
    assert namespace.maintain().scrubbed is None


def test_sessions_without_any_fact_are_forgotten_too(store: Store) -> None:
    made = fabric(store)
    say(store, 1, "context-1")
    at(made, NOON + timedelta(days=31))
    assert made.bind(ACME).maintain().forgotten == 1
    assert said(store) == []


def test_without_days_sessions_stay(store: Store) -> None:
    made = fabric(store, settings=FabricSettings(lifecycle=LifecycleSettings(session_days=None)))
    say(store, 1, "f")
    at(made, NOON + timedelta(days=9_999))
    assert made.bind(ACME).maintain().forgotten == 0
    assert said(store) == ["w-s-1"]


def test_a_session_is_forgotten_by_hand(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    say(store, 1, "f")
    say(store, 1, "f", name="t")
    assert namespace.forget_session("s") is True
    assert namespace.forget_session("s") is False
    assert namespace.forget_session("unknown") is False
    say(store, 1, "f", name="an id in words")
    assert namespace.forget_session("an id in words") is True
    assert said(store, "s", "t") == ["w-t-1"]
    first, second = events(made)[:2]
    assert (first.session_id, first.data["cause"]) == ("s", "forgotten")
    assert (second.session_id, second.data["cause"]) == (sha256("an id in words"), "forgotten")
    assert setting(made, WINDOWS_SETTING) is None
    assert namespace.forget_session("t", scrub=False) is True
    assert setting(made, WINDOWS_SETTING) is not None
    assert namespace.maintain().scrubbed is True
    assert setting(made, WINDOWS_SETTING) is None
    assert namespace.maintain().scrubbed is None


def test_a_guard_is_asked_before_a_session_is_forgotten(store: Store) -> None:
    made = fabric(store)
    say(store, 1, "f")

    class Keeper:
        name = "keeper"

        def decide(self, subject: Any, action: str, labels: tuple[str, ...]) -> Decision:
            return Decision(allowed=action != "erase", guard=self.name, reason="nothing goes")

    with pytest.raises(AccessDenied):
        made.bind(ACME, guard=Keeper()).forget_session("s")
    assert said(store) == ["w-s-1"]


def test_no_byte_of_what_was_said_is_left(tmp_path: Path) -> None:
    """After an erasure; after a session's days; after one was forgotten."""
    own = SqliteStore(tmp_path / "kb")
    made = fabric(own)
    namespace = made.bind(ACME)
    doc = namespace.ingest([document("gone", sentence(1))])
    for number in range(1, 30):
        say(own, number, doc.facts[0])
    assert MARK in bytes_of(tmp_path)
    assert namespace.erase(doc.sources[0]).scrubbed
    assert MARK not in bytes_of(tmp_path)
    (id_,) = namespace.add([sentence(2)]).facts
    say(own, 1, id_, name="t")
    namespace.forget(facts=[id_])
    assert MARK not in bytes_of(tmp_path)
    for number in range(1, 30):
        say(own, number, "other", name="old")
    at(made, NOON + timedelta(days=31))
    assert namespace.maintain().forgotten == 3
    assert MARK not in bytes_of(tmp_path)
    for number in range(1, 30):
        say(own, number, "other", name="ended")
    assert MARK in bytes_of(tmp_path)
    assert namespace.forget_session("ended")
    assert MARK not in bytes_of(tmp_path)
    assert own.check("acme") == []


def test_forgetting_sessions_keeps_the_index_files(tmp_path: Path) -> None:
    """They hold vectors, which no session has; making them anew takes long."""
    own = SqliteStore(tmp_path / "kb")
    made = fabric(own)
    namespace = made.bind(ACME)
    namespace.add([sentence(1)])
    cache = own.cache("acme")
    assert cache.save("graph", {}, lambda path: _write(path), lambda _: True)
    say(own, 1, "f")
    assert namespace.forget_session("s")
    assert cache.load("graph") is not None


def _write(path: str) -> None:
    Path(path).write_bytes(b"derived")


def test_a_store_without_sessions_lives_on(tmp_path: Path) -> None:
    """One that was made for this package before there were sessions."""

    class Before(MemoryStore):
        @contextmanager
        def begin(self, namespace: str, *, write: bool = True) -> Iterator[Any]:
            with super().begin(namespace, write=write) as transaction:
                yield SimpleNamespace(facts=transaction.facts, journal=transaction.journal)

    made = fabric(Before())
    namespace = made.bind(ACME)
    doc = namespace.ingest([document("gone", sentence(1))])
    assert namespace.forget_session("s") is False
    namespace.maintain()
    assert namespace.erase(doc.sources[0]).scrubbed


def test_another_writer_in_a_tenants_namespace_stops_an_erasure_before_it_begins(
    tmp_path: Path,
) -> None:
    """Then nothing is erased, and the erasure can be asked for again."""
    own = SqliteStore(tmp_path / "kb", busy_seconds=0.05)
    made = fabric(own, settings=FabricSettings(shared=("law",), chunking=PARAGRAPHS))
    operator = made.bind_shared("law")
    law = operator.ingest([document("law", sentence(1))])
    made.bind(ACME).add([sentence(2)])
    say(own, 1, law.facts[0])
    other = SqliteStore(tmp_path / "kb")
    with other.begin("acme"), pytest.raises(StoreBusy):
        operator.erase(law.sources[0])
    assert [fact.fact_id for fact in operator.facts(law.facts)] == list(law.facts)
    assert said(own) == ["w-s-1"]
    assert operator.erase(law.sources[0]).facts == law.facts
    assert said(own) == []
