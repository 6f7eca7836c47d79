"""What time makes due: ttl, retention, disuse, sessions, reclustering, scrubbing, trimming.

Each step is a transaction of its own, so a kill between two leaves whole steps. One reading
transaction finds out what is due; when nothing is, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from crp_integrations.fabric import state_hash
from crp_integrations.fabric.ingest.fact_preparation import PREPARED_SETTING
from crp_integrations.fabric.life.erasure import (
    SCRUB_SETTING,
    forget_sessions,
    scrubbed,
    windows_due,
    windows_scrubbed,
)
from crp_integrations.fabric.life.fact_writer import FactWriter, by_source
from crp_integrations.fabric.life.lifecycle import MaintenanceReport
from crp_integrations.fabric.ports import FactsFacet, Transaction, window_records_of
from crp_integrations.fabric.ports.engines import Progress
from crp_integrations.fabric.records import Where
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
    """Runs what is due in one namespace.

    Attributes:
        recluster_due: whether communities are to be found anew at this moment.
        recluster: finds them.
        settle: brings the index up to date; whether there was anything to do.
        purge_sessions: forgets what idle sessions hold in memory; returns how many sessions.
    """

    writer: FactWriter
    recluster_due: Callable[[FactsFacet, datetime], bool]
    recluster: Callable[[], object]
    settle: Callable[[], bool]
    purge_sessions: Callable[[datetime], int]

    def run(self, progress: Progress) -> MaintenanceReport:
        """Do what is due.

        Spec: CRP-SPEC-009 §2.2, §5.5, §7.2, §8.1, §8.2
        """
        now = self.writer.clock.now()
        sessions = self.purge_sessions(now)
        with self.writer.begin(False) as transaction:
            facts = transaction.facts
            idle = self._idle(transaction, now)
            untouched = not facts.generation() and facts.setting(PREPARED_SETTING) is None
            if untouched and not idle and not windows_due(facts):
                # Never written: not even a key is made.
                return MaintenanceReport(sessions=sessions)
            steps = {
                "stale": bool(facts.find(_expired(now))),
                "purge": bool(facts.find(self._retained(now))),
                "archive": bool(self._unused(facts, now)),
                "sessions": bool(idle),
                "windows": windows_due(facts),
                "scrub": facts.setting(SCRUB_SETTING) is not None,
                "prepared": self._abandoned(facts, now),
                "trim": _trim_due(facts),
                "recluster": self.recluster_due(facts, now),
            }
        due = [name for name, is_due in steps.items() if is_due]
        if due:
            self.writer.require("write", NAMESPACE)
        done: dict[str, int] = {}
        for number, name in enumerate(due):
            progress(name, number, len(due))
            done[name] = self._step(name, now)
        progress("settle", len(due), len(due))
        rebuilt = self.settle()
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

    def _step(self, name: str, now: datetime) -> int:
        with self.writer.tracer.step(f"fabric.maintain.{name}"):
            match name:
                case "stale":
                    return self._expire(now)
                case "purge":
                    return self._purge(now)
                case "archive":
                    return self._archive(now)
                case "sessions":
                    return self._forget_sessions(now)
                case "windows":
                    return int(windows_scrubbed(self.writer))
                case "prepared":
                    return self._clear_prepared(now)
                case "trim":
                    return self._trim()
                case "recluster":
                    self.recluster()
                    return 1
                case _:
                    return int(scrubbed(self.writer))

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

    def _trim(self) -> int:
        with self.writer.begin(True) as transaction:
            facts = transaction.facts
            due = _trim_due(facts)
            if due:
                facts.trim_changes(_kept(facts))
                facts.set_setting(TRIMMED_SETTING, str(facts.mark().sequence))
        return int(due)

    # --- what is due -------------------------------------------------------------------

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
