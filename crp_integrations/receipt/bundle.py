"""A receipt with everything that proves it, in one file (`receipt-bundle/1`).

The file is canonical JSON and a line feed, as a receipt is. It contains the receipt, the proof
that its log has it, the signed head of the log, a statement of the log's keys, and the reply of a
time-stamping authority about the head, if one was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import (
    BASE64,
    TEXT,
    FieldKind,
    Shape,
    b64,
    dumps,
    embed_json,
    fields,
    listed,
    loads,
    seen,
    unb64,
    whole_number,
)
from crp_integrations.receipt.ledger import Inclusion, SignedHead
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.signed_statement import KEY_BYTES, Signed, SigningKey, keyid_of
from crp_integrations.receipt.timestamp import read_timestamp
from crp_integrations.receipt.verify import Verified, verify

SCHEMA: Final = "receipt-bundle/1"
MEDIA_TYPE: Final = "application/vnd.crp-integrations.receipt-bundle+json"
KEYS_SCHEMA: Final = "receipt-keys/1"
KEYS_TYPE: Final = "application/vnd.crp-integrations.receipt-keys+json"
_PERIOD: Final = Shape(key=BASE64, entries=whole_number(), first=TEXT, last=TEXT)
_PERIODS: Final = listed(
    FieldKind(
        _PERIOD.write,
        lambda value, place: SigningPeriod(**_PERIOD.read(value, place)),
        _PERIOD.schema,
    )
)
KEYS: Final = Shape(KEYS_SCHEMA, log=TEXT, timestamp=TEXT, keys=_PERIODS)
_BUNDLE = frozenset({"head", "keys", "mediaType", "proof", "receipt", "schema", "timestamp"})
_KEYS = frozenset({"envelope", "schema"})


@dataclass(frozen=True, slots=True)
class SigningPeriod:
    """A key of a log, and the entries that it signed.

    Attributes:
        key: the public key, 32 bytes.
        entries: number of entries; they follow those of the key before.
        first, last: times of the first and the last of them; empty without any.
    """

    key: bytes
    entries: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class KeyStatement:
    """The keys of a log, oldest first; the last one is in use.

    Attributes:
        timestamp: time of signing, ISO 8601 in UTC.
    """

    log: str
    timestamp: str
    keys: tuple[SigningPeriod, ...]

    def sign(self, keys: Sequence[SigningKey]) -> Signed:
        """Sign the statement with every key that it names, first with the one in use."""
        signed = keys[-1].sign(KEYS_TYPE, dumps(KEYS.write(self)))
        for key in keys[:-1]:
            signed = signed.countersigned(key)
        return signed

    @classmethod
    def read(cls, signed: Signed) -> KeyStatement:
        """Read a statement; its signatures are not checked yet."""
        return cls(**KEYS.read(loads(signed.payload, "keys.payload"), "keys.payload"))


@dataclass(frozen=True, slots=True)
class ReceiptBundle:
    """A receipt, its proof, the head of its log, and the statement of the log's keys.

    Attributes:
        keys: the signed `KeyStatement`.
        timestamp: the reply of an RFC 3161 authority about the head's file; empty for none.
    """

    receipt: Receipt
    proof: Inclusion
    head: SignedHead
    keys: Signed
    timestamp: bytes = b""

    def write(self) -> bytes:
        """The file of the bundle."""
        members = {
            name: embed_json(file[:-1])
            for name, file in (
                ("receipt", write(self.receipt)),
                ("proof", self.proof.write()),
                ("head", self.head.write()),
            )
        }
        members["keys"] = {"envelope": self.keys.to_json(), "schema": KEYS_SCHEMA}
        members["timestamp"] = b64(self.timestamp) if self.timestamp else None
        return dumps({"mediaType": MEDIA_TYPE, "schema": SCHEMA, **members}) + b"\n"

    def with_receipt(self, receipt: Receipt) -> ReceiptBundle:
        """The bundle with another copy of its receipt."""
        return replace(self, receipt=receipt)


def read_bundle(data: bytes) -> ReceiptBundle:
    """Read the file of a bundle; nothing is verified yet.

    Raises:
        ReceiptBroken: not a bundle, or not canonical; names the place.
    """
    if not data.endswith(b"\n"):
        raise ReceiptBroken(f"bundle, byte {len(data)}", "does not end with a line feed")
    members = fields(loads(data[:-1], "bundle"), _BUNDLE, "bundle")
    for name, wanted in (("schema", SCHEMA), ("mediaType", MEDIA_TYPE)):
        if members[name] != wanted:
            raise ReceiptBroken(f"bundle.{name}", f"is {seen(members[name])}, wanted {wanted!r}")
    keys = fields(members["keys"], _KEYS, "keys")
    if keys["schema"] != KEYS_SCHEMA:
        raise ReceiptBroken("keys.schema", f"is {seen(keys['schema'])}, wanted {KEYS_SCHEMA!r}")
    stamp = members["timestamp"]
    return ReceiptBundle(
        read(_file(members["receipt"])),
        Inclusion.read(_file(members["proof"])),
        SignedHead.read(_file(members["head"])),
        Signed.from_json(keys["envelope"], KEYS_TYPE, "keys.envelope"),
        b"" if stamp is None else unb64(stamp, "timestamp"),
    )


def _file(member: Any) -> bytes:
    return dumps(member) + b"\n"


def verify_bundle(
    bundle: ReceiptBundle,
    *,
    key: bytes | Iterable[bytes] | None = None,
    parents: Sequence[Receipt] = (),
    contents: bool = True,
) -> Verified:
    """Verify a bundle: keys and time stamp here, everything else as `verify` does.

    Of a time stamp only its digest is checked: `openssl ts -verify` says whose it is.

    Args:
        key: public keys that you know; one of the statement's is enough, best the one in use. None
            accepts the key in the receipt.
        contents: whether to compute the contents again.

    Raises:
        ReceiptBroken: the statement of the keys or the time stamp does not fit the rest.
    """
    known = [bundle.receipt.key] if key is None else [key] if isinstance(key, bytes) else [*key]
    verified = verify(
        bundle.receipt,
        key=_checked_keys(bundle, known),
        parents=parents,
        inclusion=bundle.proof,
        head=bundle.head,
        contents=contents,
    )
    if bundle.timestamp:
        digest = sha256(bundle.head.write()).digest()
        if read_timestamp(bundle.timestamp).digest != digest:
            raise ReceiptBroken("timestamp", "is of another head")
    return verified.model_copy(update={"pinned": key is not None})


def _checked_keys(bundle: ReceiptBundle, known: Sequence[bytes]) -> list[bytes]:
    """The keys of the statement, which all of them must have signed, and one must be known."""
    statement = KeyStatement.read(bundle.keys)
    keys = [period.key for period in statement.keys]
    if statement.log != bundle.head.head.log:
        raise ReceiptBroken("keys.log", f"is {statement.log!r:.60}, not the log of the head")
    for number, key in enumerate(keys):
        if len(key) != KEY_BYTES:
            raise ReceiptBroken(f"keys[{number}]", f"has {len(key)} bytes, wanted {KEY_BYTES}")
        bundle.keys.verify_signer(key, "keys.envelope")
    if not {*known} & {*keys}:
        wanted = " or ".join(keyid_of(key)[:16] for key in known) or "none"
        raise ReceiptBroken("keys", f"names none of the keys wanted: {wanted}")
    ends = accumulate(period.entries for period in statement.keys)
    index = bundle.proof.index
    valid = next((key for key, end in zip(keys, ends, strict=True) if index < end), None)
    if valid != bundle.receipt.key:
        raise ReceiptBroken("keys", f"the receipt's key was not in use at entry {index} of the log")
    return keys
