"""LlamaIndex nodes packed by the postprocessor, alone and in query and chat engines."""

from __future__ import annotations

import json
import threading

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.llama_index import (
    CRPNodePostprocessor,
    CRPRetriever,
    DPEEventHandler,
    EnvelopeEvent,
)
from tests.adapters.llama_index_doubles import scripted
from tests.relay.conftest import FACTS

QUESTION = "When was the Meridian reactor commissioned?"


def scored(metadata=None) -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(text=text, id_=f"n{i}", metadata=dict(metadata or {})), score=1 - i / 10
        )
        for i, text in enumerate(FACTS)
    ]


def index_of_facts() -> VectorStoreIndex:
    return VectorStoreIndex.from_documents(
        [Document(text=text, metadata={"file": "a.md"}) for text in FACTS],
        embed_model=MockEmbedding(embed_dim=8),
    )


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
        text = self.complete(prompt).text
        yield CompletionResponse(text=text, delta=text)


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
    assert packed.node.metadata["crp_fact"]["position"] == 1
    json.dumps(packed.node.metadata)
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        text = packed.node.get_content(metadata_mode=mode)
        assert "file: a.md" in text
        assert "crp" not in text
        assert "etag" not in text


@pytest.mark.requirement("CARD-2")
def test_it_works_in_a_query_engine():
    llm = Echo(prompts=[])
    heard: list[EnvelopeEvent] = []

    class Listener(BaseEventHandler):
        def handle(self, event, **kwargs):
            if isinstance(event, EnvelopeEvent):
                heard.append(event)

    listener = Listener()
    root = get_dispatcher()
    root.add_event_handler(listener)
    try:
        engine = index_of_facts().as_query_engine(
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
    assert all("crp_fact" in node.node.metadata for node in response.source_nodes)
    (event,) = heard
    assert len(event.envelope["facts"]) == len(response.source_nodes)


def nodes_of(*nodes: BaseNode) -> list[NodeWithScore]:
    return [NodeWithScore(node=node, score=0.5) for node in nodes]


def test_every_text_of_one_id_is_packed():
    first, second = "The tower is 100 metres high.", "The bridge is 300 metres long."
    nodes = nodes_of(
        TextNode(text=first, id_="1"), TextNode(text=second, id_="1"), TextNode(text=first, id_="1")
    )
    packed = CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(nodes, query_str=QUESTION)
    assert {node.node.get_content() for node in packed} == {first, second}
    assert {node.node.node_id for node in packed} == {"1"}
    assert len({node.node.metadata["crp_fact"]["fact_id"] for node in packed}) == 2


@pytest.mark.parametrize("node", [TextNode(text="SECRET \ud800"), TextNode(text="x", id_="\ud800")])
def test_a_text_that_cannot_be_encoded_costs_that_character(node, caplog):
    nodes = nodes_of(TextNode(text="fine"), node)
    packed = CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(nodes, query_str=QUESTION)
    assert len(packed) == 2
    assert "node 2 has characters that cannot be written" in caplog.text
    assert "SECRET" not in caplog.text


def test_kinds_of_nodes_stay_what_they_are():
    class Engine:
        def __init__(self):
            self.lock = threading.Lock()

    engine = Engine()
    nodes = nodes_of(
        IndexNode(text="The index of towers.", index_id="towers", obj=engine),
        ImageNode(text="A drawing of the reactor.", image="aaaa"),
        Node(text_resource=MediaResource(text="A node of the new kind.")),
        Document(text="A whole document."),
        ImageNode(image="no text"),
        TextNode(text=""),
    )
    packed = CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(nodes, query_str=QUESTION)
    kinds = {type(node.node): node.node for node in packed}
    assert set(kinds) == {IndexNode, ImageNode, Node, Document}
    assert kinds[IndexNode].obj is engine
    assert kinds[ImageNode].image == "aaaa"


def test_editing_the_copies_leaves_the_callers_nodes_alone():
    nodes = scored({"tags": ["a"]})
    for node in nodes:
        node.node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    before = [node.model_dump_json() for node in nodes]
    for copy in CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(nodes, query_str=QUESTION):
        copy.node.metadata["tags"].append("b")
        copy.node.excluded_llm_metadata_keys.append("tags")
        copy.node.relationships.clear()
        copy.node.set_content("other")
    assert [node.model_dump_json() for node in nodes] == before


@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_every_way_to_answer_sees_packed_nodes_without_metadata(mode, asynchronous):
    llm = Echo(prompts=[])
    post = [
        CRPNodePostprocessor(model="gpt-4o", budget_tokens=200),
        SimilarityPostprocessor(similarity_cutoff=0.0),
        CRPNodePostprocessor(model="gpt-4o", budget_tokens=70),
    ]
    engine = index_of_facts().as_query_engine(
        llm=llm, similarity_top_k=5, response_mode=mode, node_postprocessors=post
    )
    response = await engine.aquery(QUESTION) if asynchronous else engine.query(QUESTION)
    assert str(response) == FACTS[0]
    budgets = {
        node.node.metadata["crp_fact"]["envelope"]["token_budget"] for node in response.source_nodes
    }
    assert budgets == {70}
    json.dumps(response.metadata)
    assert not [prompt for prompt in llm.prompts if "crp" in prompt or "etag" in prompt]


@pytest.mark.parametrize("mode", ["context", "condense_plus_context"])
def test_a_chat_engine_keeps_metadata_out_of_every_turn(mode):
    llm = Echo(prompts=[])
    chat = index_of_facts().as_chat_engine(
        chat_mode=mode,
        llm=llm,
        similarity_top_k=5,
        node_postprocessors=[CRPNodePostprocessor(model="gpt-4o", budget_tokens=70)],
    )
    assert str(chat.chat(QUESTION)) == FACTS[0]
    assert "".join(chat.stream_chat("Who operates it?").response_gen).strip()
    assert len(llm.prompts) >= 2
    assert not [prompt for prompt in llm.prompts if "crp" in prompt or "etag" in prompt]


@pytest.mark.parametrize("mode", ["context", "condense_plus_context", "condense_question"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_chat_engine_s_stream_carries_the_report(mode, asynchronous):
    """Its response has no metadata of its own, and got none."""
    llm = scripted(FACTS[0])
    chat = index_of_facts().as_chat_engine(chat_mode=mode, llm=llm, similarity_top_k=5)
    with DPEEventHandler():
        if asynchronous:
            stream = await chat.astream_chat(QUESTION)
            said = "".join([piece async for piece in stream.async_response_gen()])
        else:
            stream = chat.stream_chat(QUESTION)
            said = "".join(stream.response_gen)
    assert said.strip() == FACTS[0]
    assert stream.metadata["crp"]["risk_level"] == "LOW"


FILLER = "Section {n} lists the visitors of the day; the clerk noted nothing else about them.\n\n"
LONG = (
    "".join(FILLER.format(n=n) for n in range(80)) + "The access code of the north vault is 7741."
)


def test_the_end_of_a_node_above_the_budget_is_shown():
    nodes = [*scored(), NodeWithScore(node=TextNode(text=LONG, id_="long"), score=0.1)]
    post = CRPNodePostprocessor(model="gpt-4o", budget_tokens=200)
    packed = post.postprocess_nodes(nodes, query_str="What is the access code of the north vault?")
    (part,) = [one.node for one in packed if one.node.node_id == "long"]
    told = part.metadata["crp_fact"]
    shown = part.get_content(metadata_mode=MetadataMode.LLM)
    assert "7741" in shown
    assert shown == " \u2026 ".join(LONG[start:end] for start, end in told["spans"])
    assert told["envelope"]["token_count"] <= 200
    assert nodes[-1].node.get_content() == LONG


class Shelf(BaseRetriever):
    """Gives nodes that share a name with the question, and counts its questions."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__()
        self.texts = texts
        self.asked = 0

    def _retrieve(self, query_bundle):
        self.asked += 1
        return [
            NodeWithScore(node=TextNode(text=text, id_=name), score=0.5)
            for name, text in self.texts.items()
            if name in query_bundle.query_str
        ]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_second_look_finds_what_the_first_nodes_lead_to(asynchronous):
    texts = {
        "Silver Harbour": "The Silver Harbour was directed by Anna Lindqvist in 1962.",
        "Lindqvist": "Lindqvist, the Swedish director, was born in the town of Varde.",
    }
    question = "Where was the director of The Silver Harbour born?"

    async def found(**how):
        shelf = Shelf(texts)
        retriever = CRPRetriever(shelf, model="gpt-4o", budget_tokens=300, **how)
        got = await retriever.aretrieve(question) if asynchronous else retriever.retrieve(question)
        return {one.node.node_id for one in got}, shelf.asked

    assert await found() == ({"Silver Harbour"}, 1)
    ids, asked = await found(second_look=4)
    assert ids == set(texts) and 1 < asked <= 5
    with pytest.raises(RequestError, match="second_look is -1"):
        CRPRetriever(Shelf(texts), model="gpt-4o", second_look=-1)
