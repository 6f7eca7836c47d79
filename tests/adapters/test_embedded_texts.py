"""How many texts each door embeds: known passages never again, a known question never again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import NodeWithScore, TextNode

from crp_integrations import Relay, examine, pack
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.fabric.records import Where
from crp_integrations.governance.tools import ToolSelector, ToolSpec
from crp_integrations.guard.decisions import Decision, LabelFilter, Subject
from crp_integrations.langchain import (
    CRPDocumentCompressor,
    CRPMiddleware,
    CRPRetriever,
    FabricEmbeddings,
)
from crp_integrations.language import memo
from crp_integrations.litellm import CRPRouter
from crp_integrations.llama_index import CRPNodePostprocessor, FabricEmbedding
from crp_integrations.llama_index import CRPRetriever as IndexRetriever
from crp_integrations.relay.settings import load
from tests.adapters.langchain_doubles import Listed, scripted

MODEL = "gpt-4o"
PASSAGES = [
    f"Pier {n} of the harbour has {n + 3} berths; the ferry to Aland leaves at {n % 24} o'clock."
    for n in range(50)
]
FIRST, SECOND = "When does the ferry from pier 7 leave?", "How many berths does pier 9 have?"
Question = Callable[[str], Any]


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that the shipped model embeds, with an empty cache before and after."""
    embedded: list[str] = []
    embed = OnnxEmbedder.embed_query

    def listed(self: OnnxEmbedder, text: str) -> Any:
        embedded.append(text)
        return embed(self, text)

    monkeypatch.setattr(OnnxEmbedder, "embed_query", listed)
    memo.forget()
    yield embedded
    memo.forget()


def through_wrap() -> Question:
    documents = [Document(passage) for passage in PASSAGES]
    return CRPRetriever.wrap(Listed(documents=documents), model=MODEL).invoke


def through_compressor() -> Question:
    compressor = CRPDocumentCompressor(model=MODEL)
    documents = [Document(passage) for passage in PASSAGES]
    return lambda question: compressor.compress_documents(documents, question)


def through_postprocessor() -> Question:
    postprocessor = CRPNodePostprocessor(model=MODEL)
    nodes = [NodeWithScore(node=TextNode(text=passage)) for passage in PASSAGES]
    return lambda question: postprocessor.postprocess_nodes(nodes, query_str=question)


def through_pack() -> Question:
    return lambda question: pack(question, PASSAGES, model=MODEL)


WITHOUT_STORE = [through_wrap, through_compressor, through_postprocessor, through_pack]


