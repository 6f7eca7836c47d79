"""Documents of a chain packed into a budget."""

from __future__ import annotations

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from crp_integrations import pack
from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.langchain import CRPDocumentCompressor, envelope_text
from tests.relay.conftest import FACTS

QUESTION = "When was the Meridian reactor commissioned?"
DOCUMENTS = [
    Document(text, id=f"d{n}", metadata={"source": f"{n}.md"}) for n, text in enumerate(FACTS)
]


@pytest.mark.parametrize("budget", [30, 60, 2000])
async def test_what_is_kept_is_the_envelope(budget):
    compressor = CRPDocumentCompressor(model="gpt-4o", budget_tokens=budget)
    kept = compressor.compress_documents(DOCUMENTS, QUESTION)
    assert await compressor.acompress_documents(DOCUMENTS, QUESTION) == kept
    envelope = pack(QUESTION, list(FACTS), model="gpt-4o", budget_tokens=budget)
    assert [one.page_content for one in kept] == [fact.content for fact in envelope.facts]
    assert envelope_text(kept) == envelope.text
    assert counter_for("gpt-4o").count(envelope_text(kept)) <= budget
    for document in kept:
        original = DOCUMENTS[int(document.id[1:])]
        assert document.page_content == original.page_content
        assert document.metadata["source"] == original.metadata["source"]
        assert document.metadata["crp"]["envelope"]["token_budget"] == budget
        assert "crp" not in original.metadata


def test_nothing_comes_of_nothing():
    assert list(CRPDocumentCompressor(model="gpt-4o").compress_documents([], QUESTION)) == []


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(RequestError, match="CRPDocumentCompressor has no field 'budget'"):
        CRPDocumentCompressor(model="gpt-4o", budget=60)


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
        found = await retriever.ainvoke(QUESTION, config)
    else:
        found = retriever.invoke(QUESTION, config)
    assert found[0].id == "d0" and len(found) == 2
    ((name, envelope),) = heard
    assert name == "crp_envelope"
    assert len(envelope["facts"]) == 2 and len(envelope["dropped"]) == 3
