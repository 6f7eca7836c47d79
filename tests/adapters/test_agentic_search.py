"""The agentic strategy through the adapters: the model is offered the search and gets what it finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from starlette.testclient import TestClient

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.guard.decisions import Subject
from crp_integrations.langchain import CRPChatModel, CRPRunnable
from crp_integrations.llama_index import CRPLLM, CRPQueryEngine
from crp_integrations.relay.single_window import SEARCH
from tests.adapters.litellm_deployments import ASKED, QUESTION, WAYS, answered, entry, router, text
from tests.doubles import HashEmbedder
from tests.gateway.application import BODY, application, key_for
from tests.servers import Double, Recorded, openai_double

PLANT = "Plant 7 was built in 1957."
GARDENS = "Tulips and roses stand in the valley gardens beside the river."
BOTH = f"{PLANT} {GARDENS}"
OWN: dict[str, Any] = {
    "type": "function",
    "function": {"name": "book", "parameters": {"type": "object", "properties": {}}},
}
AGENTIC = {"strategy": "agentic"}
# One fact by meaning, none by words: the gardens are found only where they are searched for.
NARROW = {"k_nearest": 1, "k_lexical": 0}


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double() as double:

        def said(seen: Recorded) -> str:
            searched = "valley gardens" in seen.system.partition("<context>")[0]
            double.tool_calls[:] = [] if searched else [search("tulips in the valley gardens")]
            return BOTH

        double.answers = said
        # The calls are asked for before the text is, so they stand ready for the first request.
        double.tool_calls.append(search("tulips in the valley gardens"))
        double.choose = lambda seen: said(seen) and ""
        yield double


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay.open(embedder=HashEmbedder(), envelope=NARROW) as opened:
        opened.fabric.add([PLANT, GARDENS])
        yield opened


def search(query: str) -> dict[str, Any]:
    function = {"name": SEARCH, "arguments": json.dumps({"query": query})}
    return {"id": "c1", "type": "function", "function": function}


def offered(seen: Recorded) -> list[str]:
    return [tool["function"]["name"] for tool in seen.body.get("tools", ())]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("tools", [None, [OWN]], ids=["none", "own"])
def test_a_routers_deployments_are_offered_the_search(
    relay: Relay, server: Double, how: str, tools: list[dict[str, Any]] | None
) -> None:
    called = router(relay, entry(server, "main", "gpt-4o"))
    options = {"tools": tools} if tools else {}
    response = answered(how, called, crp=AGENTIC, **options)
    own = ["book"] if tools else []
    assert [offered(seen) for seen in server.requests] == [[*own, SEARCH]] * 2
    assert GARDENS not in server.requests[0].system
    assert GARDENS in server.requests[1].context == response.crp_envelope["text"]
    assert text(response) == BOTH
    assert response.crp["grounding_pct"] == 1.0
    assert not [one for one in server.requests if "_skip_mcp_handler" in one.raw]


def test_a_relay_gives_the_search_to_a_chat_model_of_langchain(
    relay: Relay, server: Double
) -> None:
    model = CRPChatModel(model="openai/gpt-4o", api_base=server.url, api_key="sk-test")
    said = CRPRunnable(relay, llm=model, **AGENTIC).invoke(QUESTION)
    assert [offered(seen) for seen in server.requests] == [[SEARCH]] * 2
    assert GARDENS in server.requests[1].context
    assert said.content == BOTH


@pytest.mark.parametrize("streaming", [False, True])
def test_a_relay_gives_the_search_to_an_llm_of_llama_index(
    relay: Relay, server: Double, streaming: bool
) -> None:
    llm = CRPLLM("openai/gpt-4o", api_base=server.url, api_key="sk-test")
    said = CRPQueryEngine(relay, llm=llm, streaming=streaming, **AGENTIC).query(QUESTION)
    assert [offered(seen) for seen in server.requests] == [[SEARCH]] * 2
    told = server.requests[0].body["tools"][0]["function"]["parameters"]
    assert told["properties"]["query"]["type"] == "string"
    assert GARDENS in server.requests[1].context
    assert str(said) == BOTH


def test_an_llm_without_functions_is_refused(relay: Relay) -> None:
    with pytest.raises(RequestError, match="takes no tools"):
        CRPQueryEngine(relay, llm=MockLLM(), model="gpt-4o", **AGENTIC).query(QUESTION)


@pytest.mark.parametrize("streaming", [False, True])
def test_the_gateways_upstream_is_offered_the_search(
    tmp_path: Path, server: Double, streaming: bool
) -> None:
    with Relay.open(tmp_path, subject=Subject(tenant="acme"), embedder=HashEmbedder()) as filled:
        filled.fabric.add([PLANT, GARDENS])
    key, kept = key_for("acme")
    app = application(tmp_path, server, kept, envelope=NARROW)
    headers = {"Authorization": f"Bearer {key}", "CRP-Agent-Dispatch-Strategy": "agentic"}
    with TestClient(app) as client:
        body = {**BODY, "messages": ASKED, "stream": streaming}
        said = client.post("/v1/chat/completions", json=body, headers=headers)
    assert said.status_code == 200
    assert [offered(seen) for seen in server.requests] == [[SEARCH]] * 2
    assert GARDENS in server.requests[1].context
    assert SEARCH not in said.text
    assert "valley" in said.text
