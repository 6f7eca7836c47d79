"""The part of a namespace that takes in: documents, facts, facts under ids of their owner's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from crp_integrations.audit.keys import journal_key
from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.ingestion import Ingestion
from crp_integrations.fabric.ingest.into import Into
from crp_integrations.fabric.ingest.putting import Putting
from crp_integrations.fabric.life.holding import Holding
from crp_integrations.fabric.operations import Operations
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.ports.scratch import scratch_in
from crp_integrations.fabric.progress import Progress, silent
from crp_integrations.fabric.records import (
    Document,
    Fact,
    IngestReport,
    StreamedDocument,
    access_labels,
    duration,
)
from crp_integrations.fabric.shared import refuse_other_text
from crp_integrations.guard.decisions import require
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import SourceKind

_Way = TypeVar("_Way", bound=Into)


class Adding(Operations):
    """What brings facts into a namespace; a base of `Namespace`."""

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

        Args:
            documents: from a loader, or made by hand.
            kind: kind of all of them, above what they say themselves; None for their own.
            labels: access labels, added to their own.
            ttl: ISO 8601 duration such as `P90D`, counted from when a fact was first ingested;
                afterwards `maintain` marks it STALE. Facts of these documents that are stored
                already get it too. None leaves theirs, and gives new ones none.
            progress: called with step, done and total; a total of 0 means unknown.

        Raises:
            IngestError: a document cannot be ingested; names it.
            RequestError: the labels are not a list of texts, or the ttl is no duration.
            AccessDenied: the guard denies writing things with these labels.
            ConfigError: the stored vectors are of another embedder.
        """
        report = self._ingestion().documents(
            documents,
            kind=kind,
            labels=_named(labels),
            ttl=_checked(ttl),
            progress=progress or silent,
        )
        return self._settled(self._grouped(report))

    def add(
        self,
        facts: Sequence[Fact | str],
        *,
        kind: SourceKind | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Add facts as they are, without chunking; the whole batch or nothing.

        Args:
            facts: facts, or texts that become facts of the source `user`.
            kind: kind of all of them; None for a fact's own, and `user` for texts.
            progress: as in `ingest`.

        Returns:
            A report whose `unchanged` holds the ids that were there already, and whose `returned`
            those that were STALE or archived and are found again as new ones are. What is in
            quarantine stays there, and is `unchanged`.

        Raises:
            FactRejected: a fact is too short, too long or of another namespace, or is stored with
                other labels or, since an update, with another content.
            AccessDenied: the guard denies writing things with a fact's labels.
        """
        report = self._ingestion().facts(facts, kind=kind, progress=progress or silent)
        return self._settled(self._grouped(report))

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

        Args:
            facts: with the ids, sources, labels and metadata that they are to have.
            uris: URIs of sources that the registry does not know yet, by source id.
            vectors: made by the fabric's own embedder, shape (len(facts), dimensions); None to
                have them made.

        Raises:
            FactRejected: a fact is too short, too long, of another namespace, given twice with
                different content, or stored with other labels.
            IllegalTransition: a fact is in quarantine.
            EngineError: the vectors are of another number or length.
            AccessDenied: the guard denies writing things with a fact's labels.
        """
        report = self._putting().put(facts, uris=uris or {}, vectors=vectors)
        return self._settled(self._grouped(report))

    def hold(
        self, session_id: str, facts: Sequence[Fact | str], *, kind: SourceKind | None = None
    ) -> IngestReport:
        """Keep facts in memory for one session alone; the store is not written.

        They are candidates of that session's questions until it ends, was idle for too long, or
        the process ends. Each is embedded once.

        Spec: CRP-SPEC-009 §7.2

        Args:
            session_id: whose facts they are.
            facts, kind: as for `add`.

        Returns:
            A report whose `unchanged` holds the ids that the session held, or the namespace
            stored, already.

        Raises:
            FactRejected, AccessDenied: as for `add`.
            LimitReached: the session would hold too much, or too many sessions hold something.
            RequestError: the session has no name.
        """
        new, there = self._holding().hold(session_id, facts, kind=kind)
        return IngestReport(
            facts=tuple(new), unchanged=tuple(there), state_hash=self._own.state_hash()
        )

    def stored(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are stored, here or in a shared namespace; the guard is not asked.

        Spec: CRP-SPEC-009 §7.2
        """
        found = self._own.holds(ids)
        for shared in self._shared:
            found |= shared.holds([id_ for id_ in ids if id_ not in found])
        return found

    def stored_here(self, ids: Sequence[str], transaction: Transaction) -> set[str]:
        """Those of the ids that an open transaction of the own namespace sees."""
        return self._own.holds(ids, within=transaction)

    def stored_elsewhere(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that shared namespaces store; nothing is read where there are none."""
        return {id_ for shared in self._shared for id_ in shared.holds(ids)}

    # --- within ------------------------------------------------------------------------

    def _holding(self) -> Holding:
        fabric = self._fabric
        return Holding(
            tenant=self.subject.tenant,
            hot=fabric.hot,
            embedder=fabric.embedder,
            counter=fabric.counter,
            clock=fabric.clock,
            settings=fabric.settings,
            tracer=fabric.tracer,
            allow=self._allow,
            own=self._own.holds,
            stored=self.stored,
            check_shared=partial(refuse_other_text, self._shared),
        )

    def _allow(self, labels: tuple[str, ...]) -> None:
        require(self._guard, self.subject, "write", labels)

    def _putting(self) -> Putting:
        return self._into(Putting)

    def _ingestion(self) -> Ingestion:
        return self._into(Ingestion)

    def _into(self, way: type[_Way]) -> _Way:
        """A way of bringing facts into the namespace's own part."""
        fabric, name = self._fabric, self._own.name
        return way(
            namespace=name,
            begin=lambda write: fabric.begin(name, write=write),
            embedder=fabric.embedder,
            counter=fabric.counter,
            clock=fabric.clock,
            key=lambda: journal_key(fabric.keyring, name),
            settings=fabric.settings,
            tracer=fabric.tracer,
            allow=self._allow,
            check=fabric.check_embedder,
            check_shared=partial(refuse_other_text, self._shared),
            hash_in=self._hash_in,
            notify=fabric.notify,
            scratch=partial(scratch_in, fabric.store),
        )


def _checked(ttl: str | None) -> str | None:
    """A time to live as it was given.

    Spec: CRP-SPEC-009 §8.1

    Raises:
        RequestError: it is no duration.
    """
    try:
        if ttl is not None:
            duration(ttl)
    except (ValueError, TypeError, AttributeError) as error:
        why = error if isinstance(error, ValueError) else f"it is of type {type(ttl).__name__}"
        raise RequestError(f"ttl is not usable: {why}") from None
    return ttl


def _named(labels: Iterable[str]) -> tuple[str, ...]:
    """Access labels as they were given.

    Raises:
        RequestError: they are not a list of texts, or one is blank and would protect nothing.
    """
    found = access_labels(labels, RequestError)
    if not all(label.strip() for label in found):
        raise RequestError(f"labels holds a blank one in {list(found)!r:.80}; leave it out")
    return found
