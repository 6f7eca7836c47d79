"""CRPProxyHook: in LiteLLM's own application where that is installed, and called in its order."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import PolicySyntaxError, RequestError
from crp_integrations.guard.decisions import Subject
from crp_integrations.litellm import CRPProxyHook
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from tests.adapters.litellm_deployments import BAD, FACTS, GOOD, JUDGE, QUESTION, entry, outcomes
from tests.adapters.litellm_proxy_app import MASTER, Given, application, called, installed
from tests.counting import mistral, window
from tests.doubles import NOON, HashEmbedder, stands
from tests.relay.conftest import KEY
from tests.servers import Double, no_metadata, openai_double

HALT = {"CRP-Safety-Policy": "halt-on MEDIUM"}
SESSION = "crp-context-session-id"
SECRET = "The password of the vault of {0} is {0}-4711 since the spring of this year."


class Proxied:
    """A client of a proxy whose hook answers each team from its own tenant."""

    def __init__(self, client: Any, relays: dict[str, Relay], server: Double) -> None:
        self.client, self.relays, self.server = client, relays, server
        self.relay = relays[""]

    def ask(
        self, headers: dict[str, str] | None = None, *, key: str = MASTER, **body: Any
    ) -> Given:
        sent = {"model": "main", "messages": [{"role": "user", "content": QUESTION}], **body}
        return self.client.ask(sent, headers or {}, key)


@pytest.fixture(scope="module", params=["called", "application"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxied]:
    if request.param == "application" and not installed():
        pytest.skip("LiteLLM's proxy is not installed: pip install 'litellm[proxy]'")
    store = MemoryStore()
    options = {"embedder": HashEmbedder(), "key": KEY, "clock": NOON}
    relays = {
        team: Relay.open(store, subject=Subject(tenant=team or "master"), **options)
        for team in ("", "acme", "other")
    }
    relays[""].fabric.add(FACTS)
    for team in ("acme", "other"):
        relays[team].fabric.add([SECRET.format(team)])
    hook = CRPProxyHook(lambda key: relays[getattr(key, "team_id", None) or ""], judge=JUDGE)
    with openai_double(text=GOOD) as server:
        entries = [
            entry(server, "main", "gpt-4o"),
            entry(server, "second", "open-mistral-7b", info={"max_input_tokens": 500}),
        ]
        settings = {"fallbacks": [{"main": ["second"]}], "num_retries": 0}
        if request.param == "called":
            with called(hook, entries, **settings) as client:
                yield Proxied(client, relays, server)
            return
        with application(tmp_path_factory.mktemp("proxy"), hook, entries, **settings) as client:
            yield Proxied(client, relays, server)


@pytest.fixture
def proxied(running: Proxied) -> Iterator[Proxied]:
    server = running.server
    server.requests.clear()
    yield running
    server.text, server.answers, server.choose = GOOD, None, None
    server.faults, server.tool_calls, server.windows = {}, [], {}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_carries_headers_and_report(proxied: Proxied, stream: bool) -> None:
    given = proxied.ask(stream=stream)
    assert (given.status, given.text) == (200, GOOD)
    assert given.crp["risk_level"] == "LOW"
    assert given.crp["response_content_hash"] == sha256(GOOD)
    told = given.headers
    assert told["crp-safety-hallucination-risk"].startswith("LOW")
    assert told["crp-context-etag"] and told["crp-compliance-audit-trail-id"]
    (seen,) = proxied.server.requests
    assert FACTS[7] in seen.context
    assert seen.question == QUESTION
    assert outcomes(proxied.relay, told[SESSION]) == ["released"]
    again = proxied.ask({"CRP-Context-Session-Id": told[SESSION]}, stream=stream)
    assert again.headers["crp-context-window"].startswith("2")
    proxied.relay.verify()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_withheld_answer_is_a_451_without_a_byte_of_it(proxied: Proxied, stream: bool) -> None:
    proxied.server.text = BAD
    assert proxied.ask(stream=stream).text == BAD, "nothing forbids it"
    given = proxied.ask(HALT, stream=stream)
    assert given.status == 451
    assert not stands("2077", repr(given)) and "Acme" not in repr(given)
    assert given.headers["crp-safety-retry-after"]
    assert "crp_halt_reason" in str(given.body)
    assert outcomes(proxied.relay, given.headers[SESSION]) == ["halted"]


ETAG = 'W/"0"'
SESSION_ID = "crp_sess_" + "0" * 32
REFUSED = [
    (400, {"CRP-Safety-Policy": "halt-on SOMETIMES"}, "SOMETIMES"),
    (400, {"CRP-Nonsense": "1"}, "CRP-Nonsense"),
    (400, {"CRP-Context-Window": "1/1"}, "response header"),
    (400, {"CRP-Accept-Strategy": "fan-out"}, "fan-out"),
    (403, {"CRP-Agent-Loop-Depth": "99"}, "99"),
    (
        404,
        {
            "CRP-Context-Session-Id": SESSION_ID,
            "CRP-Context-Continuation-Id": "crp_cont_" + "1" * 32,
        },
        "continu",
    ),
    (503, {"CRP-Accept-Quality": "S"}, "quality_unreachable"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("status", "headers", "word"), REFUSED, ids=str)
def test_refusals_have_their_status(
    proxied: Proxied, status: int, headers: dict[str, str], word: str, stream: bool
) -> None:
    given = proxied.ask(headers, stream=stream)
    assert given.status == status, given
    assert word.lower() in str(given.body).lower()
    assert given.pieces == []


def test_a_question_that_the_fabric_knows_nothing_of_is_a_424(proxied: Proxied) -> None:
    asked = [{"role": "user", "content": "Zebra xylophone quartz?"}]
    given = proxied.ask({"CRP-Context-Cache": "only-if-ckf"}, messages=asked)
    assert given.status == 424, given
    assert not proxied.server.requests


def test_a_token_of_another_session_is_a_401(proxied: Proxied) -> None:
    token = proxied.ask().headers["crp-set-session"].split(";")[0].partition("=")[2]
    given = proxied.ask({"CRP-Context-Session-Id": SESSION_ID, "CRP-Session-Token": token})
    assert given.status == 401, given
    assert "token" in str(given.body)


def test_a_stale_token_is_a_409(proxied: Proxied) -> None:
    first = proxied.ask()
    token = first.headers["crp-set-session"].split(";")[0].partition("=")[2]
    session = {"CRP-Context-Session-Id": first.headers[SESSION]}
    assert proxied.ask(session).status == 200
    stale = proxied.ask({**session, "CRP-Session-Token": token})
    assert stale.status == 409, stale


def test_an_envelope_that_is_not_modified_is_a_304(proxied: Proxied) -> None:
    first = proxied.ask()
    proxied.server.requests.clear()
    given = proxied.ask(
        {
            "CRP-Context-Session-Id": first.headers[SESSION],
            "CRP-Context-If-Match": first.headers["crp-context-etag"],
        }
    )
    assert given.status == 304, given
    assert given.headers["crp-context-cache-status"].startswith("HIT")
    assert given.headers["crp-context-etag"] == first.headers["crp-context-etag"]
    assert not proxied.server.requests


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_fallback_is_packed_for_and_examined_with(proxied: Proxied, stream: bool) -> None:
    server = proxied.server
    server.faults = {"gpt-4o": "broken"}
    server.windows = {"open-mistral-7b": window(500, mistral())}
    given = proxied.ask(stream=stream)
    assert (given.status, given.text) == (200, GOOD)
    first, last = server.requests
    assert (first.model, last.model) == ("gpt-4o", "open-mistral-7b")
    assert 0 < len(last.context) < len(first.context)
    told = given.told
    assert told["crp_calls"][0]["tried"] == ["openai/gpt-4o", "openai/open-mistral-7b"]
    assert len(told["crp_envelope"]["facts"]) == last.context.count("Plant ")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_that_fails_is_litellms_own_error_and_sealed(proxied: Proxied, stream: bool) -> None:
    proxied.server.faults = {"gpt-4o": "rate", "open-mistral-7b": "rate"}
    given = proxied.ask(stream=stream)
    assert given.status == 429, given
    assert outcomes(proxied.relay, given.headers[SESSION]) == ["failed"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_remedy_is_called_through_the_same_router(proxied: Proxied, stream: bool) -> None:
    server = proxied.server
    server.answers = lambda seen: BAD if server.requests[0] is seen else GOOD
    given = proxied.ask({"CRP-Safety-Policy": "upgrade-on-risk reflexive"}, stream=stream)
    assert given.status == 200
    assert given.text == GOOD
    assert len(server.requests) > 1
    told = given.told
    assert len(told["crp_calls"]) == len(server.requests)
    assert outcomes(proxied.relay, given.headers[SESSION]) == ["released"]


def test_what_tools_are_for_goes_along(proxied: Proxied) -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    proxied.server.tool_calls = [call]
    given = proxied.ask(tools=[tool])
    assert given.body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look_up"
    assert proxied.server.requests[0].body["tools"] == [tool]
    proxied.server.tool_calls = []
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "It was built in 1957."},
    ]
    assert proxied.ask(tools=[tool], messages=said).text == GOOD
    seen = proxied.server.requests[-1]
    assert [one["role"] for one in seen.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert seen.system.startswith("Be brief.")


@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"crp": {"policy": "halt-on HIGH"}},
        {"extra_body": {"crp_session": "x"}},
        {"extra_headers": {"CRP-Agent-Phase": "plan"}},
        {"messages": []},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
            ]
        },
    ],
    ids=str,
)
def test_what_cannot_be_answered_is_a_400(proxied: Proxied, body: dict[str, Any]) -> None:
    assert proxied.ask(**body).status == 400
    assert not proxied.server.requests


def test_nothing_of_crp_reaches_a_provider(proxied: Proxied) -> None:
    first = proxied.ask()
    token = first.headers["crp-set-session"].split(";")[0].partition("=")[2]
    headers = {
        "CRP-Context-Session-Id": first.headers[SESSION],
        "CRP-Session-Token": token,
        "CRP-Safety-Policy": "upgrade-on-risk reflexive",
        "CRP-Agent-Phase": "PLAN",
        "X-Own": "kept",
    }
    server = proxied.server
    server.answers = lambda seen: BAD if len(server.requests) == 2 else GOOD
    for stream in (False, True):
        assert proxied.ask(headers if not stream else None, stream=stream).status == 200
    assert len(server.requests) > 3
    for seen in server.requests:
        assert not [name for name in seen.headers if name.startswith("crp")]
        assert no_metadata(seen.raw), seen.raw


def test_teams_and_callers_side_by_side_never_mix(proxied: Proxied) -> None:
    server = proxied.server

    def answer(seen: Any) -> str:
        if "vault" in seen.question:
            return (seen.context or "Nothing is known.").splitlines()[-1]
        number = int(re.findall(r"\d+", seen.question)[0])
        return f"Plant {number} was built in {1950 + number}."

    server.answers = answer

    def one(n: int) -> tuple[int, Given]:
        if n % 4 == 0:
            key = ("sk-acme", "sk-other")[n // 4 % 2]
            asked = [{"role": "user", "content": "What is the password of the vault of acme?"}]
            return n, proxied.ask(key=key, messages=asked, stream=n % 8 == 0)
        asked = [{"role": "user", "content": f"When was plant {n} built?"}]
        return n, proxied.ask(messages=asked, stream=n % 2 == 0)

    with ThreadPoolExecutor(16) as pool:
        answered = list(pool.map(one, range(40)))
    sessions = set()
    for n, given in answered:
        assert given.status == 200, given
        sessions.add(given.headers[SESSION])
        assert given.crp["response_content_hash"] == sha256(given.text)
        assert given.crp["session_id"] == given.headers[SESSION]
        if n % 4 == 0:
            team = ("acme", "other")[n // 4 % 2]
            assert f"{team}-4711" in given.text
        else:
            assert given.text == f"Plant {n} was built in {1950 + n}."
    assert len(sessions) == 40
    assert "acme-4711" not in str(proxied.ask(key="sk-other").body)


def test_a_session_of_another_team_is_not_known(proxied: Proxied) -> None:
    mine = proxied.ask(key="sk-acme").headers[SESSION]
    other = proxied.ask({"CRP-Context-Session-Id": mine}, key="sk-other")
    assert other.headers["crp-context-window"].startswith("1"), "it began a session of its own"


def test_the_operators_policy_cannot_be_relaxed() -> None:
    store = MemoryStore()
    relay = Relay.open(store, embedder=HashEmbedder(), key=KEY, clock=NOON)
    relay.fabric.add(FACTS)
    hook = CRPProxyHook(
        relay, policy="halt-on HIGH", budget_tokens=300, safety_budget=0.5, judge=JUDGE
    )
    with (
        openai_double(text=BAD) as server,
        called(hook, [entry(server, "main", "gpt-4o")]) as client,
    ):
        proxied = Proxied(client, {"": relay}, server)
        assert proxied.ask().status == 451
        assert proxied.ask({"CRP-Safety-Policy": "halt-on CRITICAL"}).status == 403
        assert proxied.ask({"CRP-Safety-Policy": "halt-on MEDIUM"}).status == 451
        inherited = {"CRP-Agent-Loop-Depth": "1", "CRP-Safety-Policy": "halt-on CRITICAL"}
        assert proxied.ask(inherited).status == 451, "the stricter of both"
        budget = proxied.ask({"CRP-Agent-Safety-Budget": "0.9"}).headers["crp-agent-safety-budget"]
        assert float(budget) <= 0.5
    with pytest.raises(PolicySyntaxError):
        CRPProxyHook(relay, policy="halt")
    with pytest.raises(RequestError, match="'budget'"):
        CRPProxyHook(relay, budget=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_demand_that_nobody_can_read_is_a_400_before_a_provider_is_paid(stream: bool) -> None:
    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON)
    relay.fabric.add(FACTS)
    with (
        openai_double(text=GOOD) as server,
        called(CRPProxyHook(relay), [entry(server, "main", "gpt-4o")]) as client,
    ):
        proxied = Proxied(client, {"": relay}, server)
        refused = proxied.ask(HALT, stream=stream)
        assert refused.status == 400
        assert "unchecked allow" in str(refused.body)
        assert not server.requests
        # Its author may write down that he accepts what nobody read.
        unread = {"CRP-Safety-Policy": "halt-on MEDIUM; unchecked allow"}
        given = proxied.ask(unread, stream=stream)
        assert (given.status, given.text, given.crp["risk_level"]) == (200, GOOD, "UNKNOWN")


async def test_other_routes_go_through_unless_they_are_refused() -> None:
    from fastapi import HTTPException

    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON)
    data = {"input": "x", "proxy_server_request": {"headers": {}}}
    assert await CRPProxyHook(relay).async_pre_call_hook(None, None, data, "embeddings") is None
    with pytest.raises(HTTPException) as refused:
        await CRPProxyHook(relay, refuse_others=True).async_pre_call_hook(
            None, None, data, "aresponses"
        )
    assert refused.value.status_code == 400
    data["proxy_server_request"]["headers"]["crp-safety-policy"] = "halt-on HIGH"
    with pytest.raises(HTTPException):
        await CRPProxyHook(relay).async_pre_call_hook(None, None, data, "embeddings")


def test_a_client_that_goes_away_leaves_a_sealed_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crp_integrations.litellm.proxy.GRACE_SECONDS", 0.05)
    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON)
    relay.fabric.add(FACTS)
    hook = CRPProxyHook(relay)
    with (
        openai_double(text=GOOD) as server,
        called(hook, [entry(server, "main", "gpt-4o")]) as client,
    ):
        import asyncio
        import time

        from tests.adapters.litellm_proxy_app import Record

        async def begun() -> None:
            data = {
                "model": "main",
                "messages": [{"role": "user", "content": QUESTION}],
                "proxy_server_request": {"headers": {"crp-context-session-id": SESSION_ID}},
                "litellm_logging_obj": Record(),
            }
            await hook.async_pre_call_hook(None, None, data, "acompletion")

        asyncio.run_coroutine_threadsafe(begun(), client.loop).result()
        gc.collect()
        until = time.monotonic() + 20
        while not outcomes(relay, SESSION_ID) and time.monotonic() < until:
            time.sleep(0.02)
        assert outcomes(relay, SESSION_ID) == ["cancelled"]


def test_another_callback_on_streams_sees_every_chunk() -> None:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

    class Shouting(CustomLogger):
        async def async_post_call_streaming_iterator_hook(
            self, user_api_key_dict: Any, response: Any, request_data: Any
        ) -> Any:
            async for chunk in response:
                yield chunk

    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON)
    relay.fabric.add(FACTS)
    hook, shouting = CRPProxyHook(relay, judge=JUDGE), Shouting()
    litellm.callbacks.append(shouting)
    try:
        with (
            openai_double(text=GOOD) as server,
            called(hook, [entry(server, "main", "gpt-4o")]) as client,
        ):
            given = Proxied(client, {"": relay}, server).ask(stream=True)
    finally:
        litellm.callbacks.remove(shouting)
    assert given.text == GOOD and given.crp["risk_level"] == "LOW"
    assert not [name for name in given.headers if name.startswith("crp")], "no verdict yet"
    assert given.told["crp_headers"]["CRP-Safety-Hallucination-Risk"].startswith("LOW")
