"""What the sessions facet of every store must do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from crp_integrations.envelope.records import PriorWindow, SeenFact
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.seals import iso, sha256
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.testing.records import NAMESPACE, NOON, OTHER, fact, rows, seal
from crp_integrations.vocabulary import (
    Pattern,
    QualityTier,
    RiskLevel,
    Strategy,
    TransferType,
)

THREADS = 4
CHARGES = 10


def session(name: str = "s", **fields: Any) -> Session:
    """A session that was gone on with at noon, unless said otherwise."""
    return Session(
        **{"session_id": name, "created_at": iso(NOON), "modified_at": iso(NOON), **fields}
    )


def window(number: int, name: str = "s", **fields: Any) -> WindowNode:
    """A session's window by number, closed so many minutes after noon."""
    return WindowNode(
        **{
            "window_id": f"w-{name}-{number}",
            "session_id": name,
            "window_number": number,
            "parents": (f"w-{name}-{number - 1}",) if number > 1 else (),
            "hmac": f"sha256:{number}",
            "timestamp": iso(NOON + timedelta(minutes=number)),
            **fields,
        }
    )


def prior(number: int, *fact_ids: str, **fields: Any) -> PriorWindow:
    """What a window that showed some facts leaves to the next."""
    return PriorWindow(
        **{
            "window_number": number,
            "etag": "sha256:e",
            "facts_seen": tuple(
                SeenFact(fact_id=id_, content_hash=sha256(id_)) for id_ in fact_ids
            ),
            "answer": f"answer {number}",
            "quality_tier": QualityTier.A,
            **fields,
        }
    )


def open_session(store: Store, *names: str, **fields: Any) -> None:
    """Keep sessions of these names."""
    with store.begin(NAMESPACE) as transaction:
        for name in names:
            sessions_of(transaction).keep(session(name, **fields))


def add(store: Store, node: WindowNode, *fact_ids: str, **content: Any) -> None:
    """Add a window that showed some facts."""
    said = {"prior": prior(node.window_number, *fact_ids), "report": report(), **content}
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).add_window(node, **said)


def report(*fact_ids: str) -> str:
    """A report whose one claim rests on some facts."""
    evidence = [{"fact_id": id_, "start": 0} for id_ in fact_ids]
    return json.dumps({"schema": "dpe-report/2", "claims": [{"evidence": evidence}]})


def saying(store: Store, *names: str) -> list[str]:
    """Ids of the windows of sessions that something is kept of, in order."""
    with store.begin(NAMESPACE, write=False) as transaction:
        sessions = sessions_of(transaction)
        found = []
        for name in names or ("s",):
            ids = [node.window_id for node in sessions.windows(name)]
            kept = sessions.priors(ids)
            for id_ in ids:
                assert (id_ in kept) == (sessions.report(id_) is not None)
                if id_ in kept:
                    found.append(id_)
        return found


def withdraw(
    store: Store, *fact_ids: str, source_id: str = "", at: datetime = NOON + timedelta(hours=1)
) -> int:
    """Withdraw facts; returns how many windows were emptied."""
    with store.begin(NAMESPACE) as transaction:
        return sessions_of(transaction).withdraw(fact_ids, at, source_id=source_id)


