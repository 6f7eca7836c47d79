"""The part of a namespace that changes stored facts: status, erasure, maintenance, communities."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from crp_integrations.audit.window_seals import journal_key
from crp_integrations.errors import ConfigError, EngineError, FactRejected, RequestError, StoreBusy
from crp_integrations.fabric.communities.community_detection import CommunityDetection
from crp_integrations.fabric.communities.similarity_graph import FILE as SIMILARITY_FILE
from crp_integrations.fabric.communities.similarity_graph import ClusterReport, Community, FactGraph
from crp_integrations.fabric.embedder_migration import NEXT_SETTING
from crp_integrations.fabric.life.erasure import SourceErasure, forget_sessions, windows_scrubbed
from crp_integrations.fabric.life.fact_changes import (
    UNCHANGED,
    FactUpdate,
    StatusChanges,
    Unchanged,
)
from crp_integrations.fabric.life.fact_writer import FactWriter, NamespaceScrub
from crp_integrations.fabric.life.lifecycle import ChangeReport, ErasureReport, MaintenanceReport
from crp_integrations.fabric.life.maintenance import Maintenance
from crp_integrations.fabric.namespace_reader import NamespaceReader
from crp_integrations.fabric.ports import FactsFacet, build_due_index, window_records_of, work_lock
from crp_integrations.fabric.ports.engines import Progress, ignore_progress
from crp_integrations.fabric.ports.store import fault_counts_of, scratch_of
from crp_integrations.fabric.records import Edge, Fact, IngestReport, access_labels
from crp_integrations.fabric.shared_namespace import (
    PREFIX,
    SharedNamespaceReader,
    refuse_other_text,
    refuse_shared,
)
from crp_integrations.fabric.state_hash import reclustering_due, reclustering_due_after_ingestion
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require
from crp_integrations.language import memo
from crp_integrations.vocabulary import SourceKind

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric

_log = logging.getLogger(__name__)


_Result = TypeVar("_Result")


class NamespaceAdministration:
    """What can be done to facts that are stored; a base of `Namespace`.

    Every verb takes a whole batch or nothing: one id that is unknown to the subject, or whose
    fact may not change so, refuses all of it. Communities are found per namespace and never across
    two, so the shared namespaces that a tenant reads have their own.

    Spec: CRP-SPEC-009 §2.2, §5, §8, §9.1
    """

    _fabric: Fabric
    _guard: Guard
    _own: NamespaceReader
    _shared: tuple[SharedNamespaceReader, ...]
    subject: Subject

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
            require(self._guard, self.subject, "write", labels)
        back = [
            Edge(
                source_fact=edge.target_fact,
                target_fact=edge.source_fact,
                kind=f"^{edge.kind}",
                weight=edge.weight,
            )
            for edge in links
        ]
        with self._fabric.begin(self._own.name, write=True) as transaction:
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
        updating = FactUpdate(self._writer())
        return self._settle(updating.update(fact_id, fields))

    def mark_stale(self, ids: Sequence[str]) -> ChangeReport:
        """Flag ACTIVE facts as STALE: still retrievable, with freshness 0.

        Spec: CRP-SPEC-009 §2.2
        """
        return self._settle(StatusChanges(self._writer()).mark_stale(ids))

    def forget(self, *, facts: Sequence[str] = (), source: str | None = None) -> ChangeReport:
        """Delete facts, or a source with all of its facts; they are unretrievable at once.

        Their bytes leave the store at the first `maintain` after the retention period; for bytes
        that must go now there is `erase`. Artifacts that name them among their sources go at once.

        Spec: CRP-SPEC-009 §2.2
        """
        return self._settle(StatusChanges(self._writer()).forget(facts, source))

    def archive(self, ids: Sequence[str]) -> ChangeReport:
        """Put facts aside: out of search, text index and state hash, until `restore`.

        Spec: CRP-SPEC-009 §8.2
        """
        return self._settle(StatusChanges(self._writer()).archive(ids))

    def restore(self, ids: Sequence[str]) -> ChangeReport:
        """Bring archived facts back with the status that they have.

        Spec: CRP-SPEC-009 §8.2
        """
        return self._settle(StatusChanges(self._writer()).restore(ids))

    def quarantine(self, ids: Sequence[str], reason: str = "") -> ChangeReport:
        """Take facts out of retrieval, and tell the operator which sources to review.

        Artifacts that come from them, or from their sources, are read by nobody until `lift`.

        Spec: CRP-SPEC-009 §8.4
        """
        if not isinstance(reason, str):
            # It goes into a notice, and what is quarantined by then would stay so.
            raise RequestError(f"reason is of type {type(reason).__name__}, wanted a text")
        return self._settle(StatusChanges(self._writer()).quarantine(ids, reason))

    def due_for_review(self, least: int | None = None) -> list[str]:
        """Facts that answers are repeatedly found to distort or to add to.

        Spec: CRP-SPEC-009 §8.4

        Args:
            least: findings against a fact, at least; None for `quarantine_findings`, in a share
                of its uses of `quarantine_share`.

        Returns:
            Their ids, ascending; empty where the store counts no findings.
        """
        life = self._fabric.settings.lifecycle
        share = life.quarantine_share if least is None else 0.0
        with self._fabric.begin(self._own.name, write=False) as transaction:
            facet = fault_counts_of(transaction)
            wanted = life.quarantine_findings if least is None else least
            return [] if facet is None else facet.due(wanted, share)

    def lift(self, ids: Sequence[str]) -> ChangeReport:
        """End the quarantine of facts after review: they are ACTIVE and retrievable.

        Spec: CRP-SPEC-009 §8.4
        """
        return self._settle(StatusChanges(self._writer()).lift(ids))

    def erase(self, source: str, *, graph: bool = True) -> ErasureReport:
        """Erase a source: no byte of its facts, vectors, title or URI stays in any file.

        What stays is a tombstone in the registry and an event in the journal, committed together
        with the removal. A second call finds nothing left and finishes what a reader held up.

        Spec: CRP-SPEC-009 §8.3
        """
        erased = SourceErasure(self._writer()).erase(source)
        if erased.facts:
            # The graph's file went with the bytes; without another one, the next process has none.
            self._fabric.namespace_state(self._own.name).settle(thorough=graph)
        return erased

    def forget_session(self, session_id: str, *, scrub: bool = True) -> bool:
        """Remove what the store keeps of a session: its state, its windows, all that they said.

        The seals of its windows and the journal's events stay, which hold ids and hashes. Where a
        reader of an old state holds bytes of it, the next `maintain` takes them.
        """
        require(self._guard, self.subject, "erase", NAMESPACE)
        writer = self._writer()
        if session_id:
            writer.erase_elsewhere([session_id])
        with self._fabric.begin(self._own.name, write=False) as transaction:
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
        fabric = self._fabric
        return Maintenance(
            self._writer(),
            recluster_due=self._recluster_due,
            recluster=lambda: self._clustering().run(),
            settle=lambda: graph and self._settle_files(),
            purge_sessions=fabric.session_memory.purge_idle,
        ).run(progress or ignore_progress)

    def recluster(self, *, afresh: bool = False) -> ClusterReport:
        """Find the communities anew, beginning with those that there are.

        It covers what the subject may not read, too, and makes every ETag invalid.

        Spec: CRP-SPEC-009 §5.5
        """
        require(self._guard, self.subject, "write", NAMESPACE)
        report = self._clustering().run(afresh=afresh)
        # Many facts are others now by the log, of which the next process would compare each.
        self._fabric.namespace_state(self._own.name).settle()
        return report

    def communities(self) -> list[Community]:
        """The communities of the facts that the subject may read, the largest first, then by label.

        Spec: CRP-SPEC-009 §5
        """
        return self._clustering().communities()

    def graph(self) -> FactGraph:
        """The similarity graph of the facts that the subject may read, for export.

        Spec: CRP-SPEC-009 §5.2
        """
        return self._clustering().graph()

    def _clustering(self) -> CommunityDetection:
        fabric = self._fabric
        return CommunityDetection(
            writer=self._writer(),
            engine=fabric.leiden,
            embedder=fabric.embedder,
            index=lambda facts: fabric.namespace_state(self._own.name).snapshot(facts).index,
            kept=fabric.similarities,
            alone=lambda: work_lock(fabric.store, self._own.name, "recluster"),
        )

    def _recluster_due(self, facts: FactsFacet, now: datetime) -> bool:
        fabric = self._fabric
        # On the way to this fabric's embedder they are found with the vectors still in use.
        if fabric.leiden is None or facts.setting(NEXT_SETTING) == fabric.embedder.identity:
            return False
        return reclustering_due(facts, fabric.settings.communities, now)

    def _recluster_if_due(self, report: IngestReport) -> IngestReport:
        """What was ingested, after the communities were found anew if that was due.

        Spec: CRP-SPEC-009 §5.5
        """
        fabric = self._fabric
        if fabric.leiden is None or not report.facts:
            return report
        with fabric.begin(self._own.name, write=False) as transaction:
            if not reclustering_due_after_ingestion(transaction.facts, fabric.settings.communities):
                return report
        try:
            after = self._clustering().run().state_hash
        except (ConfigError, EngineError, StoreBusy) as error:
            _log.warning("communities were not found anew: %s", error)
            return report
        return report.model_copy(update={"state_hash": after})

    def _settle_files(self) -> bool:
        """Look at the derived files; whether a graph was built."""
        cache = self._fabric.store.cache(self._own.name)
        if cache is not None:
            # Reading a damaged file throws it away; the next reclustering computes it anew.
            cache.load(SIMILARITY_FILE)
        settled = build_due_index(self._fabric.store, self._own.name)
        return self._fabric.namespace_state(self._own.name).settle(thorough=True) or settled

    def _writer(self) -> FactWriter:
        fabric, name = self._fabric, self._own.name
        return FactWriter(
            **self._target(),
            may_read=self._own.gate().may_read,
            require=partial(require, self._guard, self.subject),
            cache=lambda: fabric.store.cache(name),
            scrub=lambda: fabric.store.scrub(name),
            forget_held=self._forget_in_memory,
            erase_elsewhere=self._erase_derived,
            refuse_shared=lambda ids, source: refuse_shared(self._shared, ids, source),
            readers=self._readers,
        )

    def _target(self) -> dict[str, Any]:
        """The fields of an `IngestionTarget` for the own part of the namespace."""
        fabric, name = self._fabric, self._own.name
        return {
            "namespace": name,
            "begin": lambda write: fabric.begin(name, write=write),
            "embedder": fabric.embedder,
            "counter": fabric.counter,
            "clock": fabric.clock,
            "key": lambda: journal_key(fabric.keyring, name),
            "settings": fabric.settings,
            "tracer": fabric.tracer,
            "allow": partial(require, self._guard, self.subject, "write"),
            "check": fabric.check_embedder,
            "hash_in": self._hash_in,
            "notify": fabric.notify,
            "check_shared": partial(refuse_other_text, self._shared),
            "scratch": partial(scratch_of, fabric.store),
        }

    def _readers(self) -> Iterator[NamespaceScrub]:
        """Every tenant's namespace, for a shared one; sessions of tenants hold words of it."""
        fabric = self._fabric
        if self._own.name.startswith(PREFIX):
            for name in fabric.store.namespaces():
                if not name.startswith(PREFIX):
                    yield NamespaceScrub(
                        begin=partial(fabric.begin, name, write=True),
                        scrub=partial(fabric.store.scrub, name),
                    )

    def _forget_in_memory(self, source_id: str) -> int:
        """Take what is erased out of memory; returns how many facts sessions held of it."""
        tenant = self.subject.tenant
        # Shelves name communities by words of their facts; every tenant reads a shared namespace.
        self._fabric.recent_uses.clear(None if tenant.startswith(PREFIX) else tenant)
        memo.forget()
        return self._fabric.session_memory.forget_source(tenant, source_id)

    def _erase_derived(self, ids: Sequence[str]) -> None:
        """Erase what is kept of facts outside of the store; of shared facts, for every tenant."""
        fabric, name = self._fabric, self._own.name
        if fabric.elsewhere is not None:
            names = fabric.store.namespaces() if name.startswith(PREFIX) else [name]
            for namespace in names:
                fabric.elsewhere.erase(namespace, ids, fabric.clock.now())

    def _settle(self, result: _Result) -> _Result:
        """What a write gave, after the index was brought up to date."""
        self._fabric.namespace_state(self._own.name).settle()
        # Of an earlier state, so no question would find it; and what went should not linger.
        self._fabric.fact_cache.forget(self._own.name)
        return result

    def _hash_in(self, facts: FactsFacet) -> str:
        return self._fabric.namespace_state(self._own.name).hash_in(facts)
