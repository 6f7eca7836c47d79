"""From a question, or from a caller's own results, to an assembled context.

Assembled contexts are cached by everything that determines them. The five desired properties are
measured, not guaranteed; assembling twice shows whether a context is deterministic.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from crp_integrations.envelope.cfs.pack import (
    ALGORITHMS,
    DEDUP,
    FORMAT,
    WHOLE,
    PlacedChunk,
    SimpleTokenizer,
    deduplicate,
    fit_text,
    pack,
    token_set,
)
from crp_integrations.envelope.cfs.records import (
    AssembledContext,
    AssemblySettings,
    ChunkMetadata,
    ContextChunk,
    ContextMetadata,
    ContextProperties,
    RetrievalResult,
    TokenBudget,
)
from crp_integrations.envelope.cfs.search import (
    ORDER,
    RECENT,
    RRF,
    best_of_each,
    group_by_document,
    hybrid_search,
    prefer_recent,
    unique_results,
)
from crp_integrations.envelope.ports import ContextTokenizer
from crp_integrations.envelope.records import Drop
from crp_integrations.envelope.screen import ResultScreen
from crp_integrations.errors import RequestError
from crp_integrations.seals import blake3_of, canonical
from crp_integrations.vocabulary import DropReason

if TYPE_CHECKING:
    from crp_integrations.fabric.view import FabricView

_DIGITS = 6
# Required by the specification: the three best chunks among the first five, and minimum
# values of adjacency and coverage.
TOP_CHUNKS: Final = 3
FIRST_CHUNKS: Final = 5
ADJACENCY: Final = 0.7
COVERAGE: Final = 0.9


def measure_properties(
    placed: Sequence[PlacedChunk],
    results: Sequence[RetrievalResult],
    *,
    overhead_tokens: int,
    available: int,
) -> ContextProperties:
    """Measure all properties but determinism, which needs a second assembly.

    Spec: CFS-021 §P2, §P3, §P4, §P5
    """
    content = sum(chunk.tokens for chunk in placed)
    best = {result.chunk.id for result in results[:TOP_CHUNKS]}
    first = {chunk.result.chunk.id for chunk in placed[:FIRST_CHUNKS]}
    near = adjacency([chunk.document_id for chunk in placed])
    distinct = len(frozenset().union(*(token_set(chunk.text) for chunk in placed)))
    coverage = distinct / available if available else None
    return ContextProperties(
        within_budget=content + overhead_tokens <= available,
        best_in_front=len(best & first),
        best_wanted=len(best),
        adjacency=None if near is None else round(near, _DIGITS),
        coherent=None if near is None else near > ADJACENCY,
        unique_tokens=distinct,
        coverage=None if coverage is None else round(coverage, _DIGITS),
        covering=None if coverage is None else coverage > COVERAGE,
        filled=round(content / available, _DIGITS) if available else None,
    )


def adjacency(documents: Sequence[str]) -> float | None:
    """Adjacent pairs of one document over the possible number; None if none is possible.

    Spec: CFS-021 §P4

    >>> adjacency(["a", "a", "b", "a"])
    0.5
    """
    possible = sum(count - 1 for count in Counter(documents).values())
    if not possible:
        return None
    return sum(left == right for left, right in pairwise(documents)) / possible


class CacheKey(NamedTuple):
    """Everything that determines the bytes of a context, apart from its timestamp.

    Spec: CFS-021 §Caching

    Attributes:
        scope: the reading subject and namespace.
        generation, state_root: the fabric's state; see `FabricView.generation`.
        digest: BLAKE3 of query, budget, settings, tokenizer and embedder.
    """

    scope: str
    generation: int
    state_root: str
    digest: str


class ContextCache:
    """At most `max_size` contexts; the least recently used is dropped first; thread-safe.

    Contexts of an older state of a scope are dropped as soon as one of a newer state is read or
    put, so that erased texts do not stay for long.

    Spec: CFS-021 §Caching

    Args:
        max_size: maximum number of contexts; 0 keeps none.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._contexts: OrderedDict[CacheKey, AssembledContext] = OrderedDict()
        self._generations: dict[str, tuple[int, str]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._contexts)

    def get(self, key: CacheKey) -> AssembledContext | None:
        """The context of a key, which becomes the most recently used; None for a miss."""
        with self._lock:
            self._notice(key)
            context = self._contexts.pop(key, None)
            if context is not None:
                self._contexts[key] = context
            return context

    def put(self, key: CacheKey, context: AssembledContext) -> None:
        """Keep a context; if there are too many, the least recently used is dropped."""
        with self._lock:
            if self._notice(key):
                self._contexts.pop(key, None)
                self._contexts[key] = context
                while len(self._contexts) > self._max_size:
                    self._contexts.popitem(last=False)

    def _notice(self, key: CacheKey) -> bool:
        """Drop older states of the key's scope; false if the key itself is of an older state."""
        state = key.generation, key.state_root
        known = self._generations.get(key.scope, state)
        if key.generation < known[0]:
            return False
        self._generations[key.scope] = state
        if state != known:
            older = [old for old in self._contexts if old.scope == key.scope and old[1:3] != state]
            for old in older:
                del self._contexts[old]
        return True


