"""What every store promises of sessions, their windows, and the withdrawal of facts."""

from __future__ import annotations

import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import (
    NAMESPACE,
    NOON,
    add_window,
    fact,
    fill,
    open_session,
    report,
    rows,
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


class SessionsConformance:
    """Sessions, their windows, and what windows said."""

    def test_the_safety_budget_never_rises(self, store: Store) -> None:
        """No writer may raise it; a budget that is equal to four digits is no rise."""
        open_session(store, "s", safety_budget=0.4)
        for left in (0.4001, 0.9, 1.0):
            with store.begin(NAMESPACE) as transaction:
                with pytest.raises(StoreError, match=r"budget 0\.4"):
                    sessions_of(transaction).keep(session("s", safety_budget=left))
                sessions_of(transaction).keep(session("s", safety_budget=0.40000001))
        open_session(store, "s", safety_budget=0.0)
        with store.begin(NAMESPACE, write=False) as transaction:
            stored = sessions_of(transaction).session("s")
        assert stored is not None
        assert stored.safety_budget == 0.0

    def test_what_has_ended_stays_as_it_is(self, store: Store) -> None:
        open_session(store, "s", ended=True)
        for changed in (session("s"), session("s", ended=True, safety_budget=0.1)):
            with store.begin(NAMESPACE) as transaction, pytest.raises(StoreError, match="ended"):
                sessions_of(transaction).keep(changed)
        add_window(store, window(1))
        assert windows_with_content(store) == ["w-s-1"]

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


NODES = 4


class WithdrawalConformance:
    """What windows said goes with the facts that it came from; nodes stay."""

    @pytest.mark.parametrize("how", ["prior", "report", "named", "source", "stored source"])
    def test_a_window_is_emptied_with_a_fact_that_it_came_from(
        self, store: Store, how: str
    ) -> None:
        (other,) = fill(store, "other")
        gone = fact("gone", source_id="doc")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([gone], rows([gone]))
        open_session(store, "s", "t")
        id_ = gone.fact_id
        add_window(store, window(1, "t"), other, report=report(other))
        match how:
            case "prior" | "stored source":
                add_window(store, window(1), other, id_)
            case "report":
                add_window(store, window(1), other, report=report(other, id_))
            case "named":
                add_window(store, window(1), other, facts=[id_])
            case _:
                add_window(store, window(1), other, sources=["doc"])
        assert windows_with_content(store, "s", "t") == ["w-s-1", "w-t-1"]
        assert withdraw(store, "unknown", source_id="another") == 0
        if "source" in how:
            assert withdraw(store, source_id="doc") == 1
        else:
            assert withdraw(store, id_) == 1
        assert windows_with_content(store, "s", "t") == ["w-t-1"]
        with store.begin(NAMESPACE, write=False) as transaction:
            assert sessions_of(transaction).windows("s") == [window(1)]
            assert transaction.facts.get([id_, other])
        assert withdraw(store, id_, source_id="doc") == 0

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
