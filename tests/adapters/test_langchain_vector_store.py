from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    VectorStoreIntegrationTests,
)
from langchain_tests.unit_tests import EmbeddingsUnitTests

from crp_integrations import Relay
from crp_integrations.adapters.vector_stores import ITEM_KEY
from crp_integrations.engines.embeddings import LangChainEmbedder
from crp_integrations.errors import FactRejected, IllegalTransition, RequestError
from crp_integrations.fabric.records import Where, source_id
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.langchain import CRPVectorStore, FabricEmbeddings
from crp_integrations.relay.settings import Settings
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType
from tests.doubles import NOON, FixedClock, HashEmbedder
from tests.relay.conftest import FACTS, KEY

SHORT = FabricSettings(chunking=ChunkingSettings(min_fact_tokens=1))


class _Suite(VectorStoreIntegrationTests):
    """LangChain's own suite, whose texts have one word: the length rule is opened for it."""

    def relay(self, store: object) -> Relay:
        embedder = LangChainEmbedder(self.get_embeddings(), "langchain-tests/6")
        settings = Settings(fabric=SHORT, key=KEY)
        return Relay.open(store, embedder=embedder, settings=settings)


class TestInMemory(_Suite):
    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        with self.relay(MemoryStore()) as relay:
            yield CRPVectorStore(relay)


class TestOnDisk(_Suite):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:
        with self.relay(SqliteStore(tmp_path / "kb")) as relay:
            yield CRPVectorStore(relay)


@pytest.fixture(params=["memory", "sqlite"])
def relay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relay]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    with Relay.open(store, embedder=HashEmbedder(), key=KEY, clock=FixedClock()) as opened:
        yield opened


@pytest.fixture
def store(relay: Relay) -> CRPVectorStore:
    made = CRPVectorStore(relay)
    made.add_texts(
        list(FACTS),
        [{"source": "meridian.md", "page": n, "tags": ["a", n]} for n in range(len(FACTS))],
        ids=[f"doc-{n}" for n in range(len(FACTS))],
    )
    return made


def journal(relay: Relay) -> list:
    with relay.fabric.begin(write=False) as transaction:
        return list(transaction.journal.events())


def test_scores_are_cosines_and_the_callers_metadata_come_back_as_they_were(store):
    (document, score), *rest = store.similarity_search_with_score(FACTS[1], k=3)
    assert document == Document(
        id="doc-1",
        page_content=FACTS[1],
        metadata={"source": "meridian.md", "page": 1, "tags": ["a", 1]},
    )
    assert score == pytest.approx(1.0, abs=1e-6)
    assert all(score >= other for _, other in rest)
    ((_, relevance),) = store.similarity_search_with_relevance_scores(FACTS[1], k=1)
    assert relevance == pytest.approx(score)


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ({"page": 2}, {"doc-2"}),
        ({"page": 2, "source": "meridian.md"}, {"doc-2"}),
        ({"page": 2, "source": "other.md"}, set()),
        ({"tags": ["a", 4]}, {"doc-4"}),
        ({"nothing": None}, set()),
        (Where(sources=(source_id("meridian.md"),)), {f"doc-{n}" for n in range(5)}),
    ],
)
def test_a_filter_is_looked_up_before_anything_is_ranked(store, filter, ids):
    assert {d.id for d in store.similarity_search(FACTS[0], k=9, filter=filter)} == ids
    vector = store.embeddings.embed_query(FACTS[0])
    assert {d.id for d in store.similarity_search_by_vector(vector, k=9, filter=filter)} == ids
    assert {d.id for d in store.max_marginal_relevance_search(FACTS[0], k=9, filter=filter)} == ids


@pytest.mark.parametrize(
    ("filter", "named"),
    [
        ({"page": {"$gt": 2}}, "$gt"),
        ({"$or": []}, "$or"),
        (lambda d: True, "function"),
        ({"since": date(2026, 5, 25)}, "'since' of type date"),
        ({"page": {1, 2}}, "'page' of type set"),
        ({1: 2}, "key of type int"),
        ({"source": "\ud800"}, "'source' of type str"),
    ],
)
def test_a_filter_that_cannot_be_applied_is_refused_by_name(store, filter, named):
    with pytest.raises(RequestError, match=named.replace("$", r"\$")):
        store.similarity_search("reactor", filter=filter)


