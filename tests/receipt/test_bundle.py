"""One file with a receipt and all that proves it, and signatures of more than one key."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from crp_integrations import Relay
from crp_integrations.errors import EngineError, ReceiptBroken
from crp_integrations.receipt.bundle import (
    SCHEMA,
    KeyStatement,
    ReceiptBundle,
    read_bundle,
    verify_bundle,
)
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.signed_statement import SigningKey, keyid_of
from crp_integrations.receipt.timestamp import read_timestamp
from crp_integrations.receipt.verify import verify
from tests.doubles import NOON, HashEmbedder
from tests.receipt import schemas
from tests.receipt.made import KEY, OTHER_SEED
from tests.relay.conftest import FACTS

OLD, NEW = "ab" * 32, "cd" * 32
OPENSSL = shutil.which("openssl") or ""
TSA = """
[tsa]
default_tsa = own
[own]
serial = SERIAL
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ordering = yes
ess_cert_id_alg = sha256
"""


def _opened(folder: Path, key: str, **options: str) -> Relay:
    return Relay.open(
        folder, key=key, clock=NOON, model="extractive", embedder=HashEmbedder(), **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose key was rotated after the first receipt."""
    folder = tmp_path_factory.mktemp("bundles") / "store"
    with _opened(folder, OLD) as relay:
        relay.fabric.add(list(FACTS))
        relay.ask("Who operates the Meridian reactor?")
    with _opened(folder, f"{OLD},{NEW}") as relay:
        relay.ask("How many megawatts does the Meridian reactor deliver?")
        relay.ask("What revenue did Northfield Energy report?")
    return folder


@pytest.fixture(scope="module")
def bundles(folder: Path) -> list[ReceiptBundle]:
    with _opened(folder, f"{OLD},{NEW}") as relay:
        receipts = relay.receipts()
        return [receipts.bundle(id_) for id_ in receipts.ids()]


def test_a_bundle_verifies_alone_and_by_any_of_the_keys(bundles: list[ReceiptBundle]) -> None:
    for bundle in bundles:
        assert read_bundle(bundle.write()) == bundle
        alone = verify_bundle(bundle)
        assert (alone.ok, alone.pinned) == (True, False), alone
        assert alone.steps[-1].reason.startswith("no proof") is False
        for period in KeyStatement.read(bundle.keys).keys:
            known = verify_bundle(bundle, key=period.key)
            assert (known.ok, known.pinned) == (True, True)
    with pytest.raises(ReceiptBroken, match="names none of the keys wanted"):
        verify_bundle(bundles[0], key=KEY.public)


def test_the_statement_names_each_key_with_the_entries_that_it_signed(
    bundles: list[ReceiptBundle],
) -> None:
    statement = KeyStatement.read(bundles[0].keys)
    assert [period.entries for period in statement.keys] == [1, 2]
    assert statement.keys[0].first == bundles[0].receipt.chain.timestamp
    assert statement.keys[1].last == bundles[2].receipt.chain.timestamp
    signers = [signature["keyid"] for signature in bundles[0].keys.to_json()["signatures"]]
    assert signers == [keyid_of(period.key) for period in reversed(statement.keys)]


def test_a_bundle_that_does_not_fit_together_is_refused(bundles: list[ReceiptBundle]) -> None:
    first, second, _ = bundles
    # A retired key signs nothing after its last entry.
    late = replace(first, proof=second.proof)
    with pytest.raises(ReceiptBroken, match="was not in use at entry 1"):
        verify_bundle(late)
    other = verify_bundle(replace(second, receipt=bundles[2].receipt))
    assert (other.ok, other.place) == (False, "proof.path")
    alone = replace(first.keys, further=())
    with pytest.raises(ReceiptBroken, match="none is by key"):
        verify_bundle(replace(first, keys=alone))
    data = first.write()
    for changed in (data[:-1], data.replace(b"receipt-bundle/1", b"receipt-bundle/2"), b"{}\n"):
        with pytest.raises(ReceiptBroken):
            read_bundle(changed)


def test_a_redacted_copy_stays_in_its_bundle(bundles: list[ReceiptBundle]) -> None:
    copy = bundles[1].with_receipt(redact(bundles[1].receipt, names=["request"]))
    verified = verify_bundle(read_bundle(copy.write()))
    assert verified.ok
    assert verified.redacted > 0


