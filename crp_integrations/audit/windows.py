"""The chain of a session's windows: sealing the next one, checking them all."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.audit.ports import JournalFacet
from crp_integrations.audit.records import WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.seals import same, window_hmac
from crp_integrations.vocabulary import ChainIntegrity


def seal(
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
) -> WindowSeal:
    """Seal a window, chain it to the session's last one and store the seal.

    Spec: CRP-SPEC-005 §15.3

    Args:
        key: the session's chain key, 32 bytes.
        window_number: one more than the session's last, 1 for the first.
        timestamp: ISO 8601 as printed in the report.
        outcome: `released`, `failed`, `cancelled`, `refused` or `halted`.

    Raises:
        StoreError: the number is not the session's next one.
    """
    last = journal.last_seal(session_id)
    wanted = last.window_number + 1 if last else 1
    if window_number != wanted:
        raise StoreError(
            f"window {window_number} of session {session_id!r} cannot be sealed; "
            f"the next one is {wanted}"
        )
    parent = last.hmac if last else ""
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


def first_break(seals: Sequence[WindowSeal], key: bytes) -> int | None:
    """Where a session's chain is broken.

    Spec: CRP-SPEC-005 §15.3

    Args:
        seals: a session's windows by number; the first may be a later one than window 1.
        key: the session's chain key, 32 bytes.

    Returns:
        Zero-based index of the first bad seal, None when all are good.
    """
    for index, one in enumerate(seals):
        if not _fits(one, key) or not _follows(one, seals[index - 1] if index else None):
            return index
    return None


def verify(seals: Sequence[WindowSeal], key: bytes) -> ChainIntegrity:
    """State of a session's chain.

    Spec: CRP-SPEC-005 §15.3

    It speaks of the seals' HMACs, which do not cover a window's id, outcome, ETag and risk level,
    and of no event; `trail.verify_trail` checks all of them.

    Returns:
        UNVERIFIED without windows, BROKEN when one does not verify, PARTIAL when all do but the
        first ones are missing, else VALID.
    """
    if not seals:
        return ChainIntegrity.UNVERIFIED
    if first_break(seals, key) is not None:
        return ChainIntegrity.BROKEN
    return ChainIntegrity.VALID if seals[0].window_number == 1 else ChainIntegrity.PARTIAL


def _fits(one: WindowSeal, key: bytes) -> bool:
    """Whether a seal's HMAC is that of its fields."""
    try:
        wanted = window_hmac(
            key,
            session_id=one.session_id,
            window_number=one.window_number,
            timestamp=one.timestamp,
            response_hash=one.response_hash,
            report_hash=one.report_hash,
            parent_hmac=one.parent_hmac,
        )
    except ValueError:
        # A field that holds the separator was never sealed.
        return False
    return same(wanted, one.hmac)


def _follows(one: WindowSeal, before: WindowSeal | None) -> bool:
    if before is None:
        return (one.window_number == 1) == (one.parent_hmac == "")
    return (
        one.session_id == before.session_id
        and one.window_number == before.window_number + 1
        and one.parent_hmac == before.hmac
    )
