"""From a question, or from results of a caller's own, to an assembled context."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from crp_integrations.envelope.cfs.cache import CacheKey, ContextCache
from crp_integrations.envelope.cfs.dedup import DEDUP, deduplicate
from crp_integrations.envelope.cfs.format import FORMAT
from crp_integrations.envelope.cfs.pack import ALGORITHMS, Placed, pack
from crp_integrations.envelope.cfs.properties import measured
from crp_integrations.envelope.cfs.ranking import (
    ORDER,
    RECENT,
    best_of_each,
    group_by_document,
    prefer_recent,
    unique,
)
from crp_integrations.envelope.cfs.records import (
    AssembledContext,
    ChunkMetadata,
    ContextChunk,
    ContextMetadata,
    RetrievalResult,
    TokenBudget,
)
from crp_integrations.envelope.cfs.rendered import WHOLE, fitted
from crp_integrations.envelope.cfs.screening import Screen
from crp_integrations.envelope.cfs.search import RRF, Both, hybrid_search, in_turn
from crp_integrations.envelope.cfs.settings import AssemblySettings
from crp_integrations.envelope.cfs.tokens import SimpleTokenizer, Tokenizer
from crp_integrations.envelope.records import Drop
from crp_integrations.errors import RequestError
from crp_integrations.seals import blake3_of, canonical
from crp_integrations.vocabulary import DropReason

if TYPE_CHECKING:
    from crp_integrations.fabric.view import FabricView

_SIMPLE = SimpleTokenizer()
_DEFAULTS = AssemblySettings()
_NONE: Mapping[str, DropReason] = {}


def assemble_context(
    query: str,
    view: FabricView,
    budget: TokenBudget,
    tokenizer: Tokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    both: Both = in_turn,
    cache: ContextCache | None = None,
    scope: str = "",
    screen: Screen | None = None,
) -> AssembledContext:
    """Search a fabric for a question and assemble the context.

    Spec: CFS-021 §11, §Caching, §Parallel

    Args:
        view: bound to tenant, subject and guard.
        now: the current time, aware; it is the timestamp and nothing else.
        both: runs the two searches; in turn, or at once with the same result.
        cache: contexts made before; one with an equal key comes back with its own timestamp.
        scope: keeps apart in a cache what different subjects or regions read.
        screen: looks at what was found before it is ranked; None looks at nothing. A cache is
            for contexts of one screen.

    Raises:
        RequestError: the query is empty or no Unicode text, or `now` has no time zone.
        StoreBusy: the fabric changed during every one of three attempts to read it.
        EngineError: a model that the screen asks failed.
    """
    query_hash = _query_hash(query)
    now = _aware(now)

    def key(state_root: str, generation: int) -> CacheKey:
        return CacheKey(
            query_hash=query_hash,
            state_root=state_root,
            generation=generation,
            budget_hash=blake3_of(canonical(budget.model_dump(mode="json"))),
            packing=settings.packing,
            tokenizer=tokenizer.identity,
            threshold=settings.dedup_threshold,
            settings_hash=blake3_of(canonical(settings.model_dump(mode="json"))),
            embedder=view.embedder.identity,
            scope=scope,
        )

    if cache is not None:
        known = cache.get(key(view.state_hash(), view.generation()))
        if known is not None:
            return known
    found = hybrid_search(view, query, tokenizer=tokenizer, settings=settings, both=both)
    refused, screened = screen.refused(found.results) if screen is not None else ({}, ())
    context = assemble(
        query,
        found.results,
        budget,
        tokenizer,
        now=now,
        settings=settings,
        state_root=found.state_root,
        counts=found.counts,
        algorithms=(RRF, *screened),
        refused=refused,
    )
    if cache is not None:
        cache.put(key(found.state_root, found.generation), context)
    return context


def assemble(
    query: str,
    results: Sequence[RetrievalResult],
    budget: TokenBudget,
    tokenizer: Tokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    state_root: str = "",
    counts: Mapping[str, int] | None = None,
    algorithms: tuple[str, ...] = (),
    refused: Mapping[str, DropReason] = _NONE,
) -> AssembledContext:
    """Assemble a context of results that were found already, in whatever order they come.

    Spec: CFS-021 §1, §11

    Args:
        results: a chunk that comes twice counts once, with its better score.
        now: the current time, aware; it is the timestamp and nothing else.
        state_root: hash of the state that was searched.
        counts: tokens by chunk id under the tokenizer; None has them counted.
        algorithms: what decided the results.
        refused: why a chunk may not be shown, by its id; it is dropped before any other is
            compared with it.

    Returns:
        A context of which content and markers are at most `budget.available` tokens.

    Raises:
        RequestError: the query is empty or no Unicode text, `now` has no time zone, or a chunk
            id stands for two texts.
    """
    query_hash, now = _query_hash(query), _aware(now)
    boosted = prefer_recent(results, settings) if settings.prefer_recent else results
    ranked = unique(boosted)
    tokens = _counted(ranked, tokenizer) if counts is None else counts
    allowed = [result for result in ranked if result.chunk.id not in refused]
    kept, duplicates = deduplicate(allowed, settings.dedup_threshold)
    chosen, over = best_of_each(kept, settings.max_chunks_per_doc)
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
    packing, text, rendered_tokens = fitted(
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
    stands = {result.chunk.id: kept_id for result, kept_id in duplicates}
    reasons = {
        **refused,
        **dict.fromkeys(stands, DropReason.DUPLICATE),
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
                kept=stands.get(result.chunk.id),
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
        properties=measured(
            packing.placed,
            kept,
            overhead_tokens=overhead,
            available=budget.available,
            settings=settings,
        ),
        metadata=ContextMetadata(query_hash=query_hash, timestamp=now, state_root=state_root),
    )


def _counted(results: Sequence[RetrievalResult], tokenizer: Tokenizer) -> dict[str, int]:
    counts = tokenizer.count_many([result.chunk.text for result in results])
    return dict(zip((result.chunk.id for result in results), counts, strict=True))


def _chunk(placed: Placed, settings: AssemblySettings) -> ContextChunk:
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
    """A score that JSON can hold."""
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