class SessionsConformance:
    """Sessions, their windows, and what windows said."""

    def test_a_new_namespace_has_no_sessions(self, store: Store) -> None:
        """Nothing is found, and nothing is made by looking."""
        with store.begin(NAMESPACE, write=False) as transaction:
            sessions = sessions_of(transaction)
            assert sessions.session("s") is None
            assert sessions.windows("s") == []
            assert sessions.continued("c") is None
            assert sessions.priors(["w"]) == {}
            assert sessions.report("w") is None
            assert list(sessions.session_ids()) == []
            assert sessions.idle(NOON) == []
        assert store.namespaces() == []

    def test_a_session_comes_back_as_it_was_kept(self, store: Store) -> None:
        """The last state stands; ids ascend by code points, also over pages."""
        full = session(
            "s",
            policy="halt-on HIGH",
            safety_budget=0.85,
            parent_session="p",
            loop_depth=2,
            agent_id="a",
            delegations=3,
            tool_calls=4,
        )
        names = sorted(
            {"s", "Z", "\u00fc", "\uffee", "\U0001f600", *(f"n{n}" for n in range(1_200))}
        )
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            for name in names:
                sessions.keep(session(name))
            sessions.keep(full)
            assert sessions.session("s") == full
        with store.begin(NAMESPACE, write=False) as transaction:
            sessions = sessions_of(transaction)
            assert sessions.session("s") == full
            assert sessions.session("Z") == session("Z")
            assert sessions.has("Z")
            assert not sessions.has("z")
            assert list(sessions.session_ids()) == names
        with store.begin(OTHER, write=False) as transaction:
            assert sessions_of(transaction).session("s") is None

    def test_the_safety_budget_never_rises(self, store: Store) -> None:
        """Whoever writes; equal to four digits is no rise."""
        open_session(store, "s", safety_budget=0.4)
        for left in (0.4001, 0.9, 1.0):
            with store.begin(NAMESPACE) as transaction:
                with pytest.raises(StoreError, match=r"budget 0\.4"):
                    sessions_of(transaction).keep(session("s", safety_budget=left))
                sessions_of(transaction).keep(session("s", safety_budget=0.40000001))
        open_session(store, "s", safety_budget=0.0)
        with store.begin(NAMESPACE, write=False) as transaction:
            kept = sessions_of(transaction).session("s")
        assert kept is not None
        assert kept.safety_budget == 0.0

    def test_what_has_ended_stays_as_it_is(self, store: Store) -> None:
        """Also its end; a window that was under way is still added."""
        open_session(store, "s", ended=True)
        for changed in (session("s"), session("s", ended=True, safety_budget=0.1)):
            with store.begin(NAMESPACE) as transaction, pytest.raises(StoreError, match="ended"):
                sessions_of(transaction).keep(changed)
        add(store, window(1))
        assert saying(store) == ["w-s-1"]

    def test_a_session_needs_a_name_and_a_time(self, store: Store) -> None:
        """Or it could neither be found nor forgotten in time."""
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            with pytest.raises(StoreError, match="empty"):
                sessions.keep(session(""))
            for time in ("", "noon", "2026-05-25T10:00:00"):
                with pytest.raises(StoreError, match="time"):
                    sessions.keep(session("s", modified_at=time))
            assert list(sessions.session_ids()) == []

    def test_windows_by_number_then_id(self, store: Store) -> None:
        """Ten comes after two, and siblings share a number."""
        full = window(
            2,
            window_id="w-b",
            pattern=Pattern.FAN_OUT,
            strategy=Strategy.FAN_OUT,
            continuation_id="c2",
            etag="sha256:e",
            quality_tier=QualityTier.B,
            risk_level=RiskLevel.LOW,
            safety_budget=0.95,
            tokens=900,
            response_hash="sha256:r",
            transfer=TransferType.SUMMARY,
            tokens_transferred=120,
            summary_hash="sha256:s",
            outcome="halted",
        )
        made = [window(1), window(2, window_id="w-a"), full, *(window(n) for n in range(3, 12))]
        open_session(store, "s", "t")
        with store.begin(NAMESPACE) as transaction:
            for node in [*made[5:], *made[:5]]:
                sessions_of(transaction).add_window(node)
            sessions_of(transaction).add_window(window(1, "t"))
        with store.begin(NAMESPACE, write=False) as transaction:
            sessions = sessions_of(transaction)
            assert sessions.windows("s") == made
            assert sessions.windows("t") == [window(1, "t")]
            assert sessions.continued("c2") == full
            assert sessions.continued("") is None
            assert sessions.continued("c3") is None
            assert sessions.priors([node.window_id for node in made]) == {}
            assert sessions.report("w-b") is None

    def test_a_window_that_may_not_be_added_leaves_nothing(self, store: Store) -> None:
        """A stranger's, one that is there, one with another's continuation id."""
        open_session(store, "s", "t")
        add(store, window(1, continuation_id="c"), "f")
        refused: tuple[tuple[WindowNode, str], ...] = (
            (window(1, "unknown"), "not kept"),
            (window(1, hmac="other"), "already"),
            (window(1, "t", window_id="w-s-1"), "already"),
            (window(1, "t", continuation_id="c"), "continuation"),
            (window(2, window_id="a\0b"), "NUL"),
            (window(2, window_id=""), "empty"),
            (window(2, timestamp="soon"), "time"),
        )
        for node, why in refused:
            with store.begin(NAMESPACE) as transaction, pytest.raises(StoreError, match=why):
                sessions_of(transaction).add_window(node, prior=prior(9))
        with store.begin(NAMESPACE) as transaction, pytest.raises(StoreError, match="JSON"):
            sessions_of(transaction).add_window(window(2), report="not json")
        with store.begin(NAMESPACE, write=False) as transaction:
            sessions = sessions_of(transaction)
            assert sessions.windows("s") == [window(1, continuation_id="c")]
            assert sessions.windows("t") == []
            assert sessions.priors(["w-s-1"])["w-s-1"] == prior(1, "f")

    def test_what_windows_said_comes_back_as_it_was(self, store: Store) -> None:
        """Each part on its own, in the order asked for; unknown ids are left out."""
        open_session(store, "s")
        told = prior(2, "f", "g", summary="short ü", deferred=("h",), window_id="w-s-2")
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            sessions.add_window(window(1), report=report("f"))
            sessions.add_window(window(2), prior=told)
            sessions.add_window(window(3), prior=prior(3), report='{"a": "\u00fc"}')
        with store.begin(NAMESPACE, write=False) as transaction:
            sessions = sessions_of(transaction)
            found = sessions.priors(["w-s-3", "unknown", "w-s-1", "w-s-2", "a\0"])
            assert list(found.items()) == [("w-s-3", prior(3)), ("w-s-2", told)]
            assert sessions.report("w-s-1") == report("f")
            assert sessions.report("w-s-2") is None
            assert sessions.report("w-s-3") == '{"a": "\u00fc"}'

    def test_sessions_commit_with_facts_and_journal(self, store: Store) -> None:
        """Or none of them does."""
        made = fact("kept")

        def write(error: bool) -> None:
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.add([made], rows([made]))
                transaction.journal.seal(seal("s", 1))
                sessions_of(transaction).keep(session("s"))
                sessions_of(transaction).add_window(window(1), prior=prior(1))
                assert sessions_of(transaction).windows("s") == [window(1)]
                if error:
                    raise ValueError("stop")

        def there() -> tuple[bool, ...]:
            with store.begin(NAMESPACE, write=False) as transaction:
                sessions = sessions_of(transaction)
                return (
                    bool(transaction.facts.get([made.fact_id])),
                    bool(transaction.journal.seals("s")),
                    sessions.session("s") is not None,
                    bool(sessions.windows("s")),
                    bool(sessions.priors(["w-s-1"])),
                )

        with pytest.raises(ValueError, match="stop"):
            write(error=True)
        assert there() == (False,) * 5
        write(error=False)
        assert there() == (True,) * 5

    def test_a_reader_cannot_write_sessions(self, store: Store) -> None:
        """Nor can anybody after the block."""
        open_session(store, "s")
        with store.begin(NAMESPACE, write=False) as reader:
            sessions = sessions_of(reader)
            attempts: tuple[Callable[[], object], ...] = (
                lambda: sessions.keep(session("s")),
                lambda: sessions.add_window(window(1)),
                lambda: sessions.withdraw(["f"], NOON),
                lambda: sessions.forget("s"),
            )
            for attempt in attempts:
                with pytest.raises(StoreError, match="reading"):
                    attempt()
        for attempt in (*attempts, lambda: sessions.windows("s"), lambda: sessions.session("s")):
            with pytest.raises(StoreError, match="ended"):
                attempt()

    def test_threads_that_charge_one_session_lose_nothing(self, store: Store) -> None:
        """What is read and kept in one transaction is nobody else's meanwhile."""
        open_session(store, "s")

        def charge() -> None:
            for _ in range(CHARGES):
                with store.begin(NAMESPACE) as transaction:
                    sessions = sessions_of(transaction)
                    kept = sessions.session("s")
                    assert kept is not None
                    left = round(kept.safety_budget - 0.01, 4)
                    sessions.keep(kept.changed(safety_budget=left, tool_calls=kept.tool_calls + 1))

        threads = [threading.Thread(target=charge) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with store.begin(NAMESPACE, write=False) as transaction:
            kept = sessions_of(transaction).session("s")
        assert kept is not None
        assert kept.tool_calls == THREADS * CHARGES
        assert kept.safety_budget == pytest.approx(1.0 - 0.01 * THREADS * CHARGES)

    def test_forgetting_a_session_leaves_nothing_but_its_seals(self, store: Store) -> None:
        """Others stay, and its continuation ids are free."""
        open_session(store, "s", "t")
        for name in ("s", "t"):
            add(store, window(1, name, continuation_id=f"c-{name}"), "f")
        with store.begin(NAMESPACE) as transaction:
            transaction.journal.seal(seal("s", 1))
            assert sessions_of(transaction).forget("s") is True
            assert sessions_of(transaction).forget("unknown") is False
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            assert list(sessions.session_ids()) == ["t"]
            assert sessions.session("s") is None
            assert sessions.windows("s") == []
            assert sessions.continued("c-s") is None
            assert sessions.priors(["w-s-1", "w-t-1"]).keys() == {"w-t-1"}
            assert sessions.report("w-s-1") is None
            assert transaction.journal.seals("s") == [seal("s", 1)]
            sessions.keep(session("s"))
            sessions.add_window(window(1, continuation_id="c-s"))
        assert withdraw(store, "f") == 1
        assert store.scrub(NAMESPACE) is True
        assert store.check(NAMESPACE) == []

    def test_idle_sessions_by_time(self, store: Store) -> None:
        """Before a moment, which is not in it; fractions of a second sort as times."""
        moments = {
            "b": "2026-05-25T10:00:00Z",
            "a": "2026-05-25T10:00:00.500000Z",
            "c": "2026-05-25T12:00:01+02:00",
            "d": "2026-05-25T10:00:02Z",
        }
        with store.begin(NAMESPACE) as transaction:
            for name, at in moments.items():
                sessions_of(transaction).keep(session(name, modified_at=at))
        ten = datetime.fromisoformat("2026-05-25T10:00:00Z")
        tick = timedelta(microseconds=1)
        expected = {
            ten: [],
            ten + tick: ["b"],
            ten + timedelta(seconds=1): ["a", "b"],
            ten + timedelta(seconds=1) + tick: ["a", "b", "c"],
            ten + timedelta(hours=1): ["a", "b", "c", "d"],
        }
        with store.begin(NAMESPACE, write=False) as transaction:
            sessions = sessions_of(transaction)
            assert {at: sessions.idle(at) for at in expected} == expected
