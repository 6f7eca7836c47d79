"""The cases that LlamaIndex tests its own store with, and those of a store that keeps text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.schema import (
    IndexNode,
    Node,
    NodeRelationship,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from crp_integrations import Relay
from crp_integrations.engines.embeddings import LlamaIndexEmbedder
from crp_integrations.errors import EngineError, RequestError
from crp_integrations.fabric.records import Where, source_id
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.langchain import CRPVectorStore as LangChainView
from crp_integrations.llama_index import CRPNodePostprocessor, CRPVectorStore
from crp_integrations.relay.settings import Settings
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import HashEmbedder
from tests.relay.conftest import FACTS, KEY

A, B, C = "node-a", "node-b", "node-c"
BOTH = [1.0, 1.0]
# Nearest to C, then to A, then to B, without a tie.
NEAR = [1.0, 0.9]
SHORT = FabricSettings(chunking=ChunkingSettings(min_fact_tokens=1))


def nodes() -> list[TextNode]:
    """Three nodes of three documents, with equal text, in two dimensions."""
    about = (
        (A, [1.0, 0.0], {"weight": 1.0, "rank": "a", "quality": ["medium", "high"], "code": "X7Yun"}),
        (B, [0.0, 1.0], {"weight": 2.0, "rank": "c", "quality": ["medium"], "code": "x7ygl"}),
        (C, [1.0, 1.0], {"weight": 3.0, "rank": "c", "quality": ["low", "medium", "high"], "code": "X7Ztl"}),
    )  # fmt: skip
    return [
        TextNode(
            id_=id_,
            text="three words here",
            embedding=vector,
            metadata=metadata,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{id_}")},
        )
        for id_, vector, metadata in about
    ]


def opened(store: object, dimensions: int = 2) -> Relay:
    embedder = LlamaIndexEmbedder(MockEmbedding(embed_dim=dimensions), f"mock/{dimensions}")
    return Relay.open(store, embedder=embedder, settings=Settings(fabric=SHORT, key=KEY))


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


@pytest.fixture
def store(place: object) -> Iterator[CRPVectorStore]:
    with opened(place) as relay:
        made = CRPVectorStore(relay)
        assert made.add(nodes()) == [A, B, C]
        yield made


def one(key: str, operator: FilterOperator, value: object) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])


def ask(
    store: CRPVectorStore, filters: MetadataFilters | None = None, k: int = 3, **more
) -> list[str]:
    query = VectorStoreQuery(query_embedding=NEAR, similarity_top_k=k, filters=filters, **more)
    return store.query(query).ids


def test_a_query_gives_nodes_by_similarity(store):
    result = store.query(VectorStoreQuery(query_embedding=[1.0, 0.9], similarity_top_k=3))
    assert result.ids == [C, A, B]
    assert [node.node_id for node in result.nodes] == result.ids
    assert result.similarities == sorted(result.similarities, reverse=True)
    assert result.similarities[0] == pytest.approx(1.9 / (1.81 * 2) ** 0.5)
    assert ask(store, k=1) == [C]
    assert ask(store, k=0) == []


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (one("rank", FilterOperator.EQ, "c"), [C, B]),
        (one("rank", FilterOperator.NE, "c"), [A]),
        (one("weight", FilterOperator.EQ, 1.0), [A]),
        (one("weight", FilterOperator.EQ, 1), [A]),
        (one("weight", FilterOperator.NE, 1.0), [C, B]),
        (one("weight", FilterOperator.GT, 1.5), [C, B]),
        (one("weight", FilterOperator.GTE, 1.0), [C, A, B]),
        (one("weight", FilterOperator.LT, 1.1), [A]),
        (one("weight", FilterOperator.LTE, 1.0), [A]),
        (one("rank", FilterOperator.IN, ["a", "c"]), [C, A, B]),
        (one("rank", FilterOperator.NIN, ["c"]), [A]),
        (one("quality", FilterOperator.CONTAINS, "high"), [C, A]),
        (one("quality", FilterOperator.ANY, ["high", "low"]), [C, A]),
        (one("quality", FilterOperator.ALL, ["medium", "high"]), [C, A]),
        (one("code", FilterOperator.TEXT_MATCH, "X7Y"), [A]),
        (one("code", FilterOperator.TEXT_MATCH_INSENSITIVE, "X7Y"), [A, B]),
        (one("nowhere", FilterOperator.IS_EMPTY, None), [C, A, B]),
        (one("nowhere", FilterOperator.EQ, "c"), []),
        (one("nowhere", FilterOperator.NE, "c"), [C, A, B]),
        (one("ref_doc_id", FilterOperator.EQ, f"doc-{B}"), [B]),
        (one("doc_id", FilterOperator.IN, [f"doc-{B}", f"doc-{A}"]), [A, B]),
    ],
    ids=lambda value: value.filters[0].operator.name if isinstance(value, MetadataFilters) else "",
)  # fmt: skip
@pytest.mark.parametrize("mode", [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR])
def test_every_filter_operator(store, filters, ids, mode):
    assert sorted(ask(store, filters, mode=mode)) == sorted(ids)
    assert sorted(node.node_id for node in store.get_nodes(filters=filters)) == sorted(ids)
    if mode is VectorStoreQueryMode.DEFAULT:
        assert ask(store, filters, k=1) == ids[:1]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        (FilterCondition.AND, []),
        (None, []),
        (FilterCondition.OR, [C, A, B]),
        (FilterCondition.NOT, []),
    ],
)
def test_conditions_between_filters(store, condition, ids):
    filters = MetadataFilters(
        filters=[
            MetadataFilter(key="rank", value="c"),
            MetadataFilter(key="weight", value=1.0),
        ],
        condition=condition,
    )
    assert ask(store, filters) == ids


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        (MetadataFilters(filters=[one("rank", FilterOperator.EQ, "c")]), "Nested"),
        (one("weight", FilterOperator.TEXT_MATCH, "1"), "TEXT_MATCH"),
        (one("rank", FilterOperator.GT, 1), "not supported between"),
        (one("rank", FilterOperator.EQ, "\ud800"), "'rank' of type str"),
    ],
)
def test_filters_that_cannot_be_applied_are_refused(store, filters, named):
    with pytest.raises(RequestError, match=named):
        ask(store, filters)
    with pytest.raises(RequestError, match=named):
        store.delete_nodes(filters=filters)
    assert store.client.size() == 3


def test_node_and_document_ids_and_filters_intersect(store):
    rank_c = one("rank", FilterOperator.EQ, "c")
    assert ask(store, rank_c, node_ids=[C]) == [C]
    assert ask(store, node_ids=[A, B, "unknown"]) == [A, B]
    (fact_id,) = store.client.find(Where(metadata={"rank": "a"}))
    assert ask(store, node_ids=[A, fact_id]) == [A]
    # As LlamaIndex's own retriever means it.
    assert ask(store, node_ids=[]) == [C, A, B]
    assert ask(store, doc_ids=[f"doc-{A}", f"doc-{B}"]) == [A, B]
    assert ask(store, doc_ids=[]) == []
    assert ask(store, doc_ids=["unknown"]) == []
    assert ask(store, rank_c, node_ids=[A, B, C], doc_ids=[f"doc-{A}", f"doc-{B}"]) == [B]


def test_a_node_that_is_withdrawn_during_a_query_is_left_out(store, monkeypatch):
    vectors = store.client.vectors

    def withdrawn(ids):
        monkeypatch.setattr(store.client, "vectors", vectors)
        store.delete_nodes([A])
        return vectors(ids)

    monkeypatch.setattr(store.client, "vectors", withdrawn)
    assert ask(store, node_ids=[A, B]) == [B]


@pytest.mark.parametrize(
    ("threshold", "kwargs", "ids"),
    [
        (0.0, {}, ["x", "z"]),
        (1.0, {}, ["x", "y"]),
        (None, {"mmr_threshold": 0.0}, ["x", "z"]),
        (None, {"mmr_threshold": 1.0}, ["x", "y"]),
        (1.0, {"mmr_threshold": 0.0}, ["x", "z"]),
        (0.0, {"mmr_threshold": 1.0}, ["x", "y"]),
        (0.0, {"mmr_threshold": 0.0, "mmr_prefetch_factor": 1.0}, ["x", "y"]),
    ],
)
def test_the_threshold_of_marginal_relevance(place, threshold, kwargs, ids):
    with opened(place) as relay:
        store = CRPVectorStore(relay)
        # Their fact ids, which break the tie, are in the order x, y.
        for id_, text, vector in (
            ("x", "one", [1, 0]),
            ("y", "two", [1, 0.01]),
            ("z", "three", [0, 1]),
        ):
            store.add([TextNode(id_=id_, text=text, embedding=vector)])
        query = VectorStoreQuery(
            query_embedding=[1.0, 0.0],
            similarity_top_k=2,
            mode=VectorStoreQueryMode.MMR,
            mmr_threshold=threshold,
        )
        assert store.query(query, **kwargs).ids == ids


def test_text_modes_search_words(place):
    with opened(place) as relay:
        store = CRPVectorStore(relay)
        store.add(
            [TextNode(id_=str(n), text=text, metadata={"n": n}) for n, text in enumerate(FACTS)]
        )
        for mode in (VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE):
            query = VectorStoreQuery(query_str='tulips "AND (', similarity_top_k=2, mode=mode)
            assert store.query(query).ids == ["4"]
        query.query_str, query.filters = "reactor Northfield", one("n", FilterOperator.GT, 1)
        assert store.query(query).ids == ["2"]
        with pytest.raises(RequestError, match="query_str"):
            store.query(VectorStoreQuery(mode=VectorStoreQueryMode.SPARSE))


def test_deleting_a_document_deletes_its_nodes(store):
    store.delete(f"doc-{B}")
    store.delete("unknown")
    assert ask(store) == [C, A]


def test_deleting_nodes_by_id_and_by_filter(store):
    store.delete_nodes([A, "unknown"], filters=one("rank", FilterOperator.EQ, "c"))
    assert store.client.size() == 3
    store.delete_nodes([A])
    assert ask(store) == [C, B]
    store.delete_nodes(filters=one("weight", FilterOperator.LT, 3))
    assert ask(store) == [C]
    with pytest.raises(RequestError, match="clear"):
        store.delete_nodes()


def test_clear_deletes_everything_and_ids_are_free_again(store):
    store.clear()
    assert ask(store) == []
    assert store.get_nodes() == []
    store.add(nodes()[:1])
    assert ask(store) == [A]


async def test_the_asynchronous_twins_do_the_same(place):
    with opened(place) as relay:
        store = CRPVectorStore(relay)
        assert await store.async_add(nodes()) == [A, B, C]
        query = VectorStoreQuery(query_embedding=NEAR, similarity_top_k=3)
        assert (await store.aquery(query)).ids == [C, A, B]
        assert [node.node_id for node in await store.aget_nodes([B])] == [B]
        await store.adelete(f"doc-{B}")
        await store.adelete_nodes([A])
        assert (await store.aquery(query)).ids == [C]
        await store.aclear()
        assert (await store.aquery(query)).ids == []


def test_a_node_comes_back_as_it_was(place):
    given = [
        TextNode(
            id_="full",
            text="A text that counts.",
            metadata={"page": 3, "none": None, "deep": {"a": [1, {"b": 2.5}]}},
            excluded_llm_metadata_keys=["page"],
            excluded_embed_metadata_keys=["none"],
            metadata_separator="; ",
            text_template="{metadata_str} :: {content}",
            start_char_idx=5,
            end_char_idx=25,
            relationships={
                NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", metadata={"t": 1}),
                NodeRelationship.NEXT: RelatedNodeInfo(node_id="next", hash="abc"),
            },
        ),
        IndexNode(id_="index", text="A text that points.", index_id="other"),
        Node(id_="node", text_resource={"text": "A text of a node."}),
    ]
    before = [node.model_dump_json() for node in given]
    with opened(place) as relay:
        store = CRPVectorStore(relay)
        store.add(given)
        assert [node.model_dump_json() for node in given] == before
        found = {node.node_id: node for node in store.get_nodes()}
        for node in given:
            assert type(found[node.node_id]) is type(node)
            assert found[node.node_id].to_dict() == node.to_dict()


def test_adding_a_node_again_changes_it(store):
    changed = nodes()[0]
    changed.metadata, changed.embedding = {"rank": "z"}, [0.0, 1.0]
    store.add([changed])
    assert store.client.size() == 3
    assert ask(store, one("rank", FilterOperator.EQ, "z")) == [A]
    result = store.query(VectorStoreQuery(query_embedding=[0.0, 1.0], similarity_top_k=2))
    assert set(result.ids) == {A, B}
    generation = store.client.generation()
    store.add([changed])
    assert store.client.generation() == generation


@pytest.mark.requirement("009-3.2-5")
def test_vectors_of_another_model_are_refused(store):
    with pytest.raises(EngineError, match="3 numbers"):
        store.add([TextNode(text="three words here", embedding=[1.0, 2.0, 3.0])])
    with pytest.raises(EngineError, match="1 of 2 nodes"):
        store.add([TextNode(text="three words here"), nodes()[0]])
    with pytest.raises(EngineError, match=r"wanted \(n, 2\)"):
        store.query(VectorStoreQuery(query_embedding=[1.0, 2.0, 3.0]))
    assert store.client.size() == 3


def index_over(relay: Relay, documents: list[Document]) -> VectorStoreIndex:
    store = CRPVectorStore(relay)
    return VectorStoreIndex.from_documents(
        documents,
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=store.embed_model,
    )


def test_an_index_over_a_store_on_disk_answers_after_it_was_opened_again(tmp_path):
    documents = [Document(id_=f"d{n}", text=text) for n, text in enumerate(FACTS)]
    with Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY) as relay:
        index_over(relay, documents)
    with Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY) as relay:
        store = CRPVectorStore(relay)
        index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
        engine = index.as_query_engine(
            llm=MockLLM(),
            similarity_top_k=2,
            node_postprocessors=[CRPNodePostprocessor(model="gpt-4o", budget_tokens=80)],
        )
        response = engine.query("Which gardens grow tulips and roses?")
        assert FACTS[4] in str(response)
        assert "crp" not in str(response)
        assert response.source_nodes[0].node.ref_doc_id == "d4"
        index.delete_ref_doc("d4")
        assert FACTS[4] not in str(engine.query("Which gardens grow tulips and roses?"))
        # A document is a source: it can be erased, and the relay answers from it.
        source = source_id("d1")
        (fact,) = relay.fabric.facts(relay.fabric.find(Where(sources=(source,))))
        assert fact.content == FACTS[1]
        answer = relay.ask("Who operates the Meridian reactor?", model="extractive")
        assert "Northfield Energy" in answer.text
        relay.fabric.erase(source)
        assert FACTS[1] not in {node.get_content() for node in store.get_nodes()}
        relay.verify()


async def test_the_retriever_keeps_to_documents(tmp_path):
    with Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY) as relay:
        index = index_over(relay, [Document(id_=f"d{n}", text=t) for n, t in enumerate(FACTS)])
        retriever = index.as_retriever(similarity_top_k=9, doc_ids=["d1", "d2"])
        bundle = QueryBundle("Northfield Energy")
        found = await retriever.aretrieve(bundle)
        assert sorted(scored.node.ref_doc_id for scored in found) == ["d1", "d2"]


def test_both_frameworks_see_the_same_facts(place):
    with Relay.open(place, embedder=HashEmbedder(), key=KEY) as relay:
        LangChainView(relay).add_texts([FACTS[0]], [{"page": 1}], ids=["lc"])
        store = CRPVectorStore(relay)
        store.add([TextNode(id_="li", text=FACTS[1], metadata={"page": 2})])
        added = relay.fabric.add([FACTS[2]])
        (native,) = relay.fabric.find(Where(sources=added.sources, metadata={}))
        seen = {node.node_id: node.metadata for node in store.get_nodes()}
        assert seen["lc"] == {"page": 1}
        documents = LangChainView(relay).similarity_search(FACTS[1], k=3)
        assert (documents[0].id, documents[0].metadata) == ("li", {"page": 2})
        assert len(seen) == len(documents) == 3
        assert native
