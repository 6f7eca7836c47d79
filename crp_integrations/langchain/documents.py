"""Conversion between LangChain documents and facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from langchain_core.documents import Document

from crp_integrations.adapters import evidence
from crp_integrations.adapters.evidence import OfferedFact, fact_metadata
from crp_integrations.adapters.vector_stores import item_metadata
from crp_integrations.envelope.prompt import render
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact

METADATA_KEY = "crp"
RECEIPT_KEY = "crp_receipt"


def envelope_text(documents: Iterable[Document]) -> str:
    """The documents as the model is to see them: the envelope's text, without metadata.

    Use it behind a retriever: `{"context": retriever | envelope_text, …}`. Formatting
    documents in other ways can print their metadata into the prompt.

    Spec: CRP-SPEC-003 §7.4

    Raises:
        RequestError: they are no documents.
    """
    return render([document.page_content for document in _checked(documents)])


def documents_of(envelope: Envelope, originals: Mapping[str, Document]) -> list[Document]:
    """An envelope's facts as documents in their order."""
    made = []
    for place, fact in enumerate(envelope.facts):
        original = originals.get(fact.fact_id)
        own = original.metadata if original is not None else {}
        made.append(
            Document(
                id=original.id if original is not None else fact.fact_id,
                page_content=fact.content,
                metadata={**own, METADATA_KEY: fact_metadata(envelope, place)},
            )
        )
    return made


def stored_document(fact: Fact) -> Document:
    """A stored fact as a document: with the id and metadata it was added with.

    One that no vector-store view has added has its fact id, and its source id as `source`.
    """
    id_, metadata = item_metadata(fact)
    return Document(id=id_, page_content=fact.content, metadata=metadata)


def offers(documents: Iterable[Document]) -> Iterator[OfferedFact[Document]]:
    """Documents of a retriever as offers, with the source and place that loaders note."""
    for document in _checked(documents):
        source = document.metadata.get("source")
        start = document.metadata.get("start_index")
        yield OfferedFact(
            document,
            document.page_content,
            fact_id=document.id or "",
            source_id=str(source or "user"),
            source_location="" if start is None else str(start),
        )


def facts_of(documents: Iterable[Document]) -> tuple[list[Fact], dict[str, Document]]:
    """Documents of a retriever as facts, and the documents by fact id."""
    return evidence.facts_of(offers(documents), noun="document")


def _checked(documents: object) -> Iterator[Document]:
    # One document is a sequence of its fields.
    if isinstance(documents, str | Document) or not isinstance(documents, Iterable):
        raise RequestError(f"documents is {type(documents).__name__}; give a list of Documents")
    for number, document in enumerate(documents, 1):
        if not isinstance(document, Document):
            raise RequestError(
                f"document {number} is {type(document).__name__}; give a Document, such as "
                "Document(page_content=text)"
            )
        yield document
