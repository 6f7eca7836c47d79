"""Every hash and HMAC of the package, in one place.

Fields that are sealed together are joined with U+241F, which none of them may contain, so that
moving characters from one field to the next always changes the input.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson
import rfc8785
from blake3 import blake3
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SEPARATOR = "\u241f"
SESSION_INFO = b"crp-session-hmac-v3"
SIGN_INFO = b"crp-session-sign-v3"
JOURNAL_INFO = b"crp-journal-hmac-v1"
ARTIFACT_INFO = b"crp-artifact-url-v1"
HANDLE_INFO = b"crp-artifact-handle-v1"
_ORJSON_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
# Smaller numbers are exact in every JSON parser, and no encoder writes them with an exponent.
_EXACT_LIMIT = 10**15
# Every encoder writes values of these types in the same way.
_UNAMBIGUOUS = frozenset({str, bool, type(None)})
_FLOATS, _INTEGERS = frozenset({float}), frozenset({int})
# Marks a number inside quotation marks; this character is a Unicode noncharacter.
_MARK = "\ufdd0"
_MARKED = re.compile(f'"{_MARK}([0-9.e-]+){_MARK}"'.encode())
# First field of a nonce's seal: no other seal begins with it, so seals cannot be exchanged.
NONCE_INFO = "crp-safety-nonce-v1"
ADDRESS_INFO = "crp-artifact-address-v1"
# {"alg":"HS256","typ":"CRP"} in base64url; it is part of the signed bytes, but never sent.
_TOKEN_HEADER = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkNSUCJ9"


def sha256_hex(text: str | bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def sha256(text: str | bytes) -> str:
    """SHA-256 as `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + sha256_hex(text)


def sha256_each(texts: Iterable[bytes]) -> list[str]:
    """`sha256` of several texts, such as an envelope's facts; faster than a call for each."""
    return ["sha256:" + hashlib.sha256(text).hexdigest() for text in texts]


def blake3_of(text: str | bytes) -> str:
    """BLAKE3 as `blake3:` and 64 hexadecimal digits, for CFS-021 alone (decision F3)."""
    data = text.encode() if isinstance(text, str) else text
    return "blake3:" + blake3(data).hexdigest()


def canonical(value: Any) -> bytes:
    """Canonical JSON of a JSON-like value (RFC 8785).

    orjson writes most values in the same way and much faster; `rfc8785` encodes the values that
    orjson may write differently.
    """
    small: list[float] = []
    try:
        data = orjson.dumps(_plain(value, small), option=_ORJSON_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        # If the value cannot be encoded, `rfc8785` raises an error that says why.
        return rfc8785.dumps(value)
    if not small:
        return data
    # A text of the value contains the mark as well, so the marks cannot be replaced safely.
    if data.count(_MARK.encode()) != 2 * len(small):
        return rfc8785.dumps(value)
    return _MARKED.sub(lambda match: match[1], data)


def _plain(value: Any, small: list[float]) -> Any:
    """The value as RFC 8785 writes it: whole floats as integers, small ones as marked texts."""
    kind = type(value)
    if kind in _UNAMBIGUOUS:
        return value
    if kind is dict:
        made = {}
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                raise TypeError
            # Most items are strings or fractions; checked inline, since a call is slower.
            its = type(item)
            if its in _UNAMBIGUOUS or (its is float and 1e-4 <= item < _EXACT_LIMIT and item % 1):
                made[key] = item
            else:
                made[key] = _plain(item, small)
        return made
    if kind is list or kind is tuple:
        kinds = {*map(type, value)}
        if kinds <= _UNAMBIGUOUS:
            return value
        if kinds == _FLOATS:
            return [
                item if 1e-4 <= item < _EXACT_LIMIT and item % 1 else _plain(item, small)
                for item in value
            ]
        if kinds == _INTEGERS and min(value) > -_EXACT_LIMIT and max(value) < _EXACT_LIMIT:
            return value
        return [item if type(item) in _UNAMBIGUOUS else _plain(item, small) for item in value]
    if kind is float:
        # NaN and the infinities are outside this range as well.
        if not -_EXACT_LIMIT < value < _EXACT_LIMIT:
            raise TypeError
        if value.is_integer():
            return int(value)
        if -1e-4 < value < 1e-4:
            small.append(value)
            return f"{_MARK}{rfc8785.dumps(value).decode()}{_MARK}"
        return value
    if kind is int and -_EXACT_LIMIT < value < _EXACT_LIMIT:
        return value
    if isinstance(value, str):
        # A member of a string enum.
        return str(value)
    raise TypeError


def digest(value: Any) -> str:
    """`sha256:` hash of a value's canonical JSON."""
    return sha256(canonical(value))


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC with `Z`, microseconds only when they are not 0."""
    text = moment.astimezone(UTC).isoformat()
    return text.replace("+00:00", "Z")


def derive_key(master: bytes, *, salt: str, info: bytes) -> bytes:
    """HKDF-SHA256, 32 bytes.

    Spec: related facts §5
    """
    return HKDF(algorithm=SHA256(), length=32, salt=salt.encode(), info=info).derive(master)


def _seal(key: bytes, fields: tuple[str, ...]) -> str:
    if any(SEPARATOR in field for field in fields):
        raise ValueError("a sealed field contains U+241F, which separates fields")
    return "sha256:" + hmac.digest(key, SEPARATOR.join(fields).encode(), "sha256").hex()


def window_hmac(
    key: bytes,
    *,
    session_id: str,
    window_number: int,
    timestamp: str,
    response_hash: str,
    report_hash: str,
    parent_hmac: str,
) -> str:
    """Seal one window and chain it to its parent.

    Spec: CRP-SPEC-005 §15.3
    """
    return _seal(
        key,
        (session_id, str(window_number), timestamp, response_hash, report_hash, parent_hmac),
    )


def event_hmac(
    key: bytes, *, event_type: str, timestamp: str, data: Any, window_id: str, previous_hmac: str
) -> str:
    """Seal one journal event and chain it to the one before."""
    return written_event_hmac(
        key,
        event_type=event_type,
        timestamp=timestamp,
        written=canonical(data),
        window_id=window_id,
        previous_hmac=previous_hmac,
    )


def written_event_hmac(
    key: bytes,
    *,
    event_type: str,
    timestamp: str,
    written: bytes,
    window_id: str,
    previous_hmac: str,
) -> str:
    """Seal one journal event whose data are already encoded as canonical JSON."""
    return _seal(key, (event_type, timestamp, sha256_hex(written), window_id, previous_hmac))


def token_signature(key: bytes, payload: str) -> bytes:
    """Signature of a session token, 32 bytes.

    Spec: related facts §5
    """
    return hmac.new(key, f"{_TOKEN_HEADER}.{payload}".encode(), hashlib.sha256).digest()


def policy_nonce(key: bytes, *, random: bytes, policy_hash: str) -> str:
    """Bind random bytes to a safety policy: 64 hexadecimal digits.

    Spec: related facts §3
    """
    return _seal(key, (NONCE_INFO, random.hex(), policy_hash)).removeprefix("sha256:")


def address_hmac(key: bytes, claim: str) -> str:
    """Seal of an artifact's address: 64 hexadecimal digits."""
    return _seal(key, (ADDRESS_INFO, claim)).removeprefix("sha256:")


def handle_hmac(key: bytes, whole: bytes) -> str:
    """Keyed hash that begins an artifact's handle: 64 hexadecimal digits.

    With a plain hash, anyone who sees only the handle could confirm a guess at the text.
    """
    return hmac.new(key, whole, hashlib.sha256).hexdigest()


def same(left: str, right: str) -> bool:
    """Compare two printed seals in constant time."""
    return hmac.compare_digest(left.encode(), right.encode())
