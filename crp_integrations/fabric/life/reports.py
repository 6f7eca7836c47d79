"""What verbs, erasures and maintenance answer: ids, hashes and counts."""

from __future__ import annotations

from typing import Literal

from crp_integrations.fabric.records import Moment
from crp_integrations.records import Record

Verb = Literal["stale", "deleted", "archived", "restored", "quarantined", "lifted"]


class ChangeReport(Record):
    """What one verb did.

    Attributes:
        verb: what the facts are now, or what was done to them.
        facts: ids of the facts that were changed, ascending.
        sources: ids of their sources, ascending.
        state_hash: of the namespace afterwards.
    """

    SCHEMA = "change-report/1"

    verb: Verb
    facts: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    state_hash: str = ""


class Erasure(Record):
    """What an erasure removed, and the link of the chain that says so.

    Spec: CRP-SPEC-009 §8.3

    Attributes:
        source_id: the source that is erased.
        facts: ids of the facts that were removed now; empty when nothing was left to erase.
        state_before, state_after: state hash of the namespace before and after.
        event_seq, event_hmac: the journal's event of this erasure, the first of several when
            there were very many facts; 0 and empty when nothing was left to erase.
        scrubbed: whether the bytes are off the disk; when not, since a reader held an old state,
            `maintain` or another `erase` finishes it.
    """

    SCHEMA = "erasure/1"

    source_id: str
    facts: tuple[str, ...] = ()
    state_before: str
    state_after: str
    erased_at: Moment
    event_seq: int = 0
    event_hmac: str = ""
    scrubbed: bool


class MaintenanceReport(Record):
    """What time had made due, in counts; no ids, since it covers what a subject may not see.

    Attributes:
        stale: facts whose ttl had run out.
        purged: deleted facts whose bytes were removed after the retention period.
        archived: facts put aside for disuse.
        sessions: `no-store` sessions whose facts were purged from memory.
        forgotten: stored sessions that were removed after their time, with all that they said.
        reclustered: whether communities were found anew.
        graph_rebuilt: whether the index was brought up to date or built anew.
        changes_trimmed: whether the log of changes was cut.
        prepared_cleared: whether vectors that a killed ingestion left behind were removed.
        scrubbed: whether bytes of what was removed were taken off the disk; None when none were
            left, False when a reader held an old state.
    """

    SCHEMA = "maintenance-report/1"

    stale: int = 0
    purged: int = 0
    archived: int = 0
    sessions: int = 0
    forgotten: int = 0
    reclustered: bool = False
    graph_rebuilt: bool = False
    changes_trimmed: bool = False
    prepared_cleared: bool = False
    scrubbed: bool | None = None
