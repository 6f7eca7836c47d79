"""One model list over servers shaped like OpenAI, Anthropic and Gemini, each counting for real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import ModelContextExceeded, ModelError
from tests.adapters.litellm_deployments import (
    FACTS,
    GOOD,
    WAYS,
    answered,
    entry,
    outcomes,
    router,
    text,
)
from tests.counting import claude_2, mistral, o200k, window
from tests.doubles import HashEmbedder
from tests.servers import Double, openai_double
from tests.shapes import anthropic_double, gemini_double

SESSION = "crp_sess_" + "6" * 16
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"plant": 7}'},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"plant": {"type": "integer"}}},
    },
}
# Context limits in tokens: small enough that no two deployments get the same facts.
ANSWER = 200
LIMITS = {"openai": 2_600, "anthropic": 900, "gemini": 600}


@dataclass
class Servers:
    openai: Double
    anthropic: Double
    gemini: Double

    def everything(self) -> list[Double]:
        return [self.openai, self.anthropic, self.gemini]

    def entries(self, *groups: str) -> list[dict[str, Any]]:
        """The three deployments in groups of their own, as a `model_list` has them."""
        models = {
            "openai": (self.openai, "gpt-4o"),
            "anthropic": (self.anthropic, "claude-2.1"),
            "gemini": (self.gemini, "gemini-2.5-flash"),
        }
        return [
            entry(
                models[provider][0],
                group,
                models[provider][1],
                info={"max_input_tokens": LIMITS[provider]},
            )
            for provider, group in zip(models, groups, strict=True)
        ]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        doubles = [
            stack.enter_context(make(text=GOOD))
            for make in (openai_double, anthropic_double, gemini_double)
        ]
        found = Servers(*doubles)
        found.openai.windows = {"gpt-4o": window(LIMITS["openai"] + ANSWER, o200k())}
        found.anthropic.windows = {"claude-2.1": window(LIMITS["anthropic"] + ANSWER, claude_2())}
        # Gemini has no public tokenizer that works offline; o200k counts about as it does, and
        # the package, which does not know that, has to stay below by its estimate.
        found.gemini.windows = {"gemini-2.5-flash": window(LIMITS["gemini"] + ANSWER, o200k())}
        yield found


# About 100 tokens each.
LONG = [
    f"{fact} Its cooling water comes from river {n}, its turbine hall is {60 + n} metres long, and "
    f"the {n + 2} engineers of its night shift keep the log in book {n} of the archive, which the "
    f"inspectors of the ministry read in month {n % 12 + 1} of every year and sign on page {n}."
    for n, fact in enumerate(FACTS)
]


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay.open(embedder=HashEmbedder()) as opened:
        opened.fabric.add(LONG)
        yield opened


@pytest.mark.requirement("CARD-20", "CARD-27")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("working", ["openai", "anthropic", "gemini"])
def test_each_attempt_across_three_providers_carries_what_fits_it(
    relay: Relay, servers: Servers, how: str, working: str
) -> None:
    names = ["openai", "anthropic", "gemini"]
    for name in names[: names.index(working)]:
        getattr(servers, name).fault = "unavailable"
    called = router(
        relay,
        *servers.entries("main", "second", "third"),
        fallbacks=[{"main": ["second", "third"]}],
    )
    response = answered(how, called, session_id=SESSION, max_tokens=ANSWER, budget_tokens="window")
    assert text(response) == GOOD
    asked = [double.requests for double in servers.everything()]
    tried = names.index(working) + 1
    assert [len(requests) for requests in asked] == [1] * tried + [0] * (3 - tried)
    # Nobody was sent what does not fit by the server's own count, question and answer included,
    # and each got an envelope of its own: the smaller the window, the fewer the facts.
    seen = [requests[0] for requests in asked[:tried]]
    assert "context" not in [one.fault for one in seen]
    facts = [one.context.count("megawatts") for one in seen]  # one a fact
    assert facts == sorted(set(facts), reverse=True)
    assert facts[-1] > 0
    # What is examined and reported is what the answering deployment saw, counted as it counts.
    envelope = response.crp_envelope
    assert envelope["text"] == seen[-1].context
    assert envelope["model"].startswith(working)
    assert envelope["token_budget"] < LIMITS[working]
    assert {
        "openai": envelope["tokenizer"].startswith("tiktoken:o200k"),
        "anthropic": envelope["token_exactness"] == "exact",
        "gemini": envelope["token_exactness"] == "estimate",
    }[working]
    assert outcomes(relay, SESSION) == ["released"]
    assert relay.verify().windows == 1


@pytest.mark.requirement("003-10.1-1", "CARD-20")
@pytest.mark.parametrize("how", WAYS)
def test_a_fallback_from_128000_to_8000_tokens_of_another_tokenizer(relay: Relay, how: str) -> None:
    # More than 8,000 tokens hold.
    relay.fabric.add([fact.replace("Plant", f"Block {n} of plant") for n, fact in _many()])
    with openai_double(text=GOOD, faults={"gpt-4o": "rate"}) as server:
        server.windows = {
            "gpt-4o": window(128_000, o200k()),
            "open-mistral-7b": window(8_000, mistral()),
        }
        called = router(
            relay,
            entry(server, "main", "gpt-4o"),
            entry(server, "small", "open-mistral-7b", info={"max_input_tokens": 8_000}),
            fallbacks=[{"main": ["small"]}],
        )
        response = answered(how, called, max_tokens=300, budget_tokens="window")
        large, small = server.requests
        assert text(response) == GOOD
        # The server counted both itself: the first request would never have fitted the second.
        assert mistral()(large.body["messages"]) > 8_000
        assert mistral()(small.body["messages"]) + 300 <= 8_000
        assert response.usage.prompt_tokens == mistral()(small.body["messages"])
        assert (small.fault, small.context) == ("", response.crp_envelope["text"])
        # Not merely something that fits: most of the window is used.
        assert response.crp_envelope["token_count"] > 5_000
        assert "mistral" in response.crp_envelope["tokenizer"]
        # The same request as it was first packed is refused.
        server.faults = {}
        server.windows["gpt-4o"] = window(8_000, mistral())
        alone = router(relay, entry(server, "main", "gpt-4o"))
        with pytest.raises(ModelContextExceeded):
            answered(how, alone, max_tokens=300, budget_tokens="window")


def _many() -> list[tuple[int, str]]:
    return [(n, fact) for n in (1, 2) for fact in LONG]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("how", WAYS)
def test_tool_calls_come_through_from_every_provider(
    relay: Relay, servers: Servers, how: str, provider: str
) -> None:
    getattr(servers, provider).tool_calls = [CALL]
    entries = servers.entries("openai", "anthropic", "gemini")
    for one in entries:
        one["model_name"] = "main" if one["model_name"] == provider else one["model_name"]
    response = answered(how, router(relay, *entries), tools=[TOOL], max_tokens=ANSWER)
    if how == "stream":
        calls = [call for chunk in response.chunks for call in _calls(chunk)]
        assert "".join(call.function.arguments or "" for call in calls).replace(" ", "") == (
            '{"plant":7}'
        )
        assert calls[0].function.name == "look_up"
    else:
        (call,) = response.choices[0].message.tool_calls
        assert call.function.name == "look_up"
        assert call.function.arguments.replace(" ", "") == '{"plant":7}'


def _calls(chunk: Any) -> list[Any]:
    return list(chunk.choices[0].delta.tool_calls or ()) if chunk.choices else []


@pytest.mark.parametrize(
    ("provider", "fault"),
    [
        (provider, fault)
        for provider in ("openai", "anthropic", "gemini")
        for fault in ("rate", "broken", "unavailable", "context", "malformed", "drop", "empty")
        # There an answer of no part is an answer without text.
        if (provider, fault) != ("anthropic", "empty")
    ],
)
def test_every_fault_of_every_provider_is_a_typed_error_or_a_fallback(
    relay: Relay, servers: Servers, provider: str, fault: str
) -> None:
    getattr(servers, provider).fault = fault
    entries = servers.entries("openai", "anthropic", "gemini")
    called = router(
        relay, *[{**one, "model_name": "main"} for one in entries if _is(one, provider)]
    )
    with pytest.raises(ModelError) as caught:
        answered("acompletion", called, session_id=SESSION, max_tokens=ANSWER)
    assert caught.value.tried[0].startswith(provider)
    assert isinstance(caught.value, ModelContextExceeded) == (fault == "context")
    assert outcomes(relay, SESSION) == ["failed"]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("fault", ["cut", "break", "garbled"])
def test_a_stream_that_is_cut_off_is_never_taken_for_an_answer(
    relay: Relay, servers: Servers, provider: str, fault: str
) -> None:
    getattr(servers, provider).fault = fault
    entries = servers.entries("openai", "anthropic", "gemini")
    called = router(
        relay, *[{**one, "model_name": "main"} for one in entries if _is(one, provider)]
    )
    if provider == "gemini":
        # LiteLLM cannot tell a whole stream of Gemini from one that was cut, so it is called whole.
        stream = answered("stream", called, max_tokens=ANSWER)
        assert text(stream) == GOOD
        assert servers.gemini.requests[0].path.endswith(":generateContent")
        assert stream.usage.total_tokens > 0
        return
    with pytest.raises(ModelError):
        answered("stream", called, max_tokens=ANSWER)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("how", WAYS)
def test_nothing_of_crp_is_on_any_providers_wire(
    relay: Relay, servers: Servers, how: str, provider: str
) -> None:
    entries = servers.entries("openai", "anthropic", "gemini")
    called = router(
        relay, *[{**one, "model_name": "main"} for one in entries if _is(one, provider)]
    )
    answered(how, called, session_id=SESSION, max_tokens=ANSWER)
    (seen,) = getattr(servers, provider).requests
    assert "crp" not in seen.raw.lower()
    assert not [name for name in seen.headers if "crp" in name]
    assert not [value for value in seen.headers.values() if "crp" in value.lower()]


def _is(one: dict[str, Any], provider: str) -> bool:
    return one["litellm_params"]["model"].startswith(provider)
