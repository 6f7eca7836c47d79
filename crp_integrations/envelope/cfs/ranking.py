"""The total order of retrieval results, the boost for recent documents, and grouping."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from crp_integrations.envelope.cfs.records import DocumentGroup, RetrievalResult
from crp_integrations.envelope.cfs.settings import AssemblySettings
from crp_integrations.errors import RequestError

ORDER = "cfs-order@1"
RECENT = "cfs-recent@1"


def sort_results(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """By score, highest first and NaN last, then path, sequence, byte offset and id.

    Spec: CFS-021 §5 (decision E18)
    """
    return sorted(results, key=_place)


def unique(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """One result for each chunk id, the first in the total order.

    Raises:
        RequestError: a chunk id stands for two texts.
    """
    found: dict[str, RetrievalResult] = {}
    for result in sort_results(results):
        held = found.setdefault(result.chunk.id, result)
        if held.chunk.text != result.chunk.text:
            raise RequestError(f"chunk id {result.chunk.id!r:.80} stands for two texts, wanted one")
    return list(found.values())


def prefer_recent(
    results: Sequence[RetrievalResult], settings: AssemblySettings
) -> list[RetrievalResult]:
    """The results with higher scores for documents modified recently.

    The newest document that was found gains `recency_boost` of its score, and the others less,
    the older they are beside it. No clock is read, so the same state gives the same scores.

    Spec: CFS-021 §Config
    """
    moments = [r.document.modified_at for r in results if r.document.modified_at is not None]
    if not moments:
        return list(results)
    newest, horizon = max(moments), timedelta(days=settings.recency_horizon_days)
    boosted = []
    for result in results:
        modified = result.document.modified_at
        fresh = 0.0 if modified is None else max(0.0, 1.0 - (newest - modified) / horizon)
        gain = abs(result.score) * settings.recency_boost * fresh if fresh else 0.0
        boosted.append(replace(result, score=result.score + gain))
    return boosted


def best_of_each(
    results: Sequence[RetrievalResult], most: int | None
) -> tuple[list[RetrievalResult], list[RetrievalResult]]:
    """The first so many results of each document, and the others; both keep their order.

    Spec: CFS-021 §Config
    """
    if most is None:
        return list(results), []
    seen: dict[str, int] = defaultdict(int)
    kept: list[RetrievalResult] = []
    over: list[RetrievalResult] = []
    for result in results:
        seen[result.document.id] += 1
        (kept if seen[result.document.id] <= most else over).append(result)
    return kept, over


def group_by_document(
    results: Sequence[RetrievalResult], counts: Mapping[str, int]
) -> list[DocumentGroup]:
    """Groups by document id, the one with the best chunk first, ties by path and id.

    Spec: CFS-021 §6

    Args:
        results: in the total order.
        counts: tokens by chunk id.
    """
    held: dict[str, list[RetrievalResult]] = defaultdict(list)
    for result in results:
        held[result.document.id].append(result)
    groups = [
        DocumentGroup(
            document=chunks[0].document,
            chunks=tuple(chunks),
            total_tokens=sum(counts[result.chunk.id] for result in chunks),
            # In the total order a number comes before every NaN.
            max_score=chunks[0].score,
        )
        for chunks in held.values()
    ]
    return sorted(
        groups, key=lambda group: (*_falling(group.max_score), group.document.path,
                                   group.document.id)
    )  # fmt: skip


def reading_order(group: DocumentGroup) -> list[RetrievalResult]:
    """The chunks of a group by sequence, then byte offset; others keep the total order.

    Spec: CFS-021 §7
    """
    return sorted(group.chunks, key=lambda r: (r.chunk.sequence, r.chunk.byte_offset))


def _falling(score: float) -> tuple[bool, float]:
    """A key that puts the highest first and a NaN last."""
    return (True, 0.0) if math.isnan(score) else (False, -score)


def _place(result: RetrievalResult) -> tuple[object, ...]:
    chunk, document = result.chunk, result.document
    return (
        *_falling(result.score),
        document.path,
        chunk.sequence,
        chunk.byte_offset,
        chunk.id,
        # Beyond the specification: results of one chunk that differ in nothing that counts.
        document.id,
        *_falling(result.semantic_score),
        *_falling(result.lexical_score),
    )
