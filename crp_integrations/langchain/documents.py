"""Between LangChain documents and facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from langchain_core.documents import Document
from pydantic import ValidationError

from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.render import render
from crp_integrations.errors import FactRejected
from crp_integrations.fabric.records import Fact

METADATA_KEY = "crp"
# Of a content's hash, `sha256:…`, what tells texts with one document id apart.
HASH_PART = slice(7, 19)


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

    Documents without text hold nothing to pack and are left out; equal ones count once. Vector
    stores use ids again, so where an id stands for several texts, each becomes a fact of its
    own, named `ID#` and the start of its text's hash.

    Raises:
        FactRejected: a document's text, id or source cannot be encoded as UTF-8.
    """
    made = [
        (_fact(number, document), document)
        for number, document in enumerate(documents, start=1)
        if document.page_content
    ]
    texts: dict[str, set[str]] = defaultdict(set)
    for fact, _ in made:
        texts[fact.fact_id].add(fact.content_hash)
    facts: list[Fact] = []
    originals: dict[str, Document] = {}
    for fact, document in made:
        if len(texts[fact.fact_id]) > 1:
            fact = fact.changed(fact_id=f"{fact.fact_id}#{fact.content_hash[HASH_PART]}")
        if fact.fact_id not in originals:
            originals[fact.fact_id] = document
            facts.append(fact)
    return facts, originals


def _fact(number: int, document: Document) -> Fact:
    source, start = document.metadata.get("source"), document.metadata.get("start_index")
    try:
        fact = Fact(
            content=document.page_content,
            fact_id=document.id or "",
            source_id=str(source or "user"),
            source_location="" if start is None else str(start),
        )
        (fact.fact_id + fact.source_id + fact.source_location).encode()
    except (ValidationError, UnicodeEncodeError):
        # The library's message would quote the text.
        raise FactRejected(f"document {number} is not text that can be encoded as UTF-8") from None
    return fact
