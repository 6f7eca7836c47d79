"""Which changes of a fact's status are legal, and why. One table; every verb asks it.

DELETED has no way out: a deleted fact leaves the store for good (`erasure.py`,
`maintenance.py`), and its text, given again, becomes a new row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from types import MappingProxyType

from crp_integrations.errors import FactRejected, IllegalTransition
from crp_integrations.fabric.records import Fact
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


def check(
    facts: Iterable[Fact], to: FactStatus, *, among: Set[FactStatus] = frozenset(FactStatus)
) -> None:
    """Refuse a change of status that the table does not hold.

    Spec: CRP-SPEC-009 §2.2

    Args:
        facts: as they are stored now.
        to: the status that they are to have. One that a fact has already is no change, and is
            refused like any other that the table does not hold.
        among: statuses that the verb at hand starts from; others are refused even where another
            verb could make the change.

    Raises:
        IllegalTransition: names the first such fact by id, both statuses, and what is legal.
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


def outlived(fact: Fact, now: datetime) -> bool:
    """Whether a fact's time to live is over: such a fact is not ACTIVE again before it gets more.

    Spec: CRP-SPEC-009 §8.1
    """
    expires = fact.expires_at
    return expires is not None and expires < now


def check_content(fact: Fact) -> None:
    """Refuse to change what a withdrawn fact says.

    Raises:
        IllegalTransition: names the fact and its status.
    """
    if fact.status in (DELETED, QUARANTINED):
        raise IllegalTransition(
            f"fact {fact.fact_id} is {fact.status.value} and cannot be updated; "
            "only ACTIVE and STALE facts can"
        )


def check_validity(fact: Fact) -> None:
    """Refuse a fact that ends before it begins.

    Raises:
        FactRejected: names the fact and both moments.
    """
    begun, ended = fact.valid_from, fact.valid_to
    if begun is not None and ended is not None and ended < begun:
        raise FactRejected(
            f"fact {fact.fact_id} is valid to {ended.isoformat()}, before it is valid from "
            f"{begun.isoformat()}; swap the two or leave one out"
        )


def check_archived(facts: Iterable[Fact], wanted: bool) -> None:
    """Refuse to archive what is archived or withdrawn, or to restore what is not archived.

    Spec: CRP-SPEC-009 §8.2

    Raises:
        IllegalTransition: names the first such fact and what it is.
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