@pytest.mark.parametrize("door", WITHOUT_STORE)
@pytest.mark.parametrize("before", WITHOUT_STORE)
def test_known_passages_are_not_embedded_again_at_any_door(
    texts: list[str],
    door: Callable[[], Question],
    before: Callable[[], Question],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRP_ENVELOPE__HYBRID__READ_PASSAGES", "0")
    before()(FIRST)
    assert sorted(texts) == sorted([*PASSAGES, FIRST])
    texts.clear()
    door()(SECOND)
    assert texts == [SECOND]
    texts.clear()
    door()(FIRST)
    assert texts == []


@pytest.mark.parametrize("door", WITHOUT_STORE)
def test_a_question_reads_what_it_chooses_and_no_other_did(
    texts: list[str], door: Callable[[], Question]
) -> None:
    asked = door()
    asked(FIRST)
    assert FIRST in texts and len(texts) == len(set(texts)) < len(PASSAGES)
    asked(SECOND)
    assert len(texts) == len(set(texts)) <= len(PASSAGES) + 2
    texts.clear()
    asked(FIRST)
    asked(SECOND)
    assert texts == []


def test_the_vectors_of_a_store_with_our_embedder_are_used(
    texts: list[str],
) -> None:
    with Relay.open() as relay:
        embeddings = FabricEmbeddings(relay.fabric.embedder)
        store = InMemoryVectorStore.from_texts(PASSAGES, embeddings)
        assert sorted(texts) == sorted(PASSAGES)
        texts.clear()
        CRPRetriever.wrap(store, model=MODEL, candidates=50).invoke(FIRST)
        assert texts == [FIRST]
        texts.clear()
        model = FabricEmbedding(relay.fabric.embedder)
        nodes = [TextNode(text=passage) for passage in PASSAGES]
        index = VectorStoreIndex(nodes, embed_model=model)
        IndexRetriever(index, model=MODEL).retrieve(SECOND)
        assert texts == [SECOND]


def test_an_ingestion_neither_fills_the_cache_nor_embeds_what_it_has(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRP_ENVELOPE__HYBRID__READ_PASSAGES", "0")
    pack(FIRST, PASSAGES[:10], model=MODEL)
    texts.clear()
    with Relay.open() as relay:
        relay.add(PASSAGES)
    assert sorted(texts) == sorted(PASSAGES[10:])
    texts.clear()
    pack(FIRST, PASSAGES, model=MODEL)
    assert sorted(texts) == sorted(PASSAGES[10:])


@pytest.mark.parametrize("tenant", ["local", "acme", "globex"])
def test_writing_for_a_tenant_takes_no_vector_of_another(texts: list[str], tenant: str) -> None:
    pack(FIRST, PASSAGES[:3], model=MODEL)
    with Relay.open(subject=Subject(tenant="globex")) as relay:
        relay.fabric.embedder.embed_passages(PASSAGES[:3])
    texts.clear()
    with Relay.open(subject=Subject(tenant=tenant)) as relay:
        relay.add(PASSAGES[:3])
    assert len(texts) == (3 if tenant == "acme" else 0)


@pytest.mark.parametrize("settings", [{}, {"preset": "literal"}], ids=["default", "literal"])
def test_a_question_asked_twice_embeds_nothing_more(
    texts: list[str], settings: dict[str, Any]
) -> None:
    with Relay.open(**settings) as relay:
        relay.add(PASSAGES)
        texts.clear()
        relay.ask(FIRST, model="extractive")
        if not settings:
            assert texts == [FIRST]
        texts.clear()
        relay.ask(FIRST, model="extractive")
        assert texts == []


def test_an_agents_second_step_embeds_nothing_known(texts: list[str]) -> None:
    @tool
    def clock(city: str) -> str:
        """The time in a city."""
        return f"It is nine o'clock in {city}, and the harbour office is open until noon."

    with Relay.open() as relay:
        relay.add(PASSAGES)
        texts.clear()
        call = {"name": "clock", "args": {"city": "Turku"}, "id": "call_1"}
        asking = AIMessage(content="", tool_calls=[call])
        model = scripted(asking, "It leaves at 7 o'clock.")
        agent = create_agent(model, [clock], middleware=[CRPMiddleware(relay)])
        agent.invoke({"messages": [("user", FIRST)]})
    assert texts == [FIRST]


def test_a_router_embeds_a_question_once(texts: list[str]) -> None:
    entry = {"model_name": "main", "litellm_params": {"model": "openai/gpt-4o", "api_key": "x"}}
    with Relay.open() as relay:
        relay.add(PASSAGES)
        texts.clear()
        router = CRPRouter([entry], relay=relay)
        for _ in range(2):
            router.completion("main", [{"role": "user", "content": FIRST}], mock_response="At 7.")
    assert texts == [FIRST]


def test_an_agents_tools_are_embedded_once(texts: list[str]) -> None:
    spec = ToolSpec(name="lift", description="Lifts a container.", safety_tags=("read-only",))
    with Relay.open() as relay:
        for _ in range(2):
            selector = ToolSelector(relay.fabric.embedder)
            selector.select(FIRST, [spec], lambda _: ALLOWED, LabelFilter())
    assert sorted(texts) == sorted([spec.searched, FIRST])


@pytest.mark.parametrize("before", [False, True], ids=["unknown", "known"])
def test_nothing_of_a_no_store_call_is_kept(texts: list[str], before: bool) -> None:
    with Relay.open() as relay:
        relay.add(PASSAGES)
        if before:
            relay.ask(FIRST, model="extractive")
        texts.clear()
        relay.ask(FIRST, model="extractive", cache="no-store")
        relay.ask(FIRST, model="extractive")
    assert texts == ([] if before else [FIRST, FIRST])
    answer = "The ferry leaves at nine. The ferry leaves from pier 7 of the harbour."
    for no_store, wanted in ((True, True), (False, True), (False, False)):
        texts.clear()
        examine(answer, PASSAGES[:2], FIRST, prior=[answer[:30]], no_store=no_store)
        assert bool(texts) is wanted


SESSION = "crp_sess_harbour"
ALLOWED = Decision(allowed=True, guard="test", reason="")


def erase(relay: Relay) -> None:
    fabric = relay.fabric
    fabric.erase(fabric.facts(fabric.find_own(Where()))[0].source_id)


def purge(relay: Relay) -> None:
    relay.fabric.forget(facts=relay.fabric.find_own(Where()))
    assert relay.fabric.maintain().purged


def end_session(relay: Relay) -> None:
    relay.add(
        ["The harbour master is ill and stays at home until the end of the week."],
        session_id=SESSION,
        cache="no-store",
    )
    assert relay.end_session(SESSION)


def forget_session(relay: Relay) -> None:
    answer = relay.ask(FIRST, model="extractive")
    assert relay.fabric.forget_session(answer.report.session_id)


@pytest.mark.parametrize("remove", [erase, purge, end_session, forget_session])
def test_erasure_empties_the_cache(
    texts: list[str], tmp_path: Path, remove: Callable[[Relay], None]
) -> None:
    settings = load(vector_cache=str(tmp_path))
    with Relay.open(fabric={"lifecycle": {"retention_days": 0.0}}) as relay:
        relay.add(PASSAGES[:1])
        for where in (None, settings):
            pack(FIRST, PASSAGES[:1], model=MODEL, settings=where)
        assert len(list(tmp_path.iterdir())) == 1
        remove(relay)
    assert list(tmp_path.iterdir()) == []
    for where in (None, settings):
        texts.clear()
        pack(FIRST, PASSAGES[:1], model=MODEL, settings=where)
        assert sorted(texts) == sorted([FIRST, PASSAGES[0]])