def test_marginal_relevance_prefers_what_differs(store):
    store.add_texts([FACTS[0] + " Again."], ids=["twin"])
    alike = store.max_marginal_relevance_search(FACTS[0], k=2, lambda_mult=1.0)
    assert [d.id for d in alike] == ["doc-0", "twin"]
    apart = store.max_marginal_relevance_search(FACTS[0], k=2, lambda_mult=0.2)
    assert apart[0].id == "doc-0"
    assert apart[1].id != "twin"
    with pytest.raises(RequestError, match="wanted 0 to 1"):
        store.max_marginal_relevance_search(FACTS[0], lambda_mult=1.5)


@pytest.mark.requirement("009-2-8")
def test_metadata_that_are_not_plain_json_are_refused_and_nothing_is_stored(store):
    before = store.namespace.size()
    for value in (NOON, {1: "a"}, float("nan"), (1, 2), {"deep": {3, 4}}, "\ud800"):
        with pytest.raises(FactRejected, match="'when'"):
            store.add_texts([FACTS[0], FACTS[1]], [{}, {"when": value}], ids=["x", "y"])
    with pytest.raises(FactRejected, match=ITEM_KEY):
        store.add_texts([FACTS[0]], [{ITEM_KEY: {}}])
    assert store.namespace.size() == before
    deep = {"none": None, "list": [1, 2.5, "x", [True]], "object": {"a": {"b": None}}, "big": 2**60}
    store.add_texts([FACTS[0]], [deep], ids=["deep"])
    assert store.get_by_ids(["deep"])[0].metadata == deep


@pytest.mark.requirement("009-2.1-2")
def test_short_chunks_are_taken_and_empty_or_too_long_ones_refused_with_what_to_set(store):
    before = store.namespace.state_hash()
    for text, error in (
        ("", "item 2 has the empty text ''; leave it out"),
        (" \n", "item 2 has the empty text"),
        ("word " * 5000, "max_fact_tokens"),
    ):
        with pytest.raises(FactRejected, match=error):
            store.add_texts([FACTS[0] + " New.", text])
    assert store.namespace.state_hash() == before
    store.add_texts(["Fee: 40 euros"], ids=["fee"])
    assert store.get_by_ids(["fee"])[0].page_content == "Fee: 40 euros"
    assert store.similarity_search("Fee: 40 euros", k=1)[0].id == "fee"


@pytest.mark.requirement("009-8.3-1")
def test_texts_without_a_source_are_erased_by_the_call_that_added_them(store):
    namespace = store.namespace
    first = store.add_texts(["Fee: 40 euros", "Deposit: 300 euros"])
    (second,) = store.add_texts(["Notice: 3 months"])
    (pets,) = store.add_texts(["Pets: allowed"], [{"source": "rules.md"}])
    # A later call that changes an item leaves it in its source.
    store.add_texts(["Fee: 50 euros"], ids=[first[0]])
    erased = namespace.erase(namespace.facts(first)[0].source_id)
    assert set(erased.facts) == set(first)
    assert [fact.fact_id for fact in namespace.facts([*first, second, pets])] == [second, pets]


@pytest.mark.requirement("009-2-4", "009-3.3-4", "009-6.2-1")
def test_an_id_that_exists_is_changed_in_place(store, relay):
    (fact,) = store.namespace.facts(store.namespace.find(Where(metadata={"page": 3})))
    before = store.namespace.state_hash()
    relay._world.clock.moment = NOON.replace(hour=13)
    new = "The cooling towers draw sea water from the harbour in every season of the year."
    assert store.add_texts([new], [{"page": 33}], ids=["doc-3"]) == ["doc-3"]
    assert store.namespace.size() == len(FACTS)
    (changed,) = store.namespace.facts([fact.fact_id])
    assert (changed.content, changed.ingested_at) == (new, fact.ingested_at)
    assert changed.content_hash != fact.content_hash
    assert changed.modified_at > fact.modified_at
    assert store.namespace.state_hash() != before
    assert store.similarity_search(new, k=1)[0].metadata == {"page": 33}
    assert store.similarity_search(new, k=1, filter={"page": 3}) == []
    assert FACTS[3] not in {d.page_content for d in store.similarity_search(FACTS[3], k=9)}


