"""Chat models behind what LangChain puts around them: bound values, retries, fallbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.langchain import CRPGate, CRPRunnable
from tests.adapters.langchain_doubles import FACTS, WAYS, Chat, leaked, opened, overheard, scripted

QUESTION = "When was the Meridian reactor commissioned?"
WRONG = FACTS[0].replace("412", "512")
HALT = "halt-on MEDIUM"

WRAPPED: dict[str, Callable[[Any], Any]] = {
    "bound": lambda chat: chat.bind(stop=["x"]),
    "configured": lambda chat: chat.with_config(tags=["mine"]),
    "retried": lambda chat: chat.with_retry(stop_after_attempt=2),
    "fallbacks": lambda chat: scripted(ValueError("down")).with_fallbacks([chat]),
    "several": lambda chat: chat.bind(stop=["x"]).with_retry(stop_after_attempt=2),
}


class Streaming(Chat):
    """A chat model that streams by itself, whichever way it is called."""

    streaming: bool = True


class Printer(BaseCallbackHandler):
    """What a program does that prints tokens."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
        self.told.append(token)


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_wrapped_chat_model_answers(kind: str) -> None:
    crp = CRPRunnable(opened(), llm=WRAPPED[kind](scripted(FACTS[0])))
    message = crp.invoke(QUESTION)
    assert message.content == FACTS[0]
    assert message.response_metadata["crp"]["risk_level"] == "LOW"
    # By its name the facts were counted.
    assert message.response_metadata["crp_envelope"]["model"] == "gpt-4o"


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_wrapped_model_that_streams_by_itself_is_called_whole(kind: str) -> None:
    chat = Streaming(reply=lambda messages: WRONG)
    printer = Printer()
    list(chat.stream("x", {"callbacks": [printer]}))
    assert len(printer.told) > 3
    printer.told.clear()
    crp = CRPRunnable(opened(), llm=WRAPPED[kind](chat), policy=HALT)
    with pytest.raises(SafetyHalt):
        list(crp.stream(QUESTION, {"callbacks": [printer]}))
    assert printer.told == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", WRAPPED)
async def test_a_withheld_answer_leaks_in_no_way_of_listening(kind: str, way: str) -> None:
    chat = Streaming(reply=lambda messages: WRONG)
    crp = CRPRunnable(opened(), llm=WRAPPED[kind](chat), policy=HALT)
    heard, error = await overheard(crp, QUESTION, way)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)


CHAINS: dict[str, Callable[[Any], Any]] = {
    "configured": lambda chain: chain.with_config(run_name="rag"),
    "bound": lambda chain: chain.bind(),
    "listened to": lambda chain: chain.with_listeners(on_end=lambda run: None),
    "retried": lambda chain: chain.with_config(tags=["a"]).with_retry(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CHAINS)
async def test_a_guarded_chain_with_a_config_of_its_own_leaks_nothing(kind: str, way: str) -> None:
    found = RunnableLambda(lambda question: {"context": list(FACTS), "question": question})
    chain = CHAINS[kind](
        found
        | RunnablePassthrough.assign(
            answer=RunnableLambda(lambda given: given["question"]) | scripted(WRONG)
        )
    )
    heard, _ = await overheard(chain, QUESTION, way)
    assert leaked(heard), "the listener hears something without a gate"
    heard, error = await overheard(CRPGate.around(chain, HALT), QUESTION, way)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)


def test_the_wrapped_model_stays_as_it_was() -> None:
    chat = Streaming(reply=lambda messages: FACTS[0])
    wrapped = chat.bind(stop=["x"])
    CRPRunnable(opened(), llm=wrapped).invoke(QUESTION)  # type: ignore[arg-type]
    assert wrapped.bound is chat
    assert chat.streaming is True
    assert chat.tags is None


def test_a_call_s_own_values_reach_the_model_inside() -> None:
    chat = scripted(FACTS[0])
    crp = CRPRunnable(opened(), llm=chat.bind(stop=["x"]), temperature=0.2)  # type: ignore[arg-type]
    crp.invoke(QUESTION)
    assert chat.bound == [{"temperature": 0.2}]


def test_what_has_no_chat_model_inside_is_refused() -> None:
    for given in (RunnableLambda(lambda messages: FACTS[0]), "gpt-4o"):
        with pytest.raises(RequestError, match="wanted a chat model of LangChain"):
            CRPRunnable(opened(), llm=given)  # type: ignore[arg-type]
