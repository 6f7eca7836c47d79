"""The neighbour lists: exact, symmetric in their scores, and equal however they came about.

The part of a graph around what changed: the same modularity, whatever becomes of it.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.graphs import engine_for
from crp_integrations.fabric import nearest_neighbours
from crp_integrations.fabric.nearest_neighbours import (
    LOWEST,
    MILLION,
    NO_FACT,
    Neighbours,
    contract_graph,
    search_neighbours,
)
from crp_integrations.fabric.similarity_graph import (
    CurrentSimilarity,
    Similarity,
    modularity,
    update_similarity,
)
from crp_integrations.vectors import FloatRows, unit_rows

Lists = list[list[tuple[int, int]]]


def whole(rows: FloatRows, k: int, least: int) -> Neighbours:
    every = np.arange(len(rows))
    return search_neighbours(Neighbours.empty(len(rows), k, least), rows, every, every)


def brute(rows: FloatRows, k: int, least: int) -> Lists:
    """What the lists have to be, one fact at a time, in exact decimal scores."""
    wide = rows.astype(np.float64)
    found = []
    for place, row in enumerate(wide):
        scores = [round(float(row @ other) * MILLION) for other in wide]
        near = [(-score, other) for other, score in enumerate(scores) if other != place]
        found.append([(other, -score) for score, other in sorted(near) if -score >= least][:k])
    return found


def lists(found: Neighbours) -> Lists:
    return [
        [(int(p), int(s)) for p, s in zip(places, scores, strict=True) if p != NO_FACT]
        for places, scores in zip(found.places, found.scores, strict=True)
    ]


def block(seed: int, rows: int, width: int = 12) -> FloatRows:
    """Rows around few centres, some of them the same, so that ties and full lists are common."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((4, width))
    made = centres[random.integers(0, 4, rows)] + 0.6 * random.standard_normal((rows, width))
    made[random.random(rows) < 0.2] = centres[0]
    return unit_rows(made)


@pytest.mark.requirement("009-5.2-1")
@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 120), st.integers(1, 9), st.integers(0, 900_000))
def test_each_fact_has_its_k_nearest(seed: int, rows: int, k: int, least: int) -> None:
    made = block(seed, rows)
    found = whole(made, k, least)
    assert lists(found) == brute(made, k, least)
    assert np.array_equal(found.places == NO_FACT, found.scores == LOWEST)


@pytest.mark.requirement("009-5.2-3", "009-5.2-4")
@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 80), st.integers(1, 6))
def test_an_edge_needs_the_threshold_and_weighs_its_cosine(seed: int, rows: int, k: int) -> None:
    made = block(seed, rows)
    left, right, weights = whole(made, k, 600_000).edges()
    pairs = list(zip(left.tolist(), right.tolist(), strict=True))
    assert pairs == sorted(set(pairs)) and all(low < high for low, high in pairs)
    exact = np.einsum("ij,ij->i", made[left], made[right], dtype=np.float64)
    assert np.allclose(weights, exact, atol=6e-7) and (weights >= 0.6).all()
    # The union of both directions: each listed neighbour is an edge, and nothing else is.
    listed = brute(made, k, 600_000)
    wanted = {(min(i, j), max(i, j)) for i, near in enumerate(listed) for j, _ in near}
    assert set(pairs) == wanted


def clustered(rows: int, centres: int = 60, width: int = 48) -> FloatRows:
    """Rows around centres, and 1,500 copies of one row, which are one cell."""
    random = np.random.default_rng(7)
    around = random.standard_normal((centres, width))[random.integers(centres, size=rows)]
    made = unit_rows(around + 0.7 * random.standard_normal((rows, width)))
    made[:1_500] = made[0]
    return made


def test_above_the_limit_few_neighbours_are_missed_and_scores_are_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearest_neighbours, "_CELLS", 12)
    monkeypatch.setattr(nearest_neighbours, "_SLICE", 1_000)
    rows, k, least = clustered(6_000), 10, 600_000
    every = np.arange(len(rows))
    nothing = Neighbours.empty(len(rows), k, least)
    exact, near = (search_neighbours(nothing, rows, every, every, limit) for limit in (None, 5_999))
    wanted, seen = (set(zip(*found.edges()[:2], strict=True)) for found in (exact, near))
    others = {pair for pair in wanted if pair[1] >= 1_500}
    assert len(others & seen) >= 0.97 * len(others) > 10_000
    low, high, weights = near.edges()
    assert np.allclose(weights, np.einsum("ij,ij->i", rows[low], rows[high]), atol=2e-6)
    assert (low < high).all()
    # Every copy is linked to copies of it, whatever their number.
    assert (near.scores[:1_500] == MILLION).all()
    again = search_neighbours(nothing, rows, every, every, 5_999)
    assert np.array_equal(again.places, near.places)


