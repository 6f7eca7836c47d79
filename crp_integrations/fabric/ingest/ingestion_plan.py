"""What documents and facts change of what is stored: the decisions of an ingestion, without I/O.

Everything here reads one transaction and returns values; `ingestion_batch` and `fact_upsert` carry
them out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from crp_integrations.errors import FactRejected
from crp_integrations.fabric.ingest.document_passages import PassageIds
from crp_integrations.fabric.life.lifecycle import has_outlived
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import (
    Document,
    Fact,
    Source,
    StreamedDocument,
    Where,
    source_id,
)
from crp_integrations.seals import digest, sha256
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus, SourceKind, SourceStatus

USER_SOURCE = "user"
# In a source's metadata: no document lies behind it, its facts were put one by one.
COLLECTED = "collected"
_STEP = 512


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What one document, or some facts made by hand, does to one source.

    Attributes:
        source: the registry entry as it will be.
        new: places, ascending, of the passages that no stored fact of the source says.
        revived: ids of the new ones that lie in the store as deleted rows, which make room.
        known: ids of stored facts of the source by content hash; their vectors serve new facts of
            equal text.
        returned: ids of stale facts whose text is back.
        vanished: ids of active facts whose text is gone.
        relabelled: ids of facts that get the source's new kind, labels or metadata.
        metadata: of the source as it is stored, which its facts were given.
        restored: ids of archived facts that were given again by hand.
        ttl: of the new facts, and of those that are relabelled; None leaves theirs.
    """

    source: Source
    new: Sequence[int]
    revived: frozenset[str] = frozenset()
    known: Mapping[str, str] = field(default_factory=dict)
    returned: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    restored: tuple[str, ...] = ()
    ttl: str | None = None


def source_entry(
    document: Document | StreamedDocument,
    stored: Source | None,
    *,
    kind: SourceKind | None,
    labels: tuple[str, ...],
    now: datetime,
) -> Source:
    """The registry entry that the document will have.

    Spec: CRP-SPEC-009 §4.5
    """
    own_kind = kind or document.kind
    own_labels = tuple(sorted({*labels, *document.labels}))
    status = SourceStatus.ACTIVE
    if stored is not None and stored.status is not SourceStatus.REMOVED:
        same = stored.document_hash == document.document_hash
        status = stored.status if same else SourceStatus.UPDATED
    return Source(
        source_id=source_id(document.uri),
        title=document.title,
        uri=document.uri,
        document_hash=document.document_hash,
        kind=own_kind or (stored.kind if stored else SourceKind.USER),
        ingested_at=now,
        status=status,
        labels=own_labels or (stored.labels if stored else ()),
        metadata=dict(document.metadata),
    )


def is_unchanged(source: Source, stored: Source | None) -> bool:
    """Whether a document would leave everything as it is stored, but for STALE facts."""
    return (
        stored is not None
        and stored.status is not SourceStatus.REMOVED
        and stored.document_hash == source.document_hash
        and (stored.kind, stored.labels, stored.metadata)
        == (source.kind, source.labels, source.metadata)
    )


def sources_with_stale(facts: FactsFacet, ids: Iterable[str], now: datetime) -> set[str]:
    """Those of the sources that have STALE facts whose time to live is not over."""
    sources = tuple(sorted(ids))
    if not sources:
        return set()
    stale = facts.find(Where(statuses=(FactStatus.STALE,), sources=sources))
    return {
        fact.source_id
        for start in range(0, len(stale), _STEP)
        for fact in facts.get(stale[start : start + _STEP])
        if not has_outlived(fact, now)
    }


def of_another_ttl(facts: FactsFacet, uris: Iterable[str], ttl: str | None) -> set[str]:
    """Those of the URIs whose stored facts do not all have this time to live; none without one."""
    return {
        uri
        for uri in sorted(uris)
        if ttl is not None
        and any(
            fact.ttl != ttl and fact.status is not FactStatus.DELETED
            for fact in facts.of_source(source_id(uri))
        )
    }


def compare_document(
    facts: FactsFacet,
    source: Source,
    passage_ids: PassageIds,
    stored: Source | None,
    *,
    ttl: str | None = None,
) -> SourceChange:
    """Compare what a document says now with what is stored of it; no texts are read.

    Spec: CRP-SPEC-009 §4.5
    """
    passages = facts.passages(source.source_id)
    if not passages:
        return SourceChange(
            source.changed(fact_count=len(passage_ids)), range(len(passage_ids)), ttl=ttl
        )
    # Facts made by hand may have brought a removed source back; then it has no document.
    removed = (
        stored is None
        or stored.status is SourceStatus.REMOVED
        or stored.metadata.get(COLLECTED) is True
    )
    known = {content_hash: id_ for id_, content_hash, _ in passages}
    buried = {i for i, _, status in passages if removed and status is FactStatus.DELETED}
    states = {id_: status for id_, _, status in passages if id_ not in buried}
    kept_ids, new = _matched(passage_ids, [p for p in passages if p[0] not in buried])
    old = (stored.kind, stored.labels, stored.metadata) if stored else None
    new_ids = {passage_ids.id(place) for place in new} if buried else set()
    return SourceChange(
        source.changed(
            fact_count=len(new) + sum(states[i] is not FactStatus.DELETED for i in kept_ids)
        ),
        new,
        frozenset(buried & new_ids),
        known,
        _alive(facts, [i for i in sorted(kept_ids) if states[i] is FactStatus.STALE], source, ttl),
        tuple(i for i in sorted(states) if i not in kept_ids and states[i] is FactStatus.ACTIVE),
        ()
        if ttl is None and old == (source.kind, source.labels, source.metadata)
        else tuple(i for i in sorted(states) if states[i] is not FactStatus.DELETED),
        stored.metadata if stored else {},
        ttl=ttl,
    )


