"""What an adapter is given is looked at when it is made, not when it is used, or never."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.llms import MockLLM

import crp_integrations.langchain as lc
import crp_integrations.litellm as ll
import crp_integrations.llama_index as li
from crp_integrations.errors import ConfigError, RequestError
from tests.adapters.llama_index_doubles import opened
from tests.forking import FRAMEWORKS, run
from tests.requirements.rows import ROOT

# Of a relay alone, by the name that the message gives it.
RELAYS: dict[str, Callable[[Any], Any]] = {
    "CRPRunnable": lambda given: lc.CRPRunnable(given),
    "CRPMiddleware": lambda given: lc.CRPMiddleware(given, max_depth=2),
    "DPECallbackHandler": lambda given: lc.DPECallbackHandler(relay=given),
    "CRPQueryEngine": lambda given: li.CRPQueryEngine(given),
    "CRPAgentLLM": lambda given: li.CRPAgentLLM(given, MockLLM()),
    "CRPMemoryBlock": lambda given: li.CRPMemoryBlock(given),
    "DPEEventHandler": lambda given: li.DPEEventHandler(relay=given),
    "CRPRouter": lambda given: ll.CRPRouter([], relay=given),
}


@pytest.mark.parametrize("given", ["./kb", 5])
@pytest.mark.parametrize("taker", RELAYS)
def test_what_is_no_relay_is_refused(taker: str, given: Any) -> None:
    with pytest.raises(RequestError, match=rf"{taker} takes a relay.*{type(given).__name__}"):
        RELAYS[taker](given)


@pytest.mark.parametrize("view", [lc.CRPVectorStore, li.CRPVectorStore])
def test_a_vector_store_is_of_a_relay_or_a_namespace(view: Any) -> None:
    with pytest.raises(RequestError, match="a relay or a namespace, not str"):
        view("./kb")


@pytest.mark.parametrize("store", [lc.CRPStore, lc.CRPDocumentStore])
def test_a_store_is_of_a_folder(store: Any) -> None:
    with pytest.raises(RequestError, match="int was given"):
        store(5)


def test_what_is_no_chat_model_is_refused() -> None:
    relay = opened()
    with pytest.raises(RequestError, match="llm is str, wanted a chat model"):
        lc.CRPRunnable(relay, llm="gpt-4o")  # type: ignore[arg-type]
    for made in (li.CRPAgentLLM, lambda *given: li.CRPQueryEngine(given[0], llm=given[1])):
        with pytest.raises(RequestError, match="llm is str, wanted an LLM of LlamaIndex"):
            made(relay, "gpt-4o")
    with pytest.raises(RequestError, match="llm is NoneType, wanted an LLM of LlamaIndex"):
        li.CRPSynthesizer(None, model="gpt-4o")  # type: ignore[arg-type]


def test_a_gate_stands_around_whatever_langchain_calls_a_chain() -> None:
    with pytest.raises(RequestError, match="the chain is str"):
        lc.CRPGate.around("chain")  # type: ignore[arg-type]

    def answer(question: str) -> dict[str, Any]:
        return {"answer": "It opened in 1957.", "context": ["Plant 7 opened in 1957."]}

    guarded = lc.CRPGate.around(answer, "halt-on HIGH")  # type: ignore[arg-type]
    assert guarded.invoke("When did plant 7 open?")["answer"] == "It opened in 1957."


UNKNOWN: dict[str, Callable[..., Any]] = {
    "CRPNodePostprocessor": lambda **more: li.CRPNodePostprocessor(model="gpt-4o", **more),
    "CRPMemoryBlock": lambda **more: li.CRPMemoryBlock(opened(), **more),
    "CRPLLM": lambda **more: li.CRPLLM("gpt-4o", **more),
}


@pytest.mark.parametrize("taker", UNKNOWN)
def test_a_misspelt_field_is_refused_by_name(taker: str) -> None:
    """LlamaIndex passes it over, and a budget that was meant would be none."""
    with pytest.raises(RequestError, match=f"{taker} has no field 'budget_token'"):
        UNKNOWN[taker](budget_token=200)


def test_what_llama_index_writes_of_a_component_is_still_read() -> None:
    packing = li.CRPNodePostprocessor(model="gpt-4o", budget_tokens=200)
    assert li.CRPNodePostprocessor.from_dict(packing.to_dict()).budget_tokens == 200
    assert li.CRPNodePostprocessor.from_json(packing.to_json()).budget_tokens == 200
    assert li.CRPNodePostprocessor(**packing.model_dump()).budget_tokens == 200
    model = li.CRPLLM("gpt-4o", max_tokens=9)
    assert li.CRPLLM.from_dict(model.to_dict()).max_tokens == 9


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"budget_tokens": 0}, "budget_tokens is 0"),
        ({"budget_tokens": -1}, "budget_tokens is -1"),
        ({"k": 0}, "k is 0"),
        ({"grounding": "context"}, "grounding 'context' is not one of context-strict"),
    ],
)
@pytest.mark.parametrize("taker", ["CRPRetriever", "CRPSynthesizer"])
def test_a_value_without_use_is_refused_when_it_is_given(
    taker: str, fields: dict[str, Any], named: str
) -> None:
    made: Callable[[], Any] = (
        (lambda: li.CRPRetriever(opened(), model="gpt-4o", **fields))
        if taker == "CRPRetriever"
        else (lambda: li.CRPSynthesizer(MockLLM(), model="gpt-4o", **fields))
    )
    with pytest.raises(RequestError, match=named):
        made()


# --- the model that needs no key --------------------------------------------------------------


LANGCHAIN = """
from crp_integrations.langchain import CRPChatModel
model = CRPChatModel(model={name!r})
print(model.invoke("x").text)
print("".join(piece.text for piece in model.stream("x")))
"""
LLAMA_INDEX = """
from crp_integrations.llama_index import CRPLLM
model = CRPLLM({name!r})
print(model.complete("x").text)
print("".join(piece.delta for piece in model.stream_complete("x")))
"""
UNANSWERED = "The context does not contain an answer to this question."


@pytest.mark.parametrize("name", ["extractive", "extractive/best"])
@pytest.mark.parametrize(
    "code",
    [LANGCHAIN, LLAMA_INDEX],
    ids=["langchain", "llama_index"],
)
def test_it_answers_as_a_chat_model_by_both_of_its_names(name: str, code: str) -> None:
    """In a process of its own: making a router taught LiteLLM the name, in this one too."""
    words = ["-c", code.format(name=name)]
    done = run(words, cwd=ROOT, env=os.environ, modules=FRAMEWORKS)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.splitlines() == [UNANSWERED] * 2


def test_it_stands_in_a_model_list_by_its_bare_name() -> None:
    entry = {"model_name": "quoting", "litellm_params": {"model": "extractive"}}
    relay = opened()
    router = ll.CRPRouter([entry], relay=relay)
    asked = [{"role": "user", "content": "How much power does the Meridian reactor deliver?"}]
    assert "412 megawatts" in router.completion("quoting", asked).choices[0].message.content
    assert entry["litellm_params"] == {"model": "extractive"}


# --- nothing of CRP goes to a provider ----------------------------------------------------------


def test_an_option_of_crp_goes_to_no_provider() -> None:
    with pytest.raises(ConfigError, match="'crp_policy' would send CRP metadata to a provider"):
        lc.CRPChatModel(model="gpt-4o", options={"crp_policy": "halt-on HIGH"})
    for model in (
        lambda: lc.CRPChatModel(model="gpt-4o", api_key="x").invoke("Hello", crp={"policy": "x"}),
        lambda: li.CRPLLM("gpt-4o", api_key="x").complete("Hello", crp={"policy": "x"}),
    ):
        with pytest.raises(ConfigError, match="'crp' would send CRP metadata to a provider"):
            model()


@pytest.mark.parametrize("given", ["policy", ["policy"], 5])
def test_fields_of_a_routers_question_are_a_mapping(given: Any) -> None:
    entry = {"model_name": "quoting", "litellm_params": {"model": "extractive/best"}}
    router = ll.CRPRouter([entry], relay=opened())
    with pytest.raises(RequestError, match="crp is"):
        router.completion("quoting", [{"role": "user", "content": "Hello?"}], crp=given)
    for messages in (None, 5):
        with pytest.raises(RequestError, match="messages"):
            router.completion("quoting", messages)  # type: ignore[arg-type]
