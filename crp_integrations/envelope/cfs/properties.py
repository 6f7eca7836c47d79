"""The five desired properties, measured on a context; none of them is promised by measuring it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from crp_integrations.envelope.cfs.dedup import token_set
from crp_integrations.envelope.cfs.pack import Placed
from crp_integrations.envelope.cfs.records import Properties, RetrievalResult
from crp_integrations.envelope.cfs.settings import AssemblySettings

_DIGITS = 6


def measured(
    placed: Sequence[Placed],
    results: Sequence[RetrievalResult],
    *,
    overhead_tokens: int,
    available: int,
    settings: AssemblySettings,
) -> Properties:
    """Measure all but determinism, which takes a second assembly.

    Spec: CFS-021 §P2, §P3, §P4, §P5

    Args:
        placed: the chunks of the context in their order.
        results: what was found, in the total order, without duplicates.
        overhead_tokens: charged for markers.
        available: tokens for content and markers.
    """
    content = sum(chunk.tokens for chunk in placed)
    best = {result.chunk.id for result in results[: settings.top_chunks]}
    first = {chunk.result.chunk.id for chunk in placed[: settings.first_chunks]}
    near = adjacency([chunk.document_id for chunk in placed])
    distinct = len(frozenset().union(*(token_set(chunk.text) for chunk in placed)))
    coverage = distinct / available if available else None
    return Properties(
        within_budget=content + overhead_tokens <= available,
        best_in_front=len(best & first),
        best_wanted=len(best),
        adjacency=None if near is None else round(near, _DIGITS),
        coherent=None if near is None else near > settings.adjacency_wanted,
        unique_tokens=distinct,
        coverage=None if coverage is None else round(coverage, _DIGITS),
        covering=None if coverage is None else coverage > settings.coverage_wanted,
        filled=round(content / available, _DIGITS) if available else None,
    )


def adjacency(documents: Sequence[str]) -> float | None:
    """Neighbours of one document by the most that there could be; None for no such pair.

    Spec: CFS-021 §P4

    >>> adjacency(["a", "a", "b", "a"])
    0.5
    """
    possible = sum(count - 1 for count in Counter(documents).values())
    if not possible:
        return None
    return sum(left == right for left, right in pairwise(documents)) / possible
