"""Which systems are measured, on what, and with which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.errors import RequestError
from tests.bench.selection.ablations import ABLATIONS, ablation_names
from tests.bench.selection.peers import PEERS

OURS = ("crp", "literal")
BUDGETS = (256, 512, 1_024, 2_048, 4_096)
# The budget that a set's headline number is at, by the set's name; others have the usual one.
USUAL = {
    "hotpot": 512,
    "musique": 1_024,
    "locomo_half": 1_024,
    "chunking_eval": 1_024,
    "codebase": 2_048,
}
USUAL_BUDGET = 1_024


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Attributes:
        systems: names, in the order of the report.
        budgets: tokens, ascending, at least one.
        queries: at most so many questions of a set, None for all.
    """

    systems: tuple[str, ...] = (*OURS, *PEERS)
    budgets: tuple[int, ...] = BUDGETS
    queries: int | None = None


def plan(
    systems: Sequence[str], budgets: Sequence[int], queries: int | None, *, ablate: bool
) -> Plan:
    """The plan of a command's options.

    Args:
        systems: names; empty for all.
        budgets: tokens; empty for the usual five.
        ablate: measure `crp` with single settings switched off, and no peers unless named.

    Raises:
        RequestError: a system is not known, or a number is below 1.
    """
    extra = ablation_names() if ablate else ()
    known = (*OURS, *PEERS, *(name for name, _ in ABLATIONS))
    chosen = tuple(systems) or (("crp",) if ablate else (*OURS, *PEERS))
    if unknown := [name for name in chosen if name not in known]:
        raise RequestError(f"system {unknown[0]!r:.40} is not one of {', '.join(known)}")
    sizes = tuple(sorted(set(budgets))) or BUDGETS
    if sizes[0] < 1 or (queries is not None and queries < 1):
        raise RequestError("a budget or --queries is below 1, wanted at least 1")
    return Plan(tuple(dict.fromkeys((*chosen, *extra))), sizes, queries)


def usual_budget(name: str, budgets: Sequence[int]) -> int:
    """The budget of a set's headline number: its own if measured, else the nearest below it."""
    wanted = USUAL.get(name, USUAL_BUDGET)
    below = [budget for budget in budgets if budget <= wanted]
    return max(below) if below else min(budgets)
