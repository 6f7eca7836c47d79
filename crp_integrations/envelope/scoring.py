"""From facts and their vectors to candidates with mixed scores: the way into `hybrid`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.columns import Integers
from crp_integrations.envelope.hybrid import Pool, Scores
from crp_integrations.envelope.making import made
from crp_integrations.envelope.records import Candidate
from crp_integrations.envelope.selection import HybridSettings
from crp_integrations.envelope.stretches import Stretch, Stretches
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.profile import Profile
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import FactStatus

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import FactBrief

Cosines = npt.NDArray[np.float32]
# Character offsets as chunking writes them at the end of a location.
_OFFSETS = re.compile(r"(\d{1,15})-(\d{1,15})\Z")


def pool_of(
    query: str, facts: Sequence[FactBrief], cosines: Cosines, settings: HybridSettings
) -> Pool:
    """The pool of a question.

    Args:
        cosines: of the facts to the question, shape (n,).
    """
    contents = [fact.content for fact in facts]
    return Pool(query, contents, cosines.astype(np.float64), _beside(facts, settings.neighbour_gap))


def plain(
    facts: Sequence[FactBrief], relevance: Cosines, tokens: Sequence[int]
) -> tuple[Candidate, ...]:
    """Candidates that are ranked by their cosine.

    Args:
        relevance: best cosine of each fact to an information need, shape (n,).
        tokens: of each fact as rendered.
    """
    rows = zip(facts, _clamped(relevance), _importance(facts), tokens, strict=True)
    return tuple([_made(*row) for row in rows])


def scored(
    facts: Sequence[FactBrief],
    relevance: Cosines,
    tokens: Sequence[int],
    found: Scores,
    profiles: Sequence[Profile],
    settings: HybridSettings,
) -> tuple[Candidate, ...]:
    """Candidates with mixed scores and, where they can be shown in part, stretches.

    Args:
        relevance, tokens: as in `plain`.
        found: the scores of the facts' pool.
        profiles: of its texts.
    """
    pieces: list[Sequence[Stretch]] = [()] * len(facts)
    if settings.whole_share < 1.0:
        parts, begins = _in_fixed(found.parts), found.begins
        pieces = [
            Stretches(text.starts, text.ends, parts[start:end])
            for text, start, end in zip(profiles, begins, begins[1:], strict=False)
        ]
    rows = zip(
        facts,
        _clamped(relevance),
        _importance(facts),
        tokens,
        _fixed(found.total),
        _fixed(found.lexical),
        _fixed(found.hop),
        pieces,
        strict=True,
    )
    return tuple([_made(*row) for row in rows])


def _made(
    fact: FactBrief,
    relevance: int,
    importance: int,
    tokens: int,
    score: int | None = None,
    lexical: int = 0,
    hop: int = 0,
    stretches: Sequence[Stretch] = (),
) -> Candidate:
    # By position, in the order of the fields: this is done for every candidate of a question.
    return made(
        fact.fact_id,
        fact.content,
        fact.source_id,
        relevance,
        importance,
        tokens if tokens > 0 else 0,
        fact.ingested_at,
        fact.status is FactStatus.STALE,
        fact.community_label,
        fact.source_location,
        fact.labels,
        score,
        lexical,
        hop,
        stretches,
        (),
        "",
        fact.decay,
    )


def _importance(facts: Sequence[FactBrief]) -> list[int]:
    return _clamped(np.array([fact.importance_weight for fact in facts], dtype=np.float64))


def _clamped(values: npt.NDArray[np.floating]) -> list[int]:
    """`to_fixed` of each value."""
    # Of a NaN and 0, the 0.
    return _fixed(np.minimum(np.fmax(values.astype(np.float64), 0.0), 1.0))


def _fixed(values: npt.NDArray[np.float64]) -> list[int]:
    """Values in [0, 1] in fixed point."""
    fixed: list[int] = _in_fixed(values).tolist()
    return fixed


def _in_fixed(values: npt.NDArray[np.float64]) -> Integers:
    fixed: Integers = np.rint(values * SCALE).astype(np.int64)
    return fixed


@lru_cache(maxsize=8_192)
def _offsets(location: str) -> tuple[int, int] | None:
    said = _OFFSETS.search(location)
    return (int(said[1]), int(said[2])) if said else None


# Headings in a location are words of a document.
forgotten_with(_offsets.cache_clear)


def _beside(facts: Sequence[FactBrief], gap: int) -> npt.NDArray[np.intp]:
    """Positions of the facts before and behind each in its document, -1 for none."""
    found = np.full((len(facts), 2), -1, dtype=np.intp)
    placed = [
        (fact.source_id, *said, position)
        for position, fact in enumerate(facts)
        if fact.source_location and (said := _offsets(fact.source_location))
    ]
    placed.sort()
    for left, right in pairwise(placed):
        if left[0] == right[0] and left[1] < right[1] and right[1] - left[2] <= gap:
            found[left[3], 1], found[right[3], 0] = right[3], left[3]
    return found
