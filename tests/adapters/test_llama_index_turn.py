"""Retrieving, synthesising and asking in LlamaIndex: the retriever, the engine, the synthesizer."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest
from llama_index.core import Document, SummaryIndex, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.query_engine import (
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import IndexNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool
from pydantic import BaseModel

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import ModelRateLimited, RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.llama_index import (
    CRPNodePostprocessor,
    CRPQueryEngine,
    CRPRetriever,
    CRPSynthesizer,
    DPEEventHandler,
    EnvelopeEvent,
    ReportEvent,
)
from crp_integrations.llama_index.span_tree import process_tree
from crp_integrations.relay.build import open_relay
from crp_integrations.seals import sha256
from tests.adapters.llama_index_doubles import (
    FACTS,
    HALTING,
    QUESTION,
    WRONG,
    Chat,
    no_metadata,
    opened,
    prompts,
    scripted,
)
from tests.doubles import HashEmbedder, ScriptedModel

LONG = [
    f"Plant {n} of the Northfield company was built in {1950 + n}. It delivers {400 + n} megawatts "
    f"to the grid. Its cooling tower is {80 + n} metres high. The ministry licensed it under number "
    f"{7000 + n}. Gardens around it grow tulips, roses and lilies in every spring of the year."
    for n in range(12)
]


class Heard(BaseEventHandler):
    """Keeps the events of ours."""

    events: list = []

    def handle(self, event, **kwargs):
        if isinstance(event, EnvelopeEvent | ReportEvent):
            self.events.append(event)


@pytest.fixture
def events():
    listener = Heard(events=[])
    root = get_dispatcher()
    root.add_event_handler(listener)
    yield listener.events
    root.event_handlers.remove(listener)
    assert len(process_tree()) == 0


@pytest.mark.parametrize("fields", [{}, {"streaming": True}, {"streaming": True, **HALTING}])
async def test_events_of_an_asynchronous_query_come_on_its_loop(monkeypatch, fields):
    on_loop = []

    class Noting(BaseEventHandler):
        def handle(self, event, **kwargs):
            if isinstance(event, EnvelopeEvent | ReportEvent):
                on_loop.append(asyncio._get_running_loop() is loop)

    loop, root = asyncio.get_running_loop(), get_dispatcher()
    monkeypatch.setattr(root, "event_handlers", [*root.event_handlers, Noting()])
    engine = CRPQueryEngine(opened(), llm=scripted(FACTS[0]), **fields)
    response = await engine.aquery(QUESTION)
    if fields:
        await pieces(response)
    assert on_loop == [True, True]


def index(texts=FACTS, kind=VectorStoreIndex, **metadata):
    documents = [
        Document(text=text, doc_id=f"d{n}", metadata=dict(metadata)) for n, text in enumerate(texts)
    ]
    if kind is SummaryIndex:
        return SummaryIndex.from_documents(documents)
    return VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(embed_dim=8))


def shown(nodes):
    return [one.node.get_content(metadata_mode=MetadataMode.LLM) for one in nodes]


async def retrieved(retriever, way, question=QUESTION):
    return retriever.retrieve(question) if way == "sync" else await retriever.aretrieve(question)


async def queried(engine, way, question=QUESTION):
    return engine.query(question) if way == "sync" else await engine.aquery(question)


async def pieces(response):
    if hasattr(response, "async_response_gen"):
        return [piece async for piece in response.async_response_gen()]
    return list(response.response_gen)


# --- retriever -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_facts_of_a_relay_are_packed_as_the_model_sees_them(way, events):
    relay = opened()
    retriever = CRPRetriever(relay, model="gpt-4o", budget_tokens=60)
    nodes = await retrieved(retriever, way)
    assert 0 < len(nodes) < len(FACTS) and nodes[0].node.get_content() == FACTS[0]
    (event,) = events
    assert render(shown(nodes)) == event.envelope["text"]
    assert (
        counter_for("gpt-4o").count(event.envelope["text"]) == event.envelope["token_count"] <= 60
    )
    places = [one.node.metadata["crp_fact"]["position"] for one in nodes]
    assert places == list(range(1, len(nodes) + 1))
    json.dumps([one.node.metadata for one in nodes])
    assert no_metadata("".join(shown(nodes)))


async def test_metadata_of_stored_facts_is_there_and_not_shown():
    relay = opened("A fact of another kind about gardens and tulips in the valley.")
    relay.fabric.add([Fact(content=FACTS[0], source_id="user", metadata={"page": 7})])
    first = CRPRetriever(relay, model="gpt-4o").retrieve(QUESTION)[0]
    assert first.node.metadata["page"] == 7
    assert shown([first]) == [FACTS[0]]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", [VectorStoreIndex, SummaryIndex])
async def test_an_index_and_a_retriever_are_packed_with_what_they_let_through(way, kind):
    made = index(kind=kind, file="a.md")
    stored = {k: n.model_dump_json() for k, n in made.docstore.docs.items()}
    for source in (made, made.as_retriever()):
        nodes = await retrieved(CRPRetriever(source, model="gpt-4o", budget_tokens=70), way)
        assert nodes
        text = render(shown(nodes))
        assert "file: a.md" in text and no_metadata(text)
        assert counter_for("gpt-4o").count(text) <= 70
    assert {k: n.model_dump_json() for k, n in made.docstore.docs.items()} == stored


def test_k_preset_and_the_session_of_a_retriever():
    relay = opened()
    assert len(CRPRetriever(relay, model="gpt-4o", k=2).retrieve(QUESTION)) == 2
    literal = CRPRetriever(index(LONG, SummaryIndex), model="gpt-4o", preset="literal", k=3)
    assert len(literal.retrieve(QUESTION)) == 3
    secret = "The reactor's night code is seven four one, told to nobody in the company."
    relay.add([secret], session_id="crp_sess_" + "a" * 16, cache="no-store")
    asked = CRPRetriever(relay, model="gpt-4o", session_id="crp_sess_" + "a" * 16)
    question = "What is the night code of the reactor?"
    assert secret in shown(asked.retrieve(question))
    assert secret not in shown(CRPRetriever(relay, model="gpt-4o").retrieve(question))
    with instrument_tags({"session_id": "crp_sess_" + "a" * 16}):
        assert secret in shown(CRPRetriever(relay, model="gpt-4o").retrieve(question))


def test_facts_shown_in_part_are_nodes_of_those_parts():
    parted = [
        " ".join(
            f"Plant {n} has a part {j} that was built in {1950 + n + j} under licence {7000 + n}."
            for j in range(6)
        )
        for n in range(6)
    ]
    retriever = CRPRetriever(opened(*parted), model="gpt-4o", budget_tokens=120)
    nodes = retriever.retrieve("When was part 2 of plant 3 built?")
    assert [one for one in nodes if one.node.metadata["crp_fact"]["spans"]], (
        "some are shown in part"
    )
    text = render(shown(nodes))
    assert counter_for("gpt-4o").count(text) <= 120
    assert {one.node.metadata["crp_fact"]["envelope"]["token_count"] for one in nodes} == {
        counter_for("gpt-4o").count(text)
    }


# --- query engine --------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["relay", "llm"])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_question_is_answered_checked_and_sealed(way, own, streaming, events):
    chat, model = scripted(FACTS[0]), ScriptedModel(FACTS[0])
    relay = opened(models=model)
    engine = CRPQueryEngine(
        relay,
        llm=chat if own else None,
        model="gpt-4o",
        streaming=streaming,
        budget_tokens=60,
        attach="full",
    )
    response = await queried(engine, way)
    if streaming:
        assert "".join(await pieces(response)) == FACTS[0]
    else:
        assert str(response) == FACTS[0]
    told = response.metadata
    json.dumps(told)
    assert told["crp"]["risk_level"] == "LOW" and told["crp_session"]["window_number"] == 1
    assert told["crp_headers"]["CRP-Safety-Hallucination-Risk"].startswith("LOW")
    assert render(shown(response.source_nodes)) == told["crp_envelope"]["text"]
    sent = prompts(chat) if own else repr(model.calls)
    assert told["crp_envelope"]["text"].replace("\n", "\\n") in sent
    assert no_metadata(prompts(chat))
    assert [type(one).__name__ for one in events] == ["EnvelopeEvent", "ReportEvent"]
    assert relay.verify().windows == 1


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["relay", "llm"])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_withheld_answer_shows_nowhere(way, own, streaming):
    relay = opened(models=ScriptedModel(WRONG))
    llm = scripted(WRONG) if own else None
    engine = CRPQueryEngine(relay, llm=llm, model="gpt-4o", **HALTING, streaming=streaming)
    with pytest.raises(SafetyHalt) as halt:
        await queried(engine, way)
    assert halt.value.report.response_content_hash == sha256(WRONG)
    assert relay.verify().windows == 1


def test_refusals_and_errors_come_out_of_query():
    class Limited(Exception):
        status_code = 429

    with pytest.raises(ModelRateLimited):
        CRPQueryEngine(opened(), llm=scripted(Limited("SECRET"))).query(QUESTION)
    with pytest.raises(RequestError, match="no field 'budget'"):
        CRPQueryEngine(opened(), budget=3)
    with pytest.raises(RequestError, match="no field 'history'"):
        CRPQueryEngine(opened(), history=())


async def test_32_callers_have_their_own_session_and_answer():
    facts = [
        f"The balance of customer c{n} at the bank is {n + 1000} euros today." for n in range(32)
    ]
    relay = opened(*facts)

    def reply(messages):
        name = messages[-1].content.split()[-1].rstrip("?")
        return facts[int(name[1:])]

    engine = CRPQueryEngine(relay, llm=Chat(reply), k=4, attach="full")

    async def one(n):
        with instrument_tags({"session_id": f"caller-{n}"}):
            return await engine.aquery(f"What is the balance of customer c{n}?")

    responses = await asyncio.gather(*(one(n) for n in range(32)))
    assert [str(one) for one in responses] == facts
    assert len({one.metadata["crp_session"]["session_id"] for one in responses}) == 32
    for n, one in enumerate(responses):
        assert one.metadata["crp"]["response_content_hash"] == sha256(facts[n])
        assert one.metadata["crp"]["session_id"] == one.metadata["crp_session"]["session_id"]
    assert relay.verify().windows == 32


async def test_its_facts_and_its_report_are_those_of_the_engine_around_it():
    relay = opened()
    engine = CRPQueryEngine(relay, llm=scripted(FACTS[0]))
    tool = QueryEngineTool.from_defaults(engine, name="facts", description="all facts")
    selector = LLMSingleSelector.from_defaults(
        llm=scripted('[{"choice": 1, "reason": "it knows"}]')
    )
    router = RouterQueryEngine(selector, [tool], llm=scripted("unused"))
    reported = []
    with DPEEventHandler(attach="full", on_report=reported.append):
        response = await router.aquery(QUESTION)
    assert response.metadata["crp"]["risk_level"] == "LOW"
    assert response.metadata["crp_session"]["window_number"] == 1
    # The selector's answer rests on nothing that was retrieved, and is no answer of the engine.
    assert [one.report["flags"] for one in reported] == [["not-examined"]]


# --- synthesizer ---------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_one_call_sees_the_envelope_byte_for_byte(way, streaming, events):
    chat = scripted(FACTS[0])
    # LlamaIndex's own synthesisers would make several calls of this window.
    synthesizer = CRPSynthesizer(chat, streaming=streaming)
    synthesizer._prompt_helper.context_window = 50
    relay = opened(*LONG)
    engine = RetrieverQueryEngine(
        CRPRetriever(relay, model="gpt-4o", budget_tokens=600), response_synthesizer=synthesizer
    )
    with DPEEventHandler(attach="full"):
        response = await queried(engine, way, "When was plant 7 built?")
        if streaming:
            assert "".join(await pieces(response)) == FACTS[0]
    ((system, question),) = chat.seen
    envelope = next(one.envelope for one in events if isinstance(one, EnvelopeEvent))
    assert len([one for one in events if isinstance(one, EnvelopeEvent)]) == 1, "not packed again"
    assert f"<context>\n{envelope['text']}\n</context>" in system.content
    assert question.content == "When was plant 7 built?"
    assert response.metadata["crp_envelope"]["etag"] == envelope["etag"]
    assert response.metadata["crp"]["risk_level"] != "LOW", "the facts say nothing of the kind"
    assert no_metadata(prompts(chat))


async def test_what_is_no_whole_envelope_is_packed_first(events):
    chat = scripted(LONG[7])
    made = index(LONG, SummaryIndex)
    engine = RetrieverQueryEngine(
        made.as_retriever(),
        response_synthesizer=CRPSynthesizer(chat, budget_tokens=300, system_prompt="Be brief."),
    )
    response = await engine.aquery("When was plant 7 built?")
    (event,) = events
    assert event.envelope["token_count"] <= 300
    assert chat.seen[0][0].content.startswith("Be brief.")
    assert event.envelope["text"] in chat.seen[0][0].content
    assert render(shown(response.source_nodes)) == event.envelope["text"]
    # Of a whole envelope some are left out on the way: it is another one then.
    events.clear()
    narrowed = RetrieverQueryEngine(
        CRPRetriever(opened(*LONG), model="gpt-4o", budget_tokens=600),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.5)],
        response_synthesizer=CRPSynthesizer(chat, budget_tokens=300),
    )
    await narrowed.aquery("When was plant 7 built?")
    assert len(events) == 2
    assert events[1].envelope["text"] in chat.seen[1][0].content


def test_no_nodes_are_no_call():
    chat = scripted("never asked")
    response = CRPSynthesizer(chat).synthesize(QUESTION, [])
    assert str(response) == "Empty Response" and not chat.seen
    with pytest.raises(RequestError, match="names no model"):
        CRPSynthesizer(scripted("x", model="unknown"))


# --- the handler on engines ----------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_query_engines_answer_is_reported_on(way, streaming, events):
    engine = index().as_query_engine(llm=scripted(WRONG), similarity_top_k=5, streaming=streaming)
    with DPEEventHandler(attach="full"):
        response = await queried(engine, way)
        if streaming:
            await pieces(response)
    assert response.metadata["crp"]["distortion_types"] == ["NUMBER_CHANGED"]
    assert response.metadata["crp_agent"]["depth"] == 0
    (event,) = events
    assert event.report == response.metadata["crp"]


async def test_32_queries_at_once_are_judged_by_their_own_nodes():
    texts = [f"The password of customer c{n} of the bank is word{n * 7}." for n in range(32)]

    class Own(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle):
            n = int(query_bundle.query_str.split()[-1].rstrip("?")[1:])
            return [NodeWithScore(node=TextNode(text=texts[n], id_=f"n{n}"), score=1.0)]

    def reply(messages):
        n = int(messages[-1].content.split("customer c")[-1].split("?")[0])
        # Every second one gets the next customer's.
        return texts[n] if n % 2 == 0 else texts[(n + 1) % 32].replace(f"c{n + 1}", f"c{n}")

    engine = RetrieverQueryEngine.from_args(Own(), llm=Chat(reply))
    with DPEEventHandler(attach="full"):
        responses = await asyncio.gather(
            *(engine.aquery(f"What is the password of customer c{n}?") for n in range(32))
        )
    for n, one in enumerate(responses):
        report = one.metadata["crp"]
        assert {e["fact_id"] for c in report["claims"] for e in c["evidence"]} <= {f"n{n}"}
        assert report["response_content_hash"] == sha256(str(one))
        if n % 2 == 0:
            assert report["grounding_pct"] == 1.0


async def test_what_a_postprocessor_left_out_is_no_evidence():
    nodes = [
        NodeWithScore(node=TextNode(text=FACTS[0], id_="a"), score=0.1),
        NodeWithScore(node=TextNode(text=FACTS[2], id_="b"), score=0.9),
    ]

    class Both(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle):
            return nodes

    engine = RetrieverQueryEngine.from_args(
        Both(),
        llm=scripted(FACTS[0]),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.5)],
    )
    with DPEEventHandler(attach="full"):
        response = engine.query(QUESTION)
    ids = {e["fact_id"] for c in response.metadata["crp"]["claims"] for e in c["evidence"]}
    assert ids <= {"b"}
    assert response.metadata["crp"]["risk_level"] != "LOW"


async def test_answers_to_parts_of_a_question_are_judged_by_the_sources():
    class Parts(BaseQuestionGenerator):
        def _get_prompts(self):
            return {}

        def _update_prompts(self, prompts):
            """None."""

        def generate(self, tools, query):
            return [SubQuestion(sub_question=QUESTION, tool_name="facts")]

        async def agenerate(self, tools, query):
            return self.generate(tools, query)

    inner = index().as_query_engine(llm=scripted(WRONG), similarity_top_k=5)
    tool = QueryEngineTool.from_defaults(inner, name="facts", description="all facts")
    engine = SubQuestionQueryEngine.from_defaults(
        [tool], llm=scripted(WRONG), question_gen=Parts(), use_async=False
    )
    with DPEEventHandler(attach="full"):
        response = engine.query(QUESTION)
    assert response.metadata["crp"]["distortion_types"] == ["NUMBER_CHANGED"]


@pytest.mark.parametrize("packed", [True, False])
def test_nothing_of_ours_is_shown_of_an_engine_behind_an_index_node(packed):
    inner = index().as_query_engine(
        llm=scripted(FACTS[0]),
        node_postprocessors=[CRPNodePostprocessor(model="gpt-4o")] if packed else [],
    )
    node = IndexNode(text="reactors", index_id="reactors", obj=inner)
    outer_llm = scripted(FACTS[0])
    outer = VectorStoreIndex(
        objects=[node], embed_model=MockEmbedding(embed_dim=8)
    ).as_query_engine(llm=outer_llm)
    with DPEEventHandler(attach="full"):
        response = outer.query(QUESTION)
    assert response.metadata["crp"]["risk_level"] == "LOW"
    assert no_metadata(prompts(outer_llm))


def test_a_call_alone_is_not_checked_and_an_empty_one_too():
    llm = scripted(FACTS[0])
    with DPEEventHandler(attach="full"):
        alone = llm.chat([])
        done = llm.complete(QUESTION)
    assert alone.additional_kwargs["crp"]["flags"] == ["not-examined"]
    assert done.additional_kwargs["crp"]["flags"] == ["not-examined"]
    assert "crp" not in llm.complete(QUESTION).additional_kwargs, "it has stopped listening"


def test_an_llm_that_tells_nothing_by_itself_is_reported_on_where_it_predicts():
    class Plain(CustomLLM):
        @property
        def metadata(self):
            return LLMMetadata(context_window=8000)

        def complete(self, prompt, formatted=False, **kwargs):
            return CompletionResponse(text=WRONG)

        def stream_complete(self, prompt, formatted=False, **kwargs):
            yield CompletionResponse(text=WRONG, delta=WRONG)

    reported = []
    with DPEEventHandler(attach="full", on_report=reported.append) as handler:
        response = index().as_query_engine(llm=Plain(), similarity_top_k=5).query(QUESTION)
    assert response.metadata["crp"]["distortion_types"] == ["NUMBER_CHANGED"]
    assert len(reported) == 1 and not handler._calls and not handler._predicted


def test_a_call_tried_again_is_reported_on():
    fails = [ValueError("once")]

    def reply(messages):
        if fails:
            raise fails.pop()
        return WRONG

    llm, reported = Chat(reply), []
    asked = [ChatMessage(role="user", content=QUESTION)]

    class Trying(BaseSynthesizer):
        def _get_prompts(self):
            return {}

        def _update_prompts(self, prompts):
            """None."""

        def get_response(self, query_str, text_chunks, **kwargs):
            try:
                return llm.chat(asked).message.content
            except ValueError:
                return llm.chat(asked).message.content

        async def aget_response(self, query_str, text_chunks, **kwargs):
            return self.get_response(query_str, text_chunks)

    engine = RetrieverQueryEngine(
        index().as_retriever(similarity_top_k=5), response_synthesizer=Trying(llm=llm)
    )
    with DPEEventHandler(attach="full", on_report=reported.append) as handler:
        response = engine.query(QUESTION)
    assert response.metadata["crp"]["distortion_types"] == ["NUMBER_CHANGED"]
    assert len(reported) == 1 and not handler._calls


def test_what_has_ended_in_a_tree_that_goes_on_is_forgotten():
    engine = index().as_query_engine(llm=scripted(FACTS[0]), similarity_top_k=5)
    sizes = []

    @get_dispatcher().span
    def for_days():
        for _ in range(5):
            engine.query(QUESTION)
            sizes.append(len(process_tree()))

    with DPEEventHandler(attach="full"):
        for_days()
    # The root, and one span for each query.
    assert sizes == [2, 3, 4, 5, 6]


def test_a_stream_that_nobody_reads_is_forgotten_with_its_response():
    engine = index().as_query_engine(llm=scripted(FACTS[0]), streaming=True)
    with DPEEventHandler(attach="full"):
        response = engine.query(QUESTION)
        assert len(process_tree()) > 0
        del response
        gc.collect()
    assert len(process_tree()) == 0


def test_a_callers_own_metadata_are_shown_as_before():
    llm = scripted(FACTS[0])
    made = index(crp_number=7, crp="an abbreviation of theirs")
    with DPEEventHandler(attach="full"):
        made.as_query_engine(llm=llm).query(QUESTION)
    assert "crp_number: 7" in prompts(llm) and "an abbreviation of theirs" in prompts(llm)


class Operator(BaseModel):
    """Who operates a reactor."""

    name: str


def test_a_structured_prediction_is_an_answer():
    """LlamaIndex makes the model call a tool, whose arguments are what the caller gets."""
    reported = []
    llm = scripted([("Operator", {"name": "Northfield Energy"})])
    prompt = ChatPromptTemplate(
        message_templates=[
            ChatMessage(role="system", content=FACTS[1]),
            ChatMessage(role="user", content="Who operates the reactor?"),
        ]
    )
    with DPEEventHandler(attach="full", on_report=reported.append):
        answer = llm.structured_predict(Operator, prompt)
    assert answer == Operator(name="Northfield Energy")
    (event,) = reported
    assert "not-examined" not in event.report["flags"]
    assert event.report["response_content_hash"] == sha256('{"name":"Northfield Energy"}')


def test_the_nodes_of_a_region_have_its_metadata(tmp_path):
    parts = {"models": ScriptedModel(FACTS[0]), "embedder": HashEmbedder()}
    relay = open_relay(tmp_path / "kb", regions={"eu": tmp_path / "eu"}, **parts)
    relay.region("eu").add([Fact(content=FACTS[0], metadata={"page": 7})])
    response = CRPQueryEngine(relay, model="gpt-4o", residency="eu").query(QUESTION)
    assert [scored.node.metadata["page"] for scored in response.source_nodes] == [7]