def test_a_batch_with_one_bad_text_changes_nothing(store):
    before = store.namespace.state_hash()
    with pytest.raises(FactRejected, match="given twice"):
        store.add_texts([FACTS[0], FACTS[1]], ids=["new", "new"])
    with pytest.raises(RequestError, match="3 ids were given for 2 texts"):
        store.add_texts([FACTS[0], FACTS[1]], ids=["a", "b", "c"])
    assert store.namespace.state_hash() == before


def test_without_ids_equal_documents_are_one(store):
    first = store.add_texts([FACTS[0]] * 2, [{"page": 1}, {"page": 2}])
    again = store.add_texts([FACTS[0]] * 2, [{"page": 2}, {"page": 1}])
    assert len(set(first)) == 2
    assert again == first[::-1]


@pytest.mark.requirement("009-3.3-2", "009-2.2-9")
def test_a_deleted_id_is_gone_at_once_and_free_again(store):
    store.delete(["doc-1", "not there"])
    assert store.get_by_ids(["doc-1"]) == []
    assert "doc-1" not in {d.id for d in store.similarity_search(FACTS[1], k=9)}
    store.add_texts([FACTS[1]], ids=["doc-1"])
    assert store.similarity_search(FACTS[1], k=1)[0].id == "doc-1"
    assert store.namespace.size() == len(FACTS)


def test_an_item_named_by_its_id_and_by_that_of_its_fact_comes_once(store):
    (fact_id,) = store.namespace.find(Where(metadata={"page": 1}))
    assert [d.id for d in store.get_by_ids(["doc-1", fact_id, "doc-2"])] == ["doc-1", "doc-2"]


def test_marginal_relevance_leaves_out_what_is_withdrawn_while_it_chooses(store, monkeypatch):
    vectors = store.namespace.vectors

    def withdrawn(ids):
        monkeypatch.setattr(store.namespace, "vectors", vectors)
        store.delete(["doc-1"])
        return vectors(ids)

    monkeypatch.setattr(store.namespace, "vectors", withdrawn)
    found = store.max_marginal_relevance_search(FACTS[1], k=9, lambda_mult=1.0)
    assert {d.id for d in found} == {f"doc-{n}" for n in range(len(FACTS))} - {"doc-1"}


def test_delete_without_ids_empties_the_store(store):
    store.delete()
    assert store.similarity_search(FACTS[0], k=9) == []
    assert store.namespace.size() == 0


@pytest.mark.requirement("009-2-5", "009-4.5-3")
def test_the_registry_names_the_source_and_counts_its_facts(store):
    store.add_texts([FACTS[0]], [{"source": "other.md"}], ids=["moved"])
    registry = {s.uri: s for s in store.namespace.sources()}
    assert registry["meridian.md"].fact_count == len(FACTS)
    assert registry["other.md"].source_id == source_id("other.md")
    store.add_texts([FACTS[4]], [{"source": "other.md"}], ids=["doc-4"])
    store.delete(["doc-3"])
    counts = {s.uri: s.fact_count for s in store.namespace.sources()}
    assert counts == {"meridian.md": len(FACTS) - 2, "other.md": 2}


def test_the_journal_tells_what_was_put_without_a_word_of_it(store, relay):
    store.add_texts([FACTS[0] + " Then more."], [{"source": "meridian.md"}], ids=["doc-0"])
    told = [e for e in journal(relay) if e.event_type == EventType.FACT_INGESTED]
    assert len(told[0].data["facts"]) == len(FACTS)
    assert [len(e.data["changed"]) for e in told[1:]] == [1]
    text = "".join(e.model_dump_json() for e in journal(relay))
    assert not [word for word in ("Meridian", "meridian.md", "doc-0") if word in text]
    relay.verify()


