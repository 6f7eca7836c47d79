"""The part of a namespace that looks at it as a whole: counts, examination, export, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crp_integrations.audit.keys import journal_key
from crp_integrations.fabric.communities.schedule import communities_found
from crp_integrations.fabric.export import Export
from crp_integrations.fabric.health import Examination, Health, Stats
from crp_integrations.fabric.reading import Reading
from crp_integrations.fabric.records import Fact, Source, Where
from crp_integrations.given import of_kind
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric


class Inspection:
    """What an operator asks of a namespace; a base of `Namespace`. The shared ones are left out."""

    _fabric: Fabric
    _guard: Guard
    _own: Reading
    subject: Subject

    def stats(self) -> Stats:
        """Counts, hashes and sizes of the tenant's own namespace, whoever may see its facts."""
        return self._health().stats()

    def doctor(self) -> Examination:
        """Look at everything that is stored, and say what is wrong and what to do about it.

        The whole namespace is read; nothing is changed.

        Spec: CRP-SPEC-009 §1
        """
        return self._health().examine()

    def export(self, where: Where | None = None) -> Iterator[Source | Fact]:
        """The tenant's own sources, then its facts, of one state, both by id.

        What the guard denies to the subject is left out, and so is what was deleted.

        Args:
            where: which facts; None for everything that can be retrieved. With `statuses` also
                quarantined and archived ones, for review.

        Raises:
            RequestError: `where` is something else.
        """
        fabric, name = self._fabric, self._own.name
        which = Where() if where is None else where
        of_kind(which, Where, "where", "a Where, as in Where(statuses=(FactStatus.ARCHIVED,))")
        return Export(lambda: fabric.begin(name, write=False), self._own.gate()).records(which)

    def compact(self) -> None:
        """Rewrite the files without free space and without a byte of what was removed.

        Spec: CRP-SPEC-009 §3.3

        Raises:
            AccessDenied: the guard denies writing.
            StoreBusy: another process uses the store.
        """
        require(self._guard, self.subject, "write", NAMESPACE)
        self._fabric.store.compact(self._own.name)

    # --- within ------------------------------------------------------------------------

    def _health(self) -> Health:
        fabric, name = self._fabric, self._own.name
        live = fabric.live(name)
        return Health(
            namespace=name,
            store=fabric.store,
            begin=lambda: fabric.begin(name, write=False),
            key=lambda: journal_key(fabric.keyring, name),
            index=lambda facts: live.picture(facts).index,
            communities=communities_found,
            hash_in=live.state_hash,
            embedder=fabric.embedder,
            clock=fabric.clock,
            settings=fabric.settings,
        )
