"""The preview as a call of its own, and what the access log holds."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.gateway import GatewaySettings
from crp_integrations.seals import sha256
from tests.gateway.application import ASKED, BODY, FACTS, FAST, SECRET, Gateway, opened
from tests.servers import Double

CHAT = "/v1/chat/completions"
OWN_ID = "Plant-3-belongs-to-Jane-Doe-of-Elm-Street"
OWN_TEXT = "The harbour crane of Rotterdam lifts forty tonnes on a windless day."
LOGGER = "crp_integrations.gateway.access"


@pytest.mark.requirement("003-12.1-2")
@pytest.mark.parametrize("change", [{}, {"crp": {"budget_tokens": 120}}, {"crp": {"k": 3}}])
def test_a_preview_is_the_envelope_that_a_dispatch_carries(
    gateway: Gateway, server: Double, change: dict[str, Any]
) -> None:
    session = {"CRP-Context-Session-Id": "crp_sess_7f3a9bc2d4e1f083"}
    before = gateway.post("/v1/preview", {**BODY, **change}, **session)
    assert before.status_code == 200, before.text
    # Nothing was asked, and nothing was sealed.
    assert not server.requests
    assert gateway.get("/v1/audit/crp_sess_7f3a9bc2d4e1f083").status_code == 404

    dispatched = gateway.post(CHAT, {**BODY, **change}, **session)
    said, headers = before.json(), dispatched.headers
    used = f"{said['facts_included']}/{said['facts_available']}"
    assert headers["CRP-Context-Facts-Used"] == used
    assert int(headers["CRP-Context-Tokens-Used"]) == said["estimated_tokens"]
    assert headers["CRP-Context-ETag"] == said["etag"]
    assert float(headers["CRP-Context-Saturation"]) == round(said["saturation"], 3)
    shared = [name for name in before.headers if name.startswith("crp-context-")]
    assert len(shared) >= 7
    for name in shared:
        if name != "crp-context-quality-tier":  # the answer itself may cap it further
            assert before.headers[name] == headers[name], name
    context = server.requests[0].context
    assert said["facts_included"] == sum(fact in context for fact in [*FACTS, SECRET])


def test_a_preview_is_conditional_on_nothing_and_takes_what_a_question_takes(
    gateway: Gateway,
) -> None:
    assert gateway.post("/v1/preview", {**BODY, "stream": True}).status_code == 200
    assert gateway.post("/v1/preview", {**BODY, "nonsense": 1}).status_code == 400
    nothing = {"model": "m", "messages": [{"role": "user", "content": "zyx wvu tsr?"}]}
    response = gateway.post("/v1/preview", nothing, **{"CRP-Context-Cache": "only-if-ckf"})
    assert response.status_code == 424


@pytest.mark.requirement("003-12.1-2", "003-14.2-1")
def test_a_preview_continues_as_the_question_does(gateway: Gateway, server: Double) -> None:
    session = {"CRP-Context-Session-Id": "crp_sess_7f3a9bc2d4e1f084"}
    first = gateway.post(CHAT, {**BODY, "crp": {"k": 1}}, **session)
    continued = {**session, "CRP-Context-Continuation-Id": first.json()["crp"]["continuation_id"]}
    seen = gateway.post("/v1/preview", BODY, **continued).json()
    answered = gateway.post(CHAT, BODY, **continued)
    assert answered.headers["CRP-Context-ETag"] == seen["etag"] != first.headers["CRP-Context-ETag"]
    assert seen["text"] in server.requests[-1].context
    assert [fact["position"] for fact in seen["facts"]] == [*range(1, seen["facts_included"] + 1)]
    unknown = {**session, "CRP-Context-Continuation-Id": "crp_cont_" + "a" * 32}
    for path in ("/v1/preview", CHAT):
        assert gateway.post(path, BODY, **unknown).status_code == 404


class Lines(logging.Handler):
    """Everything that any logger of the process says, as it would be printed."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.said.append((record.name, text))


