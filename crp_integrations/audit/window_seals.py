"""The chain of a session's windows: its keys, creating seals and checking them.

Windows of one fan-out share a number but have different ids; a window that follows several is
chained to all of them. So the chain is a directed acyclic graph, without forks a line.

Spec: CRP-SPEC-005 §15.3; related facts §5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NoReturn, Self

from crp_integrations.audit.records import JournalFacet, WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.ports import KeyRing, retired_of
from crp_integrations.seals import JOURNAL_INFO, SESSION_INFO, derive_key, same, window_hmac
from crp_integrations.vocabulary import ChainIntegrity

ETAG_INFO = b"crp-session-etag-v1"
KEY_ID_INFO = b"crp-key-id-v1"
KEY_ID_LENGTH = 16


class ChainKey(bytes):
    """A chain's key of the current epoch, with the keys of earlier epochs.

    Its repr contains only the id, and it cannot be pickled.

    Attributes:
        earlier: keys of earlier epochs, oldest first.
    """

    key_id: str
    earlier: tuple[ChainKey, ...]

    def __new__(cls, key: bytes, *, key_id: str = "", earlier: tuple[ChainKey, ...] = ()) -> Self:
        """Wrap a derived key with its id and the keys of earlier epochs."""
        made = super().__new__(cls, key)
        made.key_id = key_id
        made.earlier = earlier
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key_id or 'first epoch'})"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a chain key cannot be pickled; derive it again from the key ring")


def key_epochs(key: bytes) -> tuple[ChainKey, ...]:
    """The keys of a chain, oldest first; plain bytes are the key of a single epoch."""
    if not isinstance(key, ChainKey):
        return (ChainKey(key),)
    return (*key.earlier, key)


def key_id(master: bytes) -> str:
    """The id of a master key, which does not reveal the key: `key_` and 16 hexadecimal digits."""
    return "key_" + derive_key(master, salt="", info=KEY_ID_INFO).hex()[:KEY_ID_LENGTH]


def journal_key(keyring: KeyRing, namespace: str) -> ChainKey:
    """The key of a namespace's journal, 32 bytes."""
    return _journal(_masters(keyring), namespace)


def session_key(keyring: KeyRing, session_id: str) -> ChainKey:
    """The key of a session's window chain, 32 bytes."""
    return _derived(_masters(keyring), session_id, SESSION_INFO)


def etag_salt(keyring: KeyRing, session_id: str) -> str:
    """The secret salt of a session's ETags, 64 hexadecimal digits derived from the master key.

    Spec: CRP-SPEC-003 §16.2
    """
    return derive_key(keyring.master(), salt=session_id, info=ETAG_INFO).hex()


def _masters(keyring: KeyRing) -> tuple[bytes, ...]:
    """The master keys of all epochs, oldest first."""
    return (*retired_of(keyring), keyring.master())


# Cached, since all windows of a namespace use the same key.
@lru_cache(maxsize=64)
def _journal(masters: tuple[bytes, ...], namespace: str) -> ChainKey:
    return _derived(masters, namespace, JOURNAL_INFO)


def _derived(masters: tuple[bytes, ...], salt: str, info: bytes) -> ChainKey:
    made: list[ChainKey] = []
    for master in masters:
        # The first epoch has no id, so seals of a store that was never rotated need no key id.
        name = key_id(master) if made else ""
        key = derive_key(master, salt=salt, info=info)
        made.append(ChainKey(key, key_id=name, earlier=tuple(made)))
    return made[-1]


JOINED = "|"


def seal_window(
    journal: JournalFacet,
    key: bytes,
    *,
    session_id: str,
    window_id: str,
    window_number: int,
    timestamp: str,
    response_hash: str,
    report_hash: str,
    outcome: str,
    etag: str = "",
    risk_level: str = "",
    parents: Sequence[str] | None = None,
    earlier: Sequence[WindowSeal] | None = None,
) -> WindowSeal:
    """Seal a window, chain it to those that it follows and store the seal."""
    if parents is None:
        last = journal.last_seal(session_id)
        lowest = highest = last.window_number + 1 if last else 1
        chained = [last.hmac] if last else []
    else:
        chained = sorted(set(parents))
        known = journal.seals(session_id) if earlier is None else earlier
        lowest, highest = _number_range(known, chained, session_id, window_id)
    if not lowest <= window_number <= highest:
        raise StoreError(
            f"window {window_number} of session {session_id!r} cannot be sealed; "
            f"the next one is {highest}"
            + (f"; allowed numbers begin with {lowest}" if lowest < highest else "")
        )
    parent = JOINED.join(chained)
    sealed = WindowSeal(
        session_id=session_id,
        window_id=window_id,
        window_number=window_number,
        timestamp=timestamp,
        response_hash=response_hash,
        report_hash=report_hash,
        parent_hmac=parent,
        hmac=window_hmac(
            key,
            session_id=session_id,
            window_number=window_number,
            timestamp=timestamp,
            response_hash=response_hash,
            report_hash=report_hash,
            parent_hmac=parent,
        ),
        outcome=outcome,
        etag=etag,
        risk_level=risk_level,
    )
    journal.seal(sealed)
    return sealed


