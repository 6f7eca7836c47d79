"""A new key seals from now on, the keys before still verify, and no key falls back."""

from __future__ import annotations

import pickle

import pytest

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, matches_key, verify_journal
from crp_integrations.audit.window_seals import (
    ChainKey,
    journal_key,
    key_epochs,
    key_id,
    session_key,
)
from crp_integrations.errors import ChainBroken, StoreError
from crp_integrations.ports import KeyRing, retired_of
from crp_integrations.seals import derive_key
from crp_integrations.stores.keys import FixedKeyRing, MemoryKeyRing
from crp_integrations.vocabulary import ChainIntegrity, EventType
from tests.audit.chain_graphs import SESSION, TENANT, Memory, window

A, B, C = (bytes([number]) * 32 for number in (1, 2, 3))
FIRST = FixedKeyRing(A)
SECOND = FixedKeyRing(B, retired=[A])
THIRD = FixedKeyRing(C, retired=[A, B])
OLD_STYLE = type("OldStyle", (), {"master": lambda self: A})()


def test_a_ring_tells_its_earlier_keys_where_it_has_any() -> None:
    assert list(retired_of(THIRD)) == [A, B]
    assert list(retired_of(OLD_STYLE)) == list(retired_of(FIRST)) == []


def rotated() -> Memory:
    """Two windows of each of three epochs, in one session."""
    journal = Memory()
    for number, ring in enumerate((FIRST, FIRST, SECOND, SECOND, THIRD, THIRD), start=1):
        window(journal, f"w{number}", number, keyring=ring)
    return journal


def fits(journal: Memory, ring: KeyRing) -> bool:
    try:
        journal.check(ring)
    except ChainBroken:
        return False
    return True


def test_windows_and_events_of_every_epoch_verify() -> None:
    journal = rotated()
    assert journal.check(THIRD).windows == 6
    key = session_key(THIRD, SESSION)
    assert window_seals.verify_seals(journal.seals(SESSION), key) is ChainIntegrity.VALID
    assert verify_journal(journal.written, journal_key(THIRD, TENANT)) == 12
    for ring in (FIRST, SECOND, FixedKeyRing(C), FixedKeyRing(C, retired=[B, A])):
        assert not fits(journal, ring), ring


def test_the_id_of_the_key_is_stored_and_never_the_key() -> None:
    journal = rotated()
    ids = [event.data.get("key_id", "") for event in journal.written]
    assert ids == [""] * 4 + [key_id(B)] * 4 + [key_id(C)] * 4
    everything = "".join(one.model_dump_json() for one in (*journal.written, *journal.sealed))
    for master in (A, B, C):
        assert master.hex() not in everything
        for key in (derive_key(master, salt=TENANT, info=b"crp-journal-hmac-v1"),):
            assert key.hex() not in everything
    assert key_id(A).startswith("key_") and len({key_id(A), key_id(B), key_id(C)}) == 3


def test_a_store_that_was_never_rotated_is_sealed_as_it_always_was() -> None:
    plain, other = Memory(), Memory()
    window(plain, "w1", 1, keyring=FIRST)
    window(other, "w1", 1, keyring=OLD_STYLE)
    assert plain.written == other.written and plain.sealed == other.sealed
    assert "key_id" not in plain.written[0].data
    assert session_key(FIRST, "s") == derive_key(A, salt="s", info=b"crp-session-hmac-v3")


def test_who_holds_an_old_key_alone_cannot_go_on() -> None:
    journal = rotated()
    key = journal_key(FIRST, TENANT)
    draft = EventDraft(EventType.SAFETY_HALT, {})
    with pytest.raises(StoreError, match="which this key ring lacks"):
        append_events(journal, key, [draft], "2026-05-25T10:00:00Z")
    assert len(journal.written) == 12
    assert not matches_key(journal, key)
    assert not matches_key(journal, journal_key(FixedKeyRing(C), TENANT))
    assert matches_key(journal, journal_key(THIRD, TENANT))


def test_a_journal_before_its_rotation_goes_with_the_ring_after_it() -> None:
    journal = Memory()
    window(journal, "w1", 1, keyring=FIRST)
    for ring in (FIRST, SECOND, THIRD):
        assert matches_key(journal, journal_key(ring, TENANT))
        assert fits(journal, ring)
    assert not matches_key(journal, journal_key(FixedKeyRing(B, retired=[C]), TENANT))


def test_a_retired_key_seals_no_event_any_more() -> None:
    """Even one that was stolen: what it seals now stands behind events of a later epoch."""
    journal = rotated()
    forger = Memory(written=[*journal.written[:-1]])
    stolen = Memory(written=[journal.written[-2].model_copy(update={"data": {}})])
    append_events(stolen, journal_key(FIRST, TENANT), [EventDraft(EventType.SAFETY_HALT, {})], "t")
    forger.written.append(stolen.written[-1])
    with pytest.raises(ChainBroken, match="retired before") as broken:
        verify_journal(forger.written, journal_key(THIRD, TENANT))
    assert broken.value.index == 11


def test_a_retired_key_seals_no_window_any_more() -> None:
    journal = Memory()
    window(journal, "w1", 1, keyring=FIRST)
    window(journal, "w2", 2, keyring=SECOND)
    forged = Memory(sealed=[*journal.sealed])
    window_seals.seal_window(
        forged,
        session_key(FIRST, SESSION),
        session_id=SESSION,
        window_id="crp_win_w3",
        window_number=3,
        timestamp="2026-05-25T10:00:09Z",
        response_hash="",
        report_hash="",
        outcome="released",
    )
    key = session_key(SECOND, SESSION)
    assert window_seals.first_break(forged.seals(SESSION), key) == 2


def test_siblings_of_different_epochs_and_what_joins_them() -> None:
    journal = Memory()
    root = window(journal, "root", 1, keyring=FIRST)
    left = window(journal, "left", 2, [root], keyring=FIRST)
    right = window(journal, "right", 2, [root], keyring=SECOND)
    window(journal, "joined", 3, [left, right], keyring=SECOND)
    assert journal.check(SECOND).windows == 4
    assert not fits(journal, FIRST)


def test_data_cannot_name_another_key() -> None:
    draft = EventDraft(EventType.SAFETY_HALT, {"key_id": key_id(C)})
    with pytest.raises(StoreError, match="names key_id"):
        append_events(Memory(), journal_key(SECOND, TENANT), [draft], "t")


@pytest.mark.parametrize("ring", [FIRST, THIRD, MemoryKeyRing()])
def test_a_derived_key_shows_itself_nowhere(ring: KeyRing) -> None:
    key = session_key(ring, SESSION)
    assert isinstance(key, ChainKey) and len(key) == 32
    for one in key_epochs(key):
        for shown in (repr(one), str(one), f"{one}", f"{one!r}", repr([one]), repr({"k": one})):
            assert one.hex() not in shown and repr(bytes(one))[2:-1] not in shown
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(key)


def test_plain_bytes_are_one_epoch() -> None:
    (only,) = key_epochs(A)
    assert (bytes(only), only.key_id, only.earlier) == (A, "", ())
    assert [one.key_id for one in key_epochs(session_key(THIRD, SESSION))] == [
        "", key_id(B), key_id(C)
    ]  # fmt: skip
