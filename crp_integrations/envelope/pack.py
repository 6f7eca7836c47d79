"""Phase 3, first half: which ranked facts fit into the budget (`greedy@1`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.envelope.records import RankedFact

GREEDY = "greedy@1"


@dataclass(frozen=True, slots=True)
class Packing:
    """Ranked facts sorted into those that fit and those that do not, each in rank order.

    Attributes:
        packed: what goes into the envelope.
        over_budget: what did not fit.
        over_k: what came after the cap on the number of facts was reached.
    """

    packed: tuple[RankedFact, ...]
    over_budget: tuple[RankedFact, ...]
    over_k: tuple[RankedFact, ...]

    def lightened(self, excess: int) -> Packing:
        """The same packing with its lowest-ranked facts over the budget, at least one.

        So many go as come to half of what is too much. A fact's share of the whole is at most
        twice what it was counted as, so none goes that one by one would have stayed.

        Args:
            excess: tokens that the rendered text has above the budget, at least 1.
        """
        kept, freed = len(self.packed), 0
        while kept and (2 * freed < excess):
            kept -= 1
            freed += self.packed[kept].candidate.tokens
        gone = reversed(self.packed[kept:])
        return Packing(self.packed[:kept], (*self.over_budget, *gone), self.over_k)


def greedy(ranked: Sequence[RankedFact], budget_tokens: int, k: int | None = None) -> Packing:
    """Take facts in rank order as long as they fit; skip one that does not and go on.

    Spec: CRP-SPEC-003 §7.3

    Args:
        ranked: facts in rank order.
        budget_tokens: tokens to fill; at 0 or below nothing is packed (decision E20).
        k: cap on the number of facts, None for no cap. Facts behind the k-th packed one are
            not looked at any more (decision E2).
    """
    packed: list[RankedFact] = []
    over_budget: list[RankedFact] = []
    over_k: list[RankedFact] = []
    used = 0
    for fact in ranked:
        if k is not None and len(packed) >= k:
            over_k.append(fact)
        elif budget_tokens > 0 and used + fact.candidate.tokens <= budget_tokens:
            packed.append(fact)
            used += fact.candidate.tokens
        else:
            over_budget.append(fact)
    return Packing(tuple(packed), tuple(over_budget), tuple(over_k))
