"""The envelope: DSSE's own vectors, RFC 8032's, and other people's verifiers."""

from __future__ import annotations

import base64
import json
import pickle

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.records import write
from crp_integrations.receipt.signed_statement import (
    IN_TOTO,
    PREDICATE_TYPE,
    SUBJECTS,
    Signed,
    SigningKey,
    keyid_of,
    pae,
    signing_key,
)
from tests.receipt.made import KEY, OTHER_SEED, SEED, receipt

FACTS = tuple(f"The walrus {n} weighs {100 + n} kg." for n in range(4))


def test_the_pre_authentication_encoding_is_the_documents() -> None:
    # DSSE v1.0.2, protocol.md, test vectors.
    encoded = pae("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("", b"") == b"DSSEv1 0  0 "
    # Lengths are of bytes, so nothing can move from one field to the next.
    assert pae("é", b"x") == "DSSEv1 2 é 1 x".encode()
    assert pae("a 1 b", b"") != pae("a", b"b 0 ")


def test_keys_are_those_of_rfc_8032() -> None:
    # RFC 8032 §7.1, test 1.
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    key = SigningKey(seed)
    assert key.public.hex() == public
    assert key.keyid == keyid_of(bytes.fromhex(public))


def test_a_tenants_key_follows_from_the_master_key_alone() -> None:
    master = b"m" * 32
    assert signing_key(master, "a").public == signing_key(master, "a").public
    publics = {
        signing_key(master, "a").public,
        signing_key(master, "b").public,
        signing_key(b"n" * 32, "a").public,
    }
    assert len(publics) == 3


def test_a_key_does_not_leave() -> None:
    assert SEED.hex() not in repr(KEY)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(KEY)


def test_a_signature_is_of_type_and_payload_by_one_key() -> None:
    signed = KEY.sign("a/b", b"payload")
    signed.verify(KEY.public)
    assert signed == KEY.sign("a/b", b"payload")
    for bad in (
        Signed(b"payloae", "a/b", signed.keyid, signed.signature),
        Signed(b"payload", "a/c", signed.keyid, signed.signature),
        Signed(b"payload", "a/b", signed.keyid, bytes(64)),
    ):
        with pytest.raises(ReceiptBroken) as refused:
            bad.verify(KEY.public)
        assert refused.value.place == "envelope.signatures[0].sig"
    with pytest.raises(ReceiptBroken) as refused:
        signed.verify(SigningKey(OTHER_SEED).public)
    assert refused.value.place == "envelope.signatures[0].keyid"


def test_the_other_form_of_a_signature_is_refused() -> None:
    """s + L verifies as well where nobody looks (RFC 8032 §5.1.7 forbids it)."""
    order = 2**252 + 27742317777372353535851937790883648493
    signed = KEY.sign("a/b", b"payload")
    scalar = int.from_bytes(signed.signature[32:], "little") + order
    other = signed.signature[:32] + scalar.to_bytes(32, "little")
    with pytest.raises(ReceiptBroken):
        Signed(b"payload", "a/b", signed.keyid, other).verify(KEY.public)


@pytest.mark.parametrize(
    "change",
    [
        {"payloadType": "text/plain"},
        {"payload": "AB=="},
        {"payload": "_-8="},
        {"payload": None},
        {"signatures": []},
        {"signatures": [{"keyid": "ab" * 32, "sig": "AA=="}]},
        {"signatures": [{"keyid": "", "sig": "A" * 86 + "=="}]},
        {"signatures": [{"sig": "A" * 86 + "=="}]},
        {"signatures": [{"keyid": "ab" * 32, "sig": "A" * 86 + "=="}] * 2},
        {"more": 1},
    ],
)
def test_an_envelope_has_one_form(change: dict[str, object]) -> None:
    good = KEY.sign(IN_TOTO, b"payload").to_json()
    assert Signed.from_json(good, IN_TOTO) == KEY.sign(IN_TOTO, b"payload")
    with pytest.raises(ReceiptBroken):
        Signed.from_json({**good, **change}, IN_TOTO)


# --- by others' verifiers ------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_cryptography_accepts_the_envelope_of_the_file() -> None:
    file = json.loads(write(receipt(*FACTS)))
    envelope = file["envelope"]
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(file["key"]))
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    key.verify(signature, b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload))
    with pytest.raises(InvalidSignature):
        key.verify(signature, payload)


def test_securesystemslib_accepts_the_envelope_of_the_file() -> None:
    dsse = pytest.importorskip("securesystemslib.dsse")
    signer = pytest.importorskip("securesystemslib.signer")
    file = json.loads(write(receipt(*FACTS)))
    keyid = file["envelope"]["signatures"][0]["keyid"]
    public = base64.b64decode(file["key"]).hex()
    key = signer.SSlibKey(keyid, "ed25519", "ed25519", {"public": public})
    envelope = dsse.Envelope.from_dict(json.loads(json.dumps(file["envelope"])))
    assert envelope.verify([key], 1) == {keyid: key}
    other = signer.SSlibKey(
        keyid, "ed25519", "ed25519", {"public": SigningKey(OTHER_SEED).public.hex()}
    )
    with pytest.raises(Exception, match="Accepted signatures do not match threshold"):
        envelope.verify([other], 1)


def test_in_toto_reads_the_statement() -> None:
    statement = pytest.importorskip("in_toto_attestation.v1.statement")
    made = receipt(*FACTS)
    read = statement.Statement.copy_from_pb(_message(json.loads(made.signed.payload)))
    read.validate()
    assert read.pb.predicate_type == PREDICATE_TYPE
    assert [one.name for one in read.pb.subject] == list(SUBJECTS)
    digests = [dict(one.digest)["sha256"] for one in read.pb.subject]
    assert digests == [made.statement.subjects[name].hex() for name in SUBJECTS]
    # Its numbers are doubles; whole ones below 2^53 come back as they were.
    assert list(read.pb.predicate["content"]["numbers"]) == [1, -2, 0]


def _message(payload: object) -> object:
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.v1 import statement_pb2

    return ParseDict(payload, statement_pb2.Statement())