_SIMPLE = SimpleTokenizer()
_DEFAULTS = AssemblySettings()
_NONE: Mapping[str, DropReason] = {}


def assemble_context(
    query: str,
    view: FabricView,
    budget: TokenBudget,
    tokenizer: ContextTokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    pool: Executor | None = None,
    cache: ContextCache | None = None,
    scope: str = "",
    screen: ResultScreen | None = None,
) -> AssembledContext:
    """Search a fabric for a question and assemble the context.

    Spec: CFS-021 §11, §Caching, §Parallel
    """
    query_hash = _query_hash(query)
    now = _aware(now)

    decides = {
        "query": query_hash,
        "budget": budget.model_dump(mode="json"),
        "settings": settings.model_dump(mode="json"),
        "tokenizer": tokenizer.identity,
        "embedder": view.embedder.identity,
    }
    digest = blake3_of(canonical(decides))
    if cache is not None:
        known = cache.get(CacheKey(scope, view.generation(), view.state_hash(), digest))
        if known is not None:
            return known
    search = hybrid_search(view, query, tokenizer=tokenizer, settings=settings, pool=pool)
    refused, screened = screen.refused(search.results) if screen is not None else ({}, ())
    context = assemble(
        query,
        search.results,
        budget,
        tokenizer,
        now=now,
        settings=settings,
        state_root=search.state_root,
        counts=search.counts,
        algorithms=(RRF, *screened),
        refused=refused,
    )
    if cache is not None:
        cache.put(CacheKey(scope, search.generation, search.state_root, digest), context)
    return context


def assemble(
    query: str,
    results: Sequence[RetrievalResult],
    budget: TokenBudget,
    tokenizer: ContextTokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    state_root: str = "",
    counts: Mapping[str, int] | None = None,
    algorithms: tuple[str, ...] = (),
    refused: Mapping[str, DropReason] = _NONE,
) -> AssembledContext:
    """Assemble a context from search results, given in any order.

    Spec: CFS-021 §1, §11
    """
    query_hash, now = _query_hash(query), _aware(now)
    boosted = prefer_recent(results) if settings.prefer_recent else results
    ranked = unique_results(boosted)
    tokens = _counted(ranked, tokenizer) if counts is None else counts
    allowed = [result for result in ranked if result.chunk.id not in refused]
    unique, duplicates = deduplicate(allowed, settings.dedup_threshold)
    chosen, over = best_of_each(unique, settings.max_chunks_per_doc)
    packing = pack(
        group_by_document(chosen, tokens),
        chosen,
        packing=settings.packing,
        available=budget.available,
        overhead=budget.per_doc_overhead,
        counts=tokens,
        tokenizer=tokenizer,
        allow_partial=settings.allow_partial,
    )
    packing, text, rendered_tokens = fit_text(
        packing,
        available=budget.available,
        places={result.chunk.id: place for place, result in enumerate(chosen)},
        tokenizer=tokenizer,
        separator=settings.separator,
        binding=settings.count_rendered,
    )
    overhead = budget.per_doc_overhead * len({chunk.document_id for chunk in packing.placed})
    shown = {chunk.result.chunk.id for chunk in packing.placed}
    unfitting = [result for result in chosen if result.chunk.id not in shown]
    kept_ids = {result.chunk.id: kept_id for result, kept_id in duplicates}
    reasons = {
        **refused,
        **dict.fromkeys(kept_ids, DropReason.DUPLICATE),
        **{result.chunk.id: DropReason.K for result in over},
        **{result.chunk.id: DropReason.BUDGET for result in unfitting},
    }
    return AssembledContext(
        text=text,
        text_hash=blake3_of(text),
        chunks=tuple(_chunk(chunk, settings) for chunk in packing.placed),
        total_tokens=sum(chunk.tokens for chunk in packing.placed),
        overhead_tokens=overhead,
        rendered_tokens=rendered_tokens,
        truncated=packing.truncated,
        dropped=tuple(
            Drop(
                fact_id=result.chunk.id,
                reason=reasons[result.chunk.id],
                tokens=tokens[result.chunk.id],
                kept=kept_ids.get(result.chunk.id),
            )
            for result in ranked
            if result.chunk.id in reasons
        ),
        budget=budget,
        packing=settings.packing,
        tokenizer=tokenizer.identity,
        algorithms=(
            *algorithms,
            *((RECENT,) if settings.prefer_recent else ()),
            ORDER,
            DEDUP,
            ALGORITHMS[settings.packing],
            FORMAT,
            *((WHOLE,) if settings.count_rendered else ()),
        ),
        properties=measure_properties(
            packing.placed,
            unique,
            overhead_tokens=overhead,
            available=budget.available,
        ),
        metadata=ContextMetadata(query_hash=query_hash, timestamp=now, state_root=state_root),
    )


