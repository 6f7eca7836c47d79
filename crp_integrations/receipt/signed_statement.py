"""The signed part of a receipt: an in-toto Statement v1 in a DSSE envelope, signed with Ed25519.

Spec: in-toto (v1.0, https://github.com/in-toto/attestation/blob/v1.0/spec/v1.0/statement.md)

A subject's digest is the hash of its leaf: SHA-256 of a zero byte, 32 bytes of salt and the text.
With a plain hash, anyone could check a guess at a text that a copy leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from orjson import Fragment

from crp_integrations.audit.records import WindowSeal
from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import (
    TEXT,
    Shape,
    b64,
    dumps,
    fields,
    hex_of,
    listed,
    loads,
    seen,
    text_of,
    unb64,
    whole_number,
)
from crp_integrations.receipt.leaves import LeafEntry, entries_of
from crp_integrations.receipt.predicate import SCHEMA as CONTENT_SCHEMA
from crp_integrations.seals import derive_key, sha256_hex

TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://crp-integrations.dev/receipt/v1"
SUBJECTS: Final = ("request", "context", "answer")
_STATEMENT = frozenset({"_type", "predicate", "predicateType", "subject"})
_PREDICATE = frozenset({"chain", "content", "digest", "texts"})
_SUBJECT = frozenset({"digest", "name"})
_DIGEST = frozenset({"sha256"})
_TEXTS = frozenset({"leaves", "root"})
CHAIN: Final = Shape(
    session_id=TEXT,
    window_id=TEXT,
    window_number=whole_number(1),
    timestamp=TEXT,
    hmac=TEXT,
    parents=listed(TEXT),
    outcome=TEXT,
)


@dataclass(frozen=True, slots=True)
class Chain:
    """The window's place in its session's chain of HMACs.

    Attributes:
        timestamp: time of sealing the window, ISO 8601 in UTC.
        hmac: HMAC of the window, which covers the HMACs of its parents.
        parents: HMACs of the windows that it follows; empty for the first window.
        outcome: `released`, `failed`, `cancelled`, `refused` or `halted`.
    """

    session_id: str
    window_id: str
    window_number: int
    timestamp: str
    hmac: str
    parents: tuple[str, ...]
    outcome: str

    @classmethod
    def of(cls, seal: WindowSeal, parents: tuple[str, ...]) -> Chain:
        """The place recorded in a window's seal."""
        return cls(
            seal.session_id,
            seal.window_id,
            seal.window_number,
            seal.timestamp,
            seal.hmac,
            parents,
            seal.outcome,
        )

    def to_json(self) -> dict[str, Any]:
        """The place as a JSON object."""
        return CHAIN.write(self)

    @classmethod
    def from_json(cls, value: Any, place: str) -> Chain:
        """Read a place."""
        return cls(**CHAIN.read(value, place))


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement that a receipt signs.

    Attributes:
        subjects: digests of request, context and answer, 32 bytes each.
        root: root of the tree over all leaves, 32 bytes.
        digest: the recorded digest of the predicate; empty before signing.
    """

    subjects: Mapping[str, bytes]
    chain: Chain
    leaves: tuple[LeafEntry, ...]
    root: bytes
    content: Mapping[str, Any]
    digest: str = ""

    def _predicate(self) -> dict[str, Any]:
        """The predicate's members except its digest, already encoded."""
        leaves = [leaf.to_json() for leaf in self.leaves]
        members = {
            "chain": self.chain.to_json(),
            "content": self.content,
            "texts": {"leaves": leaves, "root": self.root.hex()},
        }
        return {name: Fragment(dumps(value)) for name, value in members.items()}

    def computed_digest(self) -> str:
        """The SHA-256 of the predicate's canonical JSON without its digest, in hexadecimal.

        It shows a change of single fields; a signer can fit it as well, so it proves no statement.
        """
        return sha256_hex(dumps(self._predicate(), strings_only=True))

    def finished(self) -> tuple[Statement, bytes]:
        """The statement with its digest, and the bytes that are signed."""
        predicate = self._predicate()
        digest = self.digest or sha256_hex(dumps(predicate, strings_only=True))
        statement = {
            "_type": TYPE,
            "predicate": {**predicate, "digest": digest},
            "predicateType": PREDICATE_TYPE,
            "subject": [
                {"digest": {"sha256": self.subjects[name].hex()}, "name": name} for name in SUBJECTS
            ],
        }
        return replace(self, digest=digest), dumps(statement, strings_only=True)

    @classmethod
    def from_payload(cls, payload: bytes, place: str = "payload") -> Statement:
        """Read a signed payload."""
        members = fields(loads(payload, place), _STATEMENT, place)
        for name, wanted in (("_type", TYPE), ("predicateType", PREDICATE_TYPE)):
            if members[name] != wanted:
                reason = f"is {seen(members[name])}, wanted {wanted!r}"
                raise ReceiptBroken(f"{place}.{name}", reason)
        at = f"{place}.predicate"
        predicate = fields(members["predicate"], _PREDICATE, at)
        texts = fields(predicate["texts"], _TEXTS, f"{at}.texts")
        leaves = entries_of(texts["leaves"], f"{at}.texts.leaves")
        content = predicate["content"]
        if not isinstance(content, dict):
            raise ReceiptBroken(f"{at}.content", f"is {seen(content)}, wanted a JSON object")
        if content.get("schema") != CONTENT_SCHEMA:
            reason = f"is {seen(content.get('schema'))}, wanted {CONTENT_SCHEMA!r}"
            raise ReceiptBroken(f"{at}.content.schema", reason)
        return cls(
            _subjects(members["subject"], f"{place}.subject"),
            Chain.from_json(predicate["chain"], f"{at}.chain"),
            leaves,
            hex_of(texts["root"], f"{at}.texts.root"),
            content,
            text_of(predicate["digest"], f"{at}.digest"),
        )


