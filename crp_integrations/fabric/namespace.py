"""The only read path: one tenant's facts as one subject may see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from crp_integrations.fabric.adding import Adding
from crp_integrations.fabric.inspection import Inspection
from crp_integrations.fabric.ports import Transaction, must_write
from crp_integrations.fabric.ports.faulted import Counted
from crp_integrations.fabric.progress import Progress
from crp_integrations.fabric.reading import Reading
from crp_integrations.fabric.records import (
    Where,
)
from crp_integrations.fabric.reembedding import ReembedReport
from crp_integrations.fabric.search.hot import HotLayer
from crp_integrations.fabric.search.shelves import Use
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.shared import SharedReading
from crp_integrations.fabric.view import View
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require
from crp_integrations.guard.ports import Redactor
from crp_integrations.language import memo
from crp_integrations.ports import Clock, Embedder, TokenCounter

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric


class Namespace(View, Adding, Inspection):
    """A tenant's part of the fabric, bound to a subject and a guard; safe between threads.

    Made by `Fabric.bind`. No method takes a tenant. The reads are those of `View`: the tenant's
    own facts and the shared ones. The writes here change the own ones alone.

    Spec: CRP-SPEC-009 §9.1, §9.2

    Attributes:
        subject: who asks.
    """

    def __init__(
        self, fabric: Fabric, subject: Subject, guard: Guard, shared: Sequence[str] = ()
    ) -> None:
        self._fabric = fabric
        self._guard = guard
        self._own = Reading(fabric, subject.tenant, subject, guard)
        self._shared = tuple(SharedReading(fabric, name, subject, guard) for name in shared)
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

    # --- reading: see `View` -----------------------------------------------------------

    def view(self, session_id: str = "", *, keep_counts: bool = True) -> View:
        """The same reads, with what a session holds in memory at this moment.

        Spec: CRP-SPEC-009 §7.2

        Args:
            session_id: empty for no session.
            keep_counts: false where nothing at all may be written.
        """
        fabric = self._fabric
        held = fabric.hot.held(self.subject.tenant, session_id, fabric.clock.now())
        return View(
            self._own,
            self._shared,
            HotLayer(held, self._own.gate()) if held else None,
            embedder=self.embedder,
            keep_counts=keep_counts,
            shelf=fabric.shelves.shelf(self.subject.tenant, self.subject.name, session_id),
        )

    def shelve(self, session_id: str, used: Iterable[Use]) -> None:
        """Remember in memory what an envelope of the subject's session held.

        Spec: CRP-SPEC-003 §5.2
        """
        self._fabric.shelves.note(self.subject.tenant, self.subject.name, session_id, used)

    def note_shared_use(self, ids: Sequence[str], now: datetime) -> None:
        """Tell the shared namespaces which of their facts were used; the operator alone sees it.

        Spec: CRP-SPEC-009 §9.2
        """
        own = self._own.holds(ids, aside=False) if self._shared else set()
        for shared in self._shared:
            shared.note_use([id_ for id_ in ids if id_ not in own], now)

    def note_shared_findings(self, ids: Sequence[str]) -> dict[str, Counted]:
        """Count for the operator that an answer went wrong with shared facts; by id.

        Spec: CRP-SPEC-009 §8.4
        """
        asked = ids if self._shared else ()
        left = [*{*asked} - self._own.holds(asked, aside=False)] if asked else []
        noted = [shared.note_findings(left) for shared in self._shared] if left else []
        return {id_: counted for one in noted for id_, counted in one.items()}

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

    def end_session(self, session_id: str) -> int:
        """Purge what a session holds in memory; returns how many facts that were.

        Spec: CRP-SPEC-009 §7.2
        """
        self._fabric.shelves.end(self.subject.tenant, self.subject.name, session_id)
        held = self._fabric.hot.end(self.subject.tenant, session_id)
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

        Args:
            embedder: the new one.
            progress: called with step, done and total.

        Raises:
            AccessDenied: the guard denies writing.
            ConfigError: another process moves the namespace to a third embedder.
            StoreBusy: another writer held the store for too long; what is prepared stays.
        """
        require(self._guard, self.subject, "write", NAMESPACE)
        return self._fabric.reembed(self._own.name, embedder, progress)

    def must_write(self) -> None:
        """Refuse where it cannot be written, before what is paid for and then kept.

        Raises:
            StoreBusy: as on a standby of the database.
            AccessDenied: the login of the database may not write it.
            StoreError: its file may not be written, or there is no room left for it.
        """
        must_write(self._fabric.store, self._own.name)

    def begin(self, write: bool) -> AbstractContextManager[Transaction]:
        """A transaction of the namespace, for the relay's close; the guard does not look in.

        Raises:
            StoreError: the store cannot open one.
        """
        return self._fabric.begin(self._own.name, write=write)
