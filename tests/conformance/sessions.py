"""What every store promises of sessions, their windows, and the withdrawal of facts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import WindowNode
from crp_integrations.testing.fixtures import (
    NAMESPACE,
    NOON,
    OTHER,
    add_window,
    fact,
    fill,
    open_session,
    prior,
    report,
    rows,
    session,
    window,
    windows_with_content,
    withdraw,
)
from crp_integrations.vocabulary import (
    FactStatus,
)
from tests.conformance.hooks import run_threads

THREADS = 4
CHARGES = 10


class SessionsLaws:
    """Sessions, their windows, and what windows said."""

    def test_a_session_needs_a_name_and_a_time(self, store: Store) -> None:
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            with pytest.raises(StoreError, match="empty"):
                sessions.keep(session(""))
            for time in ("", "noon", "2026-05-25T10:00:00"):
                with pytest.raises(StoreError, match="time"):
                    sessions.keep(session("s", modified_at=time))
            assert list(sessions.session_ids()) == []

    def test_threads_that_charge_one_session_lose_nothing(self, store: Store) -> None:
        open_session(store, "s")

        def charge() -> None:
            for _ in range(CHARGES):
                with store.begin(NAMESPACE) as transaction:
                    sessions = sessions_of(transaction)
                    kept = sessions.session("s")
                    assert kept is not None
                    left = round(kept.safety_budget - 0.01, 4)
                    sessions.keep(kept.changed(safety_budget=left, tool_calls=kept.tool_calls + 1))

        run_threads(charge for _ in range(THREADS))
        with store.begin(NAMESPACE, write=False) as transaction:
            kept = sessions_of(transaction).session("s")
        assert kept is not None
        assert kept.tool_calls == THREADS * CHARGES
        assert kept.safety_budget == pytest.approx(1.0 - 0.01 * THREADS * CHARGES)

    def test_idle_sessions_by_time(self, store: Store) -> None:
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

    def test_a_window_that_may_not_be_added_leaves_nothing(self, store: Store) -> None:
        open_session(store, "s", "t")
        add_window(store, window(1, continuation_id="c"), "f")
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


class WithdrawalLaws:
    """What windows said goes with the facts that it came from; nodes stay."""

    def test_removing_facts_empties_as_well(self, store: Store) -> None:
        gone, kept = fill(store, "gone", "kept")
        open_session(store, "s", "t")
        add_window(store, window(1), gone)
        add_window(store, window(1, "t"), kept)

        def remove_and_raise() -> None:
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.remove([gone])
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            remove_and_raise()
        assert windows_with_content(store, "s", "t") == ["w-s-1", "w-t-1"]
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([gone, "unknown"])
            assert sessions_of(transaction).priors(["w-s-1"]) == {}
        assert windows_with_content(store, "s", "t") == ["w-t-1"]

    def test_a_quarantine_takes_nothing(self, store: Store) -> None:
        (id_,) = fill(store, "doubted")
        open_session(store, "s")
        add_window(store, window(1), id_)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([id_], FactStatus.QUARANTINED, NOON)
        assert windows_with_content(store) == ["w-s-1"]

    def test_sessions_around_an_agents_are_emptied_from_then_on(self, store: Store) -> None:
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            sessions.keep(session("root"))
            sessions.keep(session("child", parent_session="root"))
            sessions.keep(session("grandchild", parent_session="child"))
            sessions.keep(session("brother", parent_session="root"))
            sessions.keep(session("stranger"))
            sessions.keep(session("orphan", parent_session="never-kept"))
        names = ("root", "child", "grandchild", "brother", "stranger", "orphan")
        for minute, name in enumerate([*names, *names], start=1):
            first = minute <= len(names)
            parents = () if first else (f"w-{name}-{minute - len(names)}",)
            add_window(store, window(minute, name, parents=parents), f"f-{name}-{minute}")
        assert windows_with_content(store, "child") == ["w-child-2", "w-child-8"]
        assert withdraw(store, "f-child-2") == 7
        left = windows_with_content(store, *names)
        assert left == ["w-root-1", *(f"w-{n}-{m}" for n, m in (
            ("stranger", 5), ("stranger", 11), ("orphan", 6), ("orphan", 12)
        ))]  # fmt: skip

    def test_what_was_added_again_may_be_kept_again(self, store: Store) -> None:
        """The same text from the same place has the same id."""
        again = fact("again")
        open_session(store, "s")
        withdraw(store, again.fact_id, "other", at=NOON)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([again], rows([again]))
        add_window(store, window(1), again.fact_id)
        add_window(store, window(2), "other")
        assert windows_with_content(store) == ["w-s-1"]
        assert withdraw(store, again.fact_id) == 1

    def test_a_withdrawal_is_remembered_for_a_day(self, store: Store) -> None:
        """No window is under way for longer, and the note itself is not to stay."""
        open_session(store, "s")
        withdraw(store, "f", at=NOON)
        day = NOON + timedelta(days=1)
        add_window(store, window(1, timestamp=day.isoformat()), "f")
        add_window(store, window(2, timestamp=(day + timedelta(seconds=1)).isoformat()), "f")
        assert windows_with_content(store) == ["w-s-2"]

    def test_a_window_made_from_an_emptied_one_keeps_nothing(self, store: Store) -> None:
        open_session(store, "s")
        add_window(store, window(1), "f")
        withdraw(store, "f")
        add_window(store, window(2), "g")
        add_window(store, window(3), "g")
        assert windows_with_content(store) == ["w-s-3"]

    def test_who_says_what_a_window_was_given_loses_no_more(self, store: Store) -> None:
        open_session(store, "s")
        add_window(store, window(1), "f")
        add_window(store, window(1, window_id="w-b"), "g")
        withdraw(store, "f")
        add_window(store, window(2), "g", shown_windows=[])
        add_window(store, window(3), "g", shown_windows=["w-b", "w-s-2", "w-b"])
        add_window(store, window(4), "g", shown_windows=["w-b", "w-s-1"])
        add_window(store, window(5), "g", shown_windows=["unknown"])
        assert windows_with_content(store) == ["w-b", "w-s-2", "w-s-3"]

    def test_deferred_facts_are_names_alone(self, store: Store) -> None:
        open_session(store, "s")
        add_window(store, window(1), prior=prior(1, "f", deferred=("g",)))
        assert withdraw(store, "g") == 0
        assert windows_with_content(store) == ["w-s-1"]
