"""LLMs of LlamaIndex over LiteLLM, and what a provider sees, read back from a loopback server."""

from __future__ import annotations

import asyncio
import json

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.memory import Memory
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

from crp_integrations.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    RequestError,
    SafetyHalt,
)
from crp_integrations.llama_index import (
    CRPLLM,
    CRPAgentLLM,
    CRPMemoryBlock,
    CRPNodePostprocessor,
    CRPQueryEngine,
    CRPRetriever,
    CRPSynthesizer,
    DPEEventHandler,
)
from crp_integrations.llama_index.model import LlamaIndexModel
from crp_integrations.messages import Message, ModelCall
from tests.adapters.llama_index_doubles import (
    FACTS,
    HALTING,
    QUESTION,
    agent,
    heard,
    leaked,
    opened,
    outputs,
)
from tests.adapters.test_langchain_chat_model import Mind
from tests.adapters.test_llama_index_turn import index
from tests.doubles import ScriptedModel
from tests.servers import openai_double

SECRETS = ("crp", "etag", "composite", "fact_id", "risk_level")


@pytest.fixture
def server():
    with openai_double(text=FACTS[0], shape=Mind()) as double:
        yield double


def llm(server, **fields):
    return CRPLLM("openai/gpt-4o", api_base=server.url, api_key="sk-test", **fields)


def nothing_of_ours(server):
    assert server.requests
    for seen in server.requests:
        assert not [name for name in seen.headers if name.startswith("crp")]
        assert not [secret for secret in SECRETS if secret in seen.raw.lower()]


def load_now(plant: str) -> str:
    """What a plant delivers at this moment."""
    return f"At this moment the {plant} reactor delivers 388 megawatts to the northern grid."


def test_every_way_to_ask(server):
    model = llm(server, temperature=0.3, max_tokens=50, seed=7, stop=["END"])
    asked = [ChatMessage(role="system", content="Be brief."), ChatMessage(content=QUESTION)]

    async def later():
        stream = await model.astream_chat(asked)
        completed = await model.astream_complete(QUESTION)
        return [
            (await model.achat(asked)).message.content,
            (await model.acomplete(QUESTION)).text,
            "".join([part.delta async for part in stream]),
            "".join([part.delta async for part in completed]),
        ]

    streamed = list(model.stream_chat(asked))
    said = [
        model.chat(asked).message.content,
        model.complete(QUESTION).text,
        "".join(part.delta for part in streamed),
        "".join(part.delta for part in model.stream_complete(QUESTION)),
        *asyncio.run(later()),
    ]
    assert said == [FACTS[0]] * 8
    assert len(streamed) > 3
    assert streamed[-1].message.content == FACTS[0]
    for response in (streamed[-1], model.chat(asked)):
        assert response.additional_kwargs == {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
        }
        assert response.raw["model"]
    body = server.requests[0].body
    wanted = {"temperature": 0.3, "max_tokens": 50, "seed": 7, "stop": ["END"]}
    assert {name: body.get(name) for name in wanted} == wanted
    model.chat(asked, temperature=0.9, top_p=0.5)
    assert (server.requests[-1].body["temperature"], server.requests[-1].body["top_p"]) == (
        0.9,
        0.5,
    )
    nothing_of_ours(server)


def test_what_llama_index_asks_of_a_model():
    known = CRPLLM("gpt-4o", max_tokens=300).metadata
    assert (known.context_window, known.num_output) == (128_000, 300)
    assert known.is_chat_model and known.is_function_calling_model
    own = CRPLLM("ollama/own", context_window=4_096, function_calling=False).metadata
    assert (own.context_window, own.num_output) == (4_096, -1)
    assert not own.is_function_calling_model
    secret = CRPLLM("gpt-4o", api_key="sk-secret")
    assert "sk-secret" not in json.dumps(secret.to_dict(), default=str) + repr(secret)


def test_tools_are_called(server):
    tool = FunctionTool.from_defaults(load_now)
    model = llm(server)
    response = model.chat_with_tools([tool], user_msg=QUESTION)
    (call,) = model.get_tool_calls_from_response(response)
    assert call.tool_name == "load_now" and set(call.tool_kwargs) == {"plant"}
    body = server.requests[-1].body
    assert body["tools"][0]["function"]["name"] == "load_now"
    assert body["parallel_tool_calls"] is False and "tool_choice" not in body
    parts = list(model.stream_chat_with_tools([tool], user_msg=QUESTION))
    assert model.get_tool_calls_from_response(parts[-1]) == [call]
    model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
    assert server.requests[-1].body["tool_choice"] == "required"
    model.chat_with_tools([tool], user_msg=QUESTION, tool_choice="load_now")
    assert server.requests[-1].body["tool_choice"]["function"] == {"name": "load_now"}
    with pytest.raises(RequestError, match="'other' is not a tool's name"):
        model.chat_with_tools([tool], user_msg=QUESTION, tool_choice="other")
    assert "megawatts" in str(model.predict_and_call([tool], user_msg=QUESTION))
    with pytest.raises(ValueError, match="at least one tool call"):
        model.get_tool_calls_from_response(model.chat([ChatMessage(content="x")]))


