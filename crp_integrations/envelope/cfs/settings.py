"""Every number and choice of CFS-021, as one frozen part of the envelope's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from crp_integrations.records import Part

PackingName = Literal["greedy", "interleaved", "score_weighted"]


class AssemblySettings(Part):
    """Numbers and choices that decide an assembled context.

    Spec: CFS-021 §3, §8, §10, §11, Config

    Attributes:
        packing: `greedy` fills document by document, `interleaved` takes from the documents in
            turn, `score_weighted` goes by score alone (§8, `packing_strategy`).
        allow_partial: cut a chunk that does not fit instead of skipping it (§7, decision F1).
        max_chunks_per_doc: most chunks of one document, its best ones; None for no limit.
        prefer_recent: raise the scores of documents that were modified recently.
        include_metadata: give each chunk its metadata in the record; they are never in the text.
        dedup_threshold: overlap above which the later of two chunks is dropped (§10), [0, 1].
        separator: what stands before a document's header but the first (§9, decision F2).
        reserved_system: tokens kept free for the system prompt (§3); `reserved_query` for the
            question, `reserved_response` for the answer.
        per_doc_overhead: tokens charged for the marker of a document, once for each (§3).
        count_rendered: count the formatted text whole, and take chunks out until it fits too.
        tokenizer: `model` counts as the target model does, `simple` by characters (§4).
        semantic_k: nearest chunks that are read (§11); `lexical_k` likewise by words.
        top_k: most chunks after both were merged (§11).
        rrf_k: constant of reciprocal rank fusion.
        parallel_search: run both searches at once, with the same result (Parallel).
        recency_boost: share of its score that the newest document gains (`prefer_recent`).
        recency_horizon_days: age beside the newest document at which nothing is gained, days.
        cache_size: most contexts that are kept in memory; 0 keeps none (Caching).
        top_chunks: so many best chunks should be among the first `first_chunks` (P3).
        first_chunks: see `top_chunks`.
        adjacency_wanted: adjacency that should be exceeded (P4), [0, 1].
        coverage_wanted: coverage that should be exceeded (P5), [0, 1].
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

    recency_boost: float = Field(default=0.10, ge=0.0, le=1.0)
    recency_horizon_days: int = Field(default=365, ge=1)

    cache_size: int = Field(default=32, ge=0)

    top_chunks: int = Field(default=3, ge=1)
    first_chunks: int = Field(default=5, ge=1)
    adjacency_wanted: float = Field(default=0.7, ge=0.0, le=1.0)
    coverage_wanted: float = Field(default=0.9, ge=0.0, le=1.0)

    @field_validator("separator")
    @classmethod
    def _can_be_sent(cls, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it cannot be encoded as UTF-8") from None
        return value