def test_a_quarantined_document_is_not_changed_and_not_shown(store, relay):
    (id_,) = store.namespace.find(Where(metadata={"page": 0}))
    store.namespace.quarantine([id_], "false")
    assert store.get_by_ids(["doc-0"]) == []
    with pytest.raises(IllegalTransition, match="QUARANTINED"):
        store.add_texts([FACTS[0]], ids=["doc-0"])


def test_facts_that_the_relay_ingested_are_documents_too(relay, tmp_path):
    (tmp_path / "a.md").write_text(FACTS[0])
    (source,) = relay.ingest(tmp_path / "a.md").sources
    (found,) = CRPVectorStore(relay).similarity_search(FACTS[0], k=4)
    assert (found.page_content, found.metadata["source"]) == (FACTS[0], source)
    assert CRPVectorStore(relay).get_by_ids([found.id]) == [found]
    CRPVectorStore(relay).delete([found.id])
    assert relay.fabric.size() == 0


async def test_it_is_a_retriever_synchronous_and_not(store):
    retriever = store.as_retriever(search_kwargs={"k": 2, "filter": {"source": "meridian.md"}})
    assert retriever.invoke(FACTS[1])[0].id == "doc-1"
    assert await retriever.ainvoke(FACTS[1]) == retriever.invoke(FACTS[1])
    diverse = store.as_retriever(search_type="mmr", search_kwargs={"k": 2})
    assert await diverse.ainvoke(FACTS[1]) == diverse.invoke(FACTS[1])
    close = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.99}
    )
    assert [d.id for d in close.invoke(FACTS[1])] == ["doc-1"]


def test_from_texts_opens_a_store_of_its_own(tmp_path):
    embeddings = FabricEmbeddings(HashEmbedder())
    made = CRPVectorStore.from_texts(
        list(FACTS), embeddings, ids=list("abcde"), store=tmp_path / "kb", key=KEY
    )
    made.relay.close()
    with Relay.open(tmp_path / "kb", embedder=embeddings.embedder, key=KEY) as again:
        assert CRPVectorStore(again).get_by_ids(["c"])[0].page_content == FACTS[2]
        other = CRPVectorStore.from_documents(
            [Document(FACTS[0] + " Then more.", id="f")], embeddings, place=again
        )
        assert other.namespace.size() == 6
        other_model = HashEmbedder()
        other_model.identity = "other/256"
        with pytest.raises(RequestError, match="hash-embedder"):
            CRPVectorStore.from_texts([], FabricEmbeddings(other_model), place=again)
        with pytest.raises(RequestError, match="give one of them"):
            CRPVectorStore.from_texts([], place=again, store=tmp_path)


def test_langchains_indexing_keeps_the_store_like_its_documents(store):
    store.delete()
    records = InMemoryRecordManager("crp")
    records.create_schema()
    documents = [Document(text, metadata={"source": f"{n}.md"}) for n, text in enumerate(FACTS)]
    keeping = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    assert index(documents, records, store, **keeping)["num_added"] == len(FACTS)
    assert index(documents, records, store, **keeping)["num_skipped"] == len(FACTS)
    changed = [Document(FACTS[0] + " Then more.", metadata={"source": "0.md"}), *documents[1:]]
    done = index(changed, records, store, **keeping)
    assert (done["num_added"], done["num_deleted"]) == (1, 1)
    texts = {d.page_content for d in store.similarity_search(FACTS[0], k=9)}
    assert texts == {FACTS[0] + " Then more.", *FACTS[1:]}


class TestEmbeddingsUnitSuite(EmbeddingsUnitTests):
    @property
    def embeddings_class(self):
        return FabricEmbeddings

    @property
    def embedding_model_params(self):
        return {"embedder": HashEmbedder()}


class TestEmbeddingsSuite(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self):
        return FabricEmbeddings

    @property
    def embedding_model_params(self):
        return {"embedder": HashEmbedder()}