def test_answers_in_the_form_of_a_class(server):
    class Power(BaseModel):
        """The power of a reactor."""

        plant: str
        megawatts: int

    model = llm(server)
    prompt = PromptTemplate("Read this: {text}")
    for made in (
        model.structured_predict(Power, prompt, text=FACTS[0]),
        asyncio.run(model.astructured_predict(Power, prompt, text=FACTS[0])),
        model.as_structured_llm(Power).complete(FACTS[0]).raw,
    ):
        assert isinstance(made, Power)
    assert server.requests[-1].body["tool_choice"] == "required"
    nothing_of_ours(server)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", ["FunctionAgent", "AgentWorkflow"])
async def test_an_agent_over_the_wire(server, kind, streaming):
    with DPEEventHandler():
        made = agent(llm(server), [load_now], kind, streaming=streaming)
        events, result, error = await heard(made.run(QUESTION))
    assert error is None and str(result) == FACTS[0]
    assert [one.metadata["crp_agent"]["turn"] for one in outputs(events)] == [1, 2]
    last = server.requests[-1].body["messages"]
    assert [one["role"] for one in last] == ["user", "assistant", "tool"]
    assert last[1]["tool_calls"][0]["id"] == last[2]["tool_call_id"]
    nothing_of_ours(server)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", ["FunctionAgent", "AgentWorkflow"])
async def test_an_agent_of_windows_over_the_wire(server, kind, streaming):
    relay = opened()
    made = agent(
        CRPAgentLLM(relay, llm(server)),
        [load_now],
        kind,
        streaming=streaming,
        system_prompt="Be brief.",
    )
    memory = Memory.from_defaults(
        session_id="anna",
        token_limit=4_000,
        memory_blocks=[CRPMemoryBlock(relay, model="gpt-4o", budget_tokens=100)],
    )
    for _ in range(2):
        events, result, error = await heard(made.run(QUESTION, memory=memory))
        assert error is None and str(result) == FACTS[0]
    assert result.metadata["crp"]["risk_level"] == "LOW"
    assert FACTS[0] in server.requests[0].body["messages"][0]["content"]
    assert "tools" in server.requests[0].body
    nothing_of_ours(server)
    server.text = FACTS[0].replace("412", "512")
    halting = agent(CRPAgentLLM(relay, llm(server), **HALTING), [load_now], kind)
    events, _, error = await heard(halting.run(QUESTION))
    assert isinstance(error, SafetyHalt) and not leaked(events)


async def test_engines_over_the_wire(server):
    relay, made = opened(), index(file="a.md")
    model = llm(server)
    engines = [
        CRPQueryEngine(relay, llm=model),
        CRPQueryEngine(
            opened(models=LlamaIndexModel(model)), model="openai/gpt-4o", strategy="reflexive"
        ),
        RetrieverQueryEngine(
            CRPRetriever(relay, model="gpt-4o"), response_synthesizer=CRPSynthesizer(model)
        ),
        RetrieverQueryEngine.from_args(CRPRetriever(made, model="gpt-4o"), llm=model),
        # All of them: the embedder of the double tells them apart by nothing but their ids.
        made.as_query_engine(
            llm=model,
            similarity_top_k=10,
            node_postprocessors=[CRPNodePostprocessor(model="gpt-4o")],
        ),
    ]
    with DPEEventHandler(), instrument_tags({"session_id": "anna"}):
        for engine in engines:
            assert engine.query(QUESTION).metadata["crp"]["risk_level"] == "LOW"
            assert str(await engine.aquery(QUESTION)) == FACTS[0]
    nothing_of_ours(server)


@pytest.mark.parametrize(
    ("fault", "kind"), [("unauthorised", ModelAuthError), ("broken", ModelError)]
)
def test_errors_are_those_of_the_package(server, fault, kind):
    server.fault = fault
    with pytest.raises(kind):
        llm(server).complete(QUESTION)
    with pytest.raises(kind):
        list(llm(server).stream_complete(QUESTION))
    with pytest.raises(kind):
        CRPQueryEngine(opened(), llm=llm(server)).query(QUESTION)


def test_what_cannot_be_sent_is_refused(server):
    with pytest.raises(ConfigError, match="CRP-Risk"):
        CRPLLM("gpt-4o", headers={"CRP-Risk": "LOW"})
    with pytest.raises(ModelNotFound):
        CRPLLM("no-such-model-of-anybody").complete(QUESTION)
    picture = ChatMessage(role="user", blocks=[ImageBlock(image=b"x", image_mimetype="image/png")])
    with pytest.raises(RequestError, match="ImageBlock"):
        llm(server).chat([picture])
    assert not server.requests


def test_a_client_of_ones_own():
    client = ScriptedModel("One.")
    assert CRPLLM("gpt-4o", client=client, seed=3).complete("x").text == "One."
    (call,) = client.calls
    assert (call.model, call.seed, call.messages) == (
        "gpt-4o",
        3,
        (Message(role="user", content="x"),),
    )
    sent = ModelCall(model="gpt-4o", messages=call.messages, seed=9)
    model = LlamaIndexModel(CRPLLM("gpt-4o", client=client))
    assert next(iter(model.stream(sent))) == "One."
    assert client.calls[-1].seed == 9
