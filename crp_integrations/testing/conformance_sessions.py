"""Guarantees of every store on sessions, windows, the journal, receipts and withdrawn facts."""

from __future__ import annotations

import pytest

from crp_integrations import vocabulary
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import chain_events, verify_journal
from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.receipt.merkle import Tree, inclusion, root_of
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.replay_records import BROKEN
from crp_integrations.receipt.verify import verify as verify_receipt
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    NOON,
    SIGNER,
    add_window,
    fact,
    fill,
    open_session,
    receipt,
    receipts_in,
    report,
    rows,
    seal,
    session,
    window,
    windows_with_content,
    withdraw,
)


class SessionsConformance:
    """Sessions, their windows, and the content of windows."""

    def test_the_safety_budget_never_rises(self, store: Store) -> None:
        """No writer may raise it; equality to four digits is not a rise."""
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
        """Numbers sort as numbers, and siblings share a number."""
        full = window(
            2,
            window_id="w-b",
            pattern=vocabulary.Pattern.FAN_OUT,
            strategy=vocabulary.Strategy.FAN_OUT,
            continuation_id="c2",
            etag="sha256:e",
            quality_tier=vocabulary.QualityTier.B,
            risk_level=vocabulary.RiskLevel.LOW,
            safety_budget=0.95,
            tokens=900,
            response_hash="sha256:r",
            transfer=vocabulary.TransferType.SUMMARY,
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
    """A window's content is deleted with the facts that it used; its node stays."""

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
        """Later windows may repeat a fact; earlier ones, siblings and other branches cannot."""
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
            transaction.facts.set_status([deleted], vocabulary.FactStatus.DELETED, NOON)
        add_window(store, window(1), removed, "other")
        add_window(store, window(2), "other", report=report(deleted))
        add_window(store, window(3), "other", facts=[removed])
        add_window(store, window(4), "other")
        assert windows_with_content(store) == ["w-s-4"]
        with store.begin(NAMESPACE, write=False) as transaction:
            assert len(sessions_of(transaction).windows("s")) == 4


AT = "2026-05-25T10:00:00Z"


def append_events(store: Store, count: int) -> list[Event]:
    """Append events to the journal and return them."""
    drafts = [
        EventDraft(
            vocabulary.EventType.FACT_INGESTED,
            {"n": n, "share": n / 3, "ids": ["ü", None, True], "whole": 1.0},
            session_id="s" if n % 2 else "",
            window_id=f"w{n}",
        )
        for n in range(count)
    ]
    # A store must return any JSON unchanged; `audit` decides what events may contain.
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


# Ids of facts that are in no store.
ELSEWHERE = ("x-0", "x-1")


def add_receipts(store: Store, *made: Receipt, sources: dict[str, str] | None = None) -> None:
    """Add receipts, each in a separate transaction."""
    for entry in made:
        with store.begin(NAMESPACE) as transaction:
            receipts_in(transaction).add(entry, sources or {})


def stored_receipt(store: Store, receipt: Receipt) -> Receipt:
    """The stored receipt, after asserting that it is whole and signed; its content is made up."""
    with store.begin(NAMESPACE, write=False) as transaction:
        stored = receipts_in(transaction).get(receipt.receipt_id)
    assert stored is not None
    verified = verify_receipt(write(stored), key=SIGNER.public)
    assert verified.word != BROKEN, (verified.place, verified.reason)
    assert stored.signed == receipt.signed
    return stored


def erased_in(receipt: Receipt) -> list[str]:
    """Names of the leaves whose texts were erased."""
    return [leaf.name for n, leaf in enumerate(receipt.leaves) if receipt.state(n) == "erased"]


class ReceiptsConformance:
    """Receipts are stored as signed, and their texts are erased with their facts."""

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
        # A candidate outside of the context is quoted by no other text.
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
