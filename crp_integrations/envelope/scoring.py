"""From facts and their vectors to candidates with mixed scores: the way into `hybrid`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.hybrid import Pool, scores
from crp_integrations.envelope.records import Candidate, Stretch
from crp_integrations.envelope.selection import HybridSettings
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.profile import Profile, profile
from crp_integrations.scores import SCALE
from crp_integrations.vectors import FloatRows, cosine

if TYPE_CHECKING:
    from crp_integrations.fabric.records import Fact

# What a named tuple's own constructor does, without its checks.
_STRETCH = partial(tuple.__new__, Stretch)
# Character offsets as chunking writes them at the end of a location.
_OFFSETS = re.compile(r"(\d{1,15})-(\d{1,15})\Z")


def pool_of(
    query: str,
    facts: Sequence[Fact],
    rows: FloatRows,
    vector: FloatRows,
    settings: HybridSettings,
) -> Pool:
    """The pool of a question.

    Args:
        rows: the facts' unit vectors, shape (n, d).
        vector: the question's, shape (d,).
    """
    contents = [fact.content for fact in facts]
    dense = cosine(rows, vector).astype(np.float64)
    return Pool(query, contents, dense, _beside(facts, settings.neighbour_gap))


def profiles(pool: Pool) -> list[Profile]:
    """Profiles of a pool's contents."""
    return [profile(content) for content in pool.contents]


def scored(
    candidates: Sequence[Candidate], pool: Pool, settings: HybridSettings
) -> tuple[Candidate, ...]:
    """The same candidates with mixed scores and, where they can be shown in part, stretches."""
    read = profiles(pool)
    found = scores(pool, read, settings)
    in_parts = settings.whole_share < 1.0
    rows = zip(
        candidates,
        read,
        _fixed(found.total),
        _fixed(found.lexical),
        _fixed(found.hop),
        found.stretches,
        strict=True,
    )
    return tuple(
        replace(
            fact,
            score=score,
            lexical=lexical,
            hop=hop,
            stretches=_stretches(text, values) if in_parts else (),
        )
        for fact, text, score, lexical, hop, values in rows
    )


def _stretches(text: Profile, values: npt.NDArray[np.float64]) -> tuple[Stretch, ...]:
    """A text's stretches with their scores; a text that is one stretch is shown as a whole."""
    rows = [
        (start, end, score) for (start, end), score in zip(text.bounds, _fixed(values), strict=True)
    ]
    return tuple(map(_STRETCH, rows))


def _fixed(values: npt.NDArray[np.float64]) -> list[int]:
    """Values in [0, 1] in fixed point."""
    fixed: list[int] = np.rint(values * SCALE).astype(np.int64).tolist()
    return fixed


@lru_cache(maxsize=8_192)
def _offsets(location: str) -> tuple[int, int] | None:
    said = _OFFSETS.search(location)
    return (int(said[1]), int(said[2])) if said else None


# Headings in a location are words of a document.
forgotten_with(_offsets.cache_clear)


def _beside(facts: Sequence[Fact], gap: int) -> npt.NDArray[np.intp]:
    """Positions of the facts before and behind each in its document, -1 for none."""
    found = np.full((len(facts), 2), -1, dtype=np.intp)
    placed = []
    for position, fact in enumerate(facts):
        if said := _offsets(fact.source_location):
            placed.append((fact.source_id, *said, position))
    placed.sort()
    for left, right in pairwise(placed):
        if left[0] == right[0] and left[1] < right[1] and right[1] - left[2] <= gap:
            found[left[3], 1], found[right[3], 0] = right[3], left[3]
    return found
