"""What documents and facts do to what is stored: the decisions of an ingestion, without I/O.

Everything here reads one transaction and returns values; `ingestion.py` carries them out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crp_integrations.errors import FactRejected, IngestError
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Document, Fact, Source, source_id
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import FactStatus, SourceKind, SourceStatus

USER_SOURCE = "user"


@dataclass(frozen=True, slots=True)
class Change:
    """What one document, or some facts made by hand, does to one source.

    Attributes:
        source: the registry entry as it will be.
        new: facts that no stored fact of the source says.
        returned: ids of stale facts whose text is back.
        vanished: ids of active facts whose text is gone.
    """

    source: Source
    new: tuple[Fact, ...]
    returned: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


def entry(
    document: Document,
    stored: Source | None,
    *,
    kind: SourceKind | None,
    labels: tuple[str, ...],
    now: datetime,
) -> Source:
    """The registry entry that the document will have.

    The caller's kind wins over the document's own, since who ingests decides what to trust.
    Labels add up. A document that names neither keeps what is stored.

    Raises:
        IngestError: kind or labels differ from what is stored.
    """
    own_kind = kind or document.kind
    own_labels = tuple(sorted({*labels, *document.labels}))
    if stored is not None:
        # Facts keep the labels they were stored with, so a silent change would unprotect them.
        if own_kind is not None and own_kind is not stored.kind:
            raise IngestError(
                f"{document.uri} is stored as kind {stored.kind.value!r}, not {own_kind.value!r}"
            )
        if own_labels and own_labels != stored.labels:
            raise IngestError(
                f"{document.uri} is stored with labels {list(stored.labels)}, "
                f"not {list(own_labels)}"
            )
    return Source(
        source_id=source_id(document.uri),
        title=document.title,
        uri=document.uri,
        document_hash=document.document_hash,
        kind=stored.kind if stored else own_kind or SourceKind.USER,
        ingested_at=now,
        status=SourceStatus.UPDATED if stored else SourceStatus.ACTIVE,
        labels=stored.labels if stored else own_labels,
        metadata=document.metadata,
    )


def compare(facts: FactsFacet, source: Source, made: Sequence[Fact]) -> Change:
    """Compare what a document says now with what is stored of it.

    Spec: CRP-SPEC-009 §4.5

    A passage is still there when its id is, or else when its text is; it then keeps its fact.
    A passage that was withdrawn from retrieval stays withdrawn.
    """
    stored = {fact.fact_id: fact for fact in facts.of_source(source.source_id)}
    kept = {fact.fact_id for fact in made if fact.fact_id in stored}
    by_text: dict[str, list[str]] = defaultdict(list)
    for id_, old in stored.items():
        if id_ not in kept:
            by_text[old.content_hash].append(id_)
    new: list[Fact] = []
    for fact in made:
        if fact.fact_id in stored:
            continue
        same = by_text.get(fact.content_hash)
        if same:
            kept.add(same.pop(0))
        else:
            new.append(fact)
    return Change(
        source.changed(fact_count=len(kept) + len(new)),
        tuple(new),
        tuple(i for i in sorted(kept) if stored[i].status is FactStatus.STALE),
        tuple(i for i in sorted(stored) if i not in kept and stored[i].status is FactStatus.ACTIVE),
    )


def additions(facts: FactsFacet, given: Sequence[Fact], now: datetime) -> list[Change]:
    """What facts made by hand do to their sources; those stored already do nothing.

    Raises:
        FactRejected: a fact is stored with other labels.
    """
    stored = {fact.fact_id: fact for fact in facts.get([fact.fact_id for fact in given])}
    fresh: dict[str, list[Fact]] = defaultdict(list)
    for fact in given:
        known = stored.get(fact.fact_id)
        if known is None:
            fresh[fact.source_id].append(fact)
        elif known.labels != fact.labels:
            raise FactRejected(
                f"fact {fact.fact_id} is stored with labels {list(known.labels)}, "
                f"not {list(fact.labels)}"
            )
    changes: list[Change] = []
    for name, made in fresh.items():
        source = facts.source(name)
        if source is None:
            source = Source(
                source_id=name,
                title=name,
                uri=f"{USER_SOURCE}:{name}",
                document_hash=sha256(""),
                kind=made[0].kind,
                ingested_at=now,
            )
        if source.uri == f"{USER_SOURCE}:{name}":
            # No document lies behind these facts: the hash is that of their hashes.
            hashes = [fact.content_hash for fact in facts.of_source(name)]
            hashes += [fact.content_hash for fact in made]
            source = source.changed(document_hash=sha256("|".join(sorted(hashes))))
        source = source.changed(fact_count=source.fact_count + len(made))
        changes.append(Change(source, tuple(made)))
    return changes


def event(change: Change) -> dict[str, Any]:
    """Ids and hashes of what a source brought; never text, title or URI."""
    return {
        "source": change.source.source_id,
        "document_hash": change.source.document_hash,
        "facts": [fact.fact_id for fact in change.new],
        "active_again": list(change.returned),
        "stale": list(change.vanished),
    }
