"""The log of a tenant's receipts: an append-only Merkle tree with signed heads.

Spec: RFC 9162 §2.1, §4.10 (heads here are DSSE envelopes around canonical JSON)

A receipt's leaf is the hash of what was signed, so leaving texts out or erasing them changes
nothing in the log. A head says how long the log was and what its root was; who keeps one can be
shown that a receipt is in the log, and that a later head only goes on from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import (
    b64,
    dumps,
    fields,
    hex_of,
    kind_of,
    loads,
    text_of,
    unb64,
    whole,
)
from crp_integrations.receipt.dsse import KEY_BYTES, Signed, SigningKey, keyid_of
from crp_integrations.receipt.merkle import consistent, included
from crp_integrations.seals import SEPARATOR, sha256_hex

HEAD_TYPE: Final = "application/vnd.crp-integrations.receipt-head+json"
HEAD_SCHEMA: Final = "receipt-head/1"
PROOF_SCHEMA: Final = "receipt-proof/1"
CONSISTENCY_SCHEMA: Final = "receipt-consistency/1"
_HEAD = frozenset({"log", "root", "schema", "size", "timestamp"})
_SIGNED = frozenset({"envelope", "key", "schema"})
_PROOF = frozenset({"index", "path", "schema", "size"})
_CONSISTENCY = frozenset({"first", "path", "schema", "second"})


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a log.

    Attributes:
        log: the log's name.
        size: receipts in it.
        root: 32 bytes.
        timestamp: ISO 8601 in UTC, when it was signed.
    """

    log: str
    size: int
    root: bytes
    timestamp: str

    def sign(self, key: SigningKey) -> SignedHead:
        """The head, signed."""
        return SignedHead(self, key.sign(HEAD_TYPE, self.to_payload()), key.public)

    def to_payload(self) -> bytes:
        """The bytes that are signed."""
        return dumps(
            {
                "log": self.log,
                "root": self.root.hex(),
                "schema": HEAD_SCHEMA,
                "size": self.size,
                "timestamp": self.timestamp,
            }
        )


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A head with its signature and the key that it names."""

    head: Head
    signed: Signed
    key: bytes

    def check(self, keys: Sequence[bytes]) -> None:
        """Check the signature.

        Args:
            keys: public keys, of which one must have signed.

        Raises:
            ReceiptBroken: it is another's, or of another head.
        """
        if self.signed.payload != self.head.to_payload():
            raise ReceiptBroken("head", "is not what was signed")
        self.signed.verify(self.key, "head.envelope")
        if self.key not in keys:
            wanted = " or ".join(keyid_of(one)[:16] for one in keys) or "none"
            raise ReceiptBroken("head.key", f"is {keyid_of(self.key)[:16]}…, wanted {wanted}")

    def write(self) -> bytes:
        """The head as a file."""
        return _file(
            {"envelope": self.signed.to_json(), "key": b64(self.key), "schema": HEAD_SCHEMA}
        )

    @classmethod
    def read(cls, data: bytes) -> SignedHead:
        """Read a head; its signature is not checked yet.

        Raises:
            ReceiptBroken: it is none, or not in its one encoding.
        """
        found = fields(_read(data, "head", HEAD_SCHEMA), _SIGNED, "head")
        _schema(found, HEAD_SCHEMA, "head")
        signed = Signed.from_json(found["envelope"], HEAD_TYPE, "head.envelope")
        said = fields(loads(signed.payload, "head.payload"), _HEAD, "head.payload")
        _schema(said, HEAD_SCHEMA, "head.payload")
        head = Head(
            text_of(said["log"], "head.log"),
            whole(said["size"], "head.size"),
            hex_of(said["root"], "head.root"),
            text_of(said["timestamp"], "head.timestamp"),
        )
        return cls(head, signed, unb64(found["key"], "head.key", KEY_BYTES))


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The proof that a receipt is in a log of a size.

    Attributes:
        index: the receipt's place, from 0.
        path: 32 bytes each, from the leaf up.
    """

    index: int
    size: int
    path: tuple[bytes, ...]

    def write(self) -> bytes:
        """The proof as a file."""
        path = [one.hex() for one in self.path]
        return _file({"index": self.index, "path": path, "schema": PROOF_SCHEMA, "size": self.size})

    @classmethod
    def read(cls, data: bytes) -> Inclusion:
        """Read a proof.

        Raises:
            ReceiptBroken: it is none, or not in its one encoding.
        """
        found = fields(_read(data, "proof", PROOF_SCHEMA), _PROOF, "proof")
        _schema(found, PROOF_SCHEMA, "proof")
        return cls(
            whole(found["index"], "proof.index"),
            whole(found["size"], "proof.size", least=1),
            _path(found["path"]),
        )