def test_published_schemas_read_a_bundle_and_what_is_signed_in_it(
    bundles: list[ReceiptBundle],
) -> None:
    docs = Path(__file__).parents[2] / "docs/schemas"
    made = {
        name: json.loads((docs / name).read_text(encoding="utf-8")) for name in schemas.PUBLISHED
    }
    assert made == {name: json.loads(schemas.published(name)) for name in made}
    known = [(schema["$id"], Resource.from_contents(schema)) for schema in made.values()]
    registry = Registry().with_resources(known)
    value = json.loads(bundles[0].write())
    signed = {
        "statement": value["receipt"],
        "headPayload": value["head"],
        "keysPayload": value["keys"],
    }
    payloads = {
        name: json.loads(base64.b64decode(file["envelope"]["payload"]))
        for name, file in signed.items()
    }
    for name, item in {"": value, "receipt": value["receipt"], **payloads}.items():
        place = schemas.ROOT + (f"{SCHEMA}#/$defs/{name}" if name else SCHEMA)
        checker = Draft202012Validator({"$ref": place}, registry=registry)
        assert [error.message for error in checker.iter_errors(item)] == []
        assert list(checker.iter_errors({**item, "more": 1}))


def test_a_countersigned_receipt_verifies_by_either_key(bundles: list[ReceiptBundle]) -> None:
    receipt = bundles[0].receipt
    auditor = SigningKey(OTHER_SEED)
    both = replace(receipt, signed=receipt.signed.countersigned(auditor))
    data = write(both)
    assert read(data).receipt_id == receipt.receipt_id
    for key in (None, receipt.key, auditor.public):
        assert verify(data, key=key).ok
    assert verify(data, key=KEY.public).place == "key"
    signatures = json.loads(data)["envelope"]["signatures"]
    forged = {**signatures[1], "sig": signatures[0]["sig"]}
    changed = json.loads(data)
    changed["envelope"]["signatures"][1] = forged
    refused = verify(_canonical(changed), key=auditor.public)
    assert (refused.ok, refused.place) == (False, "envelope.signatures[1].sig")
    changed["envelope"]["signatures"] = signatures[::-1]
    assert not verify(_canonical(changed)).ok


def _canonical(value: object) -> bytes:
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A time-stamping authority on loopback: openssl behind a small server."""
    if not OPENSSL:
        pytest.skip("openssl is not installed")
    certificate = tmp_path / "tsa.pem"
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key.pem",
         "-out", certificate, "-subj", "/CN=tsa", "-days", "30",
         "-addext", "extendedKeyUsage=critical,timeStamping"],
        check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "tsa.cnf").write_text(TSA.replace("SERIAL", str(tmp_path / "serial")))

    class Authority(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            (tmp_path / "query").write_bytes(query)
            subprocess.run(
                [OPENSSL, "ts", "-reply", "-config", tmp_path / "tsa.cnf", "-queryfile",
                 tmp_path / "query", "-signer", certificate, "-inkey", tmp_path / "key.pem",
                 "-out", tmp_path / "reply"],
                check=True, capture_output=True,
            )  # fmt: skip
            self.send_response(200)
            self.end_headers()
            self.wfile.write((tmp_path / "reply").read_bytes())

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Authority)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", certificate
    server.shutdown()
    server.server_close()


def test_an_authority_stamps_the_head_and_openssl_verifies_it(
    folder: Path, authority: tuple[str, Path], tmp_path: Path
) -> None:
    address, certificate = authority
    with _opened(folder, f"{OLD},{NEW}", timestamp_authority=address) as relay:
        bundle = relay.receipts().bundle(relay.receipts().ids()[0])
    assert verify_bundle(read_bundle(bundle.write())).ok
    stamped = read_timestamp(bundle.timestamp)
    assert stamped.digest == sha256(bundle.head.write()).digest()
    assert stamped.time.startswith("20")
    (tmp_path / "head.json").write_bytes(bundle.head.write())
    (tmp_path / "stamp.tsr").write_bytes(bundle.timestamp)
    ran = subprocess.run(
        [OPENSSL, "ts", "-verify", "-data", "head.json", "-in", "stamp.tsr",
         "-CAfile", certificate],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Verification: OK" in ran.stdout + ran.stderr
    # The same head with one more signature is another file.
    other = replace(bundle.head, signed=bundle.head.signed.countersigned(KEY))
    with pytest.raises(ReceiptBroken, match="is of another head"):
        verify_bundle(replace(bundle, head=other))


def test_an_authority_that_gives_no_stamp_is_named(folder: Path) -> None:
    with (
        _opened(folder, f"{OLD},{NEW}", timestamp_authority="http://127.0.0.1:9/") as relay,
        pytest.raises(EngineError, match=r"127\.0\.0\.1:9.*ConnectError.*timestamp_authority"),
    ):
        relay.receipts().bundle(relay.receipts().ids()[0])
    for reply in (b"", b"\x30", b"\x30\x05\x30\x03\x02\x01\x02", b"not DER" * 9):
        with pytest.raises(ReceiptBroken, match="timestamp"):
            read_timestamp(reply)
