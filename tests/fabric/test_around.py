"""The part of a graph around what changed: the same modularity, whatever becomes of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.engines.leiden import engine_for
from crp_integrations.fabric.communities.nearest_neighbours import contract_graph
from crp_integrations.fabric.communities.similarity_graph import modularity

Drawn = tuple[
    npt.NDArray[np.bool_],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.float64],
    npt.NDArray[np.int64],
]


def drawn(seed: int, facts: int, groups: int, share: float) -> Drawn:
    """Groups of facts with many edges within and few between, and who may move."""
    draw = np.random.default_rng(seed)
    initial = draw.integers(0, groups, facts)
    one, other = np.triu_indices(facts, 1)
    chance = np.where(initial[one] == initial[other], 0.5, 0.05)
    there = draw.random(len(one)) < chance
    weights = draw.integers(600_000, 1_000_000, int(there.sum())) / 1_000_000
    return draw.random(facts) < share, one[there], other[there], weights, initial


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 5), st.floats(0.0, 1.0))
def test_a_partition_has_the_modularity_of_what_it_stands_for(
    seed: int, facts: int, groups: int, share: float
) -> None:
    free, left, right, weights, initial = drawn(seed, facts, groups, share)
    part = contract_graph(free, left, right, weights, initial)
    assert np.all(part.left < part.right)
    keys = part.left * part.nodes + part.right
    assert np.all(np.diff(keys) > 0)
    assert np.array_equal(part.spread(part.initial), initial)
    assert part.weights.sum() == pytest.approx(weights.sum())
    rng = np.random.default_rng(seed)
    membership = part.initial.copy()
    movable = part.node[free]
    membership[movable] = rng.integers(0, groups + 1, len(movable))
    small = modularity(membership, part.left, part.right, part.weights)
    whole = modularity(part.spread(membership), left, right, weights)
    assert small == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_what_may_not_move_stays_together_and_what_may_finds_its_place(seed: int) -> None:
    free, left, right, weights, initial = drawn(seed, 120, 4, 0.2)
    wrong = initial.copy()
    wrong[free] = 4 + np.arange(int(free.sum()))
    part = contract_graph(free, left, right, weights, wrong)
    assert part.nodes == int(free.sum()) + 8
    found = engine_for("graspologic").partition(
        part.nodes,
        part.left,
        part.right,
        part.weights,
        resolution=1.0,
        iterations=10,
        seed=0,
        initial=part.initial,
    )
    membership = part.spread(found)
    for group in range(4):
        assert len(set(membership[(initial == group) & ~free])) == 1
    assert (
        modularity(membership, left, right, weights)
        >= modularity(initial, left, right, weights) - 0.02
    )
