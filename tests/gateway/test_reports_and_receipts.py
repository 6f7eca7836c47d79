"""Reports, trails and receipts of windows, as their headers name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crp_integrations.audit import exports
from crp_integrations.audit.trail import verify_events
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.cli.app import app as crp
from crp_integrations.dpe.records import Report
from crp_integrations.errors import ChainBroken
from crp_integrations.receipt.records import read
from crp_integrations.receipt.verify import verify
from crp_integrations.stores.keys import FileKeyRing
from tests.gateway.application import ASKED, BODY, Gateway
from tests.gateway.test_chat_completions import CALLED, CHAT, TOOL
from tests.receipt.wire import arrived, replays, told
from tests.servers import Double


def test_a_report_is_where_its_header_says(gateway: Gateway) -> None:
    asked = gateway.ask()
    found = gateway.get(asked.headers["CRP-Provenance-Report-URI"])
    assert found.status_code == 200
    report = Report.model_validate(found.json())
    assert report.session_id == asked.headers["CRP-Context-Session-Id"]
    assert report.hmac == asked.headers["CRP-Provenance-HMAC"]
    assert report.chain_integrity == asked.headers["CRP-Provenance-Chain-Integrity"]


def test_a_trail_is_where_its_header_says_and_holds_its_session_alone(gateway: Gateway) -> None:
    asked, other = gateway.ask(), gateway.ask()
    said = gateway.get(asked.headers["CRP-Compliance-Audit-Trail-URI"]).json()
    session = asked.headers["CRP-Context-Session-Id"]
    assert said["session_id"] == session
    assert [seal["hmac"] for seal in said["seals"]] == [asked.headers["CRP-Provenance-HMAC"]]
    assert {event["session_id"] for event in said["events"]} == {session}
    assert other.headers["CRP-Context-Session-Id"] not in json.dumps(said)


def test_an_ndjson_trail_verifies_elsewhere(gateway: Gateway) -> None:
    asked, other = gateway.ask(), gateway.ask()
    session = asked.headers["CRP-Context-Session-Id"]
    text = gateway.get(f"/v1/audit/{session}?format=ndjson").text
    assert other.headers["CRP-Context-Session-Id"] not in text
    ring = FileKeyRing(gateway.store / "keys")
    trail = verify_events(
        exports.read_ndjson(text.splitlines()),
        journal_key=journal_key(ring, "acme"),
        session_key=lambda session_id: session_key(ring, session_id),
    )
    assert trail.left_out > 0
    assert trail.events + trail.left_out == len(text.splitlines())


def test_a_trail_verifies_with_the_command_that_the_page_names(
    gateway: Gateway, tmp_path: Path
) -> None:
    asked = gateway.ask()
    session = asked.headers["CRP-Context-Session-Id"]
    trail = tmp_path / "trail.ndjson"
    trail.write_bytes(gateway.get(f"/v1/audit/{session}?format=ndjson").content)
    whose = ["--file", str(trail), "--store", str(gateway.store), "--tenant"]
    verified = CliRunner().invoke(crp, ["audit", "verify", *whose, "acme"])
    assert verified.exit_code == 0, verified.output
    # Not with what another tenant's trail is sealed with, nor changed by a character.
    with pytest.raises(ChainBroken):
        CliRunner().invoke(crp, ["audit", "verify", *whose, "globex"], catch_exceptions=False)
    trail.write_bytes(trail.read_bytes().replace(b"released", b"relaesed", 1))
    assert CliRunner().invoke(crp, ["audit", "verify", *whose, "acme"]).exit_code != 0


def test_a_long_trail_comes_in_pages(gateway: Gateway) -> None:
    session = gateway.ask().headers["CRP-Context-Session-Id"]
    for _ in range(2):
        gateway.ask(**{"CRP-Context-Session-Id": session})
    whole = gateway.get(f"/v1/audit/{session}").json()
    assert whole["after"] == 0
    last = whole["events"][1]["seq"]
    rest = gateway.get(f"/v1/audit/{session}?after={last}").json()
    assert rest["events"] == whole["events"][2:]


def test_a_receipt_verifies_and_is_found_by_its_window(gateway: Gateway) -> None:
    proof = gateway.ask().json()["crp"]
    found = gateway.get(f"/v1/receipts/{proof['receipt_id']}")
    assert found.status_code == 200, found.text
    verified = verify(found.content)
    assert verified.ok
    assert verified.receipt_id == proof["receipt_id"]
    assert gateway.get(f"/v1/receipts/{proof['window_id']}").content == found.content
    assert gateway.get(f"/v1/receipts/{proof['receipt_id']}", "globex").status_code == 404


def test_nothing_is_kept_of_a_no_store_window(gateway: Gateway) -> None:
    asked = gateway.ask(**{"CRP-Context-Cache": "no-store"})
    assert asked.status_code == 200
    window = asked.json()["crp"]["window_id"]
    assert gateway.get(f"/v1/reports/{window}").status_code == 404


HELLO = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": "It rains."}
ROUND = [*HELLO, *ASKED, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, ANSWERED]


@pytest.mark.parametrize("messages", [ASKED, [*HELLO, *ASKED], ROUND])
def test_a_receipt_has_the_messages_as_they_arrived(
    gateway: Gateway, server: Double, messages: list[dict[str, object]]
) -> None:
    said = gateway.post(CHAT, {**BODY, "messages": messages, "tools": [TOOL]}).json()
    receipt = read(gateway.get(f"/v1/receipts/{said['crp']['receipt_id']}").content)
    (seen,) = server.requests
    assert told(receipt) == [arrived(seen.body["messages"])]
    assert replays(receipt)
