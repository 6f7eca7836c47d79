"""Who takes a question apart: the caller, the rules, the model in a call of its own, or nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.envelope.settings import DecomposeSettings
from crp_integrations.errors import ModelTimeout, RequestError
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.prompt import parse_needs
from crp_integrations.relay.steps import Dispatch, NotModified, Refusal, Release
from crp_integrations.vocabulary import Purpose
from tests.doubles import HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, Opener

QUESTION = "Compare the Meridian reactor and Northfield Energy approaches to cooling"
SESSION = "crp_sess_7f3a9bc2d4e1f083"
SETTINGS = DecomposeSettings()
TOLD = ["Meridian reactor cooling", "Northfield Energy cooling approaches", "compare the two"]


class Watching(HashEmbedder):
    """Remembers the questions it was asked to embed."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_query(self, text: str) -> Any:
        self.asked.append(text)
        return super().embed_query(text)


def opened(open_relay: Opener, model: ScriptedModel, **options: Any) -> Relay:
    relay = open_relay(models=model, **options)
    relay.fabric.add(list(FACTS))
    return relay


def replying(told: str, answer: str = FACTS[0]) -> ScriptedModel:
    def reply(call: ModelCall) -> str:
        return told if call.purpose is Purpose.DECOMPOSE else answer

    return ScriptedModel(reply)


@pytest.mark.requirement("003-5.2-1")
def test_the_rules_decide_what_is_looked_for(open_relay: Opener) -> None:
    embedder, model = Watching(), ScriptedModel(FACTS[0])
    answer = opened(open_relay, model, embedder=embedder).ask(QUESTION)
    envelope = answer.envelope
    assert len(envelope.sub_queries) == 3
    assert envelope.sub_queries[-1].endswith("comparison")
    assert set(envelope.sub_queries) <= set(embedder.asked)
    assert envelope.algorithms[0] == "decompose@1"
    assert envelope.query == model.calls[0].messages[-1].content == QUESTION
    assert len(model.calls) == 1


@pytest.mark.requirement("003-5.2-1")
def test_a_question_with_one_need_is_looked_for_whole(relay: Relay) -> None:
    question = "When was the Meridian reactor commissioned?"
    assert relay.ask(question).envelope.sub_queries == (question,)


@pytest.mark.requirement("003-6.3-2")
def test_a_fact_is_as_relevant_as_to_the_need_that_it_fits_best(relay: Relay) -> None:
    split = relay.ask(QUESTION).envelope
    scores = {fact.fact_id: fact.relevance_score for fact in split.facts}
    single: dict[str, float] = {}
    for need in split.sub_queries:
        for fact in relay.ask(need, decompose="none").envelope.facts:
            single[fact.fact_id] = max(single.get(fact.fact_id, 0.0), fact.relevance_score)
    assert len(scores) == len(FACTS)
    assert scores == single


def test_nobody_takes_it_apart(open_relay: Opener) -> None:
    relay = opened(open_relay, ScriptedModel(FACTS[0]))
    envelope = relay.ask(QUESTION, decompose="none").envelope
    assert envelope.sub_queries == (QUESTION,)
    assert not [name for name in envelope.algorithms if name.startswith("decompose")]
    off = open_relay(models=ScriptedModel(FACTS[0]), envelope={"decompose": {"rules": False}})
    assert off.ask(QUESTION).envelope.sub_queries == (QUESTION,)


@pytest.mark.parametrize("mode", ["rules", "model", "none"])
def test_the_callers_own_needs_win(open_relay: Opener, mode: str) -> None:
    model = replying(json.dumps(TOLD))
    relay = opened(open_relay, model)
    envelope = relay.ask(QUESTION, decompose=mode, sub_queries=["tulips", "roses"]).envelope
    assert envelope.sub_queries == ("tulips", "roses")
    assert not [name for name in envelope.algorithms if name.startswith("decompose")]
    assert [call.purpose for call in model.calls] == [Purpose.ANSWER]


