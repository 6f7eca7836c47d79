"""Between LangChain documents and facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langchain_core.documents import Document

from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.render import render
from crp_integrations.fabric.records import Fact

METADATA_KEY = "crp"


def envelope_text(documents: Iterable[Document]) -> str:
    """The documents as the model is to see them: the envelope's text, without metadata.

    Use it behind a retriever: `{"context": retriever | envelope_text, …}`. Formatting
    documents in other ways can print their metadata into the prompt.

    Spec: CRP-SPEC-003 §7.4
    """
    return render([document.page_content for document in documents])


def documents_of(envelope: Envelope, originals: Mapping[str, Document]) -> list[Document]:
    """An envelope's facts as documents in their order.

    Args:
        originals: documents by fact id; their own id and metadata are kept, on a copy.

    Returns:
        Documents with one more metadata key, `crp`: plain JSON about fact and envelope.
    """
    about = {
        "etag": envelope.etag,
        "state_hash": envelope.state_hash,
        "quality_tier": envelope.quality_tier.value,
        "token_count": envelope.token_count,
        "token_budget": envelope.token_budget,
    }
    made = []
    for fact in envelope.facts:
        original = originals.get(fact.fact_id)
        detail = fact.model_dump(mode="json", exclude={"content"})
        made.append(
            Document(
                id=original.id if original is not None else fact.fact_id,
                page_content=fact.content,
                metadata={
                    **(original.metadata if original is not None else {}),
                    METADATA_KEY: {**detail, "envelope": about},
                },
            )
        )
    return made


def facts_of(documents: Sequence[Document]) -> tuple[list[Fact], dict[str, Document]]:
    """Documents of a retriever as facts, and the documents by fact id.

    Documents without text hold nothing to pack and are left out. Equal ids count once.
    """
    facts: list[Fact] = []
    originals: dict[str, Document] = {}
    for document in documents:
        if not document.page_content:
            continue
        fact = Fact(
            content=document.page_content,
            fact_id=document.id or "",
            source_id=str(document.metadata.get("source", "user")),
            source_location=str(document.metadata.get("start_index", "")),
        )
        if fact.fact_id not in originals:
            originals[fact.fact_id] = document
            facts.append(fact)
    return facts, originals
