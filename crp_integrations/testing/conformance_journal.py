"""What every store promises of the journal, seals and receipts."""

from __future__ import annotations

import pytest

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import chain_events, verify_journal
from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.receipt.merkle import Tree, inclusion, root_of
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.verify import verify as verify_receipt
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    SIGNER,
    fill,
    receipt,
    receipts_in,
    seal,
    withdraw,
)
from crp_integrations.vocabulary import EventType

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

    def test_a_window_is_sealed_once(self, store: Store) -> None:
        with store.begin(NAMESPACE) as transaction:
            transaction.journal.seal(seal("s", 1))
            with pytest.raises(StoreError, match="window 1"):
                transaction.journal.seal(seal("s", 1, etag="other"))
            assert transaction.journal.seals("s") == [seal("s", 1)]


# Facts whose ids are in no store.
ELSEWHERE = ("x-0", "x-1")


def add_receipts(store: Store, *made: Receipt, sources: dict[str, str] | None = None) -> None:
    """Add receipts, each in a transaction of its own."""
    for entry in made:
        with store.begin(NAMESPACE) as transaction:
            receipts_in(transaction).add(entry, sources or {})


def stored_receipt(store: Store, one: Receipt) -> Receipt:
    """A receipt as the store has it, which must verify."""
    with store.begin(NAMESPACE, write=False) as transaction:
        stored = receipts_in(transaction).get(one.receipt_id)
    assert stored is not None
    verified = verify_receipt(write(stored), key=SIGNER.public)
    assert verified.ok, (verified.place, verified.reason)
    assert stored.signed == one.signed
    return stored


def erased_in(one: Receipt) -> list[str]:
    """Names of the leaves whose texts were erased."""
    return [leaf.name for n, leaf in enumerate(one.leaves) if one.state(n) == "erased"]


class ReceiptsConformance:
    """Receipts are kept as they were signed, and their texts go with their facts."""

    def test_receipts_read_back_in_the_order_of_the_log(self, store: Store) -> None:
        made = [receipt(n, *ELSEWHERE) for n in (1, 2, 3)]
        other = receipt(1, session_id="t", window_id="w-t-1", hmac="sha256:t")
        add_receipts(store, *made[:2], other, made[2])
        ids = [entry.receipt_id for entry in (*made[:2], other, made[2])]
        with store.begin(NAMESPACE, write=False) as transaction:
            log = receipts_in(transaction)
            assert [log.get(id_) for id_ in ids] == [*made[:2], other, made[2]]
            assert log.of_window("w-s-2") == made[1]
            assert [log.place(id_) for id_ in ids] == [0, 1, 2, 3]
            assert log.ids() == ids
            assert log.ids(after=0, limit=2) == ids[1:3]
            assert log.ids(session_id="s") == [entry.receipt_id for entry in made]
            assert log.ids(after=0, limit=1, session_id="s") == [made[1].receipt_id]
            assert log.size() == 4
            for missing in ("", "crp_rcpt_0", "w-s-1"):
                assert log.get(missing) is None
                assert log.place(missing) is None
            assert log.of_window(ids[0]) is None

    def test_the_log_is_the_merkle_tree_of_what_was_signed(self, store: Store) -> None:
        made = [receipt(n, *ELSEWHERE) for n in range(1, 20)]
        for size, entry in enumerate(made, start=1):
            add_receipts(store, entry)
            with store.begin(NAMESPACE, write=False) as transaction:
                node = receipts_in(transaction).node
                tree = Tree(other.log_hash for other in made[:size])
                assert root_of(size, node) == tree.root
                assert inclusion(size // 2, size, node) == inclusion(size // 2, size, tree.node)

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
            log = receipts_in(transaction)
            tree = Tree(entry.log_hash for entry in (shows, chosen, without))
            assert root_of(3, log.node) == tree.root
