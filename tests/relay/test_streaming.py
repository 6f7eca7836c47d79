"""Streams: held back until the verdict, or shown as they come with the verdict at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from crp_integrations import Answer, Relay
from crp_integrations.errors import ConfigError, ModelError, SafetyHalt
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.vocabulary import Purpose
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.need_questions import (
    COMMISSIONED,
    MODEL,
    NEEDS,
    WORSE,
    looks_up,
    made,
    windows,
)

ASKED = f"{NEEDS[0]}?"
SESSION = "crp_sess_7f3a9bc2d4e1f083"


class Watched(ScriptedModel):
    """Counts the pieces that it has given out."""

    given = 0

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        for part in super().stream(call):
            self.given += isinstance(part, str)
            yield part

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        for part in self.stream(call):
            await asyncio.sleep(0)
            yield part


class Cut(ScriptedModel):
    """Breaks off after three words."""

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        self.calls.append(call)
        yield from ("The ", "Meridian ", "reactor ")
        raise ModelError("the stream broke off")

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        for part in self.stream(call):
            yield part


def live(relay: Relay, asked: str = ASKED, **asking: Any) -> Iterator[str | Answer]:
    return relay.stream(asked, live=True, model=MODEL, session_id=SESSION, **asking)


def outcomes(relay: Relay) -> list[str]:
    return [node.outcome for node in windows(relay, SESSION)]


def test_a_stream_that_waits_shows_nothing_before_the_verdict(open_relay: Opener) -> None:
    model = Watched(COMMISSIONED)
    relay = made(open_relay, model)
    first = next(relay.stream(ASKED, model=MODEL, session_id=SESSION))
    assert COMMISSIONED.startswith(first)
    assert model.given == len(COMMISSIONED.split())
    assert outcomes(relay) == ["released"]


def test_a_live_stream_shows_pieces_as_they_come(open_relay: Opener) -> None:
    model = Watched(COMMISSIONED)
    relay = made(open_relay, model, profile="observe")
    stream = live(relay)
    assert next(stream) == "The "
    assert (model.given, outcomes(relay)) == (1, [])
    *rest, answer = stream
    assert "The " + "".join(rest) == answer.text == COMMISSIONED
    assert answer.report.risk_level == "LOW"
    assert outcomes(relay) == ["released"]


async def test_the_asynchronous_twin_shows_them_too(open_relay: Opener) -> None:
    model = Watched(COMMISSIONED)
    relay = made(open_relay, model, profile="observe")
    stream = relay.astream(ASKED, live=True, model=MODEL, session_id=SESSION)
    assert await anext(stream) == "The "
    assert model.given == 1
    rest = [part async for part in stream]
    assert isinstance(rest[-1], Answer)
    assert "The " + "".join(rest[:-1]) == COMMISSIONED
    assert outcomes(relay) == ["released"]


def test_the_verdict_that_trails_is_the_whole_one(open_relay: Opener) -> None:
    model = ScriptedModel(WORSE)
    relay = made(open_relay, model)
    *parts, answer = live(relay, policy="warn-on HIGH; default-src context parametric")
    assert "".join(parts) == answer.text
    assert answer.report.risk_level == "CRITICAL"
    # What was shown is charged, and is never asked for again.
    assert answer.headers["CRP-Agent-Safety-Budget"] == "0.65"
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "protocol"},
        {"policy": "upgrade-on-risk reflexive"},
        {"policy": "require-completeness 0.50"},
        {"dispatch": {"continue_incomplete": True}},
        {"dispatch": {"continue_partial": True}},
        {"dispatch": {"redispatch_on_contradiction": True}},
        {"dispatch": {"redispatch_on_repetition": True}},
        {"dispatch": {"redispatch_on_flow": True}},
    ],
)
def test_what_may_be_repeated_or_continued_waits(
    open_relay: Opener, options: dict[str, Any]
) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED), **{"profile": "observe", **options})
    next(live(relay))
    assert outcomes(relay) == ["released"]


def test_a_remedy_that_cannot_act_is_not_waited_for(open_relay: Opener) -> None:
    idle = {"redispatches": 0, "redispatch_on_flow": True, "continue_incomplete": True}
    options = {"profile": "observe", "dispatch": idle, "max_windows": 1}
    relay = made(open_relay, ScriptedModel(COMMISSIONED), **options)
    stream = live(relay)
    next(stream)
    assert outcomes(relay) == []


@pytest.mark.parametrize(
    "asking",
    [
        {"policy": "halt-on CRITICAL"},
        {"policy": "require-grounding 0.20"},
        {"policy": "block-pii"},
        {"policy": "require-quality S A B", "budget_tokens": 40},
        {"policy": "default-src context"},
        {"accept_risk": "CRITICAL"},
        {"accept_quality": ["D"]},
        {"safety_mode": "strict"},
        {"strategy": "reflexive"},
        {"strategy": "agentic"},
        {"strategy": "hierarchical"},
    ],
)
def test_what_may_be_withheld_waits_for_the_verdict(
    open_relay: Opener, asking: dict[str, Any]
) -> None:
    model = Watched(COMMISSIONED, "NONE")
    relay = made(open_relay, model, profile="observe")
    stream = live(relay, **asking)
    next(stream)
    assert outcomes(relay) == ["released"]
    *_, answer = stream
    assert answer.text == COMMISSIONED


def test_a_session_whose_budget_is_low_waits_for_a_person(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED), reviewer=lambda report, text: False)
    with pytest.raises(SafetyHalt):
        list(live(relay, safety_budget=0.2))
    assert outcomes(relay) == ["halted"]


def test_withheld_text_is_never_shown(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(WORSE))
    with pytest.raises(SafetyHalt):
        next(live(relay, policy="halt-on HIGH"))
    assert outcomes(relay) == ["halted"]


@pytest.mark.parametrize("stopped", [1, 3])
def test_who_stops_listening_leaves_a_sealed_window(open_relay: Opener, stopped: int) -> None:
    relay = made(open_relay, Watched(COMMISSIONED), profile="observe")
    stream = live(relay)
    for _ in range(stopped):
        next(stream)
    stream.close()
    assert outcomes(relay) == ["cancelled"]
    assert relay.verify().windows == 1


async def test_an_asynchronous_listener_who_goes_leaves_one_too(open_relay: Opener) -> None:
    relay = made(open_relay, Watched(COMMISSIONED), profile="observe")
    stream = relay.astream(ASKED, live=True, model=MODEL, session_id=SESSION)
    await anext(stream)
    await stream.aclose()
    assert outcomes(relay) == ["cancelled"]

    async def listen() -> None:
        async for _ in relay.astream(ASKED, live=True, model=MODEL, session_id=SESSION):
            await asyncio.sleep(60)

    task = asyncio.create_task(listen())
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Nobody closed the stream, so the loop does, soon after nobody holds it any more.
    for _ in range(200):
        if len(outcomes(relay)) == 2:
            break
        await asyncio.sleep(0.02)
    assert outcomes(relay) == ["cancelled", "cancelled"]
    assert relay.verify().windows == 2


def test_a_live_stream_that_is_cut_off_is_sealed_as_failed(open_relay: Opener) -> None:
    relay = made(open_relay, Cut(), profile="observe")
    stream = live(relay)
    assert [next(stream) for _ in range(3)] == ["The ", "Meridian ", "reactor "]
    with pytest.raises(ModelError, match="broke off"):
        next(stream)
    assert outcomes(relay) == ["failed"]
    assert relay.verify().windows == 1


def test_a_call_that_prepares_the_answer_is_not_shown(open_relay: Opener) -> None:
    model = Watched('["When was the Meridian reactor commissioned?"]', COMMISSIONED)
    relay = made(open_relay, model)
    *parts, answer = live(relay, decompose="model")
    assert [call.purpose for call in model.calls] == [Purpose.DECOMPOSE, Purpose.ANSWER]
    assert "".join(parts) == answer.text == COMMISSIONED


def test_a_tool_call_of_the_callers_ends_a_live_stream(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(looks_up(other=["book"], text="One moment.")))
    tools = [{"type": "function", "function": {"name": "book", "parameters": {}}}]
    *parts, answer = live(relay, tools=tools)
    assert "".join(parts) == "One moment."
    assert [call.name for call in answer.reply.tool_calls] == ["book"]


class Whole:
    """A model without streams."""

    def call(self, call: ModelCall) -> Reply:
        return Reply(text="It was commissioned in 2019.", model=call.model)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


@pytest.mark.parametrize("argument", ["models", "llm"])
@pytest.mark.parametrize("live", [False, True])
def test_a_model_object_without_streams_streams_its_whole_answer(
    open_relay: Opener, argument: str, live: bool
) -> None:
    with open_relay(**{argument: Whole()}) as relay:
        *pieces, answer = relay.stream(ASKED, live=live)
        assert isinstance(answer, Answer)
        assert "".join(map(str, pieces)) == answer.text == "It was commissioned in 2019."


def test_a_model_object_without_asynchronous_calls_is_refused_at_opening(
    open_relay: Opener,
) -> None:
    class Waiting:
        call = Whole.call

    with pytest.raises(ConfigError, match=r"models is Waiting; .* an object with call and acall"):
        open_relay(models=Waiting())
