"""What every store promises of the journal, seals and receipts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from crp_integrations.audit import window_seals
from crp_integrations.audit.journal import verify_journal
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.predicate import SCHEMA
from crp_integrations.receipt.records import Draft, issue
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.conformance_sessions import (
    AT,
    ELSEWHERE,
    add_receipts,
    append_events,
    erased_in,
    stored_receipt,
)
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    SIGNER,
    add_window,
    fact,
    fill,
    open_session,
    receipt,
    receipts_in,
    rows,
    seal,
    session,
    window,
    withdraw,
)
from crp_integrations.vocabulary import ChainIntegrity, FactStatus


class JournalLaws:
    """Events and window seals."""

    def test_seals_by_session_and_number(self, store: Store) -> None:
        """Ten comes after two."""
        made = [seal("s", number, etag=f"e{number}", outcome="failed") for number in range(1, 12)]
        with store.begin(NAMESPACE) as transaction:
            for one in [*made[5:], *made[:5]]:
                transaction.journal.seal(one)
            transaction.journal.seal(seal("t", 1))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.journal.seals("s") == made
            assert transaction.journal.last_seal("s") == made[-1]
            assert transaction.journal.seals("t") == [seal("t", 1)]

    def test_all_seals_by_session_and_number(self, store: Store) -> None:
        names = ("Z", "a", "ab", "\u00fc", "\uffee", "\U0001f600")
        made = [seal(name, number) for name in names for number in range(1, 6)]
        made[10:10] = [seal("aa", number) for number in range(1, 2_101)]
        with store.begin(NAMESPACE) as transaction:
            for one in [*made[7:], *made[:7]]:
                transaction.journal.seal(one)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert list(transaction.journal.all_seals()) == made

    def test_a_chain_of_windows(self, store: Store) -> None:
        for number in (1, 2, 3):
            with store.begin(NAMESPACE) as transaction:
                window_seals.seal_window(
                    transaction.journal,
                    KEY,
                    session_id="s",
                    window_id=f"w{number}",
                    window_number=number,
                    timestamp=AT,
                    response_hash="sha256:a",
                    report_hash="sha256:b",
                    outcome="released",
                )
        with store.begin(NAMESPACE, write=False) as transaction:
            assert (
                window_seals.verify_seals(transaction.journal.seals("s"), KEY)
                is ChainIntegrity.VALID
            )

    def test_what_is_read_cannot_be_used_to_change_the_journal(self, store: Store) -> None:
        append_events(store, 1)
        with store.begin(NAMESPACE, write=False) as transaction:
            for event in transaction.journal.events():
                event.data["n"] = 99
            assert verify_journal(transaction.journal.events(), KEY) == 1

    def test_siblings_share_a_number(self, store: Store) -> None:
        made = [
            seal("s", 1),
            *(seal("s", 2, window_id=f"w{letter}", hmac=letter) for letter in "abc"),
            seal("s", 3),
            seal("t", 1),
        ]
        made[3:3] = [seal("s", 2, window_id=f"wb{number:04}") for number in range(2_000)]
        with store.begin(NAMESPACE) as transaction:
            for one in [*made[4:-2], *reversed(made[:4])]:
                transaction.journal.seal(one)
            assert transaction.journal.last_seal("s") == made[-3]
            for one in made[-2:]:
                transaction.journal.seal(one)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.journal.seals("s") == made[:-1]
            assert list(transaction.journal.all_seals()) == made
            assert transaction.journal.last_seal("s") == made[-2]


class ReceiptsLaws:
    """Receipts are kept as they were signed, and their texts go with their facts."""

    def test_an_empty_namespace_has_an_empty_log(self, store: Store) -> None:
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            assert (found.size(), found.ids(), found.get("x")) == (0, [], None)
            with pytest.raises(StoreError, match="no node 0 of level 0"):
                found.node(0, 0)
            with pytest.raises(StoreError, match="opened for reading"):
                found.add(receipt(1), {})

    def test_an_erasure_that_is_undone_took_nothing(self, store: Store) -> None:
        (gone,) = fill(store, "gone")
        one = receipt(1, gone)
        add_receipts(store, one)

        def withdraw_and_raise() -> None:
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.remove([gone])
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            withdraw_and_raise()
        assert stored_receipt(store, one) == one

    def test_what_may_repeat_an_emptied_window_goes(self, store: Store) -> None:
        """A later window of the session never showed the fact, and may have been told of it."""
        gone, other = fill(store, "gone", "other")
        open_session(store, "s")
        add_window(store, window(1), gone)
        add_window(store, window(2), other)
        first, second = receipt(1, gone), receipt(2, other)
        add_receipts(store, first, second)
        assert withdraw(store, gone) == 2
        assert erased_in(stored_receipt(store, first)) == [
            "context",
            "answer",
            "prior",
            f"fact/{gone}",
        ]
        assert erased_in(stored_receipt(store, second)) == ["answer", "prior"]
        assert stored_receipt(store, second).text(0) == "question 2"

    def test_a_fact_withdrawn_under_way_is_not_kept(self, store: Store) -> None:
        gone, back = fill(store, "gone", "back")
        withdraw(store, gone, back)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([gone])
        one = receipt(1, gone, back)
        add_receipts(store, one)
        assert erased_in(stored_receipt(store, one)) == ["context", "answer", f"fact/{gone}"]

    def test_a_fact_deleted_under_way_is_not_kept(self, store: Store) -> None:
        deleted = fact("deleted", status=FactStatus.DELETED)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([deleted], rows([deleted]))
        withdraw(store, deleted.fact_id)
        one = receipt(1, deleted.fact_id, *ELSEWHERE, shown=0)
        add_receipts(store, one)
        assert erased_in(stored_receipt(store, one)) == [f"fact/{deleted.fact_id}"]

    def test_a_session_takes_the_texts_of_its_receipts_with_it(self, store: Store) -> None:
        first, other = receipt(1, *ELSEWHERE), receipt(1, session_id="t", window_id="w-t-1")
        with store.begin(NAMESPACE) as transaction:
            sessions_of(transaction).keep(session("s"))
        add_receipts(store, first, other)
        with store.begin(NAMESPACE) as transaction:
            assert sessions_of(transaction).forget("s")
        gone = stored_receipt(store, first)
        assert erased_in(gone) == [leaf.name for leaf in gone.leaves]
        assert stored_receipt(store, other) == other

    def test_texts_of_every_kind_read_back(self, store: Store) -> None:
        leaves: Sequence[Leaf] = (
            Leaf("request", '\0 a \x1f \u2028 é 🦭 "quoted" \\'),
            Leaf("context"),
            Leaf("answer", ""),
        )
        chain = receipt(1).chain
        one = issue(Draft({"schema": SCHEMA}, tuple(leaves)), chain, SIGNER, KEY)
        add_receipts(store, one)
        assert stored_receipt(store, one) == one

    def test_a_receipt_is_added_once_and_whole_or_not_at_all(self, store: Store) -> None:
        first, second = receipt(1, *ELSEWHERE), receipt(2, *ELSEWHERE)
        add_receipts(store, first)
        with pytest.raises(StoreError, match="is added once"):
            add_receipts(store, first)

        def add_and_raise() -> None:
            with store.begin(NAMESPACE) as transaction:
                receipts_in(transaction).add(second, {})
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            add_and_raise()
        with store.begin(NAMESPACE) as transaction:
            found = receipts_in(transaction)
            assert found.ids() == [first.receipt_id]
            assert found.node(0, 0) == first.log_hash
            with pytest.raises(StoreError, match="no node"):
                found.node(0, 1)
            assert found.add(second, {}) == 1
