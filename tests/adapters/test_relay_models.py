"""`Relay.open(llm=…)` takes what LangChain and LlamaIndex call a model."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from llama_index.core.llms import MockLLM

from crp_integrations import Relay, count_tokens, pack
from crp_integrations.engines.models import most_output_of
from crp_integrations.errors import ConfigError, CRPError, ModelError, RequestError
from tests.doubles import HashEmbedder

FACT = "Plant 7 was built in 1957 by the Northfield company."
QUESTION = "When was plant 7 built?"
GOOD = "Plant 7 was built in 1957."


class Remembering(FakeMessagesListChatModel):
    """A chat model that keeps what it was sent."""

    model_name: str = "gpt-4o-mini"
    seen: list[Any] = []

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append((messages, kwargs.get("tools")))
        return super()._generate(messages)


def opened(**options: Any) -> Relay:
    relay = Relay.open(embedder=HashEmbedder(), **options)
    relay.fabric.add([FACT])
    return relay


def test_a_chat_model_of_langchain_answers() -> None:
    model = Remembering(responses=[AIMessage(GOOD)], seen=[])
    with opened(llm=model) as relay:
        answer = relay.ask(QUESTION)
    assert (answer.text, answer.envelope.model) == (GOOD, "gpt-4o-mini")
    messages, _ = model.seen[0]
    assert FACT in messages[0].content
    assert messages[-1].content == QUESTION


async def test_it_answers_asynchronously_and_in_pieces() -> None:
    with opened(llm=Remembering(responses=[AIMessage(GOOD)], seen=[])) as relay:
        assert (await relay.aask(QUESTION)).text == GOOD
        pieces = [part async for part in relay.astream(QUESTION) if isinstance(part, str)]
    assert "".join(pieces) == GOOD


def test_tools_and_their_results_reach_it() -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    asked = AIMessage("", tool_calls=[{"id": "c2", "name": "look_up", "args": {"plant": 7}}])
    model = Remembering(responses=[asked], seen=[])
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    history = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1957"},
    ]
    with opened(llm=model) as relay:
        answer = relay.ask(QUESTION, tools=[tool], history=history, results=2)
    (called,) = answer.reply.tool_calls
    assert (called.id, called.name, called.arguments) == ("c2", "look_up", '{"plant": 7}')
    messages, tools = model.seen[0]
    assert tools == [tool]
    assert [one.type for one in messages[-2:]] == ["ai", "tool"]
    assert messages[-1].content == "1957"


def test_an_llm_of_llama_index_answers() -> None:
    with opened(llm=MockLLM(max_tokens=5)) as relay:
        assert relay.ask(QUESTION).text
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        with pytest.raises(ModelError, match="tools"):
            relay.ask(QUESTION, tools=[tool])


def test_its_errors_are_those_of_this_package() -> None:
    class Failing(Remembering):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            raise ValueError("SECRET")

    with (
        opened(llm=Failing(responses=[], seen=[])) as relay,
        pytest.raises(ModelError, match="ValueError") as caught,
    ):
        relay.ask(QUESTION)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("door", ["open", "models", "ask", "pack", "count_tokens", "relay"])
def test_an_object_where_a_name_is_wanted_says_where_it_goes(door: str) -> None:
    model: Any = Remembering(responses=[], seen=[])
    with opened(model="extractive") as relay:
        doors = {
            "open": lambda: Relay.open(model=model),
            "models": lambda: Relay.open(models=model),
            "ask": lambda: relay.ask(QUESTION, model=model),
            "pack": lambda: pack(QUESTION, [FACT], model=model),
            "count_tokens": lambda: count_tokens("x", model=model),
            "relay": lambda: relay.count_tokens("x", model=model),
        }
        with pytest.raises(CRPError, match=r"models? is .*Remembering.*llm=") as caught:
            doors[door]()
    assert isinstance(caught.value, RequestError | ConfigError)


class Limited(FakeMessagesListChatModel):
    """A chat model that states the most tokens of its replies, or does not."""

    max_tokens: int | None = None


def test_the_most_output_is_that_of_the_outermost_binding_and_the_largest_fallback() -> None:
    own, other, silent = (Limited(responses=[], max_tokens=most) for most in (1_000, 9_000, None))
    bound = own.bind(max_tokens=8_000)
    for model, most in (
        (own, 1_000),
        (silent, None),
        (bound, 8_000),
        (bound.bind(stop=["."]), 8_000),
        (bound.bind(max_tokens=50), 50),
        (silent.bind(max_completion_tokens=300), 300),
        (bound.with_retry(), 8_000),
        (own.with_fallbacks([other]), 9_000),
        (own.bind(max_tokens=50).with_fallbacks([own]), 1_000),
        (own.with_fallbacks([other]).bind(stop=["."]), 9_000),
        (own.with_fallbacks([silent]), None),
    ):
        assert most_output_of(model) == most, model
