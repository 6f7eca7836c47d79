"""What every store promises of sessions, their windows, and the withdrawal of facts."""

from __future__ import annotations

from collections.abc import Callable
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
    run_threads,
    seal,
    session,
    window,
    windows_with_content,
    withdraw,
)
from crp_integrations.vocabulary import (
    FactStatus,
    Pattern,
    QualityTier,
    RiskLevel,
    Strategy,
    TransferType,
)

THREADS = 4
CHARGES = 10


class SessionsConformance:
    """Sessions, their windows, and what windows said."""

    def test_a_new_namespace_has_no_sessions(self, store: Store) -> None:
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
        open_session(store, "s", ended=True)
        for changed in (session("s"), session("s", ended=True, safety_budget=0.1)):
            with store.begin(NAMESPACE) as transaction, pytest.raises(StoreError, match="ended"):
                sessions_of(transaction).keep(changed)
        add_window(store, window(1))
        assert windows_with_content(store) == ["w-s-1"]

    def test_a_session_needs_a_name_and_a_time(self, store: Store) -> None:
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

    def test_sessions_commit_with_facts_and_journal(self, store: Store) -> None:
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

    def test_forgetting_a_session_leaves_nothing_but_its_seals(self, store: Store) -> None:
        open_session(store, "s", "t")
        for name in ("s", "t"):
            add_window(store, window(1, name, continuation_id=f"c-{name}"), "f")
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


NODES = 4


class WithdrawalConformance:
    """What windows said goes with the facts that it came from; nodes stay."""

    @pytest.mark.parametrize("how", ["prior", "report", "named", "source", "stored source"])
    def test_a_window_is_emptied_with_a_fact_that_it_came_from(
        self, store: Store, how: str
    ) -> None:
        (kept,) = fill(store, "other")
        gone = fact("gone", source_id="doc")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([gone], rows([gone]))
        open_session(store, "s", "t")
        id_ = gone.fact_id
        add_window(store, window(1, "t"), kept, report=report(kept))
        match how:
            case "prior" | "stored source":
                add_window(store, window(1), kept, id_)
            case "report":
                add_window(store, window(1), kept, report=report(kept, id_))
            case "named":
                add_window(store, window(1), kept, facts=[id_])
            case _:
                add_window(store, window(1), kept, sources=["doc"])
        assert windows_with_content(store, "s", "t") == ["w-s-1", "w-t-1"]
        assert withdraw(store, "unknown", source_id="another") == 0
        if "source" in how:
            assert withdraw(store, source_id="doc") == 1
        else:
            assert withdraw(store, id_) == 1
        assert windows_with_content(store, "s", "t") == ["w-t-1"]
        with store.begin(NAMESPACE, write=False) as transaction:
            assert sessions_of(transaction).windows("s") == [window(1)]
            assert transaction.facts.get([id_, kept])
        assert withdraw(store, id_, source_id="doc") == 0

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

    def test_windows_that_follow_are_emptied_too(self, store: Store) -> None:
        """They may repeat it; those before, siblings and other branches cannot."""
        open_session(store, "s", "t")
        for number in range(1, NODES + 1):
            add_window(store, window(number), f"f{number}")
            add_window(store, window(number, "t"), f"g{number}")
        for number in range(2, NODES + 1):
            before = f"w-branch-{number - 1}" if number > 2 else "w-s-1"
            node = window(number, window_id=f"w-branch-{number}", parents=(before,))
            add_window(store, node, f"h{number}")
        joined = window(NODES + 1, parents=(f"w-branch-{NODES}", f"w-s-{NODES}"))
        add_window(store, joined, "other")
        assert withdraw(store, "f2", "unknown") == NODES
        assert windows_with_content(store) == [
            "w-s-1",
            *(f"w-branch-{n}" for n in range(2, NODES + 1)),
        ]
        assert len(windows_with_content(store, "t")) == NODES
        with store.begin(NAMESPACE, write=False) as transaction:
            assert len(sessions_of(transaction).windows("s")) == 2 * NODES

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

    def test_a_window_under_way_keeps_nothing_of_what_was_withdrawn(self, store: Store) -> None:
        removed, deleted = fill(store, "removed", "deleted")
        open_session(store, "s")
        assert withdraw(store, removed, deleted, at=NOON) == 0
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([removed])
            transaction.facts.set_status([deleted], FactStatus.DELETED, NOON)
        add_window(store, window(1), removed, "other")
        add_window(store, window(2), "other", report=report(deleted))
        add_window(store, window(3), "other", facts=[removed])
        add_window(store, window(4), "other")
        assert windows_with_content(store) == ["w-s-4"]
        with store.begin(NAMESPACE, write=False) as transaction:
            assert len(sessions_of(transaction).windows("s")) == 4

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
        add_window(store, window(2), "g", given=[])
        add_window(store, window(3), "g", given=["w-b", "w-s-2", "w-b"])
        add_window(store, window(4), "g", given=["w-b", "w-s-1"])
        add_window(store, window(5), "g", given=["unknown"])
        assert windows_with_content(store) == ["w-b", "w-s-2", "w-s-3"]

    def test_deferred_facts_are_names_alone(self, store: Store) -> None:
        open_session(store, "s")
        add_window(store, window(1), prior=prior(1, "f", deferred=("g",)))
        assert withdraw(store, "g") == 0
        assert windows_with_content(store) == ["w-s-1"]
