"""The safety budget of a session and its circuit breaker.

A budget starts at 1 and falls with the risk of each delivered answer; only an operator's reset
raises it. It is always reported, but acts only if `sessions.budget.enforce` is set. It is rounded
to four digits before comparisons, since sums of decimal costs are not exact as floats.

Spec: related facts §8
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from crp_integrations.errors import RequestError
from crp_integrations.session.records import BUDGET_DIGITS
from crp_integrations.session.settings import RiskCosts, SafetyBudgetSettings
from crp_integrations.vocabulary import BudgetWarning, Circuit, RiskLevel, Strategy


def round_budget(budget: float) -> float:
    """A budget rounded for comparison."""
    if math.isnan(budget) or not 0.0 <= budget <= 1.0:
        raise RequestError(f"safety budget {budget!r:.40} is not from 0 to 1")
    return round(float(budget), BUDGET_DIGITS)


def charge(budget: float, level: RiskLevel, costs: RiskCosts) -> float:
    """The budget that remains after an answer of some risk was delivered.

    Spec: related facts §8; CRP-SPEC-005 §7.4

    Raises:
        RequestError: the budget is outside [0, 1].

    >>> charge(1.0, RiskLevel.HIGH, RiskCosts())
    0.85
    """
    return _subtract(budget, costs.of(level))


def warning_of(budget: float, settings: SafetyBudgetSettings) -> BudgetWarning | None:
    """The value of `CRP-Safety-Budget-Warning`; None while the budget is healthy."""
    left = round_budget(budget)
    if left > settings.healthy:
        return None
    return BudgetWarning.CAUTION if left >= settings.review else BudgetWarning.LOW


def circuit_of(budget: float, settings: SafetyBudgetSettings) -> Circuit:
    """The state of the circuit breaker."""
    left = round_budget(budget)
    if left > settings.healthy:
        return Circuit.CLOSED
    return Circuit.HALF_OPEN if left > settings.halt else Circuit.OPEN


def halts(budget: float, settings: SafetyBudgetSettings) -> bool:
    """Whether every answer is withheld."""
    return settings.enforce and circuit_of(budget, settings) is Circuit.OPEN


def is_spent(budget: float, settings: SafetyBudgetSettings) -> bool:
    """Whether nothing remains, so that the session ends."""
    return settings.enforce and round_budget(budget) <= 0.0


def needs_review(budget: float, settings: SafetyBudgetSettings) -> bool:
    """Whether a person must review the answer, whatever the policy says."""
    return settings.enforce and warning_of(budget, settings) is BudgetWarning.LOW


def may_delegate(budget: float, settings: SafetyBudgetSettings) -> bool:
    """Whether new sub-agents may be started."""
    return not settings.enforce or circuit_of(budget, settings) is Circuit.CLOSED


def preferred_strategy(budget: float, settings: SafetyBudgetSettings) -> Strategy | None:
    """The strategy that the circuit breaker asks for; None while it does not."""
    half_open = settings.enforce and circuit_of(budget, settings) is Circuit.HALF_OPEN
    return Strategy.REFLEXIVE if half_open else None


def apply_ceiling(own: float, asked: float | None) -> float:
    """A budget limited by the ceiling of a request; a request never raises it.

    Spec: related facts §3
    """
    return round_budget(own) if asked is None else min(round_budget(own), round_budget(asked))


def charge_child(
    own: float, child: float | None, *, halted: bool, settings: SafetyBudgetSettings
) -> float:
    """A parent's budget after a sub-agent has returned."""
    return apply_ceiling(_subtract(own, settings.child_halt) if halted else own, child)


def merge_budgets(parents: Iterable[float]) -> float:
    """The initial budget of a fan-in: the smallest of its parents.

    Spec: related facts §5
    """
    budgets = [round_budget(budget) for budget in parents]
    if not budgets:
        raise RequestError("a fan-in of no windows has no safety budget; name its parents")
    return min(budgets)


def _subtract(budget: float, cost: float) -> float:
    return max(0.0, round(round_budget(budget) - cost, BUDGET_DIGITS))
