"""Upsert of facts with ids chosen by the caller: new ones are added, known ones changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid5

import numpy as np

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import EngineError, FactRejected, StoreBusy
from crp_integrations.fabric.erasure import SCRUB_SETTING
from crp_integrations.fabric.ingest.fact_preparation import (
    check_fact,
    check_fact_list,
    check_length,
    fact_importance,
    own_source,
)
from crp_integrations.fabric.ingest.ingestion_plan import COLLECTED, check_same_labels
from crp_integrations.fabric.lifecycle import check_content, has_outlived
from crp_integrations.fabric.namespace_writer import NamespaceWriter
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.ports.engines import ignore_progress
from crp_integrations.fabric.records import (
    ID_SPACE,
    USER_SOURCE,
    Fact,
    IngestReport,
    Notice,
    Source,
)
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING, note_new_facts
from crp_integrations.seals import digest, iso, sha256
from crp_integrations.vectors import FloatRows, unit_rows
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus

# Attempts of a put if other writers change the same facts meanwhile.
_TRIES = 3


def named(name: str) -> str:
    """Return the fact id for a name chosen by the caller: a UUIDv5 of the name.

    Spec: CRP-SPEC-009 §2
    """
    return str(uuid5(ID_SPACE, "item\u241f" + name))


class _PutConflictError(StoreBusy):
    """Another writer changed a fact between the read and the write of a put."""


@dataclass(frozen=True, slots=True)
class FactUpsert:
    """Adds or changes facts of one namespace by id."""

    writer: NamespaceWriter

    def put(
        self, facts: Sequence[Fact], *, uris: Mapping[str, str], vectors: FloatRows | None
    ) -> IngestReport:
        """Add or change facts, all or nothing."""
        facts_by_id = self._checked_facts(facts)
        rows = None if vectors is None else self._rows(facts, vectors)
        for _ in range(_TRIES):
            try:
                return self._put(list(facts_by_id.values()), uris, rows)
            except _PutConflictError:
                continue
        raise StoreBusy(
            f"other writers changed the same facts of namespace {self.writer.namespace!r} during "
            f"{_TRIES} tries; nothing was written"
        )

    def _put(
        self, wanted: Sequence[Fact], uris: Mapping[str, str], rows: dict[str, Any] | None
    ) -> IngestReport:
        now = self.writer.clock.now()
        with self.writer.begin(False) as transaction:
            self.writer.check(transaction.facts)
            known = _stored(transaction.facts, wanted)
            self.writer.check_shared(wanted, known.values())
            plan = self._plan(transaction.facts, wanted, known, rows, now)
            before = self.writer.hash_in(transaction.facts)
            if not plan.add and not plan.replace:
                return IngestReport(unchanged=tuple(plan.same), state_hash=before)
        if rows is None:
            with self.writer.tracer.step("fabric.embed"):
                rows = self._embedded(plan, known)
        key = self.writer.key()
        with self.writer.tracer.step("fabric.insert"), self.writer.begin(True) as transaction:
            now_stored = _stored(transaction.facts, wanted)
            if _without_use(now_stored) != _without_use(known):
                raise _PutConflictError("a fact was changed by another writer")
            self.writer.check(transaction.facts)
            plan.replace = [_with_use(fact, now_stored[fact.fact_id]) for fact in plan.replace]
            report = self._write(transaction, plan, rows, uris, key, now)
        self._notify_changes(plan, known)
        return report

    def _notify_changes(self, plan: UpsertPlan, known: Mapping[str, Fact]) -> None:
        """Send a notice for each source whose facts changed, as after an update of a document.

        Spec: CRP-SPEC-009 §4.5
        """
        changed: dict[str, list[str]] = defaultdict(list)
        back: dict[str, list[str]] = defaultdict(list)
        returned = set(plan.returned)
        for fact in plan.replace:
            if fact.content_hash != known[fact.fact_id].content_hash:
                changed[fact.source_id].append(fact.fact_id)
            elif fact.fact_id in returned:
                back[fact.source_id].append(fact.fact_id)
        for id_ in sorted({*changed, *back}):
            self.writer.notify(
                Notice(
                    kind="source-changed",
                    namespace=self.writer.namespace,
                    source_id=id_,
                    facts=tuple(changed[id_]),
                    returned=tuple(back[id_]),
                )
            )

    def _checked_facts(self, facts: Sequence[Fact]) -> dict[str, Fact]:
        """Check the facts and return them by id; an identical duplicate counts once."""
        check_fact_list(facts)
        for number, candidate in enumerate(facts, 1):
            check_fact(candidate, number)
        counts = self.writer.counter.count_many([fact.content for fact in facts])
        made: dict[str, Fact] = {}
        for number, (fact, tokens) in enumerate(zip(facts, counts, strict=True), 1):
            # A chunk that the caller made is taken however short it is.
            tokens = tokens if fact.content.strip() else 0
            check_length(f"fact {number} has", tokens, self.writer.settings.chunking, least=1)
            if fact.namespace not in ("", self.writer.namespace):
                raise FactRejected(
                    f"fact {fact.fact_id} is of namespace {fact.namespace!r}, "
                    f"not {self.writer.namespace!r}"
                )
            self.writer.allow(fact.labels)
            if made.setdefault(fact.fact_id, fact) != fact:
                raise FactRejected(f"fact {fact.fact_id} is given twice with different content")
        return made

    def _rows(self, facts: Sequence[Fact], vectors: FloatRows) -> dict[str, Any]:
        block = unit_rows(vectors, dimensions=self.writer.embedder.dimensions)
        if len(block) != len(facts):
            raise EngineError(f"{len(block)} vectors were given for {len(facts)} facts")
        return {fact.fact_id: row for fact, row in zip(facts, block, strict=True)}

    def _plan(
        self,
        facts: FactsFacet,
        wanted: Sequence[Fact],
        stored: Mapping[str, Fact],
        rows: dict[str, Any] | None,
        now: datetime,
    ) -> UpsertPlan:
        moved = self._moved(facts, stored, rows)
        bound = document_sources(facts, {fact.source_id for fact in stored.values()})
        plan = UpsertPlan()
        own = own_source(fact for fact in wanted if fact.source_id == USER_SOURCE)
        for fact in wanted:
            origin = "" if fact.source_id == USER_SOURCE else fact.source_id
            old = stored.get(fact.fact_id)
            if old is None or old.status is FactStatus.DELETED:
                if old is not None:
                    plan.purge.append(old.fact_id)
                plan.add.append(self._fresh(fact, origin or own, now))
                plan.counts[origin or own] += 1
                continue
            check_content(old)
            check_same_labels(old, fact)
            stays_stale = old.status is FactStatus.STALE and has_outlived(old, now)
            again = old.changed(
                content=fact.content,
                metadata=fact.metadata,
                source_id=old.source_id if old.source_id in bound or not origin else origin,
                status=FactStatus.STALE if stays_stale else FactStatus.ACTIVE,
                archived_at=None,
            )
            if again == old and fact.fact_id not in moved:
                plan.same.append(old.fact_id)
                continue
            if not old.retrievable or old.status is not again.status:
                plan.returned.append(old.fact_id)
            plan.replace.append(again.changed(modified_at=now))
            if again.source_id != old.source_id:
                plan.counts[old.source_id] -= 1
                plan.counts[again.source_id] += 1
        return plan

    def _moved(
        self, facts: FactsFacet, stored: Mapping[str, Fact], rows: dict[str, Any] | None
    ) -> set[str]:
        """Ids of facts whose given vector differs from the stored one."""
        ids = [id_ for id_, fact in stored.items() if fact.status is not FactStatus.DELETED]
        if rows is None or not ids:
            return set()
        old = facts.vectors(ids)
        new = np.stack([rows[id_] for id_ in ids])
        differs = (
            np.any(old != new, axis=1) if old.shape == new.shape else np.ones(len(ids), np.bool_)
        )
        return {id_ for id_, other in zip(ids, differs.tolist(), strict=True) if other}

    def _fresh(self, fact: Fact, source_id: str, now: datetime) -> Fact:
        weight = fact_importance(
            fact.kind,
            content=fact.content,
            settings=self.writer.settings.importance,
            metadata=fact.metadata,
        )
        return fact.changed(
            source_id=source_id,
            namespace=self.writer.namespace,
            importance_weight=weight,
            ingested_at=now,
            modified_at=now,
            status=FactStatus.ACTIVE,
        )

    def _embedded(self, plan: UpsertPlan, known: Mapping[str, Fact]) -> dict[str, Any]:
        """Vectors by fact id for new contents; each distinct text is embedded once."""
        waiting = [
            fact
            for fact in (*plan.add, *plan.replace)
            if fact.fact_id not in known
            or fact.fact_id in plan.purge
            or known[fact.fact_id].content_hash != fact.content_hash
        ]
        texts = {fact.content_hash: fact.content for fact in waiting}
        by_hash = self.writer.embedding.vectors(texts, ignore_progress)
        return {fact.fact_id: by_hash[fact.content_hash] for fact in waiting}

    def _write(
        self,
        transaction: Transaction,
        plan: UpsertPlan,
        rows: Mapping[str, Any],
        uris: Mapping[str, str],
        key: bytes,
        now: datetime,
    ) -> IngestReport:
        facts = transaction.facts
        before = self.writer.hash_in(facts)
        if plan.purge:
            facts.remove(plan.purge)
        sources = collected_entries(facts, plan, uris, now)
        for source in sources.values():
            facts.add_source(source)
        if facts.setting(EMBEDDER_SETTING) is None:
            facts.set_setting(EMBEDDER_SETTING, self.writer.embedder.identity)
        if plan.add:
            facts.add(plan.add, np.stack([rows[fact.fact_id] for fact in plan.add]))
            note_new_facts(facts, len(plan.add))
        moved = [fact for fact in plan.replace if fact.fact_id in rows]
        if moved:
            facts.replace(moved, np.stack([rows[fact.fact_id] for fact in moved]))
        unmoved = [fact for fact in plan.replace if fact.fact_id not in rows]
        if unmoved:
            facts.replace(unmoved)
        after = self.writer.hash_in(facts)
        entries = [*events_of(sources, plan), *signed_of(plan)]
        drafts = [EventDraft(EventType.FACT_INGESTED, entry) for entry in entries]
        if after != before:
            change = {"before": before, "after": after, "cause": "put"}
            drafts.append(EventDraft(EventType.CKF_ETAG_CHANGED, change))
        events = append_events(transaction.journal, key, drafts, iso(now))
        if plan.purge:
            # The bytes of the removed rows may still be in the files.
            facts.set_setting(SCRUB_SETTING, str(events[-1].seq))
        return IngestReport(
            sources=tuple(sources),
            facts=tuple(fact.fact_id for fact in plan.add),
            rewritten=tuple(fact.fact_id for fact in plan.replace),
            returned=tuple(plan.returned),
            unchanged=tuple(plan.same),
            state_hash=after,
        )


def _stored(facts: FactsFacet, wanted: Sequence[Fact]) -> dict[str, Fact]:
    return {fact.fact_id: fact for fact in facts.get([fact.fact_id for fact in wanted])}


def _without_use(stored: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts without the fields that reading changes."""
    unused = {"access_count": 0, "last_accessed_at": None}
    return {id_: fact.model_copy(update=unused) for id_, fact in stored.items()}


