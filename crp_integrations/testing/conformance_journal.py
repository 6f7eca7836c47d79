"""What the journal facet of every store must do."""

from __future__ import annotations

import pytest

from crp_integrations.audit import windows
from crp_integrations.audit.journal import EventDraft, chained, verify
from crp_integrations.audit.records import Event
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.testing.records import KEY, NAMESPACE, seal
from crp_integrations.vocabulary import ChainIntegrity, EventType

AT = "2026-05-25T10:00:00Z"


def write(store: Store, count: int) -> list[Event]:
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
        events = chained(transaction.journal.tip(), KEY, drafts, AT)
        transaction.journal.append(events)
        return events


class JournalConformance:
    """Events and window seals."""

    def test_a_new_journal_is_empty(self, store: Store) -> None:
        """No tip, no events, no seals."""
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.journal.tip() is None
            assert list(transaction.journal.events()) == []
            assert transaction.journal.last_seal("s") is None
            assert transaction.journal.seals("s") == []
            assert list(transaction.journal.all_seals()) == []

    def test_events_come_back_in_order_and_verify(self, store: Store) -> None:
        """The chain goes on over transactions and survives the store."""
        written = [*write(store, 3), *write(store, 2_100), *write(store, 1)]
        with store.begin(NAMESPACE, write=False) as transaction:
            read = list(transaction.journal.events())
            assert read == written
            assert [event.seq for event in read] == list(range(1, len(written) + 1))
            assert transaction.journal.tip() == written[-1]
            assert list(transaction.journal.events(after=2_102)) == written[2_102:]
            assert list(transaction.journal.events(after=9_999)) == []
        assert verify(read, KEY) == len(written)

    @pytest.mark.parametrize("seq", [0, 2, 4, 5])
    def test_a_place_that_is_not_the_next_is_refused(self, store: Store, seq: int) -> None:
        """Places go on without gaps."""
        written = write(store, 2)
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
        """Every seal once, sessions by code points, also where they are read in pages."""
        names = ("Z", "a", "ab", "\u00fc", "\uffee", "\U0001f600")
        made = [seal(name, number) for name in names for number in range(1, 6)]
        made[10:10] = [seal("aa", number) for number in range(1, 2_101)]
        with store.begin(NAMESPACE) as transaction:
            for one in [*made[7:], *made[:7]]:
                transaction.journal.seal(one)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert list(transaction.journal.all_seals()) == made

    def test_siblings_share_a_number(self, store: Store) -> None:
        """They are sealed under it by id, and stand in the order of their ids."""
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
        """A second seal of the same number and id is refused and the first one stays."""
        with store.begin(NAMESPACE) as transaction:
            transaction.journal.seal(seal("s", 1))
            with pytest.raises(StoreError, match="window 1"):
                transaction.journal.seal(seal("s", 1, etag="other"))
            assert transaction.journal.seals("s") == [seal("s", 1)]

    def test_a_chain_of_windows(self, store: Store) -> None:
        """Sealed through the store, read back, verified."""
        for number in (1, 2, 3):
            with store.begin(NAMESPACE) as transaction:
                windows.seal(
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
            assert windows.verify(transaction.journal.seals("s"), KEY) is ChainIntegrity.VALID

    def test_what_is_read_cannot_be_used_to_change_the_journal(self, store: Store) -> None:
        """A record's data is the reader's own copy."""
        write(store, 1)
        with store.begin(NAMESPACE, write=False) as transaction:
            for event in transaction.journal.events():
                event.data["n"] = 99
            assert verify(transaction.journal.events(), KEY) == 1
