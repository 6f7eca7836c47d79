"""The chain of a session's windows: sealing the next one, checking them all.

Windows of one fan-out share a number, each with an id of its own; a window that follows several
is chained to all of them. So a chain is a graph without cycles, and a line where nothing forks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crp_integrations.audit.keys import ChainKey, key_epochs
from crp_integrations.audit.ports import JournalFacet
from crp_integrations.audit.records import WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.seals import same, window_hmac
from crp_integrations.vocabulary import ChainIntegrity

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
    """Seal a window, chain it to those that it follows and store the seal.

    Spec: CRP-SPEC-005 §15.3; related facts §5
    """
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
            + (f", and those of its place are from {lowest} on" if lowest < highest else "")
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


def parents_of(one: WindowSeal) -> tuple[str, ...]:
    """HMACs of the windows that a window follows, ascending; none for the first."""
    return tuple(one.parent_hmac.split(JOINED)) if one.parent_hmac else ()


def first_break(seals: Sequence[WindowSeal], key: bytes) -> int | None:
    """Where a session's chain is broken.

    Spec: CRP-SPEC-005 §15.3; related facts §5

    Every window's HMAC must be that of its fields; numbers go on without gaps, and each window
    follows windows of smaller numbers that are there. That a window which none follows is gone
    shows in the whole trail only, by its event.
    """
    keys = key_epochs(key)
    # Of each good window by its HMAC: number, and the place of its key among the epochs.
    known: dict[str, tuple[int, int]] = {}
    ids: set[str] = set()
    for index, one in enumerate(seals):
        if one.window_id in ids or one.hmac in known:
            return index
        if index and not _continues(one, seals[index - 1], seals[0].session_id):
            return index
        if not _follows(one, known, seals[0].window_number):
            return index
        floor = max((known[hmac][1] for hmac in parents_of(one) if hmac in known), default=0)
        epoch = epoch_of_seal(one, keys, floor)
        if epoch is None:
            return index
        known[one.hmac] = one.window_number, epoch
        ids.add(one.window_id)
    return None


def verify_seals(seals: Sequence[WindowSeal], key: bytes) -> ChainIntegrity:
    """State of a session's chain.

    Spec: CRP-SPEC-005 §15.3

    It speaks of the seals' HMACs, which do not cover a window's id, outcome, ETag and risk level,
    and of no event; `trail.verify_trail` checks all of them.
    """
    if not seals:
        return ChainIntegrity.UNVERIFIED
    if first_break(seals, key) is not None:
        return ChainIntegrity.BROKEN
    return ChainIntegrity.VALID if seals[0].window_number == 1 else ChainIntegrity.PARTIAL


def epoch_of_seal(one: WindowSeal, keys: Sequence[ChainKey], floor: int = 0) -> int | None:
    """The epoch, from `floor` on, whose key a seal's HMAC is of; None when it is of none.

    A key that was retired seals nothing any more: a window follows no window of a later epoch.
    """
    for place in range(floor, len(keys)):
        try:
            wanted = window_hmac(
                keys[place],
                session_id=one.session_id,
                window_number=one.window_number,
                timestamp=one.timestamp,
                response_hash=one.response_hash,
                report_hash=one.report_hash,
                parent_hmac=one.parent_hmac,
            )
        except ValueError:
            # A field that holds the separator was never sealed.
            return None
        if same(wanted, one.hmac):
            return place
    return None


def _number_range(
    earlier: Sequence[WindowSeal], parents: Sequence[str], session_id: str, window_id: str
) -> tuple[int, int]:
    """Smallest and largest number of a window that follows these parents."""
    numbers = {one.hmac: one.window_number for one in earlier}
    if any(one.window_id == window_id for one in earlier):
        raise StoreError(f"session {session_id!r} already has a window {window_id!r:.60}")
    if unknown := [hmac for hmac in parents if hmac not in numbers]:
        raise StoreError(f"session {session_id!r} has no window with HMAC {unknown[0]!r:.80}")
    if not earlier:
        return 1, 1
    if not parents:
        raise StoreError(f"session {session_id!r} has its first window; name what is followed")
    return 1 + max(numbers[hmac] for hmac in parents), 1 + max(numbers.values())


def _continues(one: WindowSeal, before: WindowSeal, session_id: str) -> bool:
    step = one.window_number - before.window_number
    return one.session_id == session_id and (step == 1 or (step == 0 and one.window_number > 1))


def _follows(one: WindowSeal, known: Mapping[str, tuple[int, int]], first: int) -> bool:
    """Whether what a window names as its parents is there and has smaller numbers."""
    parents = parents_of(one)
    if list(parents) != sorted(set(parents)):
        return False
    if one.window_number == first:
        # What these follow lies before the beginning; the first window follows none.
        return (first == 1) == (not parents) and not any(hmac in known for hmac in parents)
    there = [known[hmac][0] for hmac in parents if hmac in known]
    if not there or (first == 1 and len(there) < len(parents)):
        return False
    return max(there) < one.window_number
