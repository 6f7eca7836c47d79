"""Hybrid search over a view: nearest vectors and word hits, merged by reciprocal rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydantic import JsonValue

from crp_integrations.envelope.cfs.records import Chunk, Document, RetrievalResult
from crp_integrations.envelope.cfs.settings import AssemblySettings
from crp_integrations.envelope.cfs.tokens import Tokenizer
from crp_integrations.errors import StoreBusy, StoreError
from crp_integrations.fabric.records import Fact, Source, shown
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.fabric.search.vector_index import Hit
    from crp_integrations.fabric.view import FabricView

RRF = "rrf@1"
_ATTEMPTS = 3
# The last part of a location: the first and the last character in the document, or the first.
_OFFSET = re.compile(r"(?:^|· )(\d{1,15})(?:-\d{1,15})?$")

Left = TypeVar("Left")
Right = TypeVar("Right")


class Both(Protocol):
    """Runs two functions, in whatever order or at once."""

    def __call__(
        self, left: Callable[[], Left], right: Callable[[], Right], /
    ) -> tuple[Left, Right]:
        """What both gave."""
        ...


def in_turn(left: Callable[[], Left], right: Callable[[], Right], /) -> tuple[Left, Right]:
    """One after the other."""
    return left(), right()


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was found in one state of the fabric.

    Attributes:
        counts: tokens by chunk id.
        generation: of the state; see `FabricView.generation`.
    """

    results: tuple[RetrievalResult, ...]
    counts: dict[str, int]
    state_root: str
    generation: int


def hybrid_search(
    view: FabricView,
    query: str,
    *,
    tokenizer: Tokenizer,
    settings: AssemblySettings,
    both: Both = in_turn,
) -> Retrieved:
    """The chunks that are nearest or hold words of the question, from one state of the fabric.

    Spec: CFS-021 §11, §Parallel

    Raises:
        StoreBusy: the fabric changed during every one of three attempts to read it.
    """
    vector: list[FloatRows] = []

    def semantic() -> list[Hit]:
        if not settings.semantic_k or not view.size():
            return []
        if not vector:
            # The dear part of a question, so another attempt does not repeat it.
            vector.append(view.embedder.embed_query(query))
        return view.nearest(vector[0], settings.semantic_k)

    def lexical() -> list[Hit]:
        return view.search_text(query, settings.lexical_k) if settings.lexical_k else []

    for attempt in range(_ATTEMPTS):
        generation = view.generation()
        try:
            near, worded = both(semantic, lexical)
            results = _results(view, near, worded, settings)
            counts = _counts(view, results, tokenizer)
            state_root = view.state_hash()
        except StoreError:
            # A fact that vanished between two reads; anything else fails again.
            if attempt + 1 == _ATTEMPTS or view.generation() == generation:
                raise
            continue
        if view.generation() == generation:
            return Retrieved(results, counts, state_root, generation)
    raise StoreBusy(f"the fabric changed during {_ATTEMPTS} attempts to read it, wanted a pause")


def rrf(rankings: Sequence[Sequence[str]], k: int) -> dict[str, float]:
    """Reciprocal rank fusion: of each id the sum of 1 / (k + rank), ranks from 1.

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


def _documents(facts: Sequence[Fact], sources: dict[str, Source]) -> dict[str, Document]:
    """The source of each fact as a document, modified when it, or a fact of it here, last was."""
    moments: dict[str, list[datetime]] = defaultdict(list)
    for fact in facts:
        source = sources.get(fact.source_id)
        known = (fact.modified_at, fact.ingested_at, source.ingested_at if source else None)
        moments[fact.source_id] += [moment for moment in known if moment is not None]
    return {
        source_id: Document(
            id=source_id,
            # What is no document of the registry, such as a session's facts, has its id alone.
            path=shown(sources[source_id].uri) if source_id in sources else source_id,
            modified_at=max(times, default=None),
        )
        for source_id, times in moments.items()
    }


def _chunk(fact: Fact) -> Chunk:
    """A fact as a chunk; a fabric numbers no chunks, so their place in the document orders them."""
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
    return Chunk(
        id=fact.fact_id, text=fact.content, sequence=start, byte_offset=start, metadata=about
    )


def _counts(
    view: FabricView, results: Sequence[RetrievalResult], tokenizer: Tokenizer
) -> dict[str, int]:
    texts = {result.chunk.id: result.chunk.text for result in results}
    if not tokenizer.keeps_counts:
        return dict(zip(texts, tokenizer.count_many(list(texts.values())), strict=True))
    counts = view.token_counts(f"{tokenizer.identity}|content", list(texts), tokenizer.count_many)
    if counts.keys() != texts.keys():
        raise StoreBusy("a fact was withdrawn while its tokens were counted, wanted a pause")
    return counts