def _matched(
    passage_ids: PassageIds, passages: Sequence[tuple[str, str, FactStatus]]
) -> tuple[set[str], list[int]]:
    """Ids of stored passages that the document still says, and the places of the others."""
    ids = {id_ for id_, _, _ in passages}
    document_ids = [passage_ids.id(place) for place in range(len(passage_ids))]
    kept_ids = {id_ for id_ in document_ids if id_ in ids}
    by_text: dict[str, list[str]] = defaultdict(list)
    for id_, content_hash, _ in reversed(passages):
        if id_ not in kept_ids:
            by_text[content_hash].append(id_)
    new: list[int] = []
    for place, id_ in enumerate(document_ids):
        if id_ in ids:
            continue
        same = by_text.get(passage_ids.content_hash(place))
        if same:
            kept_ids.add(same.pop())
        else:
            new.append(place)
    return kept_ids, new


def _alive(
    facts: FactsFacet, ids: Sequence[str], source: Source, ttl: str | None
) -> tuple[str, ...]:
    """Those of the facts whose time to live, the given one if any, is not over."""
    again: dict[str, object] = {} if ttl is None else {"ttl": ttl}
    alive: list[str] = []
    for start in range(0, len(ids), _STEP):
        held = facts.get(ids[start : start + _STEP])
        alive += [
            fact.fact_id
            for fact in held
            if not has_outlived(fact.changed(**again), source.ingested_at)
        ]
    return tuple(alive)


def compare_facts(
    facts: FactsFacet, given: Sequence[Fact], now: datetime
) -> list[tuple[SourceChange, list[Fact]]]:
    """What facts made by hand do to their sources; those that can be found already do nothing."""
    stored = {fact.fact_id: fact for fact in facts.get([fact.fact_id for fact in given])}
    fresh: dict[str, list[Fact]] = defaultdict(list)
    back: dict[str, list[Fact]] = defaultdict(list)
    for fact in given:
        known = stored.get(fact.fact_id)
        if known is None or known.status is FactStatus.DELETED:
            fresh[fact.source_id].append(fact)
        else:
            check_same_labels(known, fact)
            if known.content_hash != fact.content_hash:
                raise FactRejected(
                    f"fact {fact.fact_id} is stored with another content since it was updated; "
                    "update it again, or give a source_location to add the text as another fact"
                )
            if known.status in RETRIEVABLE:
                back[fact.source_id].append(known)
    changes: list[tuple[SourceChange, list[Fact]]] = []
    for name in dict.fromkeys([*fresh, *back]):
        made, known_here = fresh[name], back[name]
        returned = tuple(
            fact.fact_id
            for fact in known_here
            if fact.status is FactStatus.STALE and not has_outlived(fact, now)
        )
        restored = tuple(fact.fact_id for fact in known_here if fact.archived_at is not None)
        source = facts.source(name)
        if not made:
            if source is not None and (returned or restored):
                changes.append(
                    (SourceChange(source, range(0), returned=returned, restored=restored), [])
                )
            continue
        if source is None or source.status is SourceStatus.REMOVED:
            source = Source(
                source_id=name,
                title=source.title if source and source.title else name,
                uri=source.uri if source and source.uri else f"{USER_SOURCE}:{name}",
                document_hash=sha256(""),
                kind=made[0].kind,
                ingested_at=now,
                labels=source.labels if source else made[0].labels,
                metadata={COLLECTED: True} if source else {},
            )
        if source.uri == f"{USER_SOURCE}:{name}":
            # No document lies behind these facts: the hash is that of their hashes.
            hashes = [
                content_hash
                for _, content_hash, status in facts.passages(name)
                if status != "DELETED"
            ]
            hashes += [fact.content_hash for fact in made]
            source = source.changed(
                document_hash=sha256("|".join(sorted(hashes))),
                labels=tuple(
                    sorted(set(source.labels).intersection(*(fact.labels for fact in made)))
                ),
            )
        source = source.changed(fact_count=source.fact_count + len(made))
        revived = frozenset(fact.fact_id for fact in made if fact.fact_id in stored)
        known_texts = {stored[id_].content_hash: id_ for id_ in revived}
        change = SourceChange(
            source, range(len(made)), revived, known_texts, returned=returned, restored=restored
        )
        changes.append((change, made))
    return changes