def parents_of(seal: WindowSeal) -> tuple[str, ...]:
    """HMACs of the windows that a window follows, ascending; empty for the first."""
    return tuple(seal.parent_hmac.split(JOINED)) if seal.parent_hmac else ()


def first_break(seals: Sequence[WindowSeal], key: bytes) -> int | None:
    """Index of the first seal that breaks a session's chain; None for an unbroken one.

    Every HMAC must match its window's fields, numbers must have no gaps, and each window must
    follow present windows with smaller numbers. The loss of a window that no other follows is
    found only by checking the whole trail, by its event.
    """
    keys = key_epochs(key)
    # Number and key epoch of each valid window, by HMAC.
    known: dict[str, tuple[int, int]] = {}
    ids: set[str] = set()
    for index, seal in enumerate(seals):
        if seal.window_id in ids or seal.hmac in known:
            return index
        if index and not _continues(seal, seals[index - 1], seals[0].session_id):
            return index
        if not _follows(seal, known, seals[0].window_number):
            return index
        floor = max((known[hmac][1] for hmac in parents_of(seal) if hmac in known), default=0)
        epoch = epoch_of_seal(seal, keys, floor)
        if epoch is None:
            return index
        known[seal.hmac] = seal.window_number, epoch
        ids.add(seal.window_id)
    return None


def verify_seals(seals: Sequence[WindowSeal], key: bytes) -> ChainIntegrity:
    """State of a session's chain.

    This checks only the seals' HMACs, which do not cover a window's id, outcome, ETag and risk
    level; `trail.verify_trail` checks those and the events too.
    """
    if not seals:
        return ChainIntegrity.UNVERIFIED
    if first_break(seals, key) is not None:
        return ChainIntegrity.BROKEN
    return ChainIntegrity.VALID if seals[0].window_number == 1 else ChainIntegrity.PARTIAL


def epoch_of_seal(seal: WindowSeal, keys: Sequence[ChainKey], floor: int = 0) -> int | None:
    """The first epoch, not before `floor`, whose key matches a seal's HMAC; None if none does.

    A retired key is not used again, so a window cannot follow one of a later epoch.
    """
    for place in range(floor, len(keys)):
        try:
            wanted = window_hmac(
                keys[place],
                session_id=seal.session_id,
                window_number=seal.window_number,
                timestamp=seal.timestamp,
                response_hash=seal.response_hash,
                report_hash=seal.report_hash,
                parent_hmac=seal.parent_hmac,
            )
        except ValueError:
            # A field that contains the separator cannot have been sealed.
            return None
        if same(wanted, seal.hmac):
            return place
    return None


def _number_range(
    earlier: Sequence[WindowSeal], parents: Sequence[str], session_id: str, window_id: str
) -> tuple[int, int]:
    """Smallest and largest allowed number of a window that follows these parents."""
    numbers = {seal.hmac: seal.window_number for seal in earlier}
    if any(seal.window_id == window_id for seal in earlier):
        raise StoreError(f"session {session_id!r} already has a window {window_id!r:.60}")
    if unknown := [hmac for hmac in parents if hmac not in numbers]:
        raise StoreError(f"session {session_id!r} has no window with HMAC {unknown[0]!r:.80}")
    if not earlier:
        return 1, 1
    if not parents:
        raise StoreError(f"session {session_id!r} already has a first window; name the parents")
    return 1 + max(numbers[hmac] for hmac in parents), 1 + max(numbers.values())


def _continues(seal: WindowSeal, before: WindowSeal, session_id: str) -> bool:
    step = seal.window_number - before.window_number
    return seal.session_id == session_id and (step == 1 or (step == 0 and seal.window_number > 1))


def _follows(seal: WindowSeal, known: Mapping[str, tuple[int, int]], first: int) -> bool:
    """Whether the parents that a window names are present and have smaller numbers."""
    parents = parents_of(seal)
    if list(parents) != sorted(set(parents)):
        return False
    if seal.window_number == first:
        # Parents of these are before the beginning; the first window of a session has none.
        return (first == 1) == (not parents) and not any(hmac in known for hmac in parents)
    present = [known[hmac][0] for hmac in parents if hmac in known]
    if not present or (first == 1 and len(present) < len(parents)):
        return False
    return max(present) < seal.window_number
