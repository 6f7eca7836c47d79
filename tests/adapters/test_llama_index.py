from __future__ import annotations

import json

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.llama_index import CRPNodePostprocessor, EnvelopeEvent
from tests.relay.conftest import FACTS

QUESTION = "When was the Meridian reactor commissioned?"


def scored(metadata=None) -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(text=text, id_=f"n{i}", metadata=dict(metadata or {})), score=1 - i / 10
        )
        for i, text in enumerate(FACTS)
    ]


class Echo(CustomLLM):
    """Answers with the first context line and keeps the prompts."""

    prompts: list[str] = []

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=8000, num_output=256, model_name="echo")

    def complete(self, prompt, formatted=False, **kwargs):
        self.prompts.append(prompt)
        return CompletionResponse(text=FACTS[0] if FACTS[0] in prompt else "Not known.")

    def stream_complete(self, prompt, formatted=False, **kwargs):
        yield self.complete(prompt)


@pytest.mark.requirement("CARD-19")
def test_nodes_are_packed_into_the_budget_and_the_callers_stay_as_they_were():
    nodes = scored({"file": "a.md"})
    before = [node.model_dump_json() for node in nodes]
    post = CRPNodePostprocessor(model="gpt-4o", budget_tokens=70)
    assert isinstance(post, BaseNodePostprocessor)
    packed = post.postprocess_nodes(nodes, query_str=QUESTION)
    assert [node.model_dump_json() for node in nodes] == before
    assert 0 < len(packed) < len(nodes)
    assert packed[0].node.node_id == "n0"
    assert all(copy.node is not node.node for copy in packed for node in nodes)
    shown = "\n\n".join(n.node.get_content(metadata_mode=MetadataMode.LLM) for n in packed)
    assert counter_for("gpt-4o").count(shown) <= 70


def test_metadata_reaches_neither_prompt_nor_embedding():
    (packed, *_) = CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(
        scored({"file": "a.md"}), query_str=QUESTION
    )
    assert packed.node.metadata["crp"]["position"] == 1
    json.dumps(packed.node.metadata)
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        text = packed.node.get_content(metadata_mode=mode)
        assert "file: a.md" in text
        assert "crp" not in text
        assert "etag" not in text


def test_k_is_a_cap():
    post = CRPNodePostprocessor(model="gpt-4o", k=2)
    assert len(post.postprocess_nodes(scored(), query_bundle=QueryBundle(QUESTION))) == 2


async def test_the_asynchronous_path_gives_the_same():
    post = CRPNodePostprocessor(model="gpt-4o", budget_tokens=60)
    sync = post.postprocess_nodes(scored(), query_str=QUESTION)
    awaited = await post.apostprocess_nodes(scored(), query_str=QUESTION)
    assert [n.node.node_id for n in sync] == [n.node.node_id for n in awaited]


def test_without_a_query_there_is_nothing_to_rank_for():
    with pytest.raises(RequestError, match="query"):
        CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(scored())


def test_no_nodes_are_no_error():
    assert CRPNodePostprocessor(model="gpt-4o").postprocess_nodes([], query_str=QUESTION) == []


@pytest.mark.requirement("CARD-2")
def test_it_works_in_a_query_engine():
    llm = Echo(prompts=[])
    index = VectorStoreIndex.from_documents(
        [Document(text=text, metadata={"file": "a.md"}) for text in FACTS],
        embed_model=MockEmbedding(embed_dim=8),
    )
    heard: list[EnvelopeEvent] = []

    class Listener(BaseEventHandler):
        def handle(self, event, **kwargs):
            if isinstance(event, EnvelopeEvent):
                heard.append(event)

    listener = Listener()
    root = get_dispatcher()
    root.add_event_handler(listener)
    try:
        engine = index.as_query_engine(
            llm=llm,
            similarity_top_k=5,
            node_postprocessors=[CRPNodePostprocessor(model="gpt-4o", budget_tokens=70)],
        )
        response = engine.query(QUESTION)
    finally:
        root.event_handlers.remove(listener)
    assert str(response) == FACTS[0]
    assert len(llm.prompts) == 1
    assert "crp" not in llm.prompts[0]
    assert all("crp" in node.node.metadata for node in response.source_nodes)
    (event,) = heard
    assert len(event.envelope["facts"]) == len(response.source_nodes)
