"""The signed envelope: DSSE version 1 with one Ed25519 signature.

Spec: DSSE (v1.0.2, https://github.com/secure-systems-lab/dsse/blob/v1.0.2/envelope.md)

What is signed is not the JSON of the envelope but the bytes of `pae`, so a reader need not trust
his JSON parser before the signature is checked. Where the document leaves a choice (base64 with or
without the URL alphabet, further keys, an empty key id), a receipt takes one and refuses the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import b64, fields, hex_of, text_of, unb64
from crp_integrations.seals import derive_key, sha256_hex

IN_TOTO: Final = "application/vnd.in-toto+json"
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
SIGN_INFO: Final = b"crp-receipt-sign-v1"
_ENVELOPE = frozenset({"payload", "payloadType", "signatures"})
_SIGNATURE = frozenset({"keyid", "sig"})


@dataclass(frozen=True, slots=True)
class Signed:
    """A payload with its signature, as read; nothing is checked yet.

    Attributes:
        keyid: SHA-256 of the public key's 32 bytes, 64 hexadecimal digits.
        signature: 64 bytes.
    """

    payload: bytes
    payload_type: str
    keyid: str
    signature: bytes

    def to_json(self) -> dict[str, Any]:
        """The envelope as a JSON object."""
        return {
            "payload": b64(self.payload),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": self.keyid, "sig": b64(self.signature)}],
        }

    @classmethod
    def from_json(cls, value: Any, payload_type: str, place: str = "envelope") -> Signed:
        """Read an envelope."""
        found = fields(value, _ENVELOPE, place)
        kind = text_of(found["payloadType"], f"{place}.payloadType")
        if kind != payload_type:
            raise ReceiptBroken(f"{place}.payloadType", f"{kind!r:.60} is not {payload_type!r}")
        signatures = found["signatures"]
        if not isinstance(signatures, list) or len(signatures) != 1:
            raise ReceiptBroken(f"{place}.signatures", "wanted exactly one")
        at = f"{place}.signatures[0]"
        one = fields(signatures[0], _SIGNATURE, at)
        return cls(
            unb64(found["payload"], f"{place}.payload"),
            kind,
            hex_of(one["keyid"], f"{at}.keyid").hex(),
            unb64(one["sig"], f"{at}.sig", SIGNATURE_BYTES),
        )

    def verify(self, key: bytes, place: str = "envelope") -> None:
        """Check the signature with a public key."""
        at = f"{place}.signatures[0]"
        if keyid_of(key) != self.keyid:
            raise ReceiptBroken(f"{at}.keyid", "does not name the key")
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(
                self.signature, pae(self.payload_type, self.payload)
            )
        except (InvalidSignature, ValueError):
            raise ReceiptBroken(f"{at}.sig", "the signature does not fit payload and key") from None


class SigningKey:
    """An Ed25519 key that signs; printing it shows the public key's id alone."""

    __slots__ = ("_key", "keyid", "public")

    def __init__(self, seed: bytes) -> None:
        """Make the key."""
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
        raise TypeError("a key is not pickled; derive it again from the key ring")


# Deriving one takes a third of the time of signing with it.
@lru_cache(maxsize=64)
def signing_key(master: bytes, tenant: str) -> SigningKey:
    """The key that signs a tenant's receipts and the heads of their log."""
    return SigningKey(derive_key(master, salt=tenant, info=SIGN_INFO))


def keyid_of(key: bytes) -> str:
    """What names a public key: SHA-256 of its 32 bytes, 64 hexadecimal digits."""
    return sha256_hex(key)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's pre-authentication encoding.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"".join([b"DSSEv1 %d %s %d " % (len(kind), kind, len(payload)), payload])
