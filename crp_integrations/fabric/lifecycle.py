"""The table of legal status changes of a fact, decay functions, and the reports of changes.

DELETED is final: a deleted fact is removed from the store for good (`erasure`, `maintenance`), and
its text, if ingested again, becomes a new row.

Spec: CRP-SPEC-009 §2.3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from crp_integrations.errors import FactRejected, IllegalTransition
from crp_integrations.fabric.records import Fact, Moment, duration
from crp_integrations.records import Record
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import FactStatus

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import FactBrief

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
    """Return the statuses that may follow this one, in the order of the vocabulary."""
    return [to for to in FactStatus if (status, to) in LEGAL]


def check_transition(
    facts: Iterable[Fact], to: FactStatus, *, among: Set[FactStatus] = frozenset(FactStatus)
) -> None:
    """Refuse a change of status that is not in the table.

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
        # If the change is legal by another verb, the message must say so to make sense.
        hint = " by this verb" if (fact.status, to) in LEGAL else ""
        raise IllegalTransition(
            f"fact {fact.fact_id} is {fact.status.value} and cannot become {to.value}{hint}; "
            f"from {fact.status.value} a fact can become {ways or 'nothing else'}"
        )


def has_outlived(fact: Fact | FactBrief, now: datetime) -> bool:
    """Whether a fact's ttl has ended; such a fact cannot become ACTIVE without a longer ttl.

    Spec: CRP-SPEC-009 §8.1
    """
    expires = fact.expires_at
    return expires is not None and expires < now


def check_content(fact: Fact) -> None:
    """Refuse to change the content of a withdrawn fact."""
    if fact.status in (DELETED, QUARANTINED):
        raise IllegalTransition(
            f"fact {fact.fact_id} is {fact.status.value} and cannot be updated; "
            "only ACTIVE and STALE facts can"
        )


def check_validity(fact: Fact) -> None:
    """Refuse a fact whose validity ends before it begins."""
    begun, ended = fact.valid_from, fact.valid_to
    if begun is not None and ended is not None and ended < begun:
        raise FactRejected(
            f"fact {fact.fact_id} is valid to {ended.isoformat()}, before it is valid from "
            f"{begun.isoformat()}; swap the two or leave one out"
        )


def check_archived(facts: Iterable[Fact], wanted: bool) -> None:
    """Refuse to archive an archived or withdrawn fact, or to restore one that is not archived.

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
    """The result of one change of facts.

    Attributes:
        verb: the change that was made.
        facts: ids of the changed facts, ascending.
        sources: ids of their sources, ascending.
        state_hash: state hash of the namespace afterwards.
    """

    SCHEMA = "change-report/1"

    verb: Verb
    facts: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    state_hash: str = ""


class ErasureReport(Record):
    """The result of an erasure, with the journal event that records it.

    Spec: CRP-SPEC-009 §8.3

    Attributes:
        source_id: the erased source.
        facts: ids of the facts removed by this call; empty if nothing was left to erase.
        state_before, state_after: state hash of the namespace before and after.
        event_seq, event_hmac: the journal event of this erasure, the first of several if there
            were very many facts; 0 and empty if nothing was left to erase.
        scrubbed: whether the bytes are gone from disk; False if an open reader prevented it, in
            which case `maintain` or another `erase` completes it.
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
    """The result of maintenance as counts; no ids, since it covers facts hidden from the subject.

    Attributes:
        stale: number of facts whose ttl had ended.
        purged: number of deleted facts whose bytes were removed after the retention period.
        archived: number of facts archived because they were not used.
        sessions: number of `no-store` sessions whose facts were purged from memory.
        forgotten: number of expired stored sessions that were removed with their answers.
        reclustered: whether communities were recomputed.
        graph_rebuilt: whether the index was updated or rebuilt.
        changes_trimmed: whether the change log was trimmed.
        prepared_cleared: whether vectors of an interrupted ingestion were removed.
        scrubbed: whether removed bytes were scrubbed from disk; None if there were none, False if
            an open reader prevented it.
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


DECAY_KEY = "decay_fn"

_MICROSECOND = timedelta(microseconds=1)
# 2^(-k/32) times 10^9, k from 0 to 32, interpolated linearly; integers, equal on every machine.
_HALVES = (
    1000000000, 978572062, 957603281, 937083817, 917004043, 897354538, 878126080, 859309649,
    840896415, 822877739, 805245166, 787990423, 771105413, 754582214, 738413073, 722590403,
    707106781, 691954941, 677127773, 662618322, 648419777, 634525479, 620928906, 607623680,
    594603558, 581862429, 569394317, 557193371, 545253866, 533570200, 522136891, 510948574,
    500000000,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decay:
    """A decay function with its length.

    Attributes:
        written: notation in records, such as `half-life@1:P30D`.
        length: duration in microseconds, above zero.
    """

    written: str
    curve: Callable[[int, int], int]
    length: int

    def at(self, age: int) -> int:
        """Return the remaining share at an age in microseconds, as a fixed-point score."""
        return self.curve(max(0, age), self.length)


def decay(written: str) -> Decay:
    """Parse a decay function.

    Spec: Summit §Unified MemoryItem Schema

    Raises:
        ValueError: the text is not a decay function; the message lists the known ones.

    >>> decay("half-life@1:P30D").at(30 * 86_400 * 1_000_000)
    500000
    """
    function = known(written)
    if function is None:
        raise ValueError(
            f"{written!r:.60} is not a decay function; wanted one of {', '.join(sorted(CURVES))} "
            "with an ISO 8601 duration after a colon, such as half-life@1:P30D"
        )
    return function


@lru_cache(maxsize=1024)
def known(written: str) -> Decay | None:
    """Parse a decay function; None if the text is not one."""
    name, _, length = written.partition(":")
    curve = CURVES.get(name)
    if curve is None:
        return None
    try:
        return Decay(written, curve, duration(length) // _MICROSECOND)
    except (ValueError, OverflowError):
        return None


def carried(metadata: Mapping[str, Any]) -> str | None:
    """Return the decay function in a fact's metadata; None without a known one."""
    written = metadata.get(DECAY_KEY)
    return written if isinstance(written, str) and known(written) else None


def _half_life(age: int, length: int) -> int:
    whole, rest = divmod(age, length)
    if whole > 60:
        return 0
    place, between = divmod(rest * 32, length)
    high = _HALVES[place]
    low = _HALVES[min(place + 1, 32)]
    value = high * length - (high - low) * between
    # Scale from 10^9 times length down to SCALE, rounding halves up.
    below = length * (10**9 // SCALE) << whole
    return (2 * value + below) // (2 * below)


def _linear(age: int, length: int) -> int:
    return max(0, SCALE - (2 * age * SCALE + length) // (2 * length))


def _step(age: int, length: int) -> int:
    return SCALE if age < length else 0


def _plateau(age: int, length: int) -> int:
    """Stay at 1 for the length, then fall linearly to 0 within the same length."""
    return SCALE if age <= length else _linear(age - length, length)


CURVES: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "half-life@1": _half_life,
        "linear@1": _linear,
        "step@1": _step,
        "plateau@1": _plateau,
    }
)
