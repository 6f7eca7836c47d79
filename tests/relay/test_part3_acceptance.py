"""What a user of the envelope meets at its edges: hostile requests, and rooms that must be kept."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Message, Relay
from crp_integrations.envelope.records import PriorWindow
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.litellm import CRPRouter
from crp_integrations.vocabulary import QualityTier
from tests.relay.conftest import FACTS, Opener

QUESTION = "When was the Meridian reactor commissioned?"
LONE = "a \ud800 lone surrogate"
# What else holds a text: hashes, journal and models take no such thing.
HOSTILE: list[tuple[str, Any]] = [
    ("sub_queries", ["Meridian reactor", LONE]),
    ("sub_queries", ["Meridian reactor", " "]),
    ("sub_queries", [""]),
    ("system_prompt", LONE),
    ("history", [Message.model_construct(role="user", content=LONE)]),
    ("tools", [{"type": "function", "function": {"name": LONE}}]),
    ("tools", [{"type": "function", "function": {"name": "f", "call": object()}}]),
    (
        "prior",
        [
            PriorWindow(
                window_number=1, etag="e", facts_seen=(), summary=LONE, quality_tier=QualityTier.D
            )
        ],
    ),
]


@pytest.mark.parametrize(("field", "value"), HOSTILE)
def test_what_cannot_be_sent_or_sealed_is_refused_by_name(
    relay: Relay, field: str, value: Any
) -> None:
    asking: Any = {field: value}
    for door in (relay.ask, relay.preview):
        with pytest.raises(RequestError, match=f"^{field}.* is not usable") as caught:
            door(QUESTION, **asking)
        assert "lone surrogate" not in str(caught.value)
    # Nothing of it was a window.
    assert relay.verify().windows == 0


def test_odd_but_sound_requests_are_answered(relay: Relay) -> None:
    for asking in (
        {"system_prompt": "\x00\x1b[31m \u202e"},
        {"sub_queries": ["?!", "\x07", "reactor " * 2_000]},
        {"tools": [{}, {"type": "function", "function": {"name": "f", "limit": float("nan")}}]},
    ):
        assert relay.ask(QUESTION, **asking).envelope.facts  # type: ignore[arg-type]


@pytest.mark.parametrize("query", [None, 3, b"reactor", "", " ", LONE])
def test_assemble_refuses_what_is_no_question(relay: Relay, query: Any) -> None:
    with pytest.raises(RequestError, match=r"^query is"):
        relay.assemble(query)


def test_assemble_refuses_a_separator_that_no_text_can_hold(relay: Relay) -> None:
    with pytest.raises(CRPError, match=r"separator .* cannot be encoded"):
        relay.assemble(QUESTION, separator="\ud800")


def definitions(count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"look_up_{n}", "description": "Looks up a word. " * 20, "parameters": {}}
        for n in range(count)
    ]


def test_a_routers_tools_take_room_in_the_budget(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    router = CRPRouter(
        [
            {
                "model_name": "main",
                "litellm_params": {
                    "model": "gpt-4o",
                    "api_key": "none",
                    "mock_response": "The reactor was commissioned on 4 March 2019.",
                },
            }
        ],
        relay=relay,
    )

    def budget(**given: Any) -> int:
        asked = [{"role": "user", "content": QUESTION}]
        response = router.completion("main", asked, max_tokens=300, **given)
        return int(response.crp_envelope["token_budget"])

    functions = definitions(40)
    tools = [{"type": "function", "function": one} for one in functions]
    through_relay = relay.turn(QUESTION, model="gpt-4o", max_tokens=300, tools=tools).preview()
    assert through_relay.token_budget < budget() - 40 * 60
    assert budget(tools=tools) == through_relay.token_budget
    assert budget(functions=functions) == through_relay.token_budget
