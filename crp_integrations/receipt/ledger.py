"""The log of a tenant's receipts: an append-only Merkle tree with signed heads.

Spec: RFC 9162 §2.1, §4.10 (heads here are DSSE envelopes around canonical JSON)

A receipt's leaf is the hash of its signed payload, so leaving texts out or erasing them does not
change the log. A head records the log's size and root. With a saved head you can verify that a
receipt is in the log, and that a later head only appends to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import (
    HASH,
    TEXT,
    Shape,
    b64,
    dumps,
    fields,
    kind_of,
    listed,
    loads,
    seen,
    unb64,
    whole_number,
)
from crp_integrations.receipt.merkle import consistent, included
from crp_integrations.receipt.signed_statement import KEY_BYTES, Signed, SigningKey, keyid_of
from crp_integrations.seals import SEPARATOR, sha256_hex

HEAD_TYPE: Final = "application/vnd.crp-integrations.receipt-head+json"
HEAD_SCHEMA: Final = "receipt-head/1"
PROOF_SCHEMA: Final = "receipt-proof/1"
CONSISTENCY_SCHEMA: Final = "receipt-consistency/1"
HEAD: Final = Shape(HEAD_SCHEMA, log=TEXT, size=whole_number(), root=HASH, timestamp=TEXT)
PROOF: Final = Shape(PROOF_SCHEMA, index=whole_number(), size=whole_number(1), path=listed(HASH))
CONSISTENCY: Final = Shape(
    CONSISTENCY_SCHEMA, first=whole_number(), second=whole_number(), path=listed(HASH)
)
_SIGNED = frozenset({"envelope", "key", "schema"})


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a log: its size and root at one time.

    Attributes:
        timestamp: time of signing, ISO 8601 in UTC.
    """

    log: str
    size: int
    root: bytes
    timestamp: str

    def sign(self, key: SigningKey) -> SignedHead:
        """Sign the head."""
        return SignedHead(self, key.sign(HEAD_TYPE, self.to_payload()), key.public)

    def to_payload(self) -> bytes:
        """The bytes that are signed."""
        return dumps(HEAD.write(self))


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A head with its signature and the public key."""

    head: Head
    signed: Signed
    key: bytes

    def check(self, keys: Sequence[bytes]) -> None:
        """Check the signature, and that its key is one of `keys`."""
        if self.signed.payload != self.head.to_payload():
            raise ReceiptBroken("head", "differs from the signed payload")
        self.signed.verify(self.key, "head.envelope")
        if self.key not in keys:
            wanted = " or ".join(keyid_of(key)[:16] for key in keys) or "none"
            raise ReceiptBroken("head.key", f"is {keyid_of(self.key)[:16]}…, wanted {wanted}")

    def write(self) -> bytes:
        """The head as a file."""
        return _file(
            {"envelope": self.signed.to_json(), "key": b64(self.key), "schema": HEAD_SCHEMA}
        )

    @classmethod
    def read(cls, data: bytes) -> SignedHead:
        """Read a head; its signature is not checked yet."""
        members = fields(_read(data, "head", HEAD_SCHEMA), _SIGNED, "head")
        if members["schema"] != HEAD_SCHEMA:
            reason = f"is {seen(members['schema'])}, wanted {HEAD_SCHEMA!r}"
            raise ReceiptBroken("head.schema", reason)
        signed = Signed.from_json(members["envelope"], HEAD_TYPE, "head.envelope")
        head = Head(**HEAD.read(loads(signed.payload, "head.payload"), "head.payload"))
        return cls(head, signed, unb64(members["key"], "head.key", KEY_BYTES))


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Proof that a receipt is in a log with `size` entries.

    Attributes:
        path: hashes from the leaf up, 32 bytes each.
    """

    index: int
    size: int
    path: tuple[bytes, ...]

    def write(self) -> bytes:
        """The proof as a file."""
        return _file(PROOF.write(self))

    @classmethod
    def read(cls, data: bytes) -> Inclusion:
        """Read a proof."""
        return cls(**PROOF.read(_read(data, "proof", PROOF_SCHEMA), "proof"))


@dataclass(frozen=True, slots=True)
class Consistency:
    """Proof that a log with `second` entries only appends to its first `first` entries."""

    first: int
    second: int
    path: tuple[bytes, ...]

    def write(self) -> bytes:
        """The proof as a file."""
        return _file(CONSISTENCY.write(self))

    @classmethod
    def read(cls, data: bytes) -> Consistency:
        """Read a proof."""
        return cls(**CONSISTENCY.read(_read(data, "proof", CONSISTENCY_SCHEMA), "proof"))


def log_name(tenant: str, residency: str = "") -> str:
    """The name of a tenant's log in a region, hashed so that it does not contain the tenant's."""
    return "crp_log_" + sha256_hex(SEPARATOR.join(("log", tenant, residency)))[:24]


def check_inclusion(proof: Inclusion, head: Head, log_hash: bytes) -> None:
    """Check that a receipt is in the log of a head."""
    if proof.size != head.size:
        raise ReceiptBroken("proof.size", f"is {proof.size}, the size in the head is {head.size}")
    if not included(log_hash, proof.index, proof.size, proof.path, head.root):
        raise ReceiptBroken("proof.path", "does not lead from the receipt to the head's root")


def check_consistency(proof: Consistency, first: Head, second: Head) -> None:
    """Check that entries were only appended to a log between two heads."""
    if first.log != second.log:
        raise ReceiptBroken("head.log", f"is {second.log!r:.60}, before it was {first.log!r:.60}")
    if (proof.first, proof.second) != (first.size, second.size):
        raise ReceiptBroken("proof", "is for other sizes than those of the heads")
    if not consistent(first.size, second.size, proof.path, first.root, second.root):
        raise ReceiptBroken("proof.path", "does not lead from the earlier root to the later one")


def _file(value: dict[str, Any]) -> bytes:
    return dumps(value) + b"\n"


def _read(data: bytes, place: str, wanted: str) -> Any:
    """Read a file of the wanted schema."""
    kind = kind_of(data)
    if kind and kind != wanted:
        raise ReceiptBroken(f"{place}.schema", f"is {kind!r:.60}, wanted {wanted!r}")
    if not data.endswith(b"\n"):
        raise ReceiptBroken(f"{place}, byte {len(data)}", "does not end with a line feed")
    return loads(data[:-1], place)
