"""No adapter uses what its framework will delete: one call of each, and a warning is a failure.

A framework says so by a warning that names the line which uses the old thing. What concerns lines
of its own, or of another library, is not looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

import crp_integrations
from crp_integrations.llama_index import (
    CRPLLM,
    CRPNodePostprocessor,
    CRPQueryEngine,
    CRPRetriever,
    CRPVectorStore,
)
from tests.adapters import llama_index_doubles
from tests.adapters.litellm_deployments import FACTS, QUESTION
from tests.adapters.test_provider_boundary import ADAPTERS
from tests.servers import Double, openai_double

OURS = Path(crp_integrations.__file__).parent
# LangChain and pydantic derive their own from these three.
OLD = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)


def postprocessor(server: Double) -> None:
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.5) for text in FACTS[:4]]
    assert CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(nodes, query_str=QUESTION)


def query_engine(server: Double) -> None:
    relay = llama_index_doubles.opened(*FACTS)
    assert CRPRetriever(relay, model="gpt-4o").retrieve(QUESTION)
    engine = CRPQueryEngine(relay, llm=llama_index_doubles.scripted(FACTS[7]))
    assert "1957" in str(engine.query(QUESTION))


def chat_model(server: Double) -> None:
    llm = CRPLLM(model="openai/gpt-4o", api_base=server.url, api_key="sk-test", max_retries=0)
    assert "1957" in str(llm.complete(QUESTION))
    assert list(llm.stream_complete(QUESTION))


def vector_store(server: Double) -> None:
    relay = llama_index_doubles.opened(*FACTS)
    store = CRPVectorStore(relay.fabric)
    assert store.client is not None


LLAMA_INDEX: dict[str, Callable[[Double], None]] = {
    "CRPNodePostprocessor": postprocessor,
    "CRPRetriever and CRPQueryEngine of LlamaIndex": query_engine,
    "CRPLLM": chat_model,
    "CRPVectorStore of LlamaIndex": vector_store,
}


@contextmanager
def watched() -> Iterator[list[str]]:
    """What warns of something old in a line of the package while this lasts, in any thread."""
    found: list[str] = []

    def shown(message: Any, category: Any, filename: str, line: int, *rest: Any) -> None:
        if issubclass(category, OLD) and Path(filename).is_relative_to(OURS):
            found.append(f"{Path(filename).relative_to(OURS)}:{line}: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = shown
        yield found


@pytest.mark.parametrize("adapter", [*ADAPTERS, *LLAMA_INDEX])
def test_a_call_uses_nothing_that_will_be_deleted(adapter: str) -> None:
    with openai_double(text=FACTS[7]) as server, watched() as found:
        {**ADAPTERS, **LLAMA_INDEX}[adapter](server)
    assert not found


def test_what_is_old_would_be_found() -> None:
    with watched() as found:
        warnings.warn_explicit("gone soon", DeprecationWarning, str(OURS / "seals.py"), 1)
        warnings.warn_explicit("theirs", DeprecationWarning, "litellm/router.py", 1)
    assert found == ["seals.py:1: gone soon"]
