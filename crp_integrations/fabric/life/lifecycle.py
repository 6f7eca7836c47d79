"""The legal changes of a fact's status in one table, and the reports of changes.

DELETED has no way out: a deleted fact leaves the store for good (`erasure`, `maintenance`), and its
text, given again, becomes a new row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from crp_integrations.errors import FactRejected, IllegalTransition
from crp_integrations.fabric.records import Fact, Moment
from crp_integrations.records import Record
from crp_integrations.vocabulary import FactStatus

ACTIVE, STALE = FactStatus.ACTIVE, FactStatus.STALE
DELETED, QUARANTINED = FactStatus.DELETED, FactStatus.QUARANTINED

LEGAL: Mapping[tuple[FactStatus, FactStatus], str] = MappingProxyType(
    {
        (ACTIVE, STALE): "the ttl ran out, a flag by hand, or the source was updated (§2.2)",
        (ACTIVE, DELETED): "the source was removed, or an erasure (§2.2)",
        (ACTIVE, QUARANTINED): "flagged for fabrication or distortion (§2.2, §8.4)",
        (STALE, ACTIVE): "ingested again from the updated source (§2.2)",
        (STALE, DELETED): "cleaned up by hand (§2.2)",
        (STALE, QUARANTINED): "flagged for fabrication or distortion (decision Fabric)",
        (QUARANTINED, ACTIVE): "lifted by hand after review (§8.4)",
        (QUARANTINED, DELETED): "the source was removed, or an erasure (§8.3, decision Fabric)",
    }
)


def legal_from(status: FactStatus) -> list[FactStatus]:
    """The statuses that may follow one, in the order of the vocabulary."""
    return [to for to in FactStatus if (status, to) in LEGAL]


def check_transition(
    facts: Iterable[Fact], to: FactStatus, *, among: Set[FactStatus] = frozenset(FactStatus)
) -> None:
    """Refuse a change of status that the table does not hold.

    Spec: CRP-SPEC-009 §2.2
    """
    for fact in facts:
        if fact.status in among and (fact.status, to) in LEGAL:
            continue
        ways = ", ".join(way.value for way in legal_from(fact.status))
        if fact.status is to:
            raise IllegalTransition(
                f"fact {fact.fact_id} is {to.value} already; "
                f"from {to.value} a fact can become {ways or 'nothing else'}"
            )
        # A legal way that belongs to another verb is told apart, or the sentence would puzzle.
        hint = " by this verb" if (fact.status, to) in LEGAL else ""
        raise IllegalTransition(
            f"fact {fact.fact_id} is {fact.status.value} and cannot become {to.value}{hint}; "
            f"from {fact.status.value} a fact can become {ways or 'nothing else'}"
        )


def has_outlived(fact: Fact, now: datetime) -> bool:
    """Whether a fact's time to live is over: such a fact is not ACTIVE again before it gets more.

    Spec: CRP-SPEC-009 §8.1
    """
    expires = fact.expires_at
    return expires is not None and expires < now


def check_content(fact: Fact) -> None:
    """Refuse to change what a withdrawn fact says."""
    if fact.status in (DELETED, QUARANTINED):
        raise IllegalTransition(
            f"fact {fact.fact_id} is {fact.status.value} and cannot be updated; "
            "only ACTIVE and STALE facts can"
        )


def check_validity(fact: Fact) -> None:
    """Refuse a fact that ends before it begins."""
    begun, ended = fact.valid_from, fact.valid_to
    if begun is not None and ended is not None and ended < begun:
        raise FactRejected(
            f"fact {fact.fact_id} is valid to {ended.isoformat()}, before it is valid from "
            f"{begun.isoformat()}; swap the two or leave one out"
        )


def check_archived(facts: Iterable[Fact], wanted: bool) -> None:
    """Refuse to archive what is archived or withdrawn, or to restore what is not archived.

    Spec: CRP-SPEC-009 §8.2
    """
    for fact in facts:
        archived = fact.archived_at is not None
        verb = "restored" if wanted else "archived"
        if fact.status in (DELETED, QUARANTINED):
            raise IllegalTransition(
                f"fact {fact.fact_id} is {fact.status.value} and cannot be {verb}; "
                "only ACTIVE and STALE facts can"
            )
        if archived is not wanted:
            state = "archived already" if archived else "not archived"
            raise IllegalTransition(f"fact {fact.fact_id} is {state} and cannot be {verb}")


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


class ErasureReport(Record):
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
