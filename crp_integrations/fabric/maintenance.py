"""What time makes due: ttl, retention, disuse, sessions, reclustering, scrubbing, trimming.

Each step is a transaction of its own, so a kill between two leaves whole steps. One reading
transaction finds out what is due; when nothing is, nothing is written.
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
from crp_integrations.vocabulary import EventType, FactStatus

# Sequence at which the log of changes was trimmed last.
TRIMMED_SETTING = "changes_trimmed"
# The log keeps these entries for each fact, and at least those; twice as many make it due. A
# reclustering may write one a fact, and the log is still to lead from a graph kept before it.
KEEP_PER_FACT = 4
KEEP_CHANGES = 10_000
_MOMENT = timedelta(microseconds=1)
# Steps after which bytes of what was removed may be left.
SCRUBBING = frozenset({"purge", "sessions", "windows", "scrub"})


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Runs what is due in one namespace."""

    writer: NamespaceWriter

    def run(self, progress: Progress, *, graph: bool = True) -> MaintenanceReport:
        """Do what is due; with `graph` look at the derived files too.

        Spec: CRP-SPEC-009 §2.2, §5.5, §7.2, §8.1, §8.2
        """
        now = self.writer.clock.now()
        sessions = self.writer.region.session_memory.purge_idle(now)
        with self.writer.begin(False) as transaction:
            facts = transaction.facts
            idle = self._idle(transaction, now)
            untouched = not facts.generation() and facts.setting(PREPARED_SETTING) is None
            if untouched and not idle and not windows_due(facts):
                # Never written: not even a key is made.
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
        """Mark STALE what the ttl has run out of.

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
        """Remove what has been DELETED for the retention period, to its bytes.

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
        scrubbed(self.writer)
        return len(ids)

    def _archive(self, now: datetime) -> int:
        """Put aside what nobody has used for long.

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
        """Forget the sessions that nobody has gone on with for long, to their bytes."""
        gone = forget_sessions(
            self.writer, lambda transaction: self._idle(transaction, now), "retention"
        )
        windows_scrubbed(self.writer)
        return len(gone)

    def _clear_prepared(self, now: datetime) -> int:
        """Remove the vectors of an ingestion that was killed and that nobody went on with."""
        with self.writer.begin(True) as transaction:
            facts = transaction.facts
            due = self._abandoned(facts, now)
            if due:
                # Those of an embedder that the namespace is on its way to stay.
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
                facts.trim_changes(_kept(facts))
                facts.set_setting(TRIMMED_SETTING, str(facts.mark().sequence))
        return int(due)

    def _settle_files(self) -> bool:
        """Look at the derived files; whether a graph was built."""
        region, name, cache = self.writer.region, self.writer.namespace, self.writer.cache()
        if cache is not None:
            # Reading a damaged file throws it away; the next reclustering computes it anew.
            cache.load(SIMILARITY_FILE)
        settled = build_due_index(region.store, name)
        return region.namespace_state(name).settle(thorough=True) or settled

    # --- what is due -------------------------------------------------------------------

    def _recluster_due(self, facts: FactsFacet, now: datetime) -> bool:
        region = self.writer.region
        # On the way to this embedder they are found with the vectors still in use.
        if region.leiden is None or facts.setting(NEXT_SETTING) == region.embedder.identity:
            return False
        return state_hash.reclustering_due(facts, region.settings.communities, now)

    def _abandoned(self, facts: FactsFacet, now: datetime) -> bool:
        """Whether vectors were kept for an ingestion so long ago that nobody waits for them."""
        kept_at = state_hash.stored_moment(facts, PREPARED_SETTING)
        if kept_at is None:
            return False
        days = self.writer.settings.lifecycle.prepared_days
        return kept_at <= _ago(now, days)

    def _idle(self, transaction: Transaction, now: datetime) -> list[str]:
        """Ids of the stored sessions whose time is over."""
        days, shown = self.writer.settings.lifecycle.session_days, window_records_of(transaction)
        return [] if days is None or shown is None else shown.idle(_ago(now, days))

    def _retained(self, now: datetime) -> Where:
        """Deleted as long ago as the retention period, or longer."""
        # The bound is exclusive, and at the end of the period the bytes are to be gone.
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
                # A fact that was restored, updated or lifted since is in somebody's hands.
                modified_before=since,
            )
        )


def _expired(now: datetime) -> Where:
    """ACTIVE facts whose ttl has run out, archived ones too: restored, they are STALE."""
    return Where(statuses=(FactStatus.ACTIVE,), expired_at=now)


def _ago(now: datetime, days: float) -> datetime:
    """The moment so many days ago; the first one there is when they are too many."""
    try:
        return now - timedelta(days=days)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _kept(facts: FactsFacet) -> int:
    return max(KEEP_CHANGES, KEEP_PER_FACT * sum(facts.tally().values()))


def _trim_due(facts: FactsFacet) -> bool:
    trimmed = state_hash.stored_number(facts, TRIMMED_SETTING)
    grown = facts.mark().sequence - trimmed
    return grown > 2 * KEEP_CHANGES and grown > 2 * _kept(facts)
