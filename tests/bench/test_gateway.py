"""When the bench of the gateway calls memory steady."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.gateway import STEADY_MB, STEADY_SHARE, steady


def samples(*mb: float) -> list[tuple[float, float]]:
    return [(2.0 * place, one) for place, one in enumerate(mb)]


def noisy(slope: float, count: int = 90) -> list[tuple[float, float]]:
    draw = random.Random(7)
    return samples(*(300.0 + slope * place + draw.uniform(-1, 1) for place in range(count)))


def test_memory_that_stays_is_steady_and_memory_that_grows_is_not() -> None:
    assert steady(noisy(0.0), 10.0)["steady"] is True
    # 12 MB in three minutes.
    grown = steady(noisy(0.13), 10.0)
    assert grown["steady"] is False
    assert 5.0 < grown["growth_per_1000_requests"] < 8.0


def test_one_high_sample_is_no_growth() -> None:
    assert steady(samples(*[300.0] * 29, 400.0), 10.0)["steady"] is True


def test_too_few_samples_say_nothing() -> None:
    assert steady([], 1.0)["steady"] is None
    assert steady(samples(300.0, 310.0), 1.0)["steady"] is None


@given(st.lists(st.floats(10, 1_000), min_size=3, max_size=60), st.floats(-50, 50))
def test_a_step_is_seen_at_its_size(base: list[float], step: float) -> None:
    third = len(base)
    level = base[0]
    said = steady(samples(*[level] * third, *[level] * third, *[level + step] * third), 5.0)
    allowed = max(STEADY_MB, STEADY_SHARE * level)
    assert said["steady"] is (step <= allowed) or abs(step - allowed) < 1e-6
