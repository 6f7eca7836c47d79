"""A tenant's part of the fabric, bound to a subject and a guard: all reads and writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
from pydantic import JsonValue

from crp_integrations.audit.records import Event
from crp_integrations.errors import ConfigError, EngineError, FactRejected, RequestError, StoreBusy
from crp_integrations.fabric.community_detection import CommunityDetection
from crp_integrations.fabric.embedder_migration import ReembedReport
from crp_integrations.fabric.erasure import (
    erase_namespace,
    erase_source,
    forget_sessions,
    windows_scrubbed,
)
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
from crp_integrations.fabric.inspection import NamespaceExamination, NamespaceHealth, NamespaceStats
from crp_integrations.fabric.lifecycle import ChangeReport, ErasureReport, MaintenanceReport
from crp_integrations.fabric.maintenance import Maintenance
from crp_integrations.fabric.namespace_reader import NamespaceReader, SharedNamespaceReader
from crp_integrations.fabric.namespace_writer import NamespaceWriter
from crp_integrations.fabric.ports import Transaction, must_write, window_records_of
from crp_integrations.fabric.ports.engines import Progress, ignore_progress
from crp_integrations.fabric.ports.store import FaultCounts, bulk_load, fault_counts_of
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
from crp_integrations.fabric.state_hash import reclustering_due_after_ingestion, retrievable
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require
from crp_integrations.guard.ports import Redactor
from crp_integrations.language import memo
from crp_integrations.ports import (
    Clock,
    Embedder,
    TokenCounter,
    embedder_of_tenant,
    share_in_copies,
)
from crp_integrations.validation import of_kind
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus, SourceKind

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# Number of facts up to which the call that adds some also finds the communities that are due, in
# half a second of processor time; with 20,000 it took ten, so that is left to `maintain`.
INLINE_UP_TO = 5_000
# Number of facts that an export reads at once.
_EXPORT_SLICE = 256


class Namespace(FabricView):
    """A tenant's part of the fabric, bound to a subject and a guard; thread-safe.

    Made by `Fabric.bind`. No method takes a tenant. The reads are those of `FabricView`: the
    tenant's own facts and the shared ones. Writes change only the tenant's own facts. Every write
    is all or nothing: if one id is unknown to the subject, or its fact may not be changed this way,
    the whole batch is refused. Communities never span two namespaces, so the shared namespaces that
    a tenant reads have their own.

    Spec: CRP-SPEC-009 §2.2, §5, §8, §9.1, §9.2

    Attributes:
        subject: the subject on whose behalf everything is read and written.
        guard: decides on access, also to content kept outside of the fabric.
    """

    __deepcopy__ = share_in_copies

    def __init__(
        self, region: FabricRegion, subject: Subject, guard: Guard, shared: Sequence[str] = ()
    ) -> None:
        self._region = region
        self._own = NamespaceReader(region, subject.tenant, subject, guard)
        self._shared = tuple(SharedNamespaceReader(region, name, subject, guard) for name in shared)
        self.subject = subject
        self.guard = guard
        embedder = embedder_of_tenant(region.embedder, subject.tenant)
        super().__init__(self._own, self._shared, embedder=embedder)

    @property
    def guard_name(self) -> str:
        """Name of the guard, for reports."""
        return self.guard.name

    @property
    def redactor(self) -> Redactor | None:
        """The redactor that removes personal data from texts; None for none."""
        return self._region.redactor

    @property
    def counter(self) -> TokenCounter:
        """The token counter for the length limits of stored facts."""
        return self._region.counter

    @property
    def clock(self) -> Clock:
        """The clock for all stored times."""
        return self._region.clock

    @property
    def settings(self) -> FabricSettings:
        """The settings of the fabric."""
        return self._region.settings

    @property
    def residency(self) -> str:
        """Name of the region whose store is used; empty for the default region.

        Spec: CRP-SPEC-009 §7.2
        """
        return self._region.residency

    # --- reading: see `FabricView` -----------------------------------------------------------

    def view(self, session_id: str = "", *, keep_counts: bool = True) -> FabricView:
        """Return a view that includes the facts a session has in memory at this moment.

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
        """Record in memory which facts were in an envelope of the subject's session.

        Spec: CRP-SPEC-003 §5.2
        """
        self._region.recent_uses.note(self.subject.tenant, self.subject.name, session_id, used)

    def note_shared_use(self, ids: Sequence[str], now: datetime) -> None:
        """Record in the shared namespaces which of their facts were used, for the operator only.

        Spec: CRP-SPEC-009 §9.2
        """
        own = self._own.holds(ids, aside=False) if self._shared else set()
        for shared in self._shared:
            shared.note_use([id_ for id_ in ids if id_ not in own], now)

    def note_shared_findings(self, ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count for the operator that an answer distorted shared facts; returns counts by id.

        Spec: CRP-SPEC-009 §8.4
        """
        asked = ids if self._shared else ()
        left = [*{*asked} - self._own.holds(asked, aside=False)] if asked else []
        noted = [shared.note_findings(left) for shared in self._shared] if left else []
        return {id_: counted for counts in noted for id_, counted in counts.items()}

    def withdrawn(self, ids: Sequence[str]) -> bool:
        """Whether any of the facts or sources was forgotten or is in quarantine.

        For content derived from them and kept outside of the store; the guard is not asked. A
        source counts as soon as one of its facts is in quarantine.

        Spec: CRP-SPEC-009 §2.2, §8.4
        """
        if self._own.withdrawn(ids):
            return True
        others = [*{*ids} - self._own.holds(ids, aside=False)] if self._shared else []
        return any(shared.withdrawn(others) for shared in self._shared)

    def find_own(self, where: Where) -> list[str]:
        """Ids of the tenant's own retrievable facts that match the filter, ascending.

        Quarantined and archived facts are listed by `export(Where(statuses=…))`.
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
        """Ingest documents, all or nothing.

        Spec: CRP-SPEC-009 §4.1

        A document already stored with equal content adds nothing. If a document has changed,
        unchanged passages keep their facts, new passages are added, and the facts of removed
        passages become STALE.
        """
        report = Ingestion(self._writer()).documents(
            documents,
            kind=kind,
            labels=_checked_labels(labels),
            ttl=_checked_ttl(ttl),
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
        """Add facts without chunking, all or nothing."""
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
        """Add facts under their own ids, or change the facts with these ids, all or nothing.

        A deleted fact's id can be used again; a stale or archived fact becomes ACTIVE, unless its
        ttl has ended, in which case it stays STALE. A fact of an ingested document stays in its
        source, whatever source is given.
        """
        report = FactUpsert(self._writer()).put(facts, uris=uris or {}, vectors=vectors)
        return self._settle(self._reclustered(report))

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Add many batches within the block: communities and index wait until it ends.

        Each batch is committed by itself, so a killed load is begun again from the start and adds
        what is missing. A store with an index of its own builds it once, at the end. Communities
        of more than `INLINE_UP_TO` facts are left to `maintain`.
        """
        region, name = self._region, self._own.name
        region.loads[name] += 1
        try:
            with bulk_load(region.store, name):
                yield
        finally:
            region.loads[name] -= 1
        self._settle(self._recluster_if_due())

    def hold(
        self, session_id: str, facts: Sequence[Fact | str], *, kind: SourceKind | None = None
    ) -> IngestReport:
        """Keep facts in memory for one session only; the store is not written.

        They are candidates for that session's questions until the session ends, was idle for too
        long, or the process ends. Each is embedded once.

        Spec: CRP-SPEC-009 §7.2
        """
        if not session_id:
            raise RequestError("facts are kept for one session; give its session_id")
        writer, memory = self._writer(), self._region.session_memory
        tenant, now = writer.namespace, writer.clock.now()
        prepared = writer.prepared(facts, kind)
        ids = [fact.fact_id for fact in prepared]
        own = self._own.holds(ids)
        writer.check_shared([fact for fact in prepared if fact.fact_id not in own], ())
        before = memory.held(tenant, session_id, now)
        there = self.stored(ids) | set(before.facts if before else ())
        fresh = [fact for fact in prepared if fact.fact_id not in there]
        # Before the costly embedding, so that a refused call costs nothing.
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
        """The ids stored in this or a shared namespace; the guard is not asked.

        Spec: CRP-SPEC-009 §7.2
        """
        stored_ids = self._own.holds(ids)
        for shared in self._shared:
            stored_ids |= shared.holds([id_ for id_ in ids if id_ not in stored_ids])
        return stored_ids

    def stored_here(self, ids: Sequence[str], transaction: Transaction) -> set[str]:
        """The ids stored in the own namespace, as an open transaction of it sees them."""
        return self._own.holds(ids, within=transaction)

    def stored_elsewhere(self, ids: Sequence[str]) -> set[str]:
        """The ids stored in shared namespaces; nothing is read if there are none."""
        return {id_ for shared in self._shared for id_ in shared.holds(ids)}

    def end_session(self, session_id: str) -> int:
        """Purge a session's facts from memory; returns their number.

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
        replaces the old vectors. Until then the old embedder stays in use, and a fabric with the
        new embedder can be bound and finds the facts prepared so far. Afterwards a fabric with the
        old embedder is refused: bind from one with the new embedder. An interrupted call is
        resumed by the next one. Communities are recomputed at the next `maintain`.

        Spec: CRP-SPEC-009 §3.4
        """
        require(self.guard, self.subject, "write", NAMESPACE)
        return self._region.reembed(self._own.name, embedder, progress)

    def must_write(self) -> None:
        """Raise if the namespace cannot be written, before a costly step whose result is stored."""
        must_write(self._region.store, self._own.name)

    def begin(self, write: bool) -> AbstractContextManager[Transaction]:
        """Begin a transaction of the namespace, for the relay's close; the guard is not asked."""
        return self._region.begin(self._own.name, write=write)

    # --- what is stored: status, erasure, upkeep, communities -----------------------------

    def link(self, edges: Iterable[Edge]) -> None:
        """Store edges between the tenant's own facts; each can be followed from both ends.

        The reverse edge has the kind with the prefix `^`. Edges are removed with either fact.

        Spec: Summit §Storage Interfaces
        """
        links = list(edges)
        ids = sorted({id_ for edge in links for id_ in (edge.source_fact, edge.target_fact)})
        known = {fact.fact_id: fact for fact in self._own.facts(ids)}
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            raise FactRejected(f"fact {missing[0]!r:.80} cannot be linked: unknown or withheld")
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
        """Change a fact in place; omitted fields stay unchanged.

        The id stays. New content changes the content hash and the vector. Passing content, even
        the old one, confirms it: a STALE fact becomes ACTIVE, unless its ttl has ended, and an
        archived fact is restored.

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

        Their bytes are removed by the first `maintain` after the retention period; to remove them
        now, use `erase`. Artifacts that list them as sources are removed at once.

        Spec: CRP-SPEC-009 §2.2
        """
        return self._settle(forget_facts(self._writer(), facts, source))

    def archive(self, ids: Sequence[str]) -> ChangeReport:
        """Archive facts: they leave search, text index and state hash until `restore`.

        Spec: CRP-SPEC-009 §8.2
        """
        return self._settle(change_status(self._writer(), "archived", ids))

    def restore(self, ids: Sequence[str]) -> ChangeReport:
        """Make archived facts retrievable again; their status is unchanged.

        Spec: CRP-SPEC-009 §8.2
        """
        return self._settle(change_status(self._writer(), "restored", ids))

    def quarantine(self, ids: Sequence[str], reason: str = "") -> ChangeReport:
        """Remove facts from retrieval, and notify the operator which sources to review.

        Artifacts derived from them or from their sources cannot be read until `lift`.

        Spec: CRP-SPEC-009 §8.4
        """
        if not isinstance(reason, str):
            # Checked first: the notice would fail only after the facts are quarantined.
            raise RequestError(f"reason is of type {type(reason).__name__}, wanted a text")
        return self._settle(quarantine_facts(self._writer(), ids, reason))

    def due_for_review(self, least: int | None = None) -> list[str]:
        """Facts that answers repeatedly distort or add to.

        Spec: CRP-SPEC-009 §8.4

        Args:
            least: minimum number of findings against a fact; None for `quarantine_findings`
                findings in at least a share `quarantine_share` of its uses.

        Returns:
            Their ids, ascending; empty if the store does not count findings.
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

        A tombstone in the registry and an event in the journal remain, committed together with
        the removal. A second call completes a scrub that an open reader prevented.

        Spec: CRP-SPEC-009 §8.3
        """
        erased = erase_source(self._writer(), source)
        if erased.facts:
            # The graph's file was deleted too; build a new one for the next process.
            self._region.namespace_state(self._own.name).settle(thorough=graph)
        return erased

    def erase_everything(self, keep: Callable[[Iterable[Event]], None]) -> int:
        """Erase the tenant's namespace with its sessions, trail and artifacts; end its users first.

        Spec: CRP-SPEC-009 §8.3

        Args:
            keep: stores the events of the trail, and two more that state the erasure, before
                anything is erased. They contain ids and hashes, and prove it with the key.

        Returns:
            Number of facts, whatever their status.
        """
        return erase_namespace(self._writer(), keep)

    def forget_session(self, session_id: str, *, scrub: bool = True) -> bool:
        """Remove a session from the store: its state, its windows and all their answers.

        The seals of its windows and the journal's events stay; they contain ids and hashes. If an
        open reader prevents scrubbing the bytes, the next `maintain` removes them.
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
        """Run due maintenance; cheap, and without any write, if nothing is due.

        Spec: CRP-SPEC-009 §2.2, §5.5, §7.2, §8.1, §8.2
        """
        return Maintenance(self._writer()).run(progress or ignore_progress, graph=graph)

    def recluster(self, *, afresh: bool = False) -> ClusterReport:
        """Recompute the communities, starting from the existing ones.

        This includes facts that the subject may not read, and invalidates every ETag.

        Spec: CRP-SPEC-009 §5.5
        """
        require(self.guard, self.subject, "write", NAMESPACE)
        report = CommunityDetection(self._writer()).run(afresh=afresh)
        # Labels changed many facts in the log; update now, so that later reads need not.
        self._region.namespace_state(self._own.name).settle()
        return report

    def communities(self) -> list[Community]:
        """Communities of the facts that the subject may read, the largest first, then by label.

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
        """Counts, hashes and sizes of the tenant's own namespace, including hidden facts."""
        return NamespaceHealth(self._region, self._own.name).stats()

    def doctor(self) -> NamespaceExamination:
        """Check everything that is stored; report problems and their remedies.

        Spec: CRP-SPEC-009 §1
        """
        return NamespaceHealth(self._region, self._own.name).examine()

    def export(self, where: Where | None = None) -> Iterator[Source | Fact]:
        """Yield the tenant's own sources, then its facts, both by id, all of one state."""
        which = Where() if where is None else where
        of_kind(which, Where, "where", "a Where, as in Where(statuses=(FactStatus.ARCHIVED,))")
        return self._records(which)

    def compact(self) -> None:
        """Rewrite the files without free space and without removed bytes.

        Spec: CRP-SPEC-009 §3.3
        """
        require(self.guard, self.subject, "write", NAMESPACE)
        self._region.store.compact(self._own.name)

    def _records(self, where: Where) -> Iterator[Source | Fact]:
        """Yield sources, then facts; the transaction stays open until the iteration ends."""
        gate = self._own.gate()
        with self._region.begin(self._own.name, write=False) as transaction:
            facts = transaction.facts
            yield from (source for source in facts.sources() if gate.may_read(source.labels))
            ids = facts.find(self._own.as_of(where))
            # Deleted facts are never exported, not even if the filter asks for them.
            for start in range(0, len(ids), _EXPORT_SLICE):
                records = facts.get(ids[start : start + _EXPORT_SLICE])
                shown = gate.facts(
                    fact for fact in records if fact.status is not FactStatus.DELETED
                )
                yield from self._own.aged(shown)

    # --- within --------------------------------------------------------------------------

    def _reclustered(self, report: IngestReport) -> IngestReport:
        """Recompute the communities if due; return the report with the new state hash."""
        after = self._recluster_if_due() if report.facts else None
        return report if after is None else report.model_copy(update={"state_hash": after})

    def _recluster_if_due(self) -> str | None:
        """Recompute the communities if due here and now; return the new state hash, else None.

        Spec: CRP-SPEC-009 §5.5
        """
        region = self._region
        if region.leiden is None or region.loads[self._own.name]:
            return None
        with region.begin(self._own.name, write=False) as transaction:
            facts = transaction.facts
            if not reclustering_due_after_ingestion(facts, region.settings.communities):
                return None
            if retrievable(facts) > INLINE_UP_TO:
                return None
        try:
            return CommunityDetection(self._writer()).run().state_hash
        except (ConfigError, EngineError, StoreBusy) as error:
            _log.warning("communities were not recomputed: %s", error)
            return None

    def _writer(self) -> NamespaceWriter:
        return NamespaceWriter(self._own, self._shared, self.subject, self.guard)

    def _settle(self, result: _Result) -> _Result:
        """Update the index after a write, and return the write's result."""
        if not self._region.loads[self._own.name]:
            self._region.namespace_state(self._own.name).settle()
        # Its facts are of an earlier state, so no question would use them.
        self._region.fact_cache.drop(self._own.name)
        return result


def _checked_ttl(ttl: str | None) -> str | None:
    """Check a time to live and return it unchanged.

    Spec: CRP-SPEC-009 §8.1
    """
    try:
        if ttl is not None:
            duration(ttl)
    except (ValueError, TypeError, AttributeError) as error:
        why = error if isinstance(error, ValueError) else f"it is of type {type(ttl).__name__}"
        raise RequestError(f"ttl is not usable: {why}") from None
    return ttl


def _checked_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Check access labels, which must not be blank, and return them sorted."""
    checked = access_labels(labels, RequestError)
    if not all(label.strip() for label in checked):
        raise RequestError(f"labels contains a blank one in {list(checked)!r:.80}; leave it out")
    return checked
