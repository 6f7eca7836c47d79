"""The safety budget only falls, whoever charges it and in whatever order."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import RequestError
from crp_integrations.session import budget
from crp_integrations.session.settings import RiskCosts, SafetyBudgetSettings
from crp_integrations.vocabulary import BudgetWarning, Circuit, RiskLevel, Strategy

SETTINGS = SafetyBudgetSettings(enforce=True)
COSTS = RiskCosts()
BUDGETS = st.floats(0.0, 1.0) | st.integers(0, 10_000).map(lambda n: n / 10_000)
LEVELS = st.sampled_from(RiskLevel)


def hundredths(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low * 100, high * 100).map(lambda n: n / 10_000)


ANY_COSTS = st.builds(
    RiskCosts,
    low=hundredths(0, 5),
    medium=hundredths(2, 10),
    high=hundredths(10, 25),
    critical=hundredths(25, 50),
)


@pytest.mark.parametrize(
    ("level", "left"),
    [
        (RiskLevel.LOW, 1.0),
        (RiskLevel.MEDIUM, 0.95),
        (RiskLevel.HIGH, 0.85),
        (RiskLevel.CRITICAL, 0.65),
    ],
)
def test_a_delivered_answer_costs_what_its_risk_says(level: RiskLevel, left: float) -> None:
    assert budget.charge(1.0, level, COSTS) == left


def test_sums_of_costs_meet_the_bounds_exactly() -> None:
    # As floats, 1 - 4 × .15 - 6 × .05 is 0.10000000000000003, and would not halt.
    left = 1.0
    for level in [RiskLevel.HIGH] * 4 + [RiskLevel.MEDIUM] * 6:
        left = budget.charge(left, level, COSTS)
    assert left == 0.1
    assert budget.halts(left, SETTINGS)
    assert budget.halts(1 - 4 * 0.15 - 6 * 0.05, SETTINGS)


@given(BUDGETS, LEVELS, ANY_COSTS)
def test_a_charge_never_raises_and_never_goes_below_nothing(
    own: float, level: RiskLevel, costs: RiskCosts
) -> None:
    left = budget.charge(own, level, costs)
    assert 0.0 <= left <= budget.round_budget(own)
    assert left == budget.round_budget(left)


@given(BUDGETS, st.lists(LEVELS, max_size=4), ANY_COSTS)
def test_the_order_of_charges_does_not_matter(
    own: float, levels: list[RiskLevel], costs: RiskCosts
) -> None:
    ends = set()
    for some in permutations(levels):
        left = own
        for level in some:
            left = budget.charge(left, level, costs)
        ends.add(budget.round_budget(left))
    assert len(ends) == 1


@pytest.mark.parametrize(
    ("own", "word", "state", "review", "strategy"),
    [
        (1.0, None, Circuit.CLOSED, False, None),
        (0.5001, None, Circuit.CLOSED, False, None),
        (0.50004, BudgetWarning.CAUTION, Circuit.HALF_OPEN, False, Strategy.REFLEXIVE),
        (0.50, BudgetWarning.CAUTION, Circuit.HALF_OPEN, False, Strategy.REFLEXIVE),
        (0.25, BudgetWarning.CAUTION, Circuit.HALF_OPEN, False, Strategy.REFLEXIVE),
        (0.2499, BudgetWarning.LOW, Circuit.HALF_OPEN, True, Strategy.REFLEXIVE),
        (0.1001, BudgetWarning.LOW, Circuit.HALF_OPEN, True, Strategy.REFLEXIVE),
        (0.10004, BudgetWarning.LOW, Circuit.OPEN, True, None),
        (0.10, BudgetWarning.LOW, Circuit.OPEN, True, None),
        (0.0, BudgetWarning.LOW, Circuit.OPEN, True, None),
    ],
)
def test_each_bound_of_the_breaker(
    own: float, word: BudgetWarning | None, state: Circuit, review: bool, strategy: Strategy | None
) -> None:
    assert budget.warning_of(own, SETTINGS) is word
    assert budget.circuit_of(own, SETTINGS) is state
    assert budget.needs_review(own, SETTINGS) is review
    assert budget.halts(own, SETTINGS) is (state is Circuit.OPEN)
    assert budget.may_delegate(own, SETTINGS) is (state is Circuit.CLOSED)
    assert budget.preferred_strategy(own, SETTINGS) is strategy
    assert budget.is_spent(own, SETTINGS) is (own == 0.0)


@given(BUDGETS, BUDGETS)
def test_less_is_never_treated_better(one: float, other: float) -> None:
    low, high = sorted((one, other))
    states = [Circuit.CLOSED, Circuit.HALF_OPEN, Circuit.OPEN]
    places = [states.index(budget.circuit_of(own, SETTINGS)) for own in (high, low)]
    assert places == sorted(places)


@given(BUDGETS, st.none() | BUDGETS)
def test_a_ceiling_never_inflates(own: float, asked: float | None) -> None:
    left = budget.apply_ceiling(own, asked)
    assert left <= budget.round_budget(own)
    assert asked is None or left <= budget.round_budget(asked)
    assert left in {
        budget.round_budget(own),
        asked if asked is None else budget.round_budget(asked),
    }


def test_a_childs_return_and_its_451() -> None:
    assert budget.charge_child(0.9, 0.6, halted=False, settings=SETTINGS) == 0.6
    assert budget.charge_child(0.4, 0.6, halted=False, settings=SETTINGS) == 0.4
    assert budget.charge_child(0.9, None, halted=True, settings=SETTINGS) == 0.55
    assert budget.charge_child(0.9, 0.8, halted=True, settings=SETTINGS) == 0.55
    assert budget.charge_child(0.9, 0.1, halted=True, settings=SETTINGS) == 0.1
    assert budget.charge_child(0.2, None, halted=True, settings=SETTINGS) == 0.0


def test_a_fan_in_begins_with_the_smallest() -> None:
    assert budget.merge_budgets([0.62, 0.31, 0.8]) == 0.31
    with pytest.raises(RequestError, match="no windows"):
        budget.merge_budgets([])


@pytest.mark.parametrize("own", [-0.1, 1.0001, float("nan"), float("inf")])
def test_a_budget_outside_its_range_is_refused(own: float) -> None:
    with pytest.raises(RequestError, match="not from 0 to 1"):
        budget.charge(own, RiskLevel.LOW, COSTS)


@given(BUDGETS)
def test_a_budget_that_is_not_enforced_is_reported_and_stops_nothing(own: float) -> None:
    settings = SafetyBudgetSettings()
    assert budget.circuit_of(own, settings) is budget.circuit_of(own, SETTINGS)
    assert budget.warning_of(own, settings) is budget.warning_of(own, SETTINGS)
    assert not budget.halts(own, settings)
    assert not budget.is_spent(own, settings)
    assert not budget.needs_review(own, settings)
    assert budget.may_delegate(own, settings)
    assert budget.preferred_strategy(own, settings) is None
