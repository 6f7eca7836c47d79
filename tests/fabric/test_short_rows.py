"""The short form of a block: it rules out what cannot be nearest, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.fabric.search import vector_index
from crp_integrations.fabric.search import vector_rows as module
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.search.vector_rows import ShortRows, ShortRowsCache
from crp_integrations.vectors import FloatRows, unit_rows
from tests.fabric.vector_facts import ties, vectors

ALL = {"deadline": None, "max_examples": 150}


class Always:
    """The short form from the first search on."""

    def of(self, block: FloatRows) -> ShortRows | None:
        return ShortRows.of(block)


def narrowed(index: VectorIndex) -> VectorIndex:
    return replace(index, _short_rows=Always())  # type: ignore[arg-type]


def indexed(rows: FloatRows, late: FloatRows, dead: list[int], labels: int) -> VectorIndex:
    """Rows, some of which came later or went."""
    listed = [(f"{n:05d}", (f"l{n % labels}",)) for n in range(len(rows))]
    made = VectorIndex.of(1, listed, rows)
    alive = made.alive.copy()
    alive[dead] = False
    made = replace(made, alive=alive, _size=int(np.count_nonzero(alive)))
    if not len(late):
        return made
    facts = Facts({f"{n:05d}": row for n, row in enumerate(late, start=len(rows))})
    grown = made.changed(facts, sorted(facts.rows))  # type: ignore[arg-type]
    assert grown is not None
    return grown


class Facts:
    """What a state asks a transaction for about facts that came later."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def retrievable(self, ids: Any) -> list[tuple[str, tuple[str, ...]]]:
        return [(id_, ("l0",)) for id_ in ids]

    def vectors(self, ids: Any) -> FloatRows:
        return np.array([self.rows[id_] for id_ in ids], dtype=np.float32)

    def generation(self) -> int:
        return 2


@st.composite
def blocks(draw: st.DrawFn) -> FloatRows:
    """Unit rows of few axes, of many, with equal ones and with nothing in them."""
    count, width = draw(st.integers(1, 300)), draw(st.sampled_from([3, 16, 48, 130]))
    seed = draw(st.integers(0, 2**16))
    kind = draw(st.sampled_from(["few axes", "topics", "ties", "anyhow", "one row", "nothing"]))
    random = np.random.default_rng(seed)
    if kind == "few axes":
        axes = random.standard_normal((max(1, width // 8), width))
        rows = unit_rows(random.standard_normal((count, len(axes))) @ axes)
    elif kind == "topics":
        rows = vectors(count, width=width, seed=seed)
    elif kind == "ties":
        rows = ties(count, width=width, seed=seed)
    elif kind == "anyhow":
        rows = unit_rows(random.standard_normal((count, width)))
    elif kind == "one row":
        rows = unit_rows(np.tile(random.standard_normal(width), (count, 1)))
    else:
        rows = np.zeros((count, width), dtype=np.float32)
    rows[:: draw(st.integers(2, 50))] *= draw(st.sampled_from([0.0, 1.0]))
    return rows


@settings(**ALL)
@given(rows=blocks(), seed=st.integers(0, 2**16), share=st.sampled_from([0.3, 0.85, 1.0]))
def test_no_product_is_above_its_bound(rows: FloatRows, seed: int, share: float) -> None:
    query = unit_rows(np.random.default_rng(seed).standard_normal((1, rows.shape[1])))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ENERGY", share)
        patch.setattr(module, "_MOST_AXES", 16.0)
        made = ShortRows.of(rows)
    if made is None:
        assert not rows.any()
        return
    for vector in (query, rows[-1]):
        exact = rows.astype(np.float64) @ vector.astype(np.float64)
        assert (made.most(vector) >= exact).all()


@settings(**ALL)
@given(rows=blocks(), data=st.data())
def test_what_is_found_is_what_reading_every_row_finds(
    rows: FloatRows, data: st.DataObject
) -> None:
    late = vectors(data.draw(st.integers(0, 20)), width=rows.shape[1], seed=7)
    dead = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    index = indexed(rows, late, dead, labels=3)
    allowed = data.draw(st.none() | st.lists(st.booleans(), min_size=3, max_size=3))
    if allowed is not None:
        allowed = [*allowed, *[True] * (len(index.label_sets) - 3)][: len(index.label_sets)]
    k = data.draw(st.integers(1, 40))
    query = vectors(1, width=rows.shape[1], seed=data.draw(st.integers(0, 99)))[0]
    wanted = index.nearest(query, k, allowed=allowed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_AXES", 16.0)
        patch.setattr(vector_index, "_FIRST", 0)
        patch.setattr(vector_index, "_LET_THROUGH", 1.0)
        assert narrowed(index).nearest(query, k, allowed=allowed) == wanted


def test_the_short_form_is_what_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = vectors(5_000, width=64)
    index = narrowed(VectorIndex.of(1, [(f"{n:05d}", ()) for n in range(5_000)], rows))
    query = vectors(1, width=64, seed=3)[0]
    wanted = VectorIndex.of(1, [(f"{n:05d}", ()) for n in range(5_000)], rows).nearest(query, 10)

    def unwanted(*_: object) -> None:
        raise AssertionError("every row was read")

    monkeypatch.setattr(vector_index, "products", unwanted)
    assert index.nearest(query, 10) == wanted


def test_it_is_made_once_of_a_block_that_is_searched_often() -> None:
    rows = vectors(module._FEWEST, width=32)
    index = VectorIndex.of(1, [(f"{n:05d}", ()) for n in range(len(rows))], rows)
    later = replace(index, generation=2)
    for _ in range(module._AFTER - 1):
        assert index._short_rows.of(index.base) is None
    made = index._short_rows.of(index.base)
    assert made is not None
    assert made.rows.shape[1] <= 16
    assert later._short_rows.of(later.base) is made


def test_a_small_block_has_none() -> None:
    narrowing, rows = ShortRowsCache(), vectors(module._FEWEST - 1)
    assert not any(narrowing.of(rows) for _ in range(2 * module._AFTER))


def test_rows_that_fill_all_axes_have_none() -> None:
    rows = unit_rows(np.random.default_rng(0).standard_normal((2_000, 64)))
    assert ShortRows.of(rows) is None


def test_a_bound_that_lets_too_much_through_is_not_used() -> None:
    # Rows that are all equally near: nothing can be told apart.
    rows = unit_rows(np.tile(np.eye(1, 64), (1_000, 1)))
    index = VectorIndex.of(1, [(f"{n:05d}", ()) for n in range(1_000)], rows)
    query = vectors(1, width=64)[0]
    assert narrowed(index).nearest(query, 5) == index.nearest(query, 5)