@pytest.mark.requirement("003-16.1-2")
def test_the_access_log_holds_ids_of_facts_and_no_content(
    tmp_path: Path, server: Double, caplog: pytest.LogCaptureFixture
) -> None:
    """Every kind of request, good and bad, with texts in every place that a caller can fill."""
    lines, root = Lines(), logging.getLogger()
    root.addHandler(lines)
    caplog.set_level(logging.INFO)
    server.text = "Plant 7 was built in 1957, as the archive of Northfield says."
    try:
        with opened(tmp_path, server, settings=GatewaySettings(**FAST)) as gateway:
            listed = gateway.get("/v1/facts?limit=1000").json()["facts"]
            by_content = {one["content"]: one["fact_id"] for one in listed}
            whole = gateway.post(CHAT, BODY)
            gateway.post(CHAT, {**BODY, "stream": True})
            gateway.post("/v1/preview", BODY)
            put = gateway.post(
                "/v1/facts", {"facts": [{"content": FACTS[0] + " Since then idle."}]}
            )
            stored = put.json()["facts"][0]
            gateway.client.delete(f"/v1/facts/{stored}", headers=gateway.headers())
            # Refusals, with a text where only ids belong.
            gateway.get(f"/v1/facts/{SECRET}")
            gateway.get(f"/v1/reports/{SECRET}?{SECRET}")
            gateway.get(f"/{SECRET}")
            gateway.get(f"/v1/facts?label={SECRET}")
            gateway.post("/v1/facts", {"facts": [{"content": SECRET, "kind": SECRET}]})
            gateway.post(CHAT, {**BODY, "model": "m", "messages": [*ASKED, {"role": SECRET}]})
            gateway.post(CHAT, {**BODY, "user": SECRET}, **{"CRP-Safety-Policy": SECRET})
            gateway.ask(**{"X-Request-Id": SECRET[:60]})
            # A caller chooses the ids of his facts.
            gateway.post("/v1/facts", {"facts": [{"content": OWN_TEXT, "fact_id": OWN_ID}]})
            gateway.post(CHAT, {**BODY, "messages": [{"role": "user", "content": OWN_TEXT}]})
            gateway.get(f"/v1/facts/{OWN_ID}")
            server.fault = "bad-request"
            gateway.ask()
    finally:
        root.removeHandler(lines)
    access = [json.loads(text) for name, text in lines.said if name == LOGGER]
    assert len(access) == 18
    asked = [one for one in access if one["route"] == CHAT and one["outcome"] == "released"]
    assert len(asked) == 4
    window = whole.json()["crp"]["window_id"]
    (line,) = [one for one in access if one["window"] == window]
    shown = [fact for fact in FACTS if fact in server.requests[0].context]
    assert {by_content[fact] for fact in shown} <= set(line["facts"])
    assert len(line["facts"]) == int(whole.headers["CRP-Context-Facts-Used"].split("/")[0])
    assert line["session"] == whole.headers["CRP-Context-Session-Id"]
    (deleted,) = [one for one in access if one["method"] == "DELETE"]
    assert deleted["facts"] == [stored]
    named = [one for one in access if sha256(OWN_ID) in one["facts"]]
    assert [one["route"] for one in named][:3] == ["/v1/facts", CHAT, "/v1/facts/{fact_id}"]
    ours = "\n".join(text for name, text in lines.said if name.startswith("crp_integrations"))
    for text in [*FACTS, SECRET, server.text, OWN_ID, OWN_TEXT]:
        assert text not in ours
        # Nor a part of it that would tell as much.
        assert text[10:50] not in ours
    assert gateway.keys["acme"].split("_", 2)[2] not in ours


def test_metrics_name_no_tenant_and_no_text(gateway: Gateway) -> None:
    gateway.ask()
    gateway.get("/v1/facts/none")
    gateway.client.request("BREW", "/" + SECRET)
    text = gateway.get("/metrics").text
    assert (
        'crp_gateway_requests_total{route="/v1/chat/completions",method="POST",status="200"} 1'
        in text
    )
    assert 'crp_gateway_requests_total{route="other",method="OTHER",status="404"} 1' in text
    assert 'crp_gateway_tokens_total{kind="prompt"} 11' in text
    assert 'crp_gateway_outcomes_total{outcome="released"} 1' in text
    for word in ("acme", "globex", SECRET[:20]):
        assert word not in text
    # Each bucket holds those below it.
    counts = [
        int(line.split()[-1])
        for line in text.splitlines()
        if line.startswith('crp_gateway_request_seconds_bucket{route="/v1/chat/completions"')
    ]
    assert counts == sorted(counts)
    assert counts[-1] == 1


def test_metrics_can_be_opened(tmp_path: Path, server: Double) -> None:
    with opened(tmp_path, server, settings=GatewaySettings(open_metrics=True)) as gateway:
        assert gateway.client.get("/metrics").status_code == 200
    with opened(tmp_path, server) as gateway:
        assert gateway.client.get("/metrics").status_code == 401


BROKEN = "ModelError: the stream of model 'gpt-4o-mini' broke off before its end"


@pytest.mark.parametrize(
    ("fault", "stream", "why"),
    [
        ("unauthorised", False, "ModelAuthError: the upstream answered .* with status 401"),
        ("rate", True, "ModelRateLimited: the upstream answered .* with status 429"),
        ("cut", True, BROKEN),
    ],
)
def test_the_log_says_why_an_upstream_did_not_answer(
    gateway: Gateway,
    server: Double,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    stream: bool,
    why: str,
) -> None:
    """The log names status and model of each refusal; the session is in its line."""
    caplog.set_level(logging.INFO)
    server.fault = fault
    response = gateway.post(CHAT, {**BODY, "stream": stream}, **{"X-Request-Id": "mine-7"})
    # A caller gets the upstream's own words where it can act on them.
    assert ("its log says more" in response.text) == (fault == "cut")
    said = [one.getMessage() for one in caplog.records if one.name == "crp_integrations.gateway"]
    assert len(said) == 1
    assert re.fullmatch(f"request mine-7: {why}", said[0])
    (line,) = [json.loads(one.getMessage()) for one in caplog.records if one.name == LOGGER]
    assert line["session"] == response.headers["CRP-Context-Session-Id"]
