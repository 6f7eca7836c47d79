"""Asks a time-stamping authority over HTTP (RFC 3161 §3.4)."""

from __future__ import annotations

import secrets

from crp_integrations.errors import EngineError, ReceiptBroken
from crp_integrations.receipt.timestamp import (
    MEDIA_TYPE_QUERY,
    MEDIA_TYPE_REPLY,
    read_timestamp,
    timestamp_request,
)


def stamp(address: str, digest: bytes, timeout_s: float) -> bytes:
    """The reply of the authority at an address, about a SHA-256 digest and a nonce of its own.

    Raises:
        EngineError: it cannot be reached, or its reply is not about the request.
    """
    import httpx

    nonce = secrets.randbits(63)
    try:
        reply = httpx.post(
            address,
            content=timestamp_request(digest, nonce),
            headers={"Accept": MEDIA_TYPE_REPLY, "Content-Type": MEDIA_TYPE_QUERY},
            timeout=timeout_s,
        )
        reply.raise_for_status()
        stamped = read_timestamp(reply.content)
    except (httpx.HTTPError, httpx.InvalidURL, ReceiptBroken) as error:
        reason = str(error) if isinstance(error, ReceiptBroken) else type(error).__name__
        raise EngineError(
            f"the time-stamping authority {address!r:.200} gave no time stamp: {reason}; correct "
            "the setting timestamp_authority, or empty it"
        ) from None
    if (stamped.digest, stamped.nonce) != (digest, nonce):
        raise EngineError(
            f"the time-stamping authority {address!r:.200} stamped another digest or nonce"
        )
    return reply.content
