"""What becomes of what windows said when facts go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.conformance_sessions import (
    add,
    open_session,
    prior,
    report,
    saying,
    session,
    window,
    withdraw,
)
from crp_integrations.testing.records import NAMESPACE, NOON, fact, fill, rows
from crp_integrations.vocabulary import FactStatus

NODES = 4


class WithdrawalConformance:
    """What windows said goes with the facts that it came from; nodes stay."""

    @pytest.mark.parametrize("how", ["prior", "report", "named", "source", "stored source"])
    def test_a_window_is_emptied_with_a_fact_that_it_came_from(
        self, store: Store, how: str
    ) -> None:
        """However it is known to have come from it; another session's stays."""
        (kept,) = fill(store, "other")
        gone = fact("gone", source_id="doc")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([gone], rows([gone]))
        open_session(store, "s", "t")
        id_ = gone.fact_id
        add(store, window(1, "t"), kept, report=report(kept))
        match how:
            case "prior" | "stored source":
                add(store, window(1), kept, id_)
            case "report":
                add(store, window(1), kept, report=report(kept, id_))
            case "named":
                add(store, window(1), kept, facts=[id_])
            case _:
                add(store, window(1), kept, sources=["doc"])
        assert saying(store, "s", "t") == ["w-s-1", "w-t-1"]
        assert withdraw(store, "unknown", source_id="another") == 0
        if "source" in how:
            assert withdraw(store, source_id="doc") == 1
        else:
            assert withdraw(store, id_) == 1
        assert saying(store, "s", "t") == ["w-t-1"]
        with store.begin(NAMESPACE, write=False) as transaction:
            assert sessions_of(transaction).windows("s") == [window(1)]
            assert transaction.facts.get([id_, kept])
        assert withdraw(store, id_, source_id="doc") == 0

    def test_removing_facts_empties_as_well(self, store: Store) -> None:
        """A fact's removal takes everything that hangs on it, in its own transaction."""
        gone, kept = fill(store, "gone", "kept")
        open_session(store, "s", "t")
        add(store, window(1), gone)
        add(store, window(1, "t"), kept)

        def remove_and_raise() -> None:
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.remove([gone])
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            remove_and_raise()
        assert saying(store, "s", "t") == ["w-s-1", "w-t-1"]
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([gone, "unknown"])
            assert sessions_of(transaction).priors(["w-s-1"]) == {}
        assert saying(store, "s", "t") == ["w-t-1"]

    def test_a_quarantine_takes_nothing(self, store: Store) -> None:
        """It may be lifted; and so may every other status change."""
        (id_,) = fill(store, "doubted")
        open_session(store, "s")
        add(store, window(1), id_)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([id_], FactStatus.QUARANTINED, NOON)
        assert saying(store) == ["w-s-1"]

    def test_windows_that_follow_are_emptied_too(self, store: Store) -> None:
        """They may repeat it; those before, siblings and other branches cannot."""
        open_session(store, "s", "t")
        for number in range(1, NODES + 1):
            add(store, window(number), f"f{number}")
            add(store, window(number, "t"), f"g{number}")
        for number in range(2, NODES + 1):
            before = f"w-branch-{number - 1}" if number > 2 else "w-s-1"
            node = window(number, window_id=f"w-branch-{number}", parents=(before,))
            add(store, node, f"h{number}")
        joined = window(NODES + 1, parents=(f"w-branch-{NODES}", f"w-s-{NODES}"))
        add(store, joined, "other")
        assert withdraw(store, "f2", "unknown") == NODES
        assert saying(store) == ["w-s-1", *(f"w-branch-{n}" for n in range(2, NODES + 1))]
        assert len(saying(store, "t")) == NODES
        with store.begin(NAMESPACE, write=False) as transaction:
            assert len(sessions_of(transaction).windows("s")) == 2 * NODES

    def test_sessions_around_an_agents_are_emptied_from_then_on(self, store: Store) -> None:
        """Its answer went up, and from there to other agents; what was closed before stays."""
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
            add(store, window(minute, name, parents=parents), f"f-{name}-{minute}")
        assert saying(store, "child") == ["w-child-2", "w-child-8"]
        assert withdraw(store, "f-child-2") == 7
        left = saying(store, *names)
        assert left == ["w-root-1", *(f"w-{n}-{m}" for n, m in (
            ("stranger", 5), ("stranger", 11), ("orphan", 6), ("orphan", 12)
        ))]  # fmt: skip

    def test_a_window_under_way_keeps_nothing_of_what_was_withdrawn(self, store: Store) -> None:
        """It began before, and is closed after; its node is kept, and so is the next window."""
        removed, deleted = fill(store, "removed", "deleted")
        open_session(store, "s")
        assert withdraw(store, removed, deleted, at=NOON) == 0
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([removed])
            transaction.facts.set_status([deleted], FactStatus.DELETED, NOON)
        add(store, window(1), removed, "other")
        add(store, window(2), "other", report=report(deleted))
        add(store, window(3), "other", facts=[removed])
        add(store, window(4), "other")
        assert saying(store) == ["w-s-4"]
        with store.begin(NAMESPACE, write=False) as transaction:
            assert len(sessions_of(transaction).windows("s")) == 4

    def test_what_was_added_again_may_be_kept_again(self, store: Store) -> None:
        """The same text from the same place has the same id."""
        again = fact("again")
        open_session(store, "s")
        withdraw(store, again.fact_id, "other", at=NOON)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([again], rows([again]))
        add(store, window(1), again.fact_id)
        add(store, window(2), "other")
        assert saying(store) == ["w-s-1"]
        assert withdraw(store, again.fact_id) == 1

    def test_a_withdrawal_is_remembered_for_a_day(self, store: Store) -> None:
        """No window is under way for longer, and the note itself is not to stay."""
        open_session(store, "s")
        withdraw(store, "f", at=NOON)
        day = NOON + timedelta(days=1)
        add(store, window(1, timestamp=day.isoformat()), "f")
        add(store, window(2, timestamp=(day + timedelta(seconds=1)).isoformat()), "f")
        assert saying(store) == ["w-s-2"]

    def test_a_window_made_from_an_emptied_one_keeps_nothing(self, store: Store) -> None:
        """By its parents; the windows after it do not suffer."""
        open_session(store, "s")
        add(store, window(1), "f")
        withdraw(store, "f")
        add(store, window(2), "g")
        add(store, window(3), "g")
        assert saying(store) == ["w-s-3"]

    def test_who_says_what_a_window_was_given_loses_no_more(self, store: Store) -> None:
        """What was given and is gone counts; what was not given does not."""
        open_session(store, "s")
        add(store, window(1), "f")
        add(store, window(1, window_id="w-b"), "g")
        withdraw(store, "f")
        add(store, window(2), "g", given=[])
        add(store, window(3), "g", given=["w-b", "w-s-2", "w-b"])
        add(store, window(4), "g", given=["w-b", "w-s-1"])
        add(store, window(5), "g", given=["unknown"])
        assert saying(store) == ["w-b", "w-s-2", "w-s-3"]

    def test_deferred_facts_are_names_alone(self, store: Store) -> None:
        """A window that did not show a fact says nothing of it."""
        open_session(store, "s")
        add(store, window(1), prior=prior(1, "f", deferred=("g",)))
        assert withdraw(store, "g") == 0
        assert saying(store) == ["w-s-1"]
