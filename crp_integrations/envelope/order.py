"""Phase 3, second half: where each packed fact stands, by a named rule.

A model attends best to the beginning and the end of its context, so facts that are critical
for ordering stand there. "Critical" here is a composite score; a fact whose importance
makes its absence matter to the tier is called vital (decision E5). `rank` and `reversed` put
facts simply in rank order, the best first or the best last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.envelope.records import RankedFact
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import to_fixed


@dataclass(frozen=True, slots=True)
class Ordering:
    """Packed facts in the order they are shown.

    Attributes:
        facts: a permutation of what was packed.
        promoted: ids put first and last although no fact is critical (decision E7).
        algorithms: `name@n` of each rule.
    """

    facts: tuple[RankedFact, ...]
    promoted: tuple[str, ...]
    algorithms: tuple[str, ...]


def order(packed: Sequence[RankedFact], settings: EnvelopeSettings) -> Ordering:
    """Put packed facts into the order of the settings' rule.

    Spec: CRP-SPEC-003 §7.4 (decisions E6, E7)

    Args:
        packed: facts in rank order.
    """
    critical_from = to_fixed(settings.critical_composite)
    important_from = to_fixed(settings.important_composite)
    algorithms = (f"{settings.ordering}@1",)
    if settings.ordering in ("rank", "reversed"):
        facts = tuple(packed) if settings.ordering == "rank" else tuple(reversed(packed))
        return Ordering(facts, (), algorithms)
    critical = [fact for fact in packed if fact.composite >= critical_from]
    promoted: tuple[str, ...] = ()
    first: list[RankedFact] = []
    last: list[RankedFact] = []
    rest = list(packed)
    if not critical and settings.promote:
        first, last = rest[:1], rest[1:2]
        rest = rest[2:]
        promoted = tuple(fact.candidate.fact_id for fact in (*first, *last))
    elif settings.ordering == "sandwich_rank" or len(critical) <= 2:
        first, last = critical[:2], critical[2:]
    else:
        first, last = [critical[0], critical[-1]], critical[1:-1]
    important = [fact for fact in rest if important_from <= fact.composite < critical_from]
    supporting = [fact for fact in rest if fact.composite < min(important_from, critical_from)]
    return Ordering((*first, *supporting, *important, *last), promoted, algorithms)
