"""OpenAI requests in, OpenAI responses with CRP headers out; every status by one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.errors import CRPError
from crp_integrations.gateway import GatewaySettings
from tests.gateway.application import ASKED, BODY, FAST, QUESTION, Gateway, opened
from tests.servers import Double

BAD = "Plant 7 was built in 2077 by Acme Corporation for 9 billion dollars in Atlantis."
CHAT = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
CALLED = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Northfield"}'},
}


def test_an_answer_has_openai_shape_and_crp_headers(gateway: Gateway, server: Double) -> None:
    response = gateway.ask()
    assert response.status_code == 200, response.text
    said = response.json()
    assert said["object"] == "chat.completion"
    assert said["choices"][0]["message"]["content"] == "Plant 7 was built in 1957."
    assert said["choices"][0]["finish_reason"] == "stop"
    assert said["usage"] == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    assert response.headers["CRP-Context-Protocol-Version"] == "3.0.0"
    assert response.headers["CRP-Context-Session-Id"].startswith("crp_sess_")
    assert response.headers["CRP-Safety-Hallucination-Risk"]
    window = said["crp"]["window_id"]
    assert response.headers["CRP-Provenance-Report-URI"] == f"/v1/reports/{window}"
    assert said["crp"]["headers"]["CRP-Context-ETag"] == response.headers["CRP-Context-ETag"]
    assert "built in 1957" in server.requests[0].context


def test_no_header_and_nothing_of_crp_reaches_the_upstream(
    gateway: Gateway, server: Double
) -> None:
    body = {**BODY, "top_p": 0.5, "stop": ["END"], "crp": {"k": 4, "budget_tokens": 500}}
    response = gateway.post(
        CHAT,
        body,
        **{
            "CRP-Safety-Policy": "warn-on CRITICAL",
            "CRP-Agent-Phase": "PLAN",
            "OpenAI-Organization": "org-of-the-caller",
            "Cookie": "session=1",
            "X-Request-Id": "my-request",
        },
    )
    assert response.status_code == 200, response.text
    assert response.headers["X-Request-Id"] == "my-request"
    sent = server.requests[0]
    assert not [name for name in sent.headers if "crp" in name or name.startswith("openai")]
    assert "cookie" not in sent.headers
    assert sent.headers["authorization"] == "Bearer sk-upstream"
    assert "crp" not in sent.raw.lower()
    assert sent.body["top_p"] == 0.5
    assert sent.body["stop"] == ["END"]
    assert set(sent.body) == {"model", "messages", "top_p", "stop"}


def test_a_session_goes_on_and_a_continuation_is_found(gateway: Gateway) -> None:
    first = gateway.ask()
    session = first.headers["CRP-Context-Session-Id"]
    again = gateway.ask(**{"CRP-Context-Session-Id": session})
    assert again.headers["CRP-Context-Session-Id"] == session
    assert again.headers["CRP-Context-Window"].startswith("2/")
    continued = gateway.ask(
        **{
            "CRP-Context-Session-Id": session,
            "CRP-Context-Continuation-Id": again.json()["crp"]["continuation_id"],
        }
    )
    assert continued.status_code == 200
    assert continued.headers["CRP-Context-Window"].startswith("3/")


def test_tools_make_their_round(gateway: Gateway, server: Double) -> None:
    server.tool_calls = [CALLED]
    first = gateway.post(CHAT, {**BODY, "tools": [TOOL], "tool_choice": "auto"})
    message = first.json()["choices"][0]["message"]
    assert first.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert message["content"] is None
    assert message["tool_calls"] == [CALLED]
    assert server.requests[0].body["tools"] == [TOOL]
    assert server.requests[0].body["tool_choice"] == "auto"

    server.tool_calls = []
    answered = {"role": "tool", "tool_call_id": "call_1", "content": "It rains."}
    second = gateway.post(CHAT, {**BODY, "messages": [*ASKED, message, answered], "tools": [TOOL]})
    assert second.status_code == 200, second.text
    roles = [one["role"] for one in server.requests[-1].body["messages"]]
    # The question stands before the results that answer to it.
    assert roles == ["system", "user", "assistant", "tool"]
    assert server.requests[-1].body["messages"][1]["content"] == QUESTION


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_the_caller_forces_answers(
    gateway: Gateway, server: Double, stream: bool
) -> None:
    """The arguments are examined like an answer, and go out as the call that they are."""
    written = '{"note": "The Meridian reactor delivers 512 megawatts."}'
    name = TOOL["function"]["name"]
    server.tool_calls = [
        {"id": "c1", "type": "function", "function": {"name": name, "arguments": written}}
    ]
    server.answers = lambda seen: ""
    forced = {"type": "function", "function": {"name": name}}
    body = {**BODY, "tools": [TOOL], "tool_choice": forced, "stream": stream}
    said = gateway.post(CHAT, body)
    assert said.status_code == 200
    if not stream:
        (choice,) = said.json()["choices"]
        assert not choice["message"]["content"]
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == written
        assert said.headers["CRP-Provenance-Claim-Count"] == "1"


def test_a_tool_choice_is_not_sent_without_tools(gateway: Gateway, server: Double) -> None:
    assert gateway.post(CHAT, {**BODY, "tool_choice": "none"}).status_code == 200
    assert "tool_choice" not in server.requests[0].body


def test_a_response_format_shapes_the_answer_and_no_other_call(
    gateway: Gateway, server: Double
) -> None:
    shape = {"type": "json_object"}
    body = {**BODY, "response_format": shape, "crp": {"decompose": "model"}}
    assert gateway.post(CHAT, body).status_code == 200
    shaped = [one.body.get("response_format") for one in server.requests]
    assert shaped[-1] == shape
    assert len(shaped) > 1
    assert shaped[0] is None


# --- the statuses of the protocol --------------------------------------------------------


def test_304_repeats_the_headers_without_a_body(gateway: Gateway, server: Double) -> None:
    first = gateway.ask()
    asked = {
        "CRP-Context-Session-Id": first.headers["CRP-Context-Session-Id"],
        "CRP-Context-If-Match": first.headers["CRP-Context-ETag"],
    }
    second = gateway.ask(**asked)
    assert second.status_code == 304
    assert second.content == b""
    assert second.headers["CRP-Context-ETag"] == first.headers["CRP-Context-ETag"]
    assert second.headers["CRP-Context-Cache-Status"] == "HIT"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"CRP-Safety-Policy": "no-such-directive"}, 400, "unknown_directive"),
        ({"CRP-Safety-Policy": "halt-on"}, 400, "policy_syntax"),
        ({"CRP-Safety-Hallucination-Risk": "LOW"}, 400, "header_syntax_error"),
        ({"CRP-Unheard-Of": "1"}, 400, "header_syntax_error"),
        ({"CRP-Agent-Loop-Depth": "6"}, 403, "access_denied"),
        ({"CRP-Session-Token": "e30.e30"}, 401, "token_refused"),
        ({"CRP-Accept-Quality": "S"}, 503, "quality_unreachable"),
        ({"CRP-Safety-Oversight-Mode": "halt"}, 451, None),
    ],
)
def test_a_refusal_has_its_status_and_both_kinds_of_body(
    gateway: Gateway, headers: dict[str, str], status: int, code: str | None
) -> None:
    response = gateway.ask(**headers)
    assert response.status_code == status, response.text
    said = response.json()
    assert said["schema"] == "gateway-refusal/1"
    assert said["error"]["message"]
    assert code in (None, said["error"]["code"])
    assert response.headers["CRP-Context-Protocol-Version"] == "3.0.0"


def test_404_names_an_unknown_continuation(gateway: Gateway) -> None:
    session = gateway.ask().headers["CRP-Context-Session-Id"]
    headers = {
        "CRP-Context-Session-Id": session,
        "CRP-Context-Continuation-Id": "crp_cont_" + "0" * 22,
    }
    response = gateway.ask(**headers)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_continuation"


def test_403_names_the_relaxed_directive(tmp_path: Path, server: Double) -> None:
    with opened(tmp_path, server, policy="warn-on MEDIUM") as gateway:
        response = gateway.ask(**{"CRP-Safety-Policy": "warn-on HIGH"})
    assert response.status_code == 403
    said = response.json()
    assert said["error"]["code"] == "safety_policy_inheritance_violation"
    assert said["directive"] == "warn-on"
    assert response.headers["CRP-Safety-Violation"] == "inheritance"


def test_409_after_the_session_has_gone_on(gateway: Gateway) -> None:
    first = gateway.ask()
    token = first.headers["CRP-Set-Session"].partition("token=")[2].partition(";")[0]
    session = {"CRP-Context-Session-Id": first.headers["CRP-Context-Session-Id"]}
    assert gateway.ask(**session, **{"CRP-Session-Token": token}).status_code == 200
    stale = gateway.ask(**session, **{"CRP-Session-Token": token})
    assert stale.status_code == 409
    assert stale.headers["X-Should-Retry"] == "false"


def test_424_without_a_relevant_fact(gateway: Gateway) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "zyx wvu tsr?"}]}
    response = gateway.post(CHAT, body, **{"CRP-Context-Cache": "only-if-ckf"})
    assert response.status_code == 424
    assert response.headers["CRP-Context-Cache-Status"] == "MISS"
    said = response.json()
    assert said["error"]["code"] == "no_relevant_facts"
    assert (said["directive"], said["value"]) == ("only-if-ckf", "relevance below 0.50")


def test_451_withholds_the_text(judged: Gateway, server: Double) -> None:
    server.text = BAD
    response = judged.ask(**{"CRP-Safety-Policy": "halt-on HIGH; block-distortion"})
    assert response.status_code == 451, response.text
    said = response.json()
    assert said["crp_halt_reason"]
    assert said["directive"] and said["value"]
    assert said["directive"].split()[0] in response.headers["CRP-Safety-Violation"]
    assert said["session_id"] == response.headers["CRP-Context-Session-Id"]
    assert said["audit_trail_uri"] == f"/v1/audit/{said['session_id']}"
    assert said["retry_condition"] == response.headers["CRP-Safety-Retry-After"]
    assert "Atlantis" not in response.text
    assert "Atlantis" not in str(response.headers)


def test_503_tells_the_best_achievable_tier(gateway: Gateway) -> None:
    response = gateway.ask(**{"CRP-Accept-Quality": "S"})
    said = response.json()
    assert said["best_achievable"] == response.headers["CRP-Context-Quality-Tier"]
    assert said["accepted"] == ["S"]
    assert (said["directive"], said["value"]) == ("accept-quality S", said["best_achievable"])
    assert response.headers["CRP-Safety-Violation"] == "accept-quality"
    assert said["caps"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("headers", "mode"),
    [
        ({}, None),
        ({"CRP-Safety-Oversight-Mode": "auto"}, "auto"),
        ({"CRP-Safety-Oversight-Mode": "human-review"}, "human-review"),
        ({"CRP-Safety-Oversight-Mode": "halt"}, "halt"),
        ({"CRP-Safety-Policy": "require-oversight human-review"}, "human-review"),
        ({"CRP-Safety-Policy": "oversight halt"}, "halt"),
        # A safety budget below 0.25 wants a person, whatever the policy and the caller say.
        ({"CRP-Agent-Safety-Budget": "0.2"}, "human-review"),
        (
            {"CRP-Agent-Safety-Budget": "0.2", "CRP-Safety-Oversight-Mode": "log-only"},
            "human-review",
        ),
    ],
)
def test_a_forced_review_shows_in_the_oversight_header(
    tmp_path: Path, server: Double, headers: dict[str, str], mode: str | None, stream: bool
) -> None:
    settings = GatewaySettings(**FAST, live_streams=False)
    with opened(tmp_path, server, profile="protocol", settings=settings) as gateway:
        response = gateway.post(CHAT, {**BODY, "stream": stream}, **headers)
    assert response.status_code == (200 if mode in (None, "auto") else 451)
    assert response.headers.get("CRP-Safety-Oversight-Mode") == mode
    if response.status_code == 451:
        assert response.json()["oversight_required"] is True
        assert response.headers["CRP-Safety-Retry-After"] == "oversight-required"


def test_an_answer_that_nobody_reviewed_is_no_304_once_a_review_is_forced(
    tmp_path: Path, server: Double
) -> None:
    with opened(tmp_path, server, profile="protocol") as gateway:
        first = gateway.ask()
        asked = {
            "CRP-Context-Session-Id": first.headers["CRP-Context-Session-Id"],
            "CRP-Context-If-Match": first.headers["CRP-Context-ETag"],
        }
        assert gateway.ask(**asked).status_code == 304
        forced = gateway.ask(**asked, **{"CRP-Agent-Safety-Budget": "0.2"})
    assert forced.status_code == 451
    assert forced.headers["CRP-Safety-Oversight-Mode"] == "human-review"


# --- what a request may be ----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2},
        {"logprobs": True},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "Hello"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [{"role": "user", "content": "  "}]},
        {"temperature": -1},
        {"temperature": "NaN"},
        {"no_such_field": 1},
        {"crp": {"no_such_field": 1}},
        {"crp": {"k": 0}},
        {"model": ""},
        {"seed": 2**70},
        {"stop": {"a": 1}},
        {"tools": ["weather"]},
        {"messages": [{"role": "user", "content": "a" * 20_001}]},
    ],
    ids=lambda change: str(change)[:40],
)
def test_an_unusable_field_is_400_and_names_no_value(
    gateway: Gateway, server: Double, change: dict[str, Any]
) -> None:
    response = gateway.post(CHAT, {**BODY, **change})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert not server.requests


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"messages": []}, "messages is not usable: wanted at least 1 item, got 0"),
        ({"tools": [TOOL] * 129}, "tools is not usable: wanted at most 128 items, got 129"),
    ],
)
def test_a_list_of_a_wrong_length_is_refused_in_plain_words(
    gateway: Gateway, change: dict[str, Any], problem: str
) -> None:
    assert gateway.post(CHAT, {**BODY, **change}).json()["error"]["message"] == problem


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"model": NaN}',
        b"\xff\xfe{}",
        b'{"model": "m", "model": "n", "messages": []}',
        b"[" * 100_000,
        b'{"model": ' + b"9" * 5_000 + b"}",
        json.dumps(
            {**BODY, "messages": [{"role": "user", "content": "a\ud800"}]}, ensure_ascii=True
        ).encode(),
        json.dumps({**BODY, "user": "a\ud800"}).encode(),
    ],
    ids=range(11),
)
def test_a_body_that_is_no_request_is_400(gateway: Gateway, body: bytes) -> None:
    response = gateway.client.post(CHAT, content=body, headers=gateway.headers())
    assert response.status_code == 400, response.text


def test_fields_that_an_operator_lists_are_handed_on(tmp_path: Path, server: Double) -> None:
    settings = GatewaySettings(pass_fields=("top_k",), models=("gpt-4o-mini",))
    with opened(tmp_path, server, settings=settings) as gateway:
        assert gateway.post(CHAT, {**BODY, "top_k": 5}).status_code == 200
        assert server.requests[0].body["top_k"] == 5
        other = gateway.post(CHAT, {**BODY, "model": "gpt-4o"})
        assert other.status_code == 404
        assert other.json()["error"]["code"] == "model_unlisted"


def test_without_an_upstream_the_stores_own_model_alone_is_asked(
    tmp_path: Path, server: Double
) -> None:
    from crp_integrations.gateway import Routed

    with opened(tmp_path, server, upstream=Routed()) as gateway:
        body = {**BODY, "model": "extractive"}
        said = gateway.post(CHAT, body)
        assert said.status_code == 200
        assert "1957" in said.json()["choices"][0]["message"]["content"]
        assert gateway.post(CHAT, {**BODY, "model": "ollama/llama3"}).status_code == 404
        both = {**body, "stream": True}
        assert "1957" in gateway.post(CHAT, both).text


def test_litellm_routes_with_the_callers_fields(tmp_path: Path, server: Double) -> None:
    from crp_integrations.gateway import GatewaySettings, Routed

    routed = Routed(options={"api_base": server.url, "api_key": "sk-test"})
    settings = GatewaySettings(models=("openai/gpt-4o-mini",))
    with opened(tmp_path, server, upstream=routed, settings=settings) as gateway:
        body = {**BODY, "model": "openai/gpt-4o-mini", "top_p": 0.25, "max_completion_tokens": 9}
        response = gateway.post(CHAT, body)
    assert response.status_code == 200, response.text
    sent = server.requests[0]
    assert sent.body["top_p"] == 0.25
    assert 9 in (sent.body.get("max_tokens"), sent.body.get("max_completion_tokens"))
    assert not [name for name in sent.headers if "crp" in name]


def test_every_error_of_ours_has_a_status_that_http_knows() -> None:
    def below(kind: type[CRPError]) -> list[type[CRPError]]:
        return [kind, *(one for sub in kind.__subclasses__() for one in below(sub))]

    assert all(300 <= kind.status_hint < 600 for kind in below(CRPError))


def test_the_models_that_may_be_asked_are_listed(tmp_path: Path, server: Double) -> None:
    """Chat front ends ask for them first; a stranger's list is not handed on."""
    names = ("gpt-4o-mini", "openai/x")
    with opened(tmp_path, server, settings=GatewaySettings(models=names, **FAST)) as gateway:
        listed = gateway.get("/v1/models")
        assert (listed.status_code, listed.json()["object"]) == (200, "list")
        found = [(one["id"], one["object"]) for one in listed.json()["data"]]
        assert found == [(name, "model") for name in names]
        for name in names:
            assert gateway.get(f"/v1/models/{name}").json()["id"] == name
        for name in ("gpt-9", ""):
            assert gateway.get(f"/v1/models/{name}").status_code == 404
        assert gateway.get("/v1/models?a=b").status_code == 400
        assert gateway.client.get("/v1/models").status_code == 401
    with opened(tmp_path, server) as gateway:
        assert gateway.get("/v1/models").json()["data"] == []
        assert not server.requests
