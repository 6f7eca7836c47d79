"""A tenant's part of the fabric, bound to a subject and a guard: every read and every write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
from pydantic import JsonValue

from crp_integrations.errors import ConfigError, EngineError, FactRejected, RequestError, StoreBusy
from crp_integrations.fabric.community_detection import CommunityDetection
from crp_integrations.fabric.embedder_migration import ReembedReport
from crp_integrations.fabric.erasure import erase_source, forget_sessions, windows_scrubbed
from crp_integrations.fabric.fact_changes import (
    UNCHANGED,
    Unchanged,
    change_status,
    forget_facts,
    quarantine_facts,
    update_fact,
)
from crp_integrations.fabric.ingest.fact_upsert import FactUpsert
from crp_integrations.fabric.ingest.ingestion import Ingestion
from crp_integrations.fabric.inspection import (
    NamespaceExamination,
    NamespaceHealth,
    NamespaceStats,
)
from crp_integrations.fabric.lifecycle import ChangeReport, ErasureReport, MaintenanceReport
from crp_integrations.fabric.maintenance import Maintenance
from crp_integrations.fabric.namespace_reader import NamespaceReader, SharedNamespaceReader
from crp_integrations.fabric.namespace_writer import NamespaceWriter
from crp_integrations.fabric.ports import Transaction, must_write, window_records_of
from crp_integrations.fabric.ports.engines import Progress, ignore_progress
from crp_integrations.fabric.ports.store import FaultCounts, fault_counts_of
from crp_integrations.fabric.records import (
    Document,
    Edge,
    Fact,
    IngestReport,
    Source,
    StreamedDocument,
    Where,
    access_labels,
    duration,
)
from crp_integrations.fabric.region import FabricRegion
from crp_integrations.fabric.session_memory import FactUse, SessionFactsLayer
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.similarity_graph import ClusterReport, Community, FactGraph
from crp_integrations.fabric.state_hash import reclustering_due_after_ingestion
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require
from crp_integrations.guard.ports import Redactor
from crp_integrations.language import memo
from crp_integrations.ports import Clock, Embedder, TokenCounter
from crp_integrations.validation import of_kind
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus, SourceKind

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# Facts of an export that are read at once.
_EXPORT_SLICE = 256


class Namespace(FabricView):
    """A tenant's part of the fabric, bound to a subject and a guard; safe between threads.

    Made by `Fabric.bind`. No method takes a tenant. The reads are those of `FabricView`: the
    tenant's own facts and the shared ones. What writes changes the own ones alone. Every verb takes
    a whole batch or nothing: one id that is unknown to the subject, or whose fact may not change
    so, refuses all of it. Communities are found per namespace and never across two, so the shared
    namespaces that a tenant reads have their own.

    Spec: CRP-SPEC-009 §2.2, §5, §8, §9.1, §9.2

    Attributes:
        subject: who asks.
        guard: decides, also for what is kept beside the fabric.
    """

    def __init__(
        self, region: FabricRegion, subject: Subject, guard: Guard, shared: Sequence[str] = ()
    ) -> None:
        self._region = region
        self._own = NamespaceReader(region, subject.tenant, subject, guard)
        self._shared = tuple(SharedNamespaceReader(region, name, subject, guard) for name in shared)
        self.subject = subject
        self.guard = guard
        super().__init__(self._own, self._shared, embedder=region.embedder)

    @property
    def guard_name(self) -> str:
        """Name of the guard that decides, shown in reports."""
        return self.guard.name

    @property
    def redactor(self) -> Redactor | None:
        """What takes personal data out of texts; None for nothing."""
        return self._region.redactor

    @property
    def counter(self) -> TokenCounter:
        """The counter that binds the length of stored facts."""
        return self._region.counter

    @property
    def clock(self) -> Clock:
        """The clock by which what is stored is dated."""
        return self._region.clock

    @property
    def settings(self) -> FabricSettings:
        """The settings of the fabric."""
        return self._region.settings

    @property
    def residency(self) -> str:
        """The region whose store alone is read and written; empty for none.

        Spec: CRP-SPEC-009 §7.2
        """
        return self._region.residency

    # --- reading: see `FabricView` -----------------------------------------------------------

    def view(self, session_id: str = "", *, keep_counts: bool = True) -> FabricView:
        """The same reads, with what a session holds in memory at this moment.

        Spec: CRP-SPEC-009 §7.2
        """
        region, gate = self._region, self._own.gate()
        held = region.session_memory.held(self.subject.tenant, session_id, region.clock.now())
        return FabricView(
            self._own,
            self._shared,
            SessionFactsLayer(held.as_shown(gate.facts(held.facts.values()))) if held else None,
            embedder=self.embedder,
            keep_counts=keep_counts,
            shelf=region.recent_uses.shelf(self.subject.tenant, self.subject.name, session_id),
        )

    def shelve(self, session_id: str, used: Iterable[FactUse]) -> None:
        """Remember in memory what an envelope of the subject's session held.

        Spec: CRP-SPEC-003 §5.2
        """
        self._region.recent_uses.note(self.subject.tenant, self.subject.name, session_id, used)

    def note_shared_use(self, ids: Sequence[str], now: datetime) -> None:
        """Tell the shared namespaces which of their facts were used; the operator alone sees it.

        Spec: CRP-SPEC-009 §9.2
        """
        own = self._own.holds(ids, aside=False) if self._shared else set()
        for shared in self._shared:
            shared.note_use([id_ for id_ in ids if id_ not in own], now)

    def note_shared_findings(self, ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count for the operator that an answer went wrong with shared facts; by id.

        Spec: CRP-SPEC-009 §8.4
        """
        asked = ids if self._shared else ()
        left = [*{*asked} - self._own.holds(asked, aside=False)] if asked else []
        noted = [shared.note_findings(left) for shared in self._shared] if left else []
        return {id_: counted for counts in noted for id_, counted in counts.items()}

    def withdrawn(self, ids: Sequence[str]) -> bool:
        """Whether any of the facts or sources was forgotten or is in quarantine, wherever it is.

        For what is kept beside the store and comes from them; the guard is not asked. A source is
        meant as soon as one of its facts is in quarantine.

        Spec: CRP-SPEC-009 §2.2, §8.4
        """
        if self._own.withdrawn(ids):
            return True
        others = [*{*ids} - self._own.holds(ids, aside=False)] if self._shared else []
        return any(shared.withdrawn(others) for shared in self._shared)

    def find_own(self, where: Where) -> list[str]:
        """Ids of the tenant's own retrievable facts that are meant, ascending.

        What is quarantined or archived is listed by `export(Where(statuses=…))`.
        """
        return self._own.find(where)

    # --- writing -----------------------------------------------------------------------

    def ingest(
        self,
        documents: Iterable[Document | StreamedDocument],
        *,
        kind: SourceKind | None = None,
        labels: Iterable[str] = (),
        ttl: str | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Ingest documents: the whole batch or, when anything fails, nothing.

        Spec: CRP-SPEC-009 §4.1

        A document that is stored with equal content adds nothing. Of one that has changed,
        passages that are still there keep their facts, new ones are added, and the facts of
        those that are gone become STALE.
        """
        report = Ingestion(self._writer()).documents(
            documents,
            kind=kind,
            labels=_named(labels),
            ttl=_checked(ttl),
            progress=progress or ignore_progress,
        )
        return self._settle(self._reclustered(report))

    def add(
        self,
        facts: Sequence[Fact | str],
        *,
        kind: SourceKind | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Add facts as they are, without chunking; the whole batch or nothing."""
        report = Ingestion(self._writer()).facts(
            facts, kind=kind, progress=progress or ignore_progress
        )
        return self._settle(self._reclustered(report))

    def put(
        self,
        facts: Sequence[Fact],
        *,
        uris: Mapping[str, str] | None = None,
        vectors: FloatRows | None = None,
    ) -> IngestReport:
        """Add facts under their own ids, or change those of these ids: the whole batch or nothing.

        A deleted fact's id is free again; a stale or archived one becomes ACTIVE, but for one whose
        ttl has run out, which stays STALE. A fact of a document that was ingested stays in its
        source, whatever source is given.
        """
        report = FactUpsert(self._writer()).put(facts, uris=uris or {}, vectors=vectors)
        return self._settle(self._reclustered(report))

    def hold(
        self, session_id: str, facts: Sequence[Fact | str], *, kind: SourceKind | None = None
    ) -> IngestReport:
        """Keep facts in memory for one session alone; the store is not written.

        They are candidates of that session's questions until it ends, was idle for too long, or
        the process ends. Each is embedded once.

        Spec: CRP-SPEC-009 §7.2
        """
        if not session_id:
            raise RequestError("facts are held for a session; give its session_id")
        writer, memory = self._writer(), self._region.session_memory
        tenant, now = writer.namespace, writer.clock.now()
        prepared = writer.prepared(facts, kind)
        ids = [fact.fact_id for fact in prepared]
        own = self._own.holds(ids)
        writer.check_shared([fact for fact in prepared if fact.fact_id not in own], ())
        before = memory.held(tenant, session_id, now)
        there = self.stored(ids) | set(before.facts if before else ())
        fresh = [fact for fact in prepared if fact.fact_id not in there]
        # Before the costly embedding, so that too many facts cost nothing.
        memory.check_room(tenant, session_id, len(fresh))
        new: list[str] = []
        if fresh:
            with writer.tracer.step("fabric.embed"):
                texts = {fact.content_hash: fact.content for fact in fresh}
                vectors = writer.embedding.vectors(texts, ignore_progress)
            rows = np.stack([vectors[fact.content_hash] for fact in fresh])
            new = memory.hold(tenant, session_id, fresh, rows, now)
        held = set(new)
        return IngestReport(
            facts=tuple(new),
            unchanged=tuple(id_ for id_ in ids if id_ not in held),
            state_hash=self._own.state_hash(),
        )

    def stored(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are stored, here or in a shared namespace; the guard is not asked.

        Spec: CRP-SPEC-009 §7.2
        """
        stored_ids = self._own.holds(ids)
        for shared in self._shared:
            stored_ids |= shared.holds([id_ for id_ in ids if id_ not in stored_ids])
        return stored_ids

    def stored_here(self, ids: Sequence[str], transaction: Transaction) -> set[str]:
        """Those of the ids that an open transaction of the own namespace sees."""
        return self._own.holds(ids, within=transaction)

    def stored_elsewhere(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that shared namespaces store; nothing is read where there are none."""
        return {id_ for shared in self._shared for id_ in shared.holds(ids)}

    def end_session(self, session_id: str) -> int:
        """Purge what a session holds in memory; returns how many facts that were.

        Spec: CRP-SPEC-009 §7.2
        """
        self._region.recent_uses.end(self.subject.tenant, self.subject.name, session_id)
        held = self._region.session_memory.end(self.subject.tenant, session_id)
        if held:
            memo.forget()
        return held

    def reembed(self, embedder: Embedder, progress: Progress | None = None) -> ReembedReport:
        """Move the namespace to another embedder while others read and write it.

        Every fact, of whatever status, gets a vector of the new embedder; then one transaction
        puts these in the place of the old ones. Until then all goes on with the old embedder,
        and a fabric of the new one may be bound and finds what is prepared already. Afterwards a
        fabric of the old one is refused: bind from a fabric of the new one. A call that was
        killed is resumed by the next one. Communities are found anew at the next `maintain`.

        Spec: CRP-SPEC-009 §3.4
        """
        require(self.guard, self.subject, "write", NAMESPACE)
        return self._region.reembed(self._own.name, embedder, progress)

    def must_write(self) -> None:
        """Refuse where it cannot be written, before what is paid for and then kept."""
        must_write(self._region.store, self._own.name)

    def begin(self, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of the namespace, for the relay's close; the guard does not look in."""
        return self._region.begin(self._own.name, write=write)

    # --- what is stored: status, erasure, upkeep, communities -----------------------------

    def link(self, edges: Iterable[Edge]) -> None:
        """Store edges between the tenant's own facts; each is found from both of its ends.

        The other direction has the kind with `^` in front. Edges go with either of their facts.

        Spec: Summit §Storage Interfaces
        """
        links = list(edges)
        ids = sorted({id_ for edge in links for id_ in (edge.source_fact, edge.target_fact)})
        known = {fact.fact_id: fact for fact in self._own.facts(ids)}
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            raise FactRejected(f"fact {missing[0]!r:.80} is not there to be linked, or is withheld")
        for labels in sorted({fact.labels for fact in known.values()}):
            require(self.guard, self.subject, "write", labels)
        back = [
            Edge(
                source_fact=edge.target_fact,
                target_fact=edge.source_fact,
                kind=f"^{edge.kind}",
                weight=edge.weight,
            )
            for edge in links
        ]
        with self._region.begin(self._own.name, write=True) as transaction:
            transaction.facts.add_edges([*links, *back])

    def update(
        self,
        fact_id: str,
        *,
        content: str | None = None,
        metadata: dict[str, JsonValue] | None = None,
        ttl: str | Unchanged | None = UNCHANGED,
        importance_weight: float | None = None,
        labels: Sequence[str] | None = None,
        kind: SourceKind | None = None,
        valid_from: datetime | Unchanged | None = UNCHANGED,
        valid_to: datetime | Unchanged | None = UNCHANGED,
    ) -> Fact:
        """Change a fact in place; what is left out stays as it is.

        The id stays. Another content gives another content hash and another vector. Giving a
        content, even the old one, means that the source says it again: a STALE fact becomes
        ACTIVE, unless its ttl has run out, and an archived one comes back.

        Spec: CRP-SPEC-009 §2, §3.3 (decision E18)
        """
        fields: dict[str, Any] = {
            "content": content,
            "metadata": metadata,
            "importance_weight": importance_weight,
            "labels": None if labels is None else access_labels(labels, FactRejected),
            "kind": kind,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        emptied = {"ttl": ttl, "valid_from": valid_from, "valid_to": valid_to}
        fields |= {name: value for name, value in emptied.items() if value is not UNCHANGED}
        return self._settle(update_fact(self._writer(), fact_id, fields))

    def mark_stale(self, ids: Sequence[str]) -> ChangeReport:
        """Flag ACTIVE facts as STALE: still retrievable, with freshness 0.

        Spec: CRP-SPEC-009 §2.2
        """
        return self._settle(change_status(self._writer(), "stale", ids))

    def forget(self, *, facts: Sequence[str] = (), source: str | None = None) -> ChangeReport:
        """Delete facts, or a source with all of its facts; they are unretrievable at once.

        Their bytes leave the store at the first `maintain` after the retention period; for bytes
        that must go now there is `erase`. Artifacts that name them among their sources go at once.

        Spec: CRP-SPEC-009 §2.2
        """
        return self._settle(forget_facts(self._writer(), facts, source))

    def archive(self, ids: Sequence[str]) -> ChangeReport:
        """Put facts aside: out of search, text index and state hash, until `restore`.

        Spec: CRP-SPEC-009 §8.2
        """
        return self._settle(change_status(self._writer(), "archived", ids))

    def restore(self, ids: Sequence[str]) -> ChangeReport:
        """Bring archived facts back with the status that they have.

        Spec: CRP-SPEC-009 §8.2
        """
        return self._settle(change_status(self._writer(), "restored", ids))

    def quarantine(self, ids: Sequence[str], reason: str = "") -> ChangeReport:
        """Take facts out of retrieval, and tell the operator which sources to review.

        Artifacts that come from them, or from their sources, are read by nobody until `lift`.

        Spec: CRP-SPEC-009 §8.4
        """
        if not isinstance(reason, str):
            # It goes into a notice, and what is quarantined by then would stay so.
            raise RequestError(f"reason is of type {type(reason).__name__}, wanted a text")
        return self._settle(quarantine_facts(self._writer(), ids, reason))

    def due_for_review(self, least: int | None = None) -> list[str]:
        """Facts that answers are repeatedly found to distort or to add to.

        Spec: CRP-SPEC-009 §8.4

        Args:
            least: findings against a fact, at least; None for `quarantine_findings`, in a share
                of its uses of `quarantine_share`.

        Returns:
            Their ids, ascending; empty where the store counts no findings.
        """
        life = self._region.settings.lifecycle
        share = life.quarantine_share if least is None else 0.0
        with self._region.begin(self._own.name, write=False) as transaction:
            facet = fault_counts_of(transaction)
            wanted = life.quarantine_findings if least is None else least
            return [] if facet is None else facet.due(wanted, share)

    def lift(self, ids: Sequence[str]) -> ChangeReport:
        """End the quarantine of facts after review: they are ACTIVE and retrievable.

        Spec: CRP-SPEC-009 §8.4
        """
        return self._settle(change_status(self._writer(), "lifted", ids))

    def erase(self, source: str, *, graph: bool = True) -> ErasureReport:
        """Erase a source: no byte of its facts, vectors, title or URI stays in any file.

        What stays is a tombstone in the registry and an event in the journal, committed together
        with the removal. A second call finds nothing left and finishes what a reader held up.

        Spec: CRP-SPEC-009 §8.3
        """
        erased = erase_source(self._writer(), source)
        if erased.facts:
            # The graph's file went with the bytes; without another one, the next process has none.
            self._region.namespace_state(self._own.name).settle(thorough=graph)
        return erased

    def forget_session(self, session_id: str, *, scrub: bool = True) -> bool:
        """Remove what the store keeps of a session: its state, its windows, all that they said.

        The seals of its windows and the journal's events stay, which hold ids and hashes. Where a
        reader of an old state holds bytes of it, the next `maintain` takes them.
        """
        require(self.guard, self.subject, "erase", NAMESPACE)
        writer = self._writer()
        if session_id:
            writer.erase_elsewhere([session_id])
        with self._region.begin(self._own.name, write=False) as transaction:
            shown = window_records_of(transaction)
            if shown is None or not shown.has(session_id):
                return False
        gone = forget_sessions(writer, lambda _: [session_id], "forgotten")
        if gone and scrub:
            windows_scrubbed(writer)
        return bool(gone)

    def maintain(
        self, progress: Progress | None = None, *, graph: bool = True
    ) -> MaintenanceReport:
        """Do what time has made due; cheap, and without any write, when nothing is.

        Spec: CRP-SPEC-009 §2.2, §5.5, §7.2, §8.1, §8.2
        """
        return Maintenance(self._writer()).run(progress or ignore_progress, graph=graph)

    def recluster(self, *, afresh: bool = False) -> ClusterReport:
        """Find the communities anew, beginning with those that there are.

        It covers what the subject may not read, too, and makes every ETag invalid.

        Spec: CRP-SPEC-009 §5.5
        """
        require(self.guard, self.subject, "write", NAMESPACE)
        report = CommunityDetection(self._writer()).run(afresh=afresh)
        # Many facts are others now by the log, of which the next process would compare each.
        self._region.namespace_state(self._own.name).settle()
        return report

    def communities(self) -> list[Community]:
        """The communities of the facts that the subject may read, the largest first, then by label.

        Spec: CRP-SPEC-009 §5
        """
        return CommunityDetection(self._writer()).communities()

    def graph(self) -> FactGraph:
        """The similarity graph of the facts that the subject may read, for export.

        Spec: CRP-SPEC-009 §5.2
        """
        return CommunityDetection(self._writer()).graph()

    # --- the namespace as a whole ---------------------------------------------------------

    def stats(self) -> NamespaceStats:
        """Counts, hashes and sizes of the tenant's own namespace, whoever may see its facts."""
        return NamespaceHealth(self._region, self._own.name).stats()

    def doctor(self) -> NamespaceExamination:
        """Look at everything that is stored, and say what is wrong and what to do about it.

        Spec: CRP-SPEC-009 §1
        """
        return NamespaceHealth(self._region, self._own.name).examine()

    def export(self, where: Where | None = None) -> Iterator[Source | Fact]:
        """The tenant's own sources, then its facts, of one state, both by id."""
        which = Where() if where is None else where
        of_kind(which, Where, "where", "a Where, as in Where(statuses=(FactStatus.ARCHIVED,))")
        return self._records(which)

    def compact(self) -> None:
        """Rewrite the files without free space and without a byte of what was removed.

        Spec: CRP-SPEC-009 §3.3
        """
        require(self.guard, self.subject, "write", NAMESPACE)
        self._region.store.compact(self._own.name)

    def _records(self, where: Where) -> Iterator[Source | Fact]:
        """Sources, then facts; the transaction is open until the last one is taken."""
        gate = self._own.gate()
        with self._region.begin(self._own.name, write=False) as transaction:
            facts = transaction.facts
            yield from (source for source in facts.sources() if gate.may_read(source.labels))
            ids = facts.find(self._own.as_of(where))
            # Deleted facts are never exported, not even to a reader who asks for them by status.
            for start in range(0, len(ids), _EXPORT_SLICE):
                records = facts.get(ids[start : start + _EXPORT_SLICE])
                shown = gate.facts(
                    fact for fact in records if fact.status is not FactStatus.DELETED
                )
                yield from self._own.aged(shown)

    # --- within --------------------------------------------------------------------------

    def _reclustered(self, report: IngestReport) -> IngestReport:
        """What was ingested, after the communities were found anew if that was due.

        Spec: CRP-SPEC-009 §5.5
        """
        region = self._region
        if region.leiden is None or not report.facts:
            return report
        with region.begin(self._own.name, write=False) as transaction:
            if not reclustering_due_after_ingestion(transaction.facts, region.settings.communities):
                return report
        try:
            after = CommunityDetection(self._writer()).run().state_hash
        except (ConfigError, EngineError, StoreBusy) as error:
            _log.warning("communities were not found anew: %s", error)
            return report
        return report.model_copy(update={"state_hash": after})

    def _writer(self) -> NamespaceWriter:
        return NamespaceWriter(self._own, self._shared, self.subject, self.guard)

    def _settle(self, result: _Result) -> _Result:
        """What a write gave, after the index was brought up to date."""
        self._region.namespace_state(self._own.name).settle()
        return result


def _checked(ttl: str | None) -> str | None:
    """A time to live as it was given.

    Spec: CRP-SPEC-009 §8.1
    """
    try:
        if ttl is not None:
            duration(ttl)
    except (ValueError, TypeError, AttributeError) as error:
        why = error if isinstance(error, ValueError) else f"it is of type {type(ttl).__name__}"
        raise RequestError(f"ttl is not usable: {why}") from None
    return ttl


def _named(labels: Iterable[str]) -> tuple[str, ...]:
    """Access labels as they were given."""
    checked = access_labels(labels, RequestError)
    if not all(label.strip() for label in checked):
        raise RequestError(f"labels holds a blank one in {list(checked)!r:.80}; leave it out")
    return checked
