"""Phase 3, first half: which ranked facts go in, by a named algorithm, and why others do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from crp_integrations.envelope.packers import PACKERS, Offer, Packer, patient
from crp_integrations.envelope.ranked import RankedFacts
from crp_integrations.envelope.records import RankedFact
from crp_integrations.envelope.walk import Walk

# Algorithms that look at no fact behind the last one that they take (decision E2).
_SCANNING = ("greedy", "in_order", "patient")


@dataclass(frozen=True, slots=True)
class Packing:
    """Ranked facts sorted into those that go in and those that do not, each in rank order.

    Attributes:
        packed: what goes into the envelope, pinned facts before all others.
        over_budget: what did not fit.
        over_k: what was left out because the cap on the number of facts was reached.
        duplicates: near-duplicates, each with the id of the fact that stands for it.
        algorithm: `name@n` of the rule.
    """

    packed: tuple[RankedFact, ...]
    over_budget: Sequence[RankedFact]
    over_k: Sequence[RankedFact]
    duplicates: tuple[tuple[RankedFact, str], ...] = ()
    algorithm: str = "greedy@1"

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
        gone = sorted(
            (*self.over_budget, *self.packed[kept:]),
            key=lambda fact: (-fact.composite, fact.candidate.fact_id),
        )
        return replace(self, packed=self.packed[:kept], over_budget=tuple(gone))


def pack(
    ranked: Sequence[RankedFact],
    budget_tokens: int,
    k: int | None = None,
    *,
    packing: str = "greedy",
    walk: Walk | None = None,
    every_duplicate: bool = False,
    pinned: Collection[str] = (),
    passed_over: int | None = None,
) -> Packing:
    """Choose the facts that go in.

    A near-duplicate of a kept fact above it never goes in. Of the facts that do not fit, those
    are called duplicates that resemble one that is packed; with `every_duplicate` all are
    looked at, as the specification is printed. What goes in is the same.

    Spec: CRP-SPEC-003 §7.3 (decisions E2, E5, E11, E17)

    Args:
        ranked: facts in rank order.
        budget_tokens: tokens to fill; at 0 or below nothing is packed (decision E20).
        k: cap on the number of facts, None for no cap.
        packing: name of the algorithm.
        walk: tells near-duplicates; None when there are none.
        every_duplicate: walk through all facts.
        pinned: ids that are packed before all others, as far as they fit.
        passed_over: with `greedy`, facts that may be skipped since they do not fit, for each one
            taken (`patient@1`); None for as many as there are.
    """
    pins = by = PACKERS[packing]
    if packing == "greedy" and passed_over is not None:
        packing, by = "patient", partial(patient, passed_over=passed_over)
    ranked = RankedFacts.of(ranked)
    walk = walk or Walk.without_duplicates(len(ranked))
    if every_duplicate:
        walk.all()
    first = _places(ranked, pinned) if pinned else []
    most = len(ranked) if k is None else k
    chosen = _chosen(ranked, first, budget_tokens, most, pins, walk) if first else []
    front = len(chosen)
    tokens = ranked.tokens.tolist()
    room = budget_tokens - sum(tokens[at] for at in chosen)
    rest: Sequence[int] = range(len(ranked))
    if first:
        apart = set(first)
        rest = [at for at in rest if at not in apart]
    chosen += _chosen(ranked, rest, room, most - front, by, walk)
    room = budget_tokens - sum(tokens[at] for at in chosen)

    alike = _alike(chosen, walk)
    taken = sorted({*chosen, *alike})
    # Where the cap is reached, a scan ends; other algorithms have looked at everything.
    end = len(ranked)
    if k is not None and len(chosen) >= k and packing in _SCANNING:
        end = max(chosen[front:], default=-1) + 1
    left = ranked.without(taken, 0, end)
    cut = ranked.without(taken, end, len(ranked))
    if k is not None and len(chosen) >= k and packing not in _SCANNING:
        fits = left.tokens <= room
        left, cut = left.where(~fits), left.where(fits)
    return Packing(
        packed=tuple(ranked.those(chosen)),
        over_budget=left,
        over_k=cut,
        duplicates=tuple(
            [(ranked[at], ranked[alike[at]].candidate.fact_id) for at in sorted(alike)]
        ),
        algorithm=f"{packing}@1",
    )


def _places(ranked: RankedFacts, pinned: Collection[str]) -> list[int]:
    ids = set(pinned)
    return [at for at, fact_id in enumerate(ranked.ids) if fact_id in ids]


def _chosen(
    ranked: RankedFacts,
    places: Sequence[int],
    room: int,
    most: int,
    by: Packer,
    walk: Walk,
) -> list[int]:
    """Places that the algorithm takes out of these, in rank order."""
    if room <= 0 or most <= 0:
        return []
    tokens = ranked.tokens
    if len(places) < len(ranked):
        tokens = tokens[list(places)]
    offer = Offer(
        tokens=tokens.tolist(),
        values=lambda number: ranked.composite(places[number]),
        kept=lambda number: walk.stands_for(places[number]) is None,
        fetch=lambda numbers: walk.fetch([places[number] for number in numbers]),
    )
    return [places[number] for number in by(offer, room, most)]


def _alike(chosen: Sequence[int], walk: Walk) -> dict[int, int]:
    """Near-duplicates that are known by now, each with the place that stands for it."""
    found: dict[int, int] = {}
    for place in chosen:
        for lower in walk.below(place):
            found.setdefault(lower, place)
    return {**found, **walk.told()}
