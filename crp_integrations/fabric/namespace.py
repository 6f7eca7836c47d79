"""The only read path, one tenant's facts as one subject may see them, and its way in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from crp_integrations.errors import RequestError
from crp_integrations.fabric.administration import NamespaceAdministration
from crp_integrations.fabric.embedder_migration import ReembedReport
from crp_integrations.fabric.ingest.fact_upsert import FactUpsert
from crp_integrations.fabric.ingest.ingestion import Ingestion
from crp_integrations.fabric.inspection import NamespaceInspection
from crp_integrations.fabric.namespace_reader import NamespaceReader
from crp_integrations.fabric.ports import Transaction, must_write
from crp_integrations.fabric.ports.engines import Progress, ignore_progress
from crp_integrations.fabric.ports.store import FaultCounts
from crp_integrations.fabric.records import (
    Document,
    Fact,
    IngestReport,
    StreamedDocument,
    Where,
    access_labels,
    duration,
)
from crp_integrations.fabric.session_memory import FactUse, SessionFactIntake, SessionFactsLayer
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.shared_namespace import SharedNamespaceReader
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require
from crp_integrations.guard.ports import Redactor
from crp_integrations.language import memo
from crp_integrations.ports import Clock, Embedder, TokenCounter
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import SourceKind

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric


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


class Namespace(FabricView, NamespaceAdministration, NamespaceInspection):
    """A tenant's part of the fabric, bound to a subject and a guard; safe between threads.

    Made by `Fabric.bind`. No method takes a tenant. The reads are those of `FabricView`:
    the tenant's own facts and the shared ones. The writes here change the own ones alone.

    Spec: CRP-SPEC-009 §9.1, §9.2

    Attributes:
        subject: who asks.
    """

    def __init__(
        self, fabric: Fabric, subject: Subject, guard: Guard, shared: Sequence[str] = ()
    ) -> None:
        self._fabric = fabric
        self._guard = guard
        self._own = NamespaceReader(fabric, subject.tenant, subject, guard)
        self._shared = tuple(SharedNamespaceReader(fabric, name, subject, guard) for name in shared)
        self.subject = subject
        super().__init__(self._own, self._shared, embedder=fabric.embedder)

    @property
    def guard_name(self) -> str:
        """Name of the guard that decides, shown in reports."""
        return self._guard.name

    @property
    def guard(self) -> Guard:
        """The guard that decides, for what is kept beside the fabric."""
        return self._guard

    @property
    def redactor(self) -> Redactor | None:
        """What takes personal data out of texts; None for nothing."""
        return self._fabric.redactor

    @property
    def embedder(self) -> Embedder:
        """The embedder whose vectors are stored."""
        return self._fabric.embedder

    @property
    def counter(self) -> TokenCounter:
        """The counter that binds the length of stored facts."""
        return self._fabric.counter

    @property
    def clock(self) -> Clock:
        """The clock by which what is stored is dated."""
        return self._fabric.clock

    @property
    def settings(self) -> FabricSettings:
        """The settings of the fabric."""
        return self._fabric.settings

    @property
    def residency(self) -> str:
        """The region whose store alone is read and written; empty for none.

        Spec: CRP-SPEC-009 §7.2
        """
        return self._fabric.residency

    # --- reading: see `FabricView` -----------------------------------------------------------

    def view(self, session_id: str = "", *, keep_counts: bool = True) -> FabricView:
        """The same reads, with what a session holds in memory at this moment.

        Spec: CRP-SPEC-009 §7.2
        """
        fabric = self._fabric
        held = fabric.session_memory.held(self.subject.tenant, session_id, fabric.clock.now())
        return FabricView(
            self._own,
            self._shared,
            SessionFactsLayer(held, self._own.gate()) if held else None,
            embedder=self.embedder,
            keep_counts=keep_counts,
            shelf=fabric.recent_uses.shelf(self.subject.tenant, self.subject.name, session_id),
        )

    def shelve(self, session_id: str, used: Iterable[FactUse]) -> None:
        """Remember in memory what an envelope of the subject's session held.

        Spec: CRP-SPEC-003 §5.2
        """
        self._fabric.recent_uses.note(self.subject.tenant, self.subject.name, session_id, used)

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
        report = Ingestion(**self._target()).documents(
            documents,
            kind=kind,
            labels=_named(labels),
            ttl=_checked(ttl),
            progress=progress or ignore_progress,
        )
        return self._settle(self._recluster_if_due(report))

    def add(
        self,
        facts: Sequence[Fact | str],
        *,
        kind: SourceKind | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Add facts as they are, without chunking; the whole batch or nothing."""
        report = Ingestion(**self._target()).facts(
            facts, kind=kind, progress=progress or ignore_progress
        )
        return self._settle(self._recluster_if_due(report))

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
        report = FactUpsert(**self._target()).put(facts, uris=uris or {}, vectors=vectors)
        return self._settle(self._recluster_if_due(report))

    def hold(
        self, session_id: str, facts: Sequence[Fact | str], *, kind: SourceKind | None = None
    ) -> IngestReport:
        """Keep facts in memory for one session alone; the store is not written.

        They are candidates of that session's questions until it ends, was idle for too long, or
        the process ends. Each is embedded once.

        Spec: CRP-SPEC-009 §7.2
        """
        intake = SessionFactIntake(
            **self._target(),
            session_memory=self._fabric.session_memory,
            own=self._own.holds,
            stored=self.stored,
        )
        new, there = intake.hold(session_id, facts, kind=kind)
        return IngestReport(
            facts=tuple(new), unchanged=tuple(there), state_hash=self._own.state_hash()
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
        self._fabric.recent_uses.end(self.subject.tenant, self.subject.name, session_id)
        held = self._fabric.session_memory.end(self.subject.tenant, session_id)
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
        require(self._guard, self.subject, "write", NAMESPACE)
        return self._fabric.reembed(self._own.name, embedder, progress)

    def must_write(self) -> None:
        """Refuse where it cannot be written, before what is paid for and then kept."""
        must_write(self._fabric.store, self._own.name)

    def begin(self, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of the namespace, for the relay's close; the guard does not look in."""
        return self._fabric.begin(self._own.name, write=write)
