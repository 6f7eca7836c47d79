"""Periodic work: ttl, retention, disuse, sessions, reclustering, scrubbing, trimming.

Each step is a transaction of its own, so a process killed between two steps leaves a consistent
store. One read transaction determines which steps are due; if none is, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from crp_integrations.fabric import state_hash
from crp_integrations.fabric.community_detection import CommunityDetection
from crp_integrations.fabric.embedder_migration import NEXT_SETTING
from crp_integrations.fabric.erasure import (
    SCRUB_SETTING,
    forget_sessions,
    scrubbed,
    windows_due,
    windows_scrubbed,
)
from crp_integrations.fabric.ingest.fact_preparation import PREPARED_SETTING
from crp_integrations.fabric.lifecycle import MaintenanceReport
from crp_integrations.fabric.namespace_writer import NamespaceWriter, by_source
from crp_integrations.fabric.ports import (
    FactsFacet,
    Transaction,
    build_due_index,
    window_records_of,
)
from crp_integrations.fabric.ports.engines import Progress
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.similarity_graph import FILE as SIMILARITY_FILE
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.guard.decisions import NAMESPACE
from crp_integrations.language import memo
from crp_integrations.vocabulary import EventType, FactStatus

# Sequence number at which the log of changes was last trimmed.
TRIMMED_SETTING = "changes_trimmed"
# Entries of the change log that are kept, per fact and at least; trimming is due at twice as many.
# A reclustering may write one entry per fact, and a graph saved before it must still be usable.
KEEP_PER_FACT = 4
KEEP_CHANGES = 10_000
_MOMENT = timedelta(microseconds=1)
# Steps after which removed bytes may still be in the files.
SCRUBBING = frozenset({"purge", "sessions", "windows", "scrub"})


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Runs the steps that are due in one namespace."""

    writer: NamespaceWriter

    def run(self, progress: Progress, *, graph: bool = True) -> MaintenanceReport:
        """Run the steps that are due; with `graph`, check derived rows and files too.

        Spec: CRP-SPEC-009 §2.2, §5.5, §7.2, §8.1, §8.2
        """
        now = self.writer.clock.now()
        sessions = self.writer.region.session_memory.purge_idle(now)
        with self.writer.begin(False) as transaction:
            facts = transaction.facts
            idle = self._idle(transaction, now)
            untouched = not facts.generation() and facts.setting(PREPARED_SETTING) is None
            if untouched and not idle and not windows_due(facts):
                # The namespace was never written, so not even a key is created.
                return MaintenanceReport(sessions=sessions)
            steps: dict[str, tuple[bool, Callable[[datetime], int]]] = {
                "stale": (bool(facts.find(_expired(now))), self._expire),
                "purge": (bool(facts.find(self._retained(now))), self._purge),
                "archive": (bool(self._unused(facts, now)), self._archive),
                "sessions": (bool(idle), self._forget_sessions),
                "windows": (windows_due(facts), lambda _: windows_scrubbed(self.writer)),
                "scrub": (
                    facts.setting(SCRUB_SETTING) is not None,
                    lambda _: scrubbed(self.writer),
                ),
                "prepared": (self._abandoned(facts, now), self._clear_prepared),
                "names": (graph and _unnamed(transaction), self._name_facts),
                "trim": (_trim_due(facts), self._trim),
                "recluster": (self._recluster_due(facts, now), self._recluster),
            }
        due = {name: step for name, (is_due, step) in steps.items() if is_due}
        if due:
            self.writer.require("write", NAMESPACE)
        done: dict[str, int] = {}
        for number, (name, step) in enumerate(due.items()):
            progress(name, number, len(due))
            with self.writer.tracer.step(f"fabric.maintain.{name}"):
                done[name] = step(now)
        progress("settle", len(due), len(due))
        rebuilt = graph and self._settle_files()
        with self.writer.begin(False) as transaction:
            facts = transaction.facts
            left = facts.setting(SCRUB_SETTING) is not None or windows_due(facts)
        return MaintenanceReport(
            stale=done.get("stale", 0),
            purged=done.get("purge", 0),
            archived=done.get("archive", 0),
            sessions=sessions,
            forgotten=done.get("sessions", 0),
            reclustered="recluster" in done,
            graph_rebuilt=rebuilt,
            changes_trimmed=bool(done.get("trim", 0)),
            prepared_cleared=bool(done.get("prepared", 0)),
            scrubbed=not left if SCRUBBING & done.keys() else None,
        )

    # --- steps -------------------------------------------------------------------------

    def _expire(self, now: datetime) -> int:
        """Mark facts STALE whose ttl has ended.

        Spec: CRP-SPEC-009 §8.1
        """
        key = self.writer.key()
        with self.writer.begin(True) as transaction:
            ids = transaction.facts.find(_expired(now))
            if ids:
                before = self.writer.hash_in(transaction.facts)
                transaction.facts.set_status(ids, FactStatus.STALE, now)
                self.writer.journal_changes(
                    transaction, [], before=before, cause="ttl", now=now, key=key, facts=ids
                )
        return len(ids)

    def _purge(self, now: datetime) -> int:
        """Remove facts that have been DELETED for the retention period, including their bytes.

        Spec: CRP-SPEC-009 §2.2
        """
        key = self.writer.key()
        with self.writer.begin(False) as transaction:
            due = transaction.facts.find(self._retained(now))
        self.writer.erase_elsewhere(due)
        with self.writer.begin(True) as transaction:
            ids = transaction.facts.find(self._retained(now))
            if ids:
                before = self.writer.hash_in(transaction.facts)
                drafts = [
                    (
                        EventType.FACT_DELETED,
                        {"source": name, "facts": held, "count": len(held), "cause": "retention"},
                    )
                    for name, held in by_source(transaction.facts.get(ids)).items()
                ]
                transaction.facts.remove(ids)
                _, events = self.writer.journal_changes(
                    transaction, drafts, before=before, cause="retention", now=now, key=key
                )
                transaction.facts.set_setting(SCRUB_SETTING, str(events[-1].seq))
        if ids:
            memo.forget()
        scrubbed(self.writer)
        return len(ids)

    def _archive(self, now: datetime) -> int:
        """Archive facts that have not been used for `archive_after_days`.

        Spec: CRP-SPEC-009 §8.2
        """
        key = self.writer.key()
        with self.writer.begin(True) as transaction:
            ids = self._unused(transaction.facts, now)
            if ids:
                before = self.writer.hash_in(transaction.facts)
                transaction.facts.set_archived(ids, now)
                self.writer.journal_changes(
                    transaction, [], before=before, cause="archived", now=now, key=key, facts=ids
                )
        return len(ids)

    def _forget_sessions(self, now: datetime) -> int:
        """Remove sessions that were not continued for `session_days`, including their bytes."""
        gone = forget_sessions(
            self.writer, lambda transaction: self._idle(transaction, now), "retention"
        )
        windows_scrubbed(self.writer)
        return len(gone)

    def _name_facts(self, now: datetime) -> int:
        """Restore the rows by which an erasure finds the receipts with a fact's text."""
        with self.writer.begin(True) as transaction:
            shown = window_records_of(transaction)
            return 0 if shown is None else shown.name_facts()

    def _clear_prepared(self, now: datetime) -> int:
        """Remove the vectors of an interrupted ingestion that was not resumed."""
        with self.writer.begin(True) as transaction:
            facts = transaction.facts
            due = self._abandoned(facts, now)
            if due:
                # Vectors prepared for a migration to another embedder are kept.
                facts.clear_prepared(facts.setting(EMBEDDER_SETTING))
                facts.remove_setting(PREPARED_SETTING)
        return int(due)

    def _recluster(self, now: datetime) -> int:
        CommunityDetection(self.writer).run()
        return 1

    def _trim(self, now: datetime) -> int:
        with self.writer.begin(True) as transaction:
            facts = transaction.facts
            due = _trim_due(facts)
            if due:
                facts.trim_changes(_entries_to_keep(facts))
                facts.set_setting(TRIMMED_SETTING, str(facts.mark().sequence))
        return int(due)

    def _settle_files(self) -> bool:
        """Check the derived files; return whether a graph was built."""
        region, name, cache = self.writer.region, self.writer.namespace, self.writer.cache()
        if cache is not None:
            # Loading deletes a damaged file; the next reclustering computes it anew.
            cache.load(SIMILARITY_FILE)
        settled = build_due_index(region.store, name)
        return region.namespace_state(name).settle(thorough=True) or settled

    # --- what is due -------------------------------------------------------------------

    def _recluster_due(self, facts: FactsFacet, now: datetime) -> bool:
        region = self.writer.region
        # During a migration to this embedder, wait: the vectors in use are another embedder's.
        if region.leiden is None or facts.setting(NEXT_SETTING) == region.embedder.identity:
            return False
        return state_hash.reclustering_due(facts, region.settings.communities, now)

    def _abandoned(self, facts: FactsFacet, now: datetime) -> bool:
        """Whether an interrupted ingestion left its vectors at least `prepared_days` ago."""
        kept_at = state_hash.stored_moment(facts, PREPARED_SETTING)
        if kept_at is None:
            return False
        days = self.writer.settings.lifecycle.prepared_days
        return kept_at <= _ago(now, days)

    def _idle(self, transaction: Transaction, now: datetime) -> list[str]:
        """Ids of the stored sessions that have expired."""
        days, shown = self.writer.settings.lifecycle.session_days, window_records_of(transaction)
        return [] if days is None or shown is None else shown.idle(_ago(now, days))

    def _retained(self, now: datetime) -> Where:
        """Filter for facts deleted at least one retention period ago."""
        # The bound is exclusive, but a fact must also go exactly at the end of the period.
        before = _ago(now, self.writer.settings.lifecycle.retention_days) + _MOMENT
        return Where(statuses=(FactStatus.DELETED,), modified_before=before)

    def _unused(self, facts: FactsFacet, now: datetime) -> list[str]:
        days = self.writer.settings.lifecycle.archive_after_days
        if days is None:
            return []
        since = _ago(now, days)
        return facts.find(
            Where(
                statuses=(FactStatus.ACTIVE, FactStatus.STALE),
                archived=False,
                unused_since=since,
                # A fact restored, updated or released from quarantine since then is in use.
                modified_before=since,
            )
        )


def _unnamed(transaction: Transaction) -> bool:
    """Whether facts of a receipt are not named."""
    shown = window_records_of(transaction)
    return shown is not None and shown.unnamed() > 0


def _expired(now: datetime) -> Where:
    """Filter for ACTIVE facts whose ttl has ended, including archived ones."""
    return Where(statuses=(FactStatus.ACTIVE,), expired_at=now)


def _ago(now: datetime, days: float) -> datetime:
    """The moment `days` before now; the earliest possible datetime if that overflows."""
    try:
        return now - timedelta(days=days)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _entries_to_keep(facts: FactsFacet) -> int:
    return max(KEEP_CHANGES, KEEP_PER_FACT * sum(facts.tally().values()))


def _trim_due(facts: FactsFacet) -> bool:
    trimmed = state_hash.stored_number(facts, TRIMMED_SETTING)
    grown = facts.mark().sequence - trimmed
    return grown > 2 * KEEP_CHANGES and grown > 2 * _entries_to_keep(facts)