@dataclass(frozen=True, slots=True)
class Consistency:
    """The proof that a log of a size only goes on from a smaller one."""

    first: int
    second: int
    path: tuple[bytes, ...]

    def write(self) -> bytes:
        """The proof as a file."""
        path = [one.hex() for one in self.path]
        return _file(
            {
                "first": self.first,
                "path": path,
                "schema": CONSISTENCY_SCHEMA,
                "second": self.second,
            }
        )

    @classmethod
    def read(cls, data: bytes) -> Consistency:
        """Read a proof.

        Raises:
            ReceiptBroken: it is none, or not in its one encoding.
        """
        found = fields(_read(data, "proof", CONSISTENCY_SCHEMA), _CONSISTENCY, "proof")
        _schema(found, CONSISTENCY_SCHEMA, "proof")
        return cls(
            whole(found["first"], "proof.first"),
            whole(found["second"], "proof.second"),
            _path(found["path"]),
        )


def log_name(tenant: str, residency: str = "") -> str:
    """The name of a tenant's log in a region; it tells the tenant's name to who knows it."""
    return "crp_log_" + sha256_hex(SEPARATOR.join(("log", tenant, residency)))[:24]


def check_inclusion(proof: Inclusion, head: Head, log_hash: bytes) -> None:
    """Check that a receipt is in a log.

    Args:
        log_hash: of the receipt, `Receipt.log_hash`.

    Raises:
        ReceiptBroken: it is not.
    """
    if proof.size != head.size:
        raise ReceiptBroken("proof.size", f"is {proof.size}, the head's is {head.size}")
    if not included(log_hash, proof.index, proof.size, proof.path, head.root):
        raise ReceiptBroken("proof.path", "does not lead from the receipt to the head's root")


def check_consistency(proof: Consistency, first: Head, second: Head) -> None:
    """Check that a log only went on between two heads.

    Raises:
        ReceiptBroken: it did not, or they are of two logs.
    """
    if first.log != second.log:
        raise ReceiptBroken("head.log", f"is {second.log!r:.60}, that before was {first.log!r:.60}")
    if (proof.first, proof.second) != (first.size, second.size):
        raise ReceiptBroken("proof", "is between other sizes than the heads'")
    if not consistent(first.size, second.size, proof.path, first.root, second.root):
        raise ReceiptBroken("proof.path", "does not lead from the one root to the other")


def _file(value: dict[str, Any]) -> bytes:
    return dumps(value) + b"\n"


def _read(data: bytes, place: str, wanted: str) -> Any:
    """What a file holds, where it is of the kind that is wanted."""
    kind = kind_of(data)
    if kind and kind != wanted:
        raise ReceiptBroken(f"{place}.schema", f"is {kind!r:.60}, wanted {wanted!r}")
    if not data.endswith(b"\n"):
        raise ReceiptBroken(f"{place}, byte {len(data)}", "does not end with a line feed")
    return loads(data[:-1], place)


def _schema(found: Any, wanted: str, place: str) -> None:
    if found["schema"] != wanted:
        raise ReceiptBroken(f"{place}.schema", f"is not {wanted!r}")


def _path(value: Any) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        raise ReceiptBroken("proof.path", "no list")
    return tuple(hex_of(one, f"proof.path[{n}]") for n, one in enumerate(value))
