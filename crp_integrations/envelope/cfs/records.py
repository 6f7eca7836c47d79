"""Inputs, results and settings of the context assembly of CFS-021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from crp_integrations.envelope.records import Drop
from crp_integrations.fabric.records import Moment
from crp_integrations.records import Part, Record

PackingName = Literal["greedy", "interleaved", "score_weighted"]


class AssemblySettings(Part):
    """Numbers and choices that determine an assembled context.

    Spec: CFS-021 §3, §8, §10, §11, Config

    Attributes:
        packing: `greedy` fills document by document, `interleaved` takes from the documents in
            turn, `score_weighted` goes by score alone (§8, `packing_strategy`).
        allow_partial: cut a chunk that does not fit instead of skipping it (§7, decision F1).
        max_chunks_per_doc: maximum number of chunks of one document, its best; None for no limit.
        prefer_recent: raise the scores of documents that were modified recently.
        include_metadata: add metadata to each chunk of the record; the text never contains them.
        dedup_threshold: overlap above which the later of two chunks is dropped (§10), [0, 1].
        separator: text before each document's marker except the first (§9, decision F2).
        reserved_system, reserved_query, reserved_response: tokens kept free for the system prompt,
            for the question and for the answer (§3).
        per_doc_overhead: tokens charged for the marker of a document, once for each (§3).
        count_rendered: count the formatted text whole, and remove chunks until it fits too.
        tokenizer: `model` counts as the target model does, `simple` by characters (§4).
        semantic_k, lexical_k: number of best chunks read by vectors and by words (§11).
        top_k: maximum number of chunks after both results are merged (§11).
        rrf_k: constant of reciprocal rank fusion.
        parallel_search: run both searches at once, with the same result (Parallel).
        cache_size: maximum number of contexts kept in memory; 0 keeps none (Caching).
    """

    packing: PackingName = "greedy"
    allow_partial: bool = False
    max_chunks_per_doc: int | None = Field(default=None, ge=1)
    prefer_recent: bool = False
    include_metadata: bool = False
    dedup_threshold: float = Field(default=0.8, ge=0.0, le=1.0)
    separator: str = "\n"

    reserved_system: int = Field(default=200, ge=0)
    reserved_query: int = Field(default=100, ge=0)
    reserved_response: int = Field(default=500, ge=0)
    per_doc_overhead: int = Field(default=10, ge=0)
    count_rendered: bool = True
    tokenizer: Literal["model", "simple"] = "model"

    semantic_k: int = Field(default=50, ge=0)
    lexical_k: int = Field(default=50, ge=0)
    top_k: int = Field(default=100, ge=1)
    rrf_k: int = Field(default=60, ge=0)
    parallel_search: bool = False

    cache_size: int = Field(default=32, ge=0)

    @field_validator("separator")
    @classmethod
    def _can_be_sent(cls, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it cannot be encoded as UTF-8") from None
        return value


_DEFAULTS = AssemblySettings()


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """The document that chunks come from.

    Attributes:
        path: path shown in the marker.
        modified_at: time of the last change, used only by `prefer_recent`; None counts as old.
    """

    id: str
    path: str
    modified_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """A passage of a document.

    Attributes:
        id: unique id of the chunk.
        sequence: its place in reading order.
        byte_offset: offset of its beginning; orders chunks with equal `sequence`.
        metadata: metadata that the record includes with `include_metadata`.
    """

    id: str
    text: str
    sequence: int = 0
    byte_offset: int = 0
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """A chunk that was found.

    Spec: CFS-021 §2

    Attributes:
        score: sum of the reciprocal ranks; higher is better, and a NaN comes last.
        semantic_score: cosine, 0 if the vector search did not find the chunk.
        lexical_score: score of the word search, 0 if it did not find the chunk.
    """

    chunk: SourceChunk
    document: SourceDocument
    score: float
    semantic_score: float = 0.0
    lexical_score: float = 0.0


@dataclass(frozen=True, slots=True)
class DocumentGroup:
    """The chunks of one document, best first.

    Spec: CFS-021 §6

    Attributes:
        total_tokens: sum of the chunks' tokens.
        max_score: highest score of a chunk; NaN if all scores are NaN.
    """

    document: SourceDocument
    chunks: tuple[RetrievalResult, ...]
    total_tokens: int
    max_score: float


class TokenBudget(Part):
    """How the tokens of a model call are divided.

    Spec: CFS-021 §3 (decision E20)

    Attributes:
        per_doc_overhead: tokens charged for the marker of each document, once.
        available: tokens left for content and markers, at least 0; computed when not given.

    >>> TokenBudget(total_tokens=2000).available
    1200
    """

    total_tokens: int = Field(ge=0)
    reserved_system: int = Field(default=_DEFAULTS.reserved_system, ge=0)
    reserved_query: int = Field(default=_DEFAULTS.reserved_query, ge=0)
    reserved_response: int = Field(default=_DEFAULTS.reserved_response, ge=0)
    per_doc_overhead: int = Field(default=_DEFAULTS.per_doc_overhead, ge=0)
    available: int = Field(default=-1, ge=-1)

    @model_validator(mode="after")
    def _compute(self) -> TokenBudget:
        reserved = self.reserved_system + self.reserved_query + self.reserved_response
        left = max(0, self.total_tokens - reserved)
        if self.available == -1:
            object.__setattr__(self, "available", left)
        elif self.available != left:
            raise ValueError(
                f"available is {self.available}, wanted total minus reserves, {left}, or nothing"
            )
        return self

    @classmethod
    def new(cls, total_tokens: int, settings: AssemblySettings = _DEFAULTS) -> TokenBudget:
        """A budget of this many tokens with the reserves of the settings."""
        return cls(
            total_tokens=total_tokens,
            reserved_system=settings.reserved_system,
            reserved_query=settings.reserved_query,
            reserved_response=settings.reserved_response,
            per_doc_overhead=settings.per_doc_overhead,
        )


class ChunkMetadata(Part):
    """Metadata of a chunk, with `include_metadata`; never in the text that a model sees.

    Attributes:
        modified_at: when its document was modified; None when that is not known.
        semantic_score, lexical_score: scores as in `RetrievalResult`; None if not finite.
        about: other metadata from the retrieval, as plain JSON.
    """

    byte_offset: int
    modified_at: Moment | None = None
    semantic_score: float | None
    lexical_score: float | None
    about: dict[str, JsonValue] = {}


class ContextChunk(Part):
    """A chunk in a context.

    Spec: CFS-021 §7

    Attributes:
        text: text as it appears in the context; it ends in three dots if it was cut.
        score: score it was ranked by; None if not finite.
        tokens: tokens of the text.
        cut: whether the text was cut.
    """

    chunk_id: str
    document_id: str
    document_path: str
    text: str
    score: float | None
    sequence: int
    tokens: int = Field(ge=0)
    cut: bool = False
    metadata: ChunkMetadata | None = None


class ContextMetadata(Part):
    """The inputs that a context was made from.

    Spec: CFS-021 §11

    Attributes:
        query_hash: BLAKE3 of the query's bytes (decision F3).
        timestamp: time of assembly; nothing else in the record depends on it.
        state_root: the fabric's state hash; empty for a caller's own results.
    """

    query_hash: str
    timestamp: Moment
    state_root: str = ""


class ContextProperties(Part):
    """The five desired properties, as measured on one context.

    Spec: CFS-021 §P1, §P2, §P3, §P4, §P5

    Attributes:
        deterministic: whether a second assembly gave the same bytes; None when there was none.
        within_budget: whether content and markers fit the available tokens.
        best_in_front: number of the best chunks that are among the first five.
        best_wanted: how many should be; less than three if fewer chunks were found.
        adjacency: adjacent pairs of chunks of one document, as a share of the possible number,
            [0, 1]; None if no document has two chunks.
        coherent: whether adjacency is above its required minimum; None without adjacency.
        unique_tokens: number of distinct words in the chunks.
        coverage: unique tokens over available tokens; None if none are available.
        covering: whether coverage is above its required minimum; None without coverage.
        filled: content tokens over available tokens; None if none are available.
    """

    deterministic: bool | None = None
    within_budget: bool
    best_in_front: int = Field(ge=0)
    best_wanted: int = Field(ge=0)
    adjacency: float | None
    coherent: bool | None
    unique_tokens: int = Field(ge=0)
    coverage: float | None
    covering: bool | None
    filled: float | None

    @property
    def relevance_ordered(self) -> bool:
        """Whether every one of the best chunks is among the first ones."""
        return self.best_in_front == self.best_wanted


class AssembledContext(Record):
    """Chunks within a token budget, as one text with a marker for each document.

    Spec: CFS-021 §7, §9, §11 (decision F1)

    Attributes:
        text: text for the prompt.
        text_hash: BLAKE3 of the text (decision F3).
        total_tokens: tokens of the chunks' texts alone.
        overhead_tokens: tokens charged for markers, once for each document.
        rendered_tokens: tokens of `text`, counted whole.
        truncated: whether a chunk was cut, or the budget ended the packing before all were tried.
        dropped: every other chunk that was found, with the reason; `k` is the limit for one
            document.
        tokenizer: identity of the tokenizer that counted.
        algorithms: `name@n` of each algorithm that determined the bytes.
    """

    SCHEMA = "assembled-context/1"

    text: str
    text_hash: str
    chunks: tuple[ContextChunk, ...]
    total_tokens: int = Field(ge=0)
    overhead_tokens: int = Field(ge=0)
    rendered_tokens: int = Field(ge=0)
    truncated: bool
    dropped: tuple[Drop, ...] = ()
    budget: TokenBudget
    packing: PackingName
    tokenizer: str
    algorithms: tuple[str, ...]
    properties: ContextProperties
    metadata: ContextMetadata
