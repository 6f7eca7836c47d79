"""Exact search over the rows of one state: what may be near is found fast, then scored exactly.

A fast product, or a bound of it, finds every row that could be among the best. The deterministic
cosine of `vectors.py` decides, so a score depends on its own row alone and ties go by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.search.narrow import Narrow, slack
from crp_integrations.fabric.search.rows import Places, Rows
from crp_integrations.vectors import FloatRows, cosine

# Rows scored beyond the k of the highest bounds, for a lower end that rules out nearly all others.
_FIRST = 64
# Every so many-th bound is looked at to tell how high the highest are: sorting out all of them
# takes as long as computing them.
_SAMPLED = 16
# A bound that lets more than this share of the rows through saved nothing.
_LET_THROUGH = 0.25


class Hit(NamedTuple):
    """A fact that a search found.

    Attributes:
        score: cosine in [-1, 1] or BM25 above 0, as the search says; higher is better.
    """

    fact_id: str
    score: float


def scanned(
    rows: Rows,
    wanted: npt.NDArray[np.float32],
    k: int,
    allowed: Sequence[bool] | None,
    scan_rows: int,
) -> list[Hit]:
    """The k facts of highest cosine among all that count and may be seen, ties by id.

    Args:
        wanted: unit vector, shape (dimensions,).
        allowed: for each of the rows' `label_sets` whether its facts may be seen; None for all.
        scan_rows: rows of one product.
    """
    places = None
    if allowed is not None or len(rows) < len(rows.alive):
        places = np.flatnonzero(rows.alive if allowed is None else rows.passing(allowed))
    narrow = rows.narrow()
    if narrow is not None:
        found = _by_bound(rows, narrow, wanted, k, places, scan_rows)
        if found is not None:
            return found
    rough = products(rows.base, wanted, scan_rows)
    if len(rows.late):
        rough = np.concatenate([rough, products(rows.late, wanted, scan_rows)])
    if places is None:
        return scored(rows, wanted, k, nearly(rough, k, rows.dimensions))
    return scored(rows, wanted, k, places[nearly(rough[places], k, rows.dimensions)])


def scored(
    rows: Rows,
    wanted: npt.NDArray[np.float32],
    k: int,
    places: Places,
    own: FloatRows | None = None,
) -> list[Hit]:
    """The k best of some places by the exact score, ties by id; `own` are their rows."""
    if places.size == 0:
        return []
    scores = cosine(rows.gathered(places) if own is None else own, wanted)
    # Sorting a few more costs less than finding out which they are.
    if places.size > 2 * k:
        near = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        scores, places = scores[near], places[near]
    first = np.lexsort((rows.id_order(places), -scores))[:k]
    best = zip(rows.ids_at(places[first]), scores[first].tolist(), strict=True)
    # As tuples, without a call of their class for each.
    return list(map(tuple.__new__, repeat(Hit), best))


def nearly(rough: npt.NDArray[np.float32], k: int, dimensions: int) -> Places:
    """Positions of all that may be among the k best by the exact score, from fast products."""
    if rough.size <= k:
        return np.arange(rough.size)
    # Methods of arrays: after a search the functions around them take longer than their work.
    parted = rough.copy()
    parted.partition(rough.size - k)
    near: Places = (rough >= parted[rough.size - k] - slack(dimensions)).nonzero()[0]
    return near


def products(
    block: FloatRows, wanted: npt.NDArray[np.float32], scan_rows: int
) -> npt.NDArray[np.float32]:
    """Fast products of rows with a vector, shape (n,), so many rows at a time."""
    if len(block) <= scan_rows:
        return block @ wanted
    return np.concatenate(
        [block[start : start + scan_rows] @ wanted for start in range(0, len(block), scan_rows)]
    )


def _by_bound(
    rows: Rows,
    narrow: Narrow,
    wanted: npt.NDArray[np.float32],
    k: int,
    places: Places | None,
    scan_rows: int,
) -> list[Hit] | None:
    """The best of some places, of which most are told apart by their short form.

    None when it lets too much through, or there is little to leave out.
    """
    most = narrow.most(wanted)
    if len(rows.late):
        late = products(rows.late, wanted, scan_rows) + slack(rows.dimensions)
        most = np.concatenate([most, late])
    if places is not None:
        most = most[places]
    first = k + _FIRST
    if first >= _LET_THROUGH * most.size:
        return None
    likely = _highest(most, first)
    if likely.size < k:
        likely = np.argpartition(most, most.size - first)[most.size - first :]
    best = rows.gathered(likely if places is None else places[likely])
    least = np.partition(cosine(best, wanted), -k)[-k]
    near = np.flatnonzero(most >= least)
    if near.size > _LET_THROUGH * most.size:
        return None
    return scored(rows, wanted, k, near if places is None else places[near])


def _highest(bounds: npt.NDArray[np.float32], about: int) -> Places:
    """Positions of about so many of the highest bounds, told from a sample of them."""
    sample = bounds[::_SAMPLED]
    rank = min(sample.size, -(-about // _SAMPLED))
    return np.flatnonzero(bounds >= np.partition(sample, sample.size - rank)[sample.size - rank])
