"""Hybrid search over a view, merged by reciprocal rank, and the total order of its results."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import JsonValue

from crp_integrations.envelope.cfs.records import (
    AssemblySettings,
    DocumentGroup,
    RetrievalResult,
    SourceChunk,
    SourceDocument,
)
from crp_integrations.envelope.ports import ContextTokenizer
from crp_integrations.errors import RequestError, StoreBusy, StoreError
from crp_integrations.fabric.records import Fact, Source, shown
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.fabric.search.vector_index import Hit
    from crp_integrations.fabric.view import FabricView

RRF = "rrf@1"
_ATTEMPTS = 3
# The end of a location: the chunk's start offset in the document, or its start and end.
_OFFSET = re.compile(r"(?:^|· )(\d{1,15})(?:-\d{1,15})?$")


@dataclass(frozen=True, slots=True)
class SearchedChunks:
    """The results of a search in one state of the fabric.

    Attributes:
        counts: tokens by chunk id.
        generation: number of the state; see `FabricView.generation`.
    """

    results: tuple[RetrievalResult, ...]
    counts: dict[str, int]
    state_root: str
    generation: int


def hybrid_search(
    view: FabricView,
    query: str,
    *,
    tokenizer: ContextTokenizer,
    settings: AssemblySettings,
    pool: Executor | None = None,
) -> SearchedChunks:
    """The chunks nearest to the question or with words of it, from one state of the fabric.

    With a pool, both searches run at the same time.

    Spec: CFS-021 §11, §Parallel
    """
    vector: list[FloatRows] = []

    def semantic() -> list[Hit]:
        if not settings.semantic_k or not view.size():
            return []
        if not vector:
            # Embedding is slow, so another attempt does not repeat it.
            vector.append(view.embedder.embed_query(query))
        return view.nearest(vector[0], settings.semantic_k)

    def lexical() -> list[Hit]:
        return view.search_text(query, settings.lexical_k) if settings.lexical_k else []

    for attempt in range(_ATTEMPTS):
        generation = view.generation()
        try:
            if pool is None:
                near, worded = semantic(), lexical()
            else:
                running = pool.submit(semantic)
                worded, near = lexical(), running.result()
            results = _results(view, near, worded, settings)
            counts = _counts(view, results, tokenizer)
            state_root = view.state_hash()
        except StoreError:
            # Retry if the fabric has changed, as a fact may have vanished between two reads.
            if attempt + 1 == _ATTEMPTS or view.generation() == generation:
                raise
            continue
        if view.generation() == generation:
            return SearchedChunks(results, counts, state_root, generation)
    raise StoreBusy(f"the fabric changed during each of {_ATTEMPTS} attempts to read it; try again")


def rrf(rankings: Sequence[Sequence[str]], k: int) -> dict[str, float]:
    """Reciprocal rank fusion: the sum of 1 / (k + rank) for each id, with ranks from 1.

    Spec: CFS-021 §2, §Parallel

    >>> rrf([["a", "b"], ["b"]], 60)["b"] == 1 / 62 + 1 / 61
    True
    """
    scores: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, start=1):
            scores[id_] += 1.0 / (k + rank)
    return dict(scores)


def _results(
    view: FabricView, near: Sequence[Hit], worded: Sequence[Hit], settings: AssemblySettings
) -> tuple[RetrievalResult, ...]:
    scores = rrf([[hit.fact_id for hit in hits] for hits in (near, worded)], settings.rrf_k)
    ids = sorted(scores, key=lambda id_: (-scores[id_], id_))[: settings.top_k]
    facts = view.facts(ids)
    sources = {s.source_id: s for s in view.sources({fact.source_id for fact in facts})}
    cosines = {hit.fact_id: hit.score for hit in near}
    words = {hit.fact_id: hit.score for hit in worded}
    documents = _documents(facts, sources)
    return tuple(
        RetrievalResult(
            chunk=_chunk(fact),
            document=documents[fact.source_id],
            score=scores[fact.fact_id],
            semantic_score=cosines.get(fact.fact_id, 0.0),
            lexical_score=words.get(fact.fact_id, 0.0),
        )
        for fact in facts
    )


def _documents(facts: Sequence[Fact], sources: dict[str, Source]) -> dict[str, SourceDocument]:
    """The source of each fact as a document, with the latest time of it and its facts here."""
    moments: dict[str, list[datetime]] = defaultdict(list)
    for fact in facts:
        source = sources.get(fact.source_id)
        known = (fact.modified_at, fact.ingested_at, source.ingested_at if source else None)
        moments[fact.source_id] += [moment for moment in known if moment is not None]
    return {
        source_id: SourceDocument(
            id=source_id,
            # A source without a registered document, such as a session's facts, has only its id.
            path=shown(sources[source_id].uri) if source_id in sources else source_id,
            modified_at=max(times, default=None),
        )
        for source_id, times in moments.items()
    }


def _chunk(fact: Fact) -> SourceChunk:
    """Make a chunk of a fact; a fabric does not number chunks, so the offset is the sequence."""
    place = _OFFSET.search(fact.source_location)
    start = int(place[1]) if place else 0
    about: dict[str, JsonValue] = {
        "location": fact.source_location,
        "kind": fact.kind.value,
        "labels": list(fact.labels),
        "community": fact.community_label,
        "status": fact.status.value,
        "metadata": fact.metadata,
    }
    return SourceChunk(
        id=fact.fact_id, text=fact.content, sequence=start, byte_offset=start, metadata=about
    )


def _counts(
    view: FabricView, results: Sequence[RetrievalResult], tokenizer: ContextTokenizer
) -> dict[str, int]:
    texts = {result.chunk.id: result.chunk.text for result in results}
    if not tokenizer.keeps_counts:
        return dict(zip(texts, tokenizer.count_many(list(texts.values())), strict=True))
    counts = view.token_counts(f"{tokenizer.identity}|content", list(texts), tokenizer.count_many)
    if counts.keys() != texts.keys():
        raise StoreBusy("a fact was withdrawn while its tokens were counted; try again")
    return counts


ORDER = "cfs-order@1"
RECENT = "cfs-recent@1"
_BOOST = 0.1
# Documents older than the newest one by this much are not boosted.
_HORIZON = timedelta(days=365)


def sort_results(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """Sort by score, highest first and NaN last, then by path, sequence, byte offset and id.

    Spec: CFS-021 §5 (decision E18)
    """
    return sorted(results, key=_place)


def unique_results(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """One result for each chunk id, the first in the total order."""
    unique: dict[str, RetrievalResult] = {}
    for result in sort_results(results):
        held = unique.setdefault(result.chunk.id, result)
        if held.chunk.text != result.chunk.text:
            raise RequestError(f"chunk id {result.chunk.id!r:.80} is used for two texts, not one")
    return list(unique.values())


def prefer_recent(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """The results with higher scores for documents modified recently.

    The newest document that was found gains a tenth of its score, and the others less, the older
    they are than it. No clock is read, so the same state gives the same scores.

    Spec: CFS-021 §Config
    """
    moments = [r.document.modified_at for r in results if r.document.modified_at is not None]
    if not moments:
        return list(results)
    newest = max(moments)
    boosted = []
    for result in results:
        modified = result.document.modified_at
        fresh = 0.0 if modified is None else max(0.0, 1.0 - (newest - modified) / _HORIZON)
        gain = abs(result.score) * _BOOST * fresh if fresh else 0.0
        boosted.append(replace(result, score=result.score + gain))
    return boosted


def best_of_each(
    results: Sequence[RetrievalResult], most: int | None
) -> tuple[list[RetrievalResult], list[RetrievalResult]]:
    """The first `most` results of each document, and the others; both keep their order.

    Spec: CFS-021 §Config
    """
    if most is None:
        return list(results), []
    seen: dict[str, int] = defaultdict(int)
    first: list[RetrievalResult] = []
    over: list[RetrievalResult] = []
    for result in results:
        seen[result.document.id] += 1
        (first if seen[result.document.id] <= most else over).append(result)
    return first, over


def group_by_document(
    results: Sequence[RetrievalResult], counts: Mapping[str, int]
) -> list[DocumentGroup]:
    """Groups by document id, the one with the best chunk first, ties by path and id.

    Spec: CFS-021 §6
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


def _falling(score: float) -> tuple[bool, float]:
    """A sort key that puts the highest score first and NaN last."""
    return (True, 0.0) if math.isnan(score) else (False, -score)


def _place(result: RetrievalResult) -> tuple[object, ...]:
    chunk, document = result.chunk, result.document
    return (
        *_falling(result.score),
        document.path,
        chunk.sequence,
        chunk.byte_offset,
        chunk.id,
        # Not in the specification: makes the order of several results of one chunk unique.
        document.id,
        *_falling(result.semantic_score),
        *_falling(result.lexical_score),
    )