def _counted(results: Sequence[RetrievalResult], tokenizer: ContextTokenizer) -> dict[str, int]:
    counts = tokenizer.count_many([result.chunk.text for result in results])
    return dict(zip((result.chunk.id for result in results), counts, strict=True))


def _chunk(placed: PlacedChunk, settings: AssemblySettings) -> ContextChunk:
    result = placed.result
    chunk, document = result.chunk, result.document
    about = None
    if settings.include_metadata:
        about = ChunkMetadata(
            byte_offset=chunk.byte_offset,
            modified_at=document.modified_at,
            semantic_score=_number(result.semantic_score),
            lexical_score=_number(result.lexical_score),
            about=dict(chunk.metadata),
        )
    return ContextChunk(
        chunk_id=chunk.id,
        document_id=document.id,
        document_path=document.path,
        text=placed.text,
        score=_number(result.score),
        sequence=chunk.sequence,
        tokens=placed.tokens,
        cut=placed.cut,
        metadata=about,
    )


def _number(score: float) -> float | None:
    """A finite score; None for one that JSON cannot represent."""
    return score if math.isfinite(score) else None


def _query_hash(query: str) -> str:
    if not isinstance(query, str):
        raise RequestError(f"query is a {type(query).__name__}, wanted a text")
    if not query.strip():
        raise RequestError("query is empty; ask a question")
    try:
        return blake3_of(query)
    except UnicodeEncodeError:
        raise RequestError("query is not text that can be encoded as UTF-8") from None


def _aware(now: datetime) -> datetime:
    if now.tzinfo is None:
        raise RequestError(f"the time {now.isoformat()} has no time zone, wanted an aware one")
    return now.astimezone(UTC)


def verify_properties(
    query: str,
    view: FabricView,
    budget: TokenBudget,
    tokenizer: ContextTokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    pool: Executor | None = None,
) -> AssembledContext:
    """A context with all five properties measured, by assembling it twice without the cache.

    Spec: CFS-021 §P1, §12
    """
    context, repeat = (
        assemble_context(query, view, budget, tokenizer, now=now, settings=settings, pool=pool)
        for _ in range(2)
    )
    return context.changed(
        properties=context.properties.model_copy(
            update={"deterministic": same_context(context, repeat)}
        )
    )


def same_context(left: AssembledContext, right: AssembledContext) -> bool:
    """Whether two contexts have the same chunks in the same order and the same text.

    Spec: CFS-021 §12
    """
    if [chunk.chunk_id for chunk in left.chunks] != [chunk.chunk_id for chunk in right.chunks]:
        return False
    return left.text == right.text