def check_same_labels(stored: Fact, given: Fact) -> None:
    """Refuse to give a stored fact again with other labels."""
    if stored.labels != given.labels:
        raise FactRejected(
            f"fact {given.fact_id} is stored with other labels than {list(given.labels)}"
        )


@dataclass(slots=True)
class UpsertPlan:
    """What is to be written, found out within one transaction.

    Attributes:
        same: ids of facts that are stored just so.
        purge: ids of deleted facts that are used again; their rows go.
        returned: ids of stale or archived facts that are put again.
        counts: facts that come and go, by source.
    """

    add: list[Fact] = field(default_factory=list)
    replace: list[Fact] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    purge: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def document_sources(facts: FactsFacet, source_ids: set[str]) -> set[str]:
    """The sources that a document lies behind; their facts' ids are made of the source's."""
    return {
        id_
        for id_ in source_ids
        if (source := facts.source(id_)) is not None
        and source.metadata.get(COLLECTED) is not True
        and source.uri != f"{USER_SOURCE}:{id_}"
    }


def collected_entries(
    facts: FactsFacet, plan: UpsertPlan, uris: Mapping[str, str], now: datetime
) -> dict[str, Source]:
    """The registry's entries as they will be, by id.

    Spec: CRP-SPEC-009 §4.5
    """
    touched: dict[str, list[Fact]] = defaultdict(list)
    for fact in (*plan.add, *plan.replace):
        touched[fact.source_id].append(fact)
    returned: dict[str, int] = defaultdict(int)
    back = set(plan.returned)
    for fact in plan.replace:
        returned[fact.source_id] += fact.fact_id in back
    made: dict[str, Source] = {}
    for id_ in sorted({*touched, *plan.counts}):
        source = facts.source(id_)
        # Of one that was removed, nothing counts any more; it may be an empty tombstone.
        if source is None or (source.status is SourceStatus.REMOVED and touched[id_]):
            uri = uris.get(id_, f"{USER_SOURCE}:{id_}")
            first = touched[id_][0]
            source = Source(
                source_id=id_,
                title=uri,
                uri=uri,
                document_hash=sha256(""),
                kind=first.kind,
                ingested_at=now,
                labels=first.labels,
                metadata={COLLECTED: True},
            )
        count = max(0, source.fact_count + plan.counts.get(id_, 0))
        if returned[id_]:
            # A fact that an update of its document took away was in no count, and is ACTIVE now.
            statuses = {known: status for known, _, status in facts.passages(id_)}
            active = {known for known, status in statuses.items() if status is FactStatus.ACTIVE}
            count = max(count, len({*active, *(fact.fact_id for fact in touched[id_])}))
        changes: dict[str, Any] = {"fact_count": count}
        if not count:
            changes["status"] = SourceStatus.REMOVED
        if source.metadata.get(COLLECTED) is True and touched[id_]:
            # There is no document: its hash stands for everything that was put, in order.
            hashes = sorted(fact.content_hash for fact in touched[id_])
            changes["document_hash"] = sha256("|".join([source.document_hash, *hashes]))
        made[id_] = source.changed(**changes)
    return made


def events_of(sources: Mapping[str, Source], plan: UpsertPlan) -> list[dict[str, Any]]:
    """Ids and hashes of what was put into each source; never text, title or URI."""
    new: dict[str, list[str]] = defaultdict(list)
    changed: dict[str, list[str]] = defaultdict(list)
    for ids, facts in ((new, plan.add), (changed, plan.replace)):
        for fact in facts:
            ids[fact.source_id].append(fact.fact_id)
    return [
        {
            "source": id_,
            "document_hash": source.document_hash,
            "facts": new[id_],
            "changed": changed[id_],
        }
        for id_, source in sources.items()
    ]


def signed_of(plan: UpsertPlan) -> list[dict[str, Any]]:
    """One entry for each signed fact; the metadata of its memory names the signer.

    Spec: Summit §Backlog Write 2
    """
    entries = []
    for fact in (*plan.add, *plan.replace):
        memory = fact.metadata.get("memory")
        provenance = memory.get("provenance") if isinstance(memory, dict) else None
        signer = provenance.get("signer") if isinstance(provenance, dict) else None
        if isinstance(memory, dict) and isinstance(signer, str) and signer:
            entry = {
                "source": fact.source_id,
                "facts": [fact.fact_id],
                "content_hash": fact.content_hash,
                "document_hash": digest(provenance),
                "signer": signer,
            }
            summary = memory.get("summary")
            text = summary.get("text") if isinstance(summary, dict) else None
            if isinstance(text, str):
                entry["summary_hash"] = sha256(text)
            entries.append(entry)
    return entries
