"""Every number of the fabric, with its paragraph and unit."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from crp_integrations.records import Part


class ChunkingSettings(Part):
    """How documents are cut.

    Spec: CRP-SPEC-009 §4.2

    Attributes:
        split_above_tokens: a paragraph with more tokens is split at sentences (§4.2).
        overlap_share: share of a chunk's tokens that the next chunk repeats (§4.2).
        overlap_between: `split`, between the chunks of one split paragraph, where a cut goes
            through running text; `all`, between any two chunks of a document, to the letter.
        min_fact_tokens: fewest tokens of a fact; a shorter chunk joins a neighbour (§2.1).
        max_fact_tokens: most tokens of a fact (§2.1).
    """

    split_above_tokens: int = Field(default=512, ge=16)
    overlap_share: float = Field(default=0.10, ge=0.0, le=0.5)
    overlap_between: Literal["split", "all"] = "split"
    min_fact_tokens: int = Field(default=10, ge=1)
    max_fact_tokens: int = Field(default=2048, ge=16)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, split, high = self.min_fact_tokens, self.split_above_tokens, self.max_fact_tokens
        # A short neighbour may join on either side of a chunk that is full.
        if not low <= split <= high - 2 * low:
            raise ValueError(
                f"min_fact_tokens {low}, split_above_tokens {split} and max_fact_tokens {high} "
                "leave no room; wanted min <= split <= max - 2 * min"
            )
        return self


class ImportanceSettings(Part):
    """Base weights by kind of source and what is added to them, all in [0, 1].

    Spec: CRP-SPEC-009 §4.4

    Attributes:
        regulatory_article: added for a passage of a numbered article or section.
        official_version: added for a passage that names a version.
        research_meta_analysis: added for the passages of a meta-analysis.
        internal_classification: added by `classification` in a document's metadata.
        web_authoritative: added for a host under one of `authoritative_domains`.
        user_modifier: added to user-provided context.
    """

    regulatory: float = Field(default=0.90, ge=0.0, le=1.0)
    regulatory_article: float = Field(default=0.05, ge=0.0, le=1.0)
    official: float = Field(default=0.80, ge=0.0, le=1.0)
    official_version: float = Field(default=0.05, ge=0.0, le=1.0)
    research: float = Field(default=0.75, ge=0.0, le=1.0)
    research_meta_analysis: float = Field(default=0.10, ge=0.0, le=1.0)
    internal: float = Field(default=0.70, ge=0.0, le=1.0)
    internal_classification: dict[str, float] = {
        "public": 0.0,
        "internal": 0.0,
        "confidential": 0.05,
        "restricted": 0.10,
    }
    web: float = Field(default=0.50, ge=0.0, le=1.0)
    web_authoritative: float = Field(default=0.10, ge=0.0, le=1.0)
    authoritative_domains: tuple[str, ...] = (
        "gov",
        "mil",
        "edu",
        "int",
        "europa.eu",
        "gov.uk",
        "ac.uk",
        "gov.au",
        "edu.au",
        "gc.ca",
        "admin.ch",
        "govt.nz",
    )
    user: float = Field(default=0.60, ge=0.0, le=1.0)
    user_modifier: float = Field(default=0.0, ge=-1.0, le=1.0)


class FabricSettings(Part):
    """The fabric's part of the settings tree.

    Attributes:
        embed_slice: texts handed to the embedder at once; changes progress, never a vector.
        scan_rows: rows of one block of the exact vector search; changes memory, never a score.
        query_terms: most distinct words of a query that the lexical search looks for.
    """

    chunking: ChunkingSettings = ChunkingSettings()
    importance: ImportanceSettings = ImportanceSettings()
    embed_slice: int = Field(default=64, ge=1)
    scan_rows: int = Field(default=65_536, ge=1)
    query_terms: int = Field(default=64, ge=1)

    @classmethod
    def preset(cls, name: Literal["default", "literal"]) -> FabricSettings:
        """One of the two promised presets.

        `literal` lets any two adjacent chunks overlap, also those of two paragraphs.
        """
        if name == "literal":
            return cls(chunking=ChunkingSettings(overlap_between="all"))
        return cls()