def test_the_model_is_asked_before_anything_is_read(open_relay: Opener) -> None:
    embedder, model = Watching(), replying(json.dumps(TOLD))
    relay = opened(open_relay, model, embedder=embedder)
    turn = relay.turn(
        QUESTION, decompose="model", model="any/model", seed=7, tools=({"name": "t"},)
    )
    step = turn.begin()
    assert isinstance(step, Dispatch)
    assert (step.purpose, step.envelope, embedder.asked) == (Purpose.DECOMPOSE, None, [])
    call = step.call
    assert (call.temperature, call.seed, call.tools) == (0.0, 7, ())
    assert call.max_tokens == SETTINGS.reply_tokens
    assert call.messages[-1] == Message(role="user", content=QUESTION)
    assert not any(fact in message.content for fact in FACTS for message in call.messages)
    with pytest.raises(RequestError, match="begun"):
        turn.begin()
    following = turn.receive(Reply(text=json.dumps(TOLD)))
    assert isinstance(following, Dispatch)
    assert following.purpose is Purpose.ANSWER
    assert embedder.asked == [*TOLD, QUESTION]
    done = turn.receive(Reply(text=FACTS[0]))
    assert isinstance(done, Release)
    assert done.answer.text == FACTS[0]
    assert done.answer.envelope.sub_queries == tuple(TOLD)
    assert done.answer.envelope.algorithms[0] == "decompose-model@1"


async def test_every_driver_asks_twice_and_shows_the_answer_alone(open_relay: Opener) -> None:
    model = replying(json.dumps(TOLD))
    relay = opened(open_relay, model)
    answers = [
        relay.ask(QUESTION, decompose="model"),
        await relay.aask(QUESTION, decompose="model"),
    ]
    parts = list(relay.stream(QUESTION, decompose="model"))
    later = [part async for part in relay.astream(QUESTION, decompose="model")]
    for streamed in (parts, later):
        assert "".join(part for part in streamed if isinstance(part, str)) == FACTS[0]
        answers.append(streamed[-1])
    assert [answer.text for answer in answers] == [FACTS[0]] * 4
    assert {answer.envelope.sub_queries for answer in answers} == {tuple(TOLD)}
    purposes = [call.purpose for call in model.calls]
    assert purposes == [Purpose.DECOMPOSE, Purpose.ANSWER] * 4


@pytest.mark.parametrize(
    "told",
    [
        "",
        "Meridian reactor cooling",
        "[]",
        "{}",
        '"one"',
        "[1, 2]",
        '[["nested"]]',
        '["good", ""]',
        '["good", "?!"]',
        '["good", null]',
        '["bad \\u0000 sign"]',
        '["half a sign \\ud800"]',
        '```json\n["fenced"]\n```',
        'Here you are: ["told"]',
        '["cut off',
        json.dumps(["need"] * 9),
        json.dumps(["long " * 300]),
        "[" * 20_000,
    ],
)
def test_any_other_reply_leaves_it_to_the_rules(open_relay: Opener, told: str) -> None:
    assert parse_needs(told, SETTINGS) is None
    relay = opened(open_relay, replying(told))
    envelope = relay.ask(QUESTION, decompose="model").envelope
    assert envelope.algorithms[0] == "decompose@1"
    assert envelope.sub_queries == relay.ask(QUESTION).envelope.sub_queries


def test_what_a_model_forgets_the_question_still_says(open_relay: Opener) -> None:
    relay = opened(open_relay, replying('["Meridian reactor"]'))
    envelope = relay.ask(QUESTION, decompose="model").envelope
    assert envelope.sub_queries == ("Meridian reactor", QUESTION)


def test_a_call_that_fails_ends_the_window_sealed(open_relay: Opener) -> None:
    relay = opened(open_relay, ScriptedModel(ModelTimeout("no reply in 60 s")))
    turn = relay.turn(QUESTION, decompose="model", session_id=SESSION)
    turn.begin()
    done = turn.fail(ModelTimeout("no reply in 60 s"))
    assert isinstance(done, Refusal)
    with pytest.raises(ModelTimeout):
        relay.ask(QUESTION, decompose="model", session_id=SESSION)
    assert relay.verify().windows == 2


def test_a_condition_is_judged_by_the_models_own_needs(open_relay: Opener) -> None:
    model = replying(json.dumps(TOLD))
    relay = opened(open_relay, model)
    asked = {"decompose": "model", "session_id": SESSION}
    etag = relay.ask(QUESTION, **asked).envelope.etag
    turn = relay.turn(QUESTION, if_match=etag, **asked)
    assert turn.begin().purpose is Purpose.DECOMPOSE
    assert isinstance(turn.receive(Reply(text=json.dumps(TOLD))), NotModified)
    other = relay.turn(QUESTION, if_match=etag, **asked)
    other.begin()
    assert isinstance(other.receive(Reply(text=json.dumps(TOLD[::-1]))), Dispatch)