def _subjects(value: Any, place: str) -> dict[str, bytes]:
    if not isinstance(value, list) or len(value) != len(SUBJECTS):
        raise ReceiptBroken(place, f"is {seen(value)}, wanted a list of {', '.join(SUBJECTS)}")
    hashes = {}
    for number, (item, name) in enumerate(zip(value, SUBJECTS, strict=True)):
        at = f"{place}[{number}]"
        subject = fields(item, _SUBJECT, at)
        if subject["name"] != name:
            raise ReceiptBroken(f"{at}.name", f"is {seen(subject['name'])}, wanted {name!r}")
        digest = fields(subject["digest"], _DIGEST, f"{at}.digest")
        hashes[name] = hex_of(digest["sha256"], f"{at}.digest.sha256")
    return hashes


IN_TOTO: Final = "application/vnd.in-toto+json"
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
# Maximum number of signatures in an envelope.
MOST_SIGNATURES: Final = 16
SIGN_INFO: Final = b"crp-receipt-sign-v1"
_ENVELOPE = frozenset({"payload", "payloadType", "signatures"})
_SIGNATURE = frozenset({"keyid", "sig"})


@dataclass(frozen=True, slots=True)
class Signed:
    """A payload with its signature, as read; the signature is not checked yet.

    Attributes:
        keyid: SHA-256 of the public key's 32 bytes, 64 hexadecimal digits.
        further: key id and signature of each countersigner, in the order of the key ids.
    """

    payload: bytes
    payload_type: str
    keyid: str
    signature: bytes
    further: tuple[tuple[str, bytes], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The envelope as a JSON object."""
        return {
            "payload": b64(self.payload),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": keyid, "sig": b64(sig)} for keyid, sig in self._signatures],
        }

    @classmethod
    def from_json(cls, value: Any, payload_type: str, place: str = "envelope") -> Signed:
        """Read an envelope."""
        members = fields(value, _ENVELOPE, place)
        kind = text_of(members["payloadType"], f"{place}.payloadType")
        if kind != payload_type:
            raise ReceiptBroken(f"{place}.payloadType", f"is {seen(kind)}, wanted {payload_type!r}")
        listed = members["signatures"]
        if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_SIGNATURES:
            reason = f"is {seen(listed)}, wanted a list of 1 to {MOST_SIGNATURES}"
            raise ReceiptBroken(f"{place}.signatures", reason)
        signatures = []
        for number, item in enumerate(listed):
            at = f"{place}.signatures[{number}]"
            signature = fields(item, _SIGNATURE, at)
            keyid = hex_of(signature["keyid"], f"{at}.keyid").hex()
            signatures.append((keyid, unb64(signature["sig"], f"{at}.sig", SIGNATURE_BYTES)))
        first, *further = signatures
        if further != sorted(dict(further).items()) or first[0] in dict(further):
            raise ReceiptBroken(f"{place}.signatures", "their key ids are not in order")
        return cls(unb64(members["payload"], f"{place}.payload"), kind, *first, tuple(further))

    @property
    def _signatures(self) -> tuple[tuple[str, bytes], ...]:
        return ((self.keyid, self.signature), *self.further)

    def countersigned(self, key: SigningKey) -> Signed:
        """The envelope with one more signature; what was signed stays as it was."""
        signature = key.sign(self.payload_type, self.payload).signature
        further = {**dict(self.further), key.keyid: signature}
        further.pop(self.keyid, None)
        return replace(self, further=tuple(sorted(further.items())))

    def verify(self, key: bytes, place: str = "envelope") -> None:
        """Check the first signature with a public key."""
        if keyid_of(key) != self.keyid:
            raise ReceiptBroken(f"{place}.signatures[0].keyid", "does not name the key")
        self.verify_signer(key, place)

    def verify_signer(self, key: bytes, place: str = "envelope") -> None:
        """Check the signature of a public key, the first one's or a countersigner's."""
        keyids = [keyid for keyid, _ in self._signatures]
        if keyid_of(key) not in keyids:
            raise ReceiptBroken(f"{place}.signatures", f"none is by key {keyid_of(key)[:16]}…")
        number = keyids.index(keyid_of(key))
        at = f"{place}.signatures[{number}]"
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(
                self._signatures[number][1], pae(self.payload_type, self.payload)
            )
        except (InvalidSignature, ValueError):
            raise ReceiptBroken(
                f"{at}.sig", "the signature does not match payload and key"
            ) from None


class SigningKey:
    """An Ed25519 signing key; its repr contains only the public key's id."""

    __slots__ = ("_key", "keyid", "public")

    def __init__(self, seed: bytes) -> None:
        """Create the key from a seed of 32 bytes."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()
        self.keyid = keyid_of(self.public)

    def sign(self, payload_type: str, payload: bytes) -> Signed:
        """Sign a payload; equal payloads give equal signatures."""
        signature = self._key.sign(pae(payload_type, payload))
        return Signed(payload, payload_type, self.keyid, signature)

    def __repr__(self) -> str:
        return f"SigningKey({self.keyid[:16]}…)"

    def __reduce__(self) -> Any:
        raise TypeError("a signing key cannot be pickled; derive it again from the key ring")


# Cached, as a derivation takes a third of the time of a signature.
@lru_cache(maxsize=64)
def signing_key(master: bytes, tenant: str) -> SigningKey:
    """The signing key of a tenant's receipts and of the heads of their log."""
    return SigningKey(derive_key(master, salt=tenant, info=SIGN_INFO))


def keyid_of(key: bytes) -> str:
    """The id of a public key: SHA-256 of its 32 bytes, 64 hexadecimal digits."""
    return sha256_hex(key)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's pre-authentication encoding.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"".join([b"DSSEv1 %d %s %d " % (len(kind), kind, len(payload)), payload])
