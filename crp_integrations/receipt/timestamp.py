"""Requests and replies of time-stamping authorities (RFC 3161), as far as a bundle needs them.

A reply is read, not verified: `openssl ts -verify`, which has a store of certificates, checks its
signature. The DER of both is simple enough to be written and read here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from crp_integrations.errors import ReceiptBroken
from crp_integrations.seals import iso

MEDIA_TYPE_QUERY: Final = "application/timestamp-query"
MEDIA_TYPE_REPLY: Final = "application/timestamp-reply"
# Tags of DER.
_BOOLEAN, _INTEGER, _OCTETS, _NULL, _OID, _TIME, _SEQUENCE = 1, 2, 4, 5, 6, 0x18, 0x30
_SHA256: Final = bytes.fromhex("608648016503040201")
_SIGNED_DATA: Final = bytes.fromhex("2a864886f70d010702")
_TST_INFO: Final = bytes.fromhex("2a864886f70d0109100104")
# PKIStatus (RFC 3161 §2.4.2): granted, and granted with modifications.
_GRANTED: Final = (0, 1)


class Timestamp(NamedTuple):
    """What an authority states: that a digest existed at a time.

    Attributes:
        digest: SHA-256 of what was stamped, 32 bytes.
        time: ISO 8601 in UTC.
        nonce: number of the request; 0 for none.
    """

    digest: bytes
    time: str
    nonce: int


def timestamp_request(digest: bytes, nonce: int) -> bytes:
    """The DER of a `TimeStampReq` for a SHA-256 digest; it asks for the certificate too."""
    algorithm = _der(_SEQUENCE, _der(_OID, _SHA256), _der(_NULL))
    imprint = _der(_SEQUENCE, algorithm, _der(_OCTETS, digest))
    number = nonce.to_bytes(nonce.bit_length() // 8 + 1, "big")
    return _der(
        _SEQUENCE,
        _der(_INTEGER, b"\x01"),
        imprint,
        _der(_INTEGER, number),
        _der(_BOOLEAN, b"\xff"),
    )


def read_timestamp(reply: bytes) -> Timestamp:
    """What the `TimeStampResp` of an authority states; its signature is not checked.

    Raises:
        ReceiptBroken: it is none, or the authority refused.
    """
    try:
        status, *token = _items(_items(reply)[0][1])
        code = int.from_bytes(_items(status[1])[0][1], "big")
        if code not in _GRANTED or not token:
            raise ReceiptBroken("timestamp", f"was refused by the authority with status {code}")
        (_, kind), (_, data) = _items(token[0][1])
        (_, content_kind), (_, content) = _items(_items(_items(data)[0][1])[2][1])
        info = _items(_items(_items(content)[0][1])[0][1])
        (_, algorithm), (_, digest) = _items(info[2][1])
        # A fraction of a second may follow, and Z.
        time = datetime.strptime(info[4][1][:14].decode("ascii") + "Z", "%Y%m%d%H%M%S%z")
        if (kind, content_kind) != (_SIGNED_DATA, _TST_INFO) or info[4][0] != _TIME:
            raise ReceiptBroken("timestamp", "is not a signed time stamp")
        if _items(algorithm)[0][1] != _SHA256:
            raise ReceiptBroken("timestamp", "is not of a SHA-256 digest")
    except (IndexError, ValueError) as error:
        raise ReceiptBroken("timestamp", f"is not DER: {type(error).__name__}") from None
    nonce = next((value for tag, value in info[5:] if tag == _INTEGER), b"")
    return Timestamp(digest, iso(time), int.from_bytes(nonce, "big"))


def _der(tag: int, *contents: bytes) -> bytes:
    """A value in DER, of fewer than 128 bytes."""
    content = b"".join(contents)
    return bytes((tag, len(content))) + content


def _items(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each value in a stretch of DER."""
    items = []
    at = 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size >= 0x80:
            start += size - 0x80
            size = int.from_bytes(data[at + 2 : start], "big")
        if start + size > len(data):
            raise ValueError("a value ends after its container")
        items.append((tag, data[start : start + size]))
        at = start + size
    return items
