"""A LangChain retriever's sources (sessions, vector stores, presets), and the compressor."""

from __future__ import annotations

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations import pack
from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.langchain import CRPDocumentCompressor, CRPRetriever, envelope_text
from crp_integrations.langchain.runs import session_of
from crp_integrations.relay.settings import load
from tests.adapters.langchain_doubles import FACTS, opened

QUESTION = "How much power does the Meridian reactor deliver?"
SESSION = "crp_sess_" + "a" * 20
HELD = "At this moment the Meridian reactor delivers no power at all, since it is being serviced."


def texts(documents):
    return [one.page_content for one in documents]


@pytest.fixture
def store():
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=32))
    made.add_documents([Document(text, id=f"d{n}") for n, text in enumerate(FACTS)])
    return made


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_facts_of_a_session_are_found_in_it_alone(way):
    relay = opened()
    relay.add([HELD], session_id=SESSION, cache="no-store")
    retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=400)

    async def found(retriever, **given):
        if way == "ainvoke":
            return texts(await retriever.ainvoke(QUESTION, **given))
        return texts(retriever.invoke(QUESTION, **given))

    assert HELD not in await found(retriever)
    assert HELD in await found(retriever, session_id=SESSION)
    own = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=400, session_id=SESSION)
    assert HELD in await found(own)
    assert HELD not in await found(own, session_id="crp_sess_" + "b" * 20)


def test_a_session_goes_by_whatever_names_a_conversation():
    """As it does for `CRPRunnable`, whose config names the same session."""
    relay = opened()
    relay.add([HELD], session_id=session_of({"configurable": {"thread_id": 7}}), cache="no-store")
    retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=400, session_id="7")
    assert HELD in texts(retriever.invoke(QUESTION))
    assert HELD not in texts(retriever.invoke(QUESTION, session_id="anna"))


def test_a_vector_store_is_asked_for_its_nearest(store):
    assert len(texts(CRPRetriever.wrap(store, model="gpt-4o").invoke(QUESTION))) == len(FACTS)
    few = CRPRetriever.wrap(store, model="gpt-4o", candidates=2)
    assert set(texts(few.invoke(QUESTION))) == set(texts(store.similarity_search(QUESTION, k=2)))


def test_the_letter_is_chosen_by_name(store):
    retriever = CRPRetriever.wrap(store, model="gpt-4o", budget_tokens=50, preset="literal")
    settings = load(preset="literal")
    envelope = pack(QUESTION, list(FACTS), model="gpt-4o", budget_tokens=50, settings=settings)
    assert texts(retriever.invoke(QUESTION)) == [fact.content for fact in envelope.facts]


def test_what_belongs_to_the_other_origin_is_refused(store):
    with pytest.raises(RequestError, match=r"preset to Relay\.open"):
        CRPRetriever(relay=opened(), model="gpt-4o", preset="literal")
    with pytest.raises(RequestError, match="second_look goes with a source"):
        CRPRetriever(relay=opened(), model="gpt-4o", second_look=2)
    with pytest.raises(RequestError, match="no sessions"):
        CRPRetriever.wrap(store, model="gpt-4o", session_id=SESSION)
    with pytest.raises(RequestError, match="no sessions"):
        CRPRetriever.wrap(store, model="gpt-4o").invoke(QUESTION, session_id=SESSION)


COMPRESSOR_QUESTION = "When was the Meridian reactor commissioned?"
DOCUMENTS = [
    Document(text, id=f"d{n}", metadata={"source": f"{n}.md"}) for n, text in enumerate(FACTS)
]


