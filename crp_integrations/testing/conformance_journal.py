"""What every store promises of the journal, seals and receipts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import chain_events, verify_journal
from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.merkle import Tree, inclusion, root_of
from crp_integrations.receipt.records import Draft, Receipt, issue, write
from crp_integrations.receipt.verify import verify as verify_receipt
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    OTHER,
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
from crp_integrations.vocabulary import ChainIntegrity, EventType, FactStatus

AT = "2026-05-25T10:00:00Z"


def append_events(store: Store, count: int) -> list[Event]:
    """Append events to the journal; returns them."""
    drafts = [
        EventDraft(
            EventType.FACT_INGESTED,
            {"n": n, "share": n / 3, "ids": ["ü", None, True], "whole": 1.0},
            session_id="s" if n % 2 else "",
            window_id=f"w{n}",
        )
        for n in range(count)
    ]
    # Any JSON must come back as it was; what events may say is the audit room's matter.
    with store.begin(NAMESPACE) as transaction:
        events = chain_events(transaction.journal.tip(), KEY, drafts, AT)
        transaction.journal.append(events)
        return events


class JournalConformance:
    """Events and window seals."""

    def test_a_new_journal_is_empty(self, store: Store) -> None:
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.journal.tip() is None
            assert list(transaction.journal.events()) == []
            assert transaction.journal.last_seal("s") is None
            assert transaction.journal.seals("s") == []
            assert list(transaction.journal.all_seals()) == []

    def test_events_come_back_in_order_and_verify(self, store: Store) -> None:
        written = [*append_events(store, 3), *append_events(store, 2_100), *append_events(store, 1)]
        with store.begin(NAMESPACE, write=False) as transaction:
            read = list(transaction.journal.events())
            assert read == written
            assert [event.seq for event in read] == list(range(1, len(written) + 1))
            assert transaction.journal.tip() == written[-1]
            assert list(transaction.journal.events(after=2_102)) == written[2_102:]
            assert list(transaction.journal.events(after=9_999)) == []
        assert verify_journal(read, KEY) == len(written)

    @pytest.mark.parametrize("seq", [0, 2, 4, 5])
    def test_a_place_that_is_not_the_next_is_refused(self, store: Store, seq: int) -> None:
        written = append_events(store, 2)
        with store.begin(NAMESPACE) as transaction:
            with pytest.raises(StoreError, match=f"seq {seq}"):
                transaction.journal.append([written[0].model_copy(update={"seq": seq})])
            assert transaction.journal.tip() == written[-1]

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

    def test_a_window_is_sealed_once(self, store: Store) -> None:
        with store.begin(NAMESPACE) as transaction:
            transaction.journal.seal(seal("s", 1))
            with pytest.raises(StoreError, match="window 1"):
                transaction.journal.seal(seal("s", 1, etag="other"))
            assert transaction.journal.seals("s") == [seal("s", 1)]

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


# Facts whose ids are in no store.
ELSEWHERE = ("x-0", "x-1")


def add_receipts(store: Store, *made: Receipt, sources: dict[str, str] | None = None) -> None:
    """Add receipts, each in a transaction of its own."""
    for one in made:
        with store.begin(NAMESPACE) as transaction:
            receipts_in(transaction).add(one, sources or {})


def stored_receipt(store: Store, one: Receipt) -> Receipt:
    """A receipt as the store has it, which must verify."""
    with store.begin(NAMESPACE, write=False) as transaction:
        found = receipts_in(transaction).get(one.receipt_id)
    assert found is not None
    verified = verify_receipt(write(found), key=SIGNER.public)
    assert verified.ok, (verified.place, verified.reason)
    assert found.signed == one.signed
    return found


def erased_in(one: Receipt) -> list[str]:
    """Names of the leaves whose texts were erased."""
    return [leaf.name for n, leaf in enumerate(one.leaves) if one.state(n) == "erased"]


class ReceiptsConformance:
    """Receipts are kept as they were signed, and their texts go with their facts."""

    def test_receipts_read_back_in_the_order_of_the_log(self, store: Store) -> None:
        made = [receipt(n, *ELSEWHERE) for n in (1, 2, 3)]
        other = receipt(1, session_id="t", window_id="w-t-1", hmac="sha256:t")
        add_receipts(store, *made[:2], other, made[2])
        ids = [one.receipt_id for one in (*made[:2], other, made[2])]
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            assert [found.get(id_) for id_ in ids] == [*made[:2], other, made[2]]
            assert found.of_window("w-s-2") == made[1]
            assert [found.place(id_) for id_ in ids] == [0, 1, 2, 3]
            assert found.ids() == ids
            assert found.ids(after=0, limit=2) == ids[1:3]
            assert found.ids(session_id="s") == [one.receipt_id for one in made]
            assert found.ids(after=0, limit=1, session_id="s") == [made[1].receipt_id]
            assert found.size() == 4
            for missing in ("", "crp_rcpt_0", "w-s-1"):
                assert found.get(missing) is None
                assert found.place(missing) is None
            assert found.of_window(ids[0]) is None

    def test_an_empty_namespace_has_an_empty_log(self, store: Store) -> None:
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            assert (found.size(), found.ids(), found.get("x")) == (0, [], None)
            with pytest.raises(StoreError, match="no node 0 of level 0"):
                found.node(0, 0)
            with pytest.raises(StoreError, match="opened for reading"):
                found.add(receipt(1), {})

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

    def test_the_log_is_the_merkle_tree_of_what_was_signed(self, store: Store) -> None:
        made = [receipt(n, *ELSEWHERE) for n in range(1, 20)]
        for size, one in enumerate(made, start=1):
            add_receipts(store, one)
            with store.begin(NAMESPACE, write=False) as transaction:
                node = receipts_in(transaction).node
                tree = Tree(other.log_hash for other in made[:size])
                assert root_of(size, node) == tree.root
                assert inclusion(size // 2, size, node) == inclusion(size // 2, size, tree.node)

    def test_another_namespace_has_receipts_of_its_own(self, store: Store) -> None:
        one = receipt(1, *ELSEWHERE)
        add_receipts(store, one)
        with store.begin(OTHER) as transaction:
            found = receipts_in(transaction)
            assert found.get(one.receipt_id) is None
            assert found.of_window("w-s-1") is None
            assert (found.size(), found.ids()) == (0, [])
            assert found.add(one, {}) == 0

    @pytest.mark.parametrize("how", ["fact", "source", "removed"])
    def test_the_text_of_a_fact_goes_with_it(self, store: Store, how: str) -> None:
        gone, other = fill(store, "gone", "other")
        shows = receipt(1, other, gone)
        chosen = receipt(2, other, gone, shown=1)
        without = receipt(3, other)
        add_receipts(store, shows, chosen, without, sources={gone: "doc"})
        match how:
            case "fact":
                assert withdraw(store, gone) == 2
            case "source":
                assert withdraw(store, source_id="doc") == 2
            case _:
                with store.begin(NAMESPACE) as transaction:
                    transaction.facts.remove([gone])
        assert erased_in(stored_receipt(store, shows)) == ["context", "answer", f"fact/{gone}"]
        # A candidate that was not shown is quoted by nothing.
        assert erased_in(stored_receipt(store, chosen)) == [f"fact/{gone}"]
        assert stored_receipt(store, without) == without
        assert withdraw(store, gone, source_id="doc") == 0
        assert withdraw(store, "unknown", source_id="another") == 0
        assert withdraw(store, other) == 3
        assert f"fact/{other}" in erased_in(stored_receipt(store, without))
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            tree = Tree(one.log_hash for one in (shows, chosen, without))
            assert root_of(3, found.node) == tree.root

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
        one = issue(Draft({}, tuple(leaves)), chain, SIGNER, KEY)
        add_receipts(store, one)
        assert stored_receipt(store, one) == one