def test_copies_that_fill_many_windows_are_one_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_neighbours, "_CELL_MOST", 128)
    monkeypatch.setattr(nearest_neighbours, "_ASKING", 50)
    rows = clustered(4_000)
    mixed = np.random.default_rng(1).permutation(len(rows))
    every, nothing = np.arange(len(rows)), Neighbours.empty(len(rows), 10, 600_000)
    left, right, weights = search_neighbours(nothing, rows[mixed], every, every, 1_000).edges()
    label = every.copy()
    for _ in every:
        lowest = label.copy()
        np.minimum.at(lowest, left, label[right])
        np.minimum.at(lowest, right, label[left])
        if np.array_equal(lowest, label):
            break
        label = lowest
    assert len(np.unique(label[mixed < 1_500])) == 1
    assert (weights <= 1.0).all() and (left < right).all()


def test_memory_is_bounded_when_every_row_asks_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_neighbours, "_ASKING", 1_000)
    centre, noise = np.ones((1, 48)), np.random.default_rng(3).standard_normal((9_000, 48)) / 2
    # The copies of one row are the nearest of every other row.
    noise[:1_500] = 0
    rows = unit_rows(centre + noise)
    every, nothing = np.arange(len(rows)), Neighbours.empty(len(rows), 10, 600_000)
    tracemalloc.start()
    search_neighbours(nothing, rows, every, every, 1_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A tile of all rows by a window of 1,024, and what sorts it, takes 200 MB.
    assert peak < 80e6


def test_facts_added_above_the_limit_enter_the_lists_of_others() -> None:
    rows, k, least = clustered(4_000), 10, 600_000
    old, new = np.arange(3_600), np.arange(3_600, 4_000)
    known = search_neighbours(Neighbours.empty(3_600, k, least), rows[:3_600], old, old)
    moved, _ = known.moved(old, 4_000)
    exact, near = (search_neighbours(moved, rows, new, new, limit) for limit in (None, 1_000))
    wanted, seen = (set(zip(*found.edges()[:2], strict=True)) for found in (exact, near))
    assert len(wanted & seen) >= 0.98 * len(wanted)
    mean = {id(found): (found.places[:3_600] >= 3_600).sum() for found in (exact, near)}
    assert mean[id(near)] >= 0.9 * mean[id(exact)] > 500


def kept(
    ids: list[int], rows: FloatRows, known: Similarity | None, **fields: object
) -> tuple[Similarity, int]:
    found = brought(ids, rows, known, **fields)
    return found.similarity, found.searched


def brought(
    ids: list[int], rows: FloatRows, known: Similarity | None, **fields: object
) -> CurrentSimilarity:
    return update_similarity(
        [f"{number:04d}" for number in ids],
        [f"sha256:{number:064d}" for number in ids],
        rows[ids],
        known=known,
        **{"embedder": "e", "k": 4, "least": 500_000, "rebuild_share": 1.0, **fields},  # type: ignore[arg-type]
    )


@settings(max_examples=60)
@given(st.data())
def test_what_is_kept_and_brought_forward_equals_a_search_from_scratch(data: st.DataObject) -> None:
    rows = block(data.draw(st.integers(0, 2**32)), 90)
    numbers = st.lists(st.integers(0, 89), unique=True).map(sorted)
    known = None
    for _ in range(data.draw(st.integers(2, 4))):
        ids = data.draw(numbers)
        known, searched = kept(ids, rows, known)
        fresh, _ = kept(ids, rows, None)
        assert lists(known.neighbours) == lists(fresh.neighbours)
        assert searched <= len(ids)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 30), st.integers(1, 5))
def test_what_changed_holds_every_fact_whose_edges_did(
    seed: int, fewer: int, more: int, k: int
) -> None:
    rows = block(seed, 120)
    draw = np.random.default_rng(seed)
    before = sorted(draw.choice(90, 90 - fewer, replace=False).tolist())
    kept_ids = draw.choice(before, max(1, len(before) - fewer), replace=False).tolist()
    after = sorted([*kept_ids, *range(90, 90 + more)])
    known, _ = kept(before, rows, None, k=k)
    now = brought(after, rows, known, k=k)
    assert now.changed is not None

    def edges(ids: list[int], found: Similarity) -> dict[int, set[tuple[int, float]]]:
        seen: dict[int, set[tuple[int, float]]] = {id_: set() for id_ in ids}
        for one, other, weight in zip(*found.neighbours.edges(), strict=True):
            seen[ids[one]].add((ids[other], weight))
            seen[ids[other]].add((ids[one], weight))
        return seen

    old, new = edges(before, known), edges(after, now.similarity)
    changed = {after[place] for place in now.changed.tolist()}
    assert {id_ for id_ in after if old.get(id_) != new[id_]} <= changed
    same = brought(after, rows, now.similarity, k=k).changed
    assert same is not None and not same.size


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
