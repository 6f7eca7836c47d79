"""What an auditor asks of a receipt: who asked, from which document, and what did not travel."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.cli.receipt_views import draw_receipt
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.verify import verify
from tests.receipt.page.real import session
from tests.receipt.relayed import MODEL, opened, receipt_of

TARIFF = "The reactor of Quimperley delivers 77 megawatts to the northern grid in winter."


def _leaf(receipt: Receipt, name: str) -> dict[str, str]:
    value: dict[str, str] = json.loads(receipt.text(receipt.number(name)) or "")
    return value


def _over_a_document(folder: Path) -> tuple[Relay, Receipt]:
    """A relay with one document, and the receipt of an answer that was shown it."""
    (folder / "tariff.md").write_text(TARIFF)
    relay, _ = opened("It delivers 77 megawatts.")
    relay.ingest(folder / "tariff.md", prefix="kb/")
    answer = relay.ask("How much does the reactor of Quimperley deliver?", model=MODEL)
    return relay, receipt_of(relay, answer.receipt_id)


def test_a_receipt_names_tenant_pseudonym_and_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    relay, receipt = _over_a_document(tmp_path)
    asker = _leaf(receipt, "asker")
    assert asker == {"subject": relay.receipts().pseudonym("local"), "tenant": "local"}
    assert asker["subject"].startswith("crp_subj_")
    (source,) = [entry for entry in relay.fabric.sources() if entry.uri.endswith("tariff.md")]
    entry = _leaf(receipt, f"document/{source.source_id}")
    assert entry == {"hash": source.document_hash, "title": source.title, "uri": source.uri}
    assert sha256(TARIFF.encode()).hexdigest() in entry["hash"]
    listed = {entry["source"]: entry["leaf"] for entry in receipt.content["documents"]}
    assert listed[source.source_id] == receipt.number(f"document/{source.source_id}")
    assert "tariff" not in receipt.signed.payload.decode()
    draw_receipt(receipt, verify(receipt))
    page = capsys.readouterr().out
    assert all(value in page for value in (asker["subject"], "tariff.md", source.document_hash))


def test_a_document_goes_with_its_facts_and_the_answer_stays_without_the_asker(
    tmp_path: Path,
) -> None:
    relay, receipt = _over_a_document(tmp_path)
    copy = redact(receipt, names=["asker"])
    assert copy.text(copy.number("seal")) is not None
    assert replay(copy).same
    (source,) = [entry for entry in relay.fabric.sources() if entry.uri.endswith("tariff.md")]
    without = redact(receipt, sources=[source.source_id])
    assert without.text(without.number(f"document/{source.source_id}")) is None
    relay.fabric.erase(source.source_id)
    erased = receipt_of(relay, receipt.receipt_id)
    assert b"tariff" not in write(erased)


def test_an_observed_answer_names_asker_and_documents(tmp_path: Path) -> None:
    relay, asked = _over_a_document(tmp_path)
    facts = relay.fabric.facts([leaf.fact_id for leaf in asked.leaves if leaf.fact_id])
    receipt = observe_answer(relay, "It delivers 77 megawatts.", facts, "How much?").receipt
    assert receipt is not None
    assert _leaf(receipt, "asker")["tenant"] == "local"
    uris = {
        _leaf(receipt, leaf.name)["uri"]
        for leaf in receipt.leaves
        if leaf.name.startswith("document/")
    }
    assert any(uri.endswith("tariff.md") for uri in uris)


def test_candidates_that_were_not_shown_leave_and_answer_and_seal_stay() -> None:
    receipt = read(session()[-1])
    copy = read(write(redact(receipt, unshown=True)))
    envelope, candidates = receipt.content["envelope"], receipt.content["candidates"]
    passages = receipt.content["examined"]["passages"] or ()
    evidence = {piece for passage in passages for piece in passage["pieces"]}
    dropped = {candidates[drop["at"]]["leaf"] for drop in envelope["dropped"]} - evidence
    assert dropped
    for number, leaf in enumerate(copy.leaves):
        stays = number not in dropped and leaf.name != "communities"
        assert (copy.state(number) == "shown") is stays, leaf.name
    assert copy.text(copy.number("answer")) == receipt.text(receipt.number("answer"))
    assert verify(write(copy)).ok
    replayed = replay(copy)
    assert replayed.same
    states = {part.name: part.state for part in replayed.parts}
    assert states["answer"] == states["context"] == states["examination"] == "equal", states
