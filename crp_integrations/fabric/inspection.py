"""Inspection of one namespace: counts, sizes, and an integrity check of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

import numpy as np

from crp_integrations.audit import journal
from crp_integrations.errors import ChainBroken, EngineError, StoreDamaged, StoreError
from crp_integrations.fabric.erasure import SCRUB_SETTING, windows_due
from crp_integrations.fabric.ports import FactsFacet, Transaction, window_records_of
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.region import FabricRegion
from crp_integrations.fabric.state_hash import (
    EMBEDDER_SETTING,
    communities_found,
    epoch_item,
    read_epoch,
    state_hash,
)
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import FactStatus

# Number of facts read at once.
_SLICE = 512
# Maximum deviation of a vector's length from 1: float32 rounding of any number of dimensions.
_UNIT_ERROR = 1e-3
# Maximum number of ids listed in one finding.
_MAX_LISTED_IDS = 3

_REEMBED = "Export the facts, and ingest their documents into a new store."

Check = Literal["files", "journal", "sources", "vectors", "state", "upkeep"]


class NamespaceStats(Record):
    """Counts, hashes and sizes of a namespace, including facts that a subject may not read.

    Attributes:
        facts: number of facts by status; archived ones count only as `ARCHIVED`.
        sources: number of registry entries by status.
        communities: number of communities after the last reclustering.
        embedder, dimensions: embedder of the stored vectors, and their length; empty and 0 before
            the first fact.
        generation: number that grows with every change of the retrievable facts.
        epoch: number of reclusterings and changes of embedding model.
        events: number of events in the journal.
        changes: sequence number at the end of the change log.
        search: how the nearest vectors are found at this size.
        files: bytes by file; empty for a store in memory.
    """

    SCHEMA = "fabric-stats/1"

    namespace: str
    store: str
    facts: dict[str, int]
    sources: dict[str, int]
    communities: int
    embedder: str
    dimensions: int
    generation: int
    epoch: int
    state_hash: str
    events: int
    changes: int
    search: Literal["exact", "graph"]
    files: dict[str, int]


class HealthFinding(Part):
    """A problem and its remedy; contains ids only, no texts.

    Attributes:
        check: the check that found the problem.
        problem: description of the problem in one sentence.
        remedy: what to do about it, in one sentence.
    """

    check: Check
    problem: str
    remedy: str


class NamespaceExamination(Record):
    """The result of examining a namespace; without findings, it is intact.

    Attributes:
        facts, sources, events: number of checked facts, sources and events.
    """

    SCHEMA = "fabric-examination/1"

    namespace: str
    facts: int
    sources: int
    events: int
    findings: tuple[HealthFinding, ...] = ()


class NamespaceHealth:
    """Inspects one namespace without changing it."""

    def __init__(self, region: FabricRegion, name: str) -> None:
        self._region = region
        self._name = name
        self._state_of = region.namespace_state(name)

    def stats(self) -> NamespaceStats:
        """Count facts, sources, events and sizes in one state of the namespace."""
        with self._region.begin(self._name, write=False) as transaction:
            facts = transaction.facts
            stored = facts.setting(EMBEDDER_SETTING) or ""
            index = self._state_of.snapshot(facts).index
            sources: dict[str, int] = {}
            for source in facts.sources():
                sources[source.status.value] = sources.get(source.status.value, 0) + 1
            tip = transaction.journal.tip()
            return NamespaceStats(
                namespace=self._name,
                store=self._region.store.name,
                facts=_aged_tally(facts, self._region.clock.now()),
                sources=dict(sorted(sources.items())),
                communities=communities_found(facts),
                embedder=stored,
                dimensions=self._region.embedder.dimensions if stored else 0,
                generation=facts.generation(),
                epoch=read_epoch(facts),
                state_hash=self._state_of.state_hash(facts),
                events=tip.seq if tip else 0,
                changes=facts.mark().sequence,
                search="exact" if index.graph is None else "graph",
                files=dict(sorted(self._region.store.files(self._name).items())),
            )

    def examine(self) -> NamespaceExamination:
        """Check everything that is stored: files, journal, registry, vectors, index, hash."""
        findings = [
            HealthFinding(
                check="files",
                problem=sentence,
                remedy="Restore the store from a copy; a damaged index is rebuilt by itself.",
            )
            for sentence in self._region.store.check(self._name)
        ]
        try:
            with self._region.begin(self._name, write=False) as transaction:
                facts = transaction.facts
                events, broken = self._journal(transaction)
                sources = [source.source_id for source in facts.sources()]
                findings += broken
                findings += self._registry(facts)
                findings += self._vectors(facts)
                findings += self._state(facts)
                findings += self._upkeep(facts)
                findings += self._receipts(transaction)
                count = sum(facts.tally().values())
        except StoreDamaged as error:
            # The rest cannot be read, so the check ends here with the error as a finding.
            if not any(finding.problem == str(error) for finding in findings):
                findings.append(
                    HealthFinding(
                        check="files", problem=str(error), remedy="Restore it from a copy."
                    )
                )
            return NamespaceExamination(
                namespace=self._name, facts=0, sources=0, events=0, findings=tuple(findings)
            )
        return NamespaceExamination(
            namespace=self._name,
            facts=count,
            sources=len(sources),
            events=events,
            findings=tuple(findings),
        )

    # --- checks -------------------------------------------------------------------------

    def _journal(self, transaction: Transaction) -> tuple[int, list[HealthFinding]]:
        tip = transaction.journal.tip()
        if tip is None:
            return 0, []
        try:
            return journal.verify_journal(
                transaction.journal.events(), self._region.key(self._name)
            ), []
        except ChainBroken as error:
            return tip.seq, [
                HealthFinding(
                    check="journal",
                    problem=f"The journal does not verify: {error}.",
                    remedy="Keep the files as they are, find out who changed them, and continue "
                    "with an earlier copy.",
                )
            ]

    def _registry(self, facts: FactsFacet) -> Iterator[HealthFinding]:
        """Check that each fact has a source, and that each source's count is right.

        Spec: CRP-SPEC-009 §2, §4.5
        """
        held = 0
        for source in facts.sources():
            statuses = [status for _, _, status in facts.passages(source.source_id)]
            held += len(statuses)
            most = sum(status is not FactStatus.DELETED for status in statuses)
            # A passage removed by an update leaves a fact that is in no document any more, STALE
            # or withdrawn before, so only a range for the count is known.
            least = statuses.count(FactStatus.ACTIVE)
            if not least <= source.fact_count <= most:
                yield HealthFinding(
                    check="sources",
                    problem=f"Source {source.source_id} counts {source.fact_count} facts, and "
                    f"{least} to {most} are stored.",
                    remedy="Ingest its document again.",
                )
        stored = sum(facts.tally().values())
        if held != stored:
            yield HealthFinding(
                check="sources",
                problem=f"{stored - held} of {stored} facts have no source in the registry.",
                remedy="Export the facts, and ingest their documents into a new store.",
            )

    def _vectors(self, facts: FactsFacet) -> Iterator[HealthFinding]:
        """Check that each retrievable fact has a unit vector of the right dimensions and is in the
        index.
        """
        stored = [id_ for id_, _ in facts.retrievable()]
        wrong: list[str] = []
        for start in range(0, len(stored), _SLICE):
            part = stored[start : start + _SLICE]
            try:
                rows = facts.vectors(part)
            except (StoreError, EngineError) as error:
                yield HealthFinding(check="vectors", problem=f"{error}.", remedy=_REEMBED)
                return
            if rows.shape[1] != self._region.embedder.dimensions:
                yield HealthFinding(
                    check="vectors",
                    problem=f"The stored vectors have {rows.shape[1]} numbers, and "
                    f"{self._region.embedder.identity!r} makes {self._region.embedder.dimensions}.",
                    remedy=_REEMBED,
                )
                return
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
            # A text for which the embedder finds no features has a row of zeros.
            off = (np.abs(lengths - 1.0) > _UNIT_ERROR) & (lengths != 0.0)
            wrong += [id_ for id_, bad in zip(part, off.tolist(), strict=True) if bad]
        if wrong:
            yield HealthFinding(
                check="vectors",
                problem=f"{_ids(wrong)} not have a vector of length 1.",
                remedy=_REEMBED,
            )
        indexed = len(self._state_of.snapshot(facts).index)
        if indexed != len(stored):
            yield HealthFinding(
                check="vectors",
                problem=f"The index contains {indexed} facts, and {len(stored)} can be retrieved.",
                remedy="Open the store again; the index is then rebuilt.",
            )

    def _state(self, facts: FactsFacet) -> Iterator[HealthFinding]:
        """Check that the state hash in memory equals that of the formula.

        Spec: CRP-SPEC-009 §6.1
        """
        item = epoch_item(facts)
        formula = state_hash([*facts.state(), *([item] if item else [])])
        kept_hash = self._state_of.state_hash(facts)
        if kept_hash != formula:
            yield HealthFinding(
                check="state",
                problem=f"The state hash is kept as {kept_hash}, and the formula gives {formula}.",
                remedy="Open the store again; the hash is then recomputed from all facts.",
            )

    def _upkeep(self, facts: FactsFacet) -> Iterator[HealthFinding]:
        """Check that facts and bytes due for removal have been removed.

        Spec: CRP-SPEC-009 §8.3
        """
        retention = timedelta(days=self._region.settings.lifecycle.retention_days)
        due = facts.find(
            Where(
                statuses=(FactStatus.DELETED,), modified_before=self._region.clock.now() - retention
            )
        )
        if due:
            yield HealthFinding(
                check="upkeep",
                problem=f"{len(due)} deleted facts are past their retention of "
                f"{self._region.settings.lifecycle.retention_days:g} days.",
                remedy="Run crp fabric maintain.",
            )
        if facts.setting(SCRUB_SETTING) is not None or windows_due(facts):
            yield HealthFinding(
                check="upkeep",
                problem="Bytes of removed facts, or of sessions, may still be in the files.",
                remedy="Run crp fabric maintain when no other process reads the store.",
            )

    def _receipts(self, transaction: Transaction) -> Iterator[HealthFinding]:
        """Check that the facts of each receipt are named, so that an erasure finds their texts."""
        shown = window_records_of(transaction)
        count = 0 if shown is None else shown.unnamed()
        if count:
            yield HealthFinding(
                check="upkeep",
                problem=f"The rows that name the facts of {count} receipts are missing.",
                remedy="Run crp fabric maintain, which writes them again.",
            )


def _ids(wrong: list[str]) -> str:
    """Build the start of a sentence: `Fact a does`, or `Facts a, b, c and 4 more do`."""
    if len(wrong) == 1:
        return f"Fact {wrong[0]} does"
    more = f" and {len(wrong) - _MAX_LISTED_IDS} more" if len(wrong) > _MAX_LISTED_IDS else ""
    return f"Facts {', '.join(wrong[:_MAX_LISTED_IDS])}{more} do"


def _aged_tally(facts: FactsFacet, now: datetime) -> dict[str, int]:
    """Facts by status; facts whose ttl has ended count as STALE even if not yet stored so."""
    tally = dict(facts.tally())
    due = Where(statuses=(FactStatus.ACTIVE,), archived=False, expired_at=now)
    if aged := len(facts.find(due)):
        tally["STALE"] = tally.get("STALE", 0) + aged
        tally["ACTIVE"] -= aged
    return {status: count for status, count in sorted(tally.items()) if count}