@pytest.mark.parametrize("budget", [30, 60, 2000])
async def test_what_is_kept_is_the_envelope(budget):
    compressor = CRPDocumentCompressor(model="gpt-4o", budget_tokens=budget)
    kept = compressor.compress_documents(DOCUMENTS, COMPRESSOR_QUESTION)
    assert await compressor.acompress_documents(DOCUMENTS, COMPRESSOR_QUESTION) == kept
    envelope = pack(COMPRESSOR_QUESTION, list(FACTS), model="gpt-4o", budget_tokens=budget)
    assert [one.page_content for one in kept] == [fact.content for fact in envelope.facts]
    assert envelope_text(kept) == envelope.text
    assert counter_for("gpt-4o").count(envelope_text(kept)) <= budget
    for document in kept:
        original = DOCUMENTS[int(document.id[1:])]
        assert document.page_content == original.page_content
        assert document.metadata["source"] == original.metadata["source"]
        assert document.metadata["crp_fact"]["envelope"]["token_budget"] == budget
        assert "crp_fact" not in original.metadata


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_it_stands_in_a_compressing_retriever_and_publishes_its_envelope(way):
    retrievers = pytest.importorskip("langchain_classic.retrievers")
    heard = []

    class All(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return DOCUMENTS

    class Listener(BaseCallbackHandler):
        def on_custom_event(self, name, data, **kwargs):
            heard.append((name, data))

    retriever = retrievers.ContextualCompressionRetriever(
        base_compressor=CRPDocumentCompressor(model="gpt-4o", budget_tokens=2000, k=2),
        base_retriever=All(),
    )
    config = {"callbacks": [Listener()]}
    if way == "ainvoke":
        found = await retriever.ainvoke(COMPRESSOR_QUESTION, config)
    else:
        found = retriever.invoke(COMPRESSOR_QUESTION, config)
    assert found[0].id == "d0" and len(found) == 2
    ((name, envelope),) = heard
    assert name == "crp_envelope"
    assert len(envelope["facts"]) == 2 and len(envelope["dropped"]) == 3


FILLER = "Section {n} lists the visitors of the day; the clerk noted nothing else about them.\n\n"
LONG = (
    "".join(FILLER.format(n=n) for n in range(80)) + "The access code of the north vault is 7741."
)
VAULT_QUESTION = "What is the access code of the north vault?"


class Shelf(BaseRetriever):
    """Gives documents that share a name with the question, and counts its questions."""

    documents: list[Document]
    asked: list[str] = []

    def _get_relevant_documents(self, query, *, run_manager):
        self.asked.append(query)
        return [one for one in self.documents if any(w in query for w in one.metadata["names"])]


def shown_part(document, original):
    """The part of a document that is shown, by its spans."""
    crp = document.metadata["crp_fact"]
    return " \u2026 ".join(original[start:end] for start, end in crp["spans"])


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "compressor"])
async def test_the_end_of_a_document_above_the_budget_is_shown(way):
    short = [Document(text, id=f"d{n}") for n, text in enumerate(FACTS)]
    documents = [*short, Document(LONG, id="long", metadata={"names": ["vault"]})]
    for one in short:
        one.metadata["names"] = ["vault"]
    fields = {"model": "gpt-4o", "budget_tokens": 200}
    if way == "compressor":
        kept = CRPDocumentCompressor(**fields).compress_documents(documents, VAULT_QUESTION)
    else:
        retriever = CRPRetriever.wrap(Shelf(documents=documents), **fields)
        ask = retriever.invoke if way == "invoke" else retriever.ainvoke
        found = ask(VAULT_QUESTION)
        kept = found if way == "invoke" else await found
    (part,) = [one for one in kept if one.id == "long"]
    assert "7741" in part.page_content
    assert part.page_content == shown_part(part, LONG)
    assert part.metadata["crp_fact"]["content_hash"]
    assert counter_for("gpt-4o").count(envelope_text(kept)) <= 200


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_second_look_finds_what_the_first_documents_lead_to(way):
    first = "The Silver Harbour was directed by Anna Lindqvist in the spring of 1962."
    second = "Lindqvist, the Swedish director, was born in the town of Varde."
    documents = [
        Document(first, id="a", metadata={"names": ["Silver Harbour"]}),
        Document(second, id="b", metadata={"names": ["Lindqvist"]}),
    ]
    question = "Where was the director of The Silver Harbour born?"

    async def found(**fields):
        shelf = Shelf(documents=documents, asked=[])
        retriever = CRPRetriever.wrap(shelf, model="gpt-4o", budget_tokens=300, **fields)
        got = retriever.invoke(question) if way == "invoke" else await retriever.ainvoke(question)
        return {one.id for one in got}, len(shelf.asked)

    assert await found() == ({"a"}, 1)
    ids, asked = await found(second_look=4)
    assert ids == {"a", "b"} and 1 < asked <= 5


def test_chunks_of_one_source_say_where_they_stand():
    chunk = Document("A chunk of a report.", metadata={"source": "a.md", "start_index": 40})
    (kept,) = CRPDocumentCompressor(model="gpt-4o").compress_documents([chunk], "A report?")
    assert kept.metadata["crp_fact"]["source_location"] == "40-60"