def _with_use(fact: Fact, stored: Fact) -> Fact:
    """Return the new fact with the stored fact's current use counts."""
    used = {"access_count": stored.access_count, "last_accessed_at": stored.last_accessed_at}
    return fact.model_copy(update=used)


@dataclass(slots=True)
class UpsertPlan:
    """The changes to write, determined within one transaction.

    Attributes:
        same: ids of facts that are already stored unchanged.
        purge: ids of deleted facts that are used again; their old rows are removed.
        returned: ids of stale or archived facts that become retrievable or ACTIVE again.
        counts: change in the number of facts, by source.
    """

    add: list[Fact] = field(default_factory=list)
    replace: list[Fact] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    purge: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def document_sources(facts: FactsFacet, source_ids: set[str]) -> set[str]:
    """Return the sources that are documents, whose facts' ids derive from the source id."""
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
    """Return the registry entries after the upsert, by id.

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
        # A removed source starts afresh; its entry may be an empty tombstone.
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
            # A fact that an update of its document had removed was not counted; it is ACTIVE now.
            statuses = {known: status for known, _, status in facts.passages(id_)}
            active = {known for known, status in statuses.items() if status is FactStatus.ACTIVE}
            count = max(count, len({*active, *(fact.fact_id for fact in touched[id_])}))
        changes: dict[str, Any] = {"fact_count": count}
        if not count:
            changes["status"] = SourceStatus.REMOVED
        if source.metadata.get(COLLECTED) is True and touched[id_]:
            # There is no document: the hash covers everything that was put, in order.
            hashes = sorted(fact.content_hash for fact in touched[id_])
            changes["document_hash"] = sha256("|".join([source.document_hash, *hashes]))
        made[id_] = source.changed(**changes)
    return made


def events_of(sources: Mapping[str, Source], plan: UpsertPlan) -> list[dict[str, Any]]:
    """Return journal entries with ids and hashes of the facts put into each source, no texts."""
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
    """Return one entry for each signed fact, whose memory metadata name the signer.

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
