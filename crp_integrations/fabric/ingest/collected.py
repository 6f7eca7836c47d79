"""What facts that are put one by one do to the registry of sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crp_integrations.fabric.ingest.changes import COLLECTED, USER_SOURCE
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Fact, Source
from crp_integrations.seals import digest, sha256
from crp_integrations.vocabulary import FactStatus, SourceStatus


@dataclass(slots=True)
class Plan:
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


def of_documents(facts: FactsFacet, source_ids: set[str]) -> set[str]:
    """The sources that a document lies behind; their facts' ids are made of the source's."""
    return {
        id_
        for id_ in source_ids
        if (source := facts.source(id_)) is not None
        and source.metadata.get(COLLECTED) is not True
        and source.uri != f"{USER_SOURCE}:{id_}"
    }


def entries(
    facts: FactsFacet, plan: Plan, uris: Mapping[str, str], now: datetime
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


def events_of(sources: Mapping[str, Source], plan: Plan) -> list[dict[str, Any]]:
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


def signed_of(plan: Plan) -> list[dict[str, Any]]:
    """One entry for each fact that somebody signed: a memory's metadata name who did.

    Spec: Summit §Backlog Write 2
    """
    told = []
    for fact in (*plan.add, *plan.replace):
        memory = fact.metadata.get("memory")
        provenance = memory.get("provenance") if isinstance(memory, dict) else None
        signer = provenance.get("signer") if isinstance(provenance, dict) else None
        if isinstance(memory, dict) and isinstance(signer, str) and signer:
            said = {
                "source": fact.source_id,
                "facts": [fact.fact_id],
                "content_hash": fact.content_hash,
                "document_hash": digest(provenance),
                "signer": signer,
            }
            summary = memory.get("summary")
            text = summary.get("text") if isinstance(summary, dict) else None
            if isinstance(text, str):
                said["summary_hash"] = sha256(text)
            told.append(said)
    return told
