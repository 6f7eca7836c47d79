"""Every number of the envelope specification, as one frozen part of the settings tree."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crp_integrations.envelope.cfs.settings import AssemblySettings
from crp_integrations.envelope.decompose import DecomposeSettings
from crp_integrations.envelope.selection import GraphSettings, HybridSettings
from crp_integrations.envelope.window_settings import (
    EvolutionSettings,
    PressureSettings,
    ReuseSettings,
)
from crp_integrations.errors import ConfigError
from crp_integrations.guard.injection.screening import ScreeningSettings
from crp_integrations.records import Part


class EnvelopeSettings(Part):
    """Numbers and choices that decide an envelope. Scores, weights and shares are in [0, 1].

    Spec: CRP-SPEC-003 §5, §6, §7, §8, §13

    Attributes:
        k_nearest: nearest neighbours read for each sub-query (§5.2), facts.
        k_lexical: best lexical hits read for each sub-query, facts; 0 reads none.
        expansion_below: facts of a community, below which more of it are read (§5.2).
        expansion_reach: facts of the community that must be as near as the K-th hit (§5.2).
        expansion_most: most facts that a community is expanded by (decision E16).
        cascade: how the memory tiers are asked (§5.2): `all` searches the whole fabric always;
            `until_full` does so only where what was used lately gives fewer than `k_nearest` facts
            at or above the relevance floor, which can miss nearer ones.
        rerank_top: best candidates that a reranker sees, where one is given.
        relevance_weight: weight of the cosine to the question (§6.2).
        importance_factor: weight of the fact's own importance (§6.2).
        freshness_weight: weight of recency (§6.2).
        diversity_weight: weight of the bonus for communities not yet shown (§6.2).
        strict_importance_factor: importance factor under `context-strict` (§13.1).
        open_relevance_weight: relevance weight under `open` (§13.1).
        open_importance_factor: importance factor under `open` (§13.1).
        freshness_horizon_days: age at which freshness reaches 0 (§6.4), days.
        temporal_horizon_days: the same for a temporal question (§6.4), days.
        temporal_shift: weight that a temporal question moves from relevance to freshness
            (§6.4, decision E23).
        diversity_share: share of a community above which its bonus is 0 (§6.5).
        duplicate_similarity: cosine above which two facts are near-duplicates (§6.6).
        expected_response_tokens: tokens kept free for the answer when `max_tokens` is not
            given (§7.2).
        safety_margin_tokens: smallest margin kept free (§7.2), tokens.
        family_margin: margin as a share of the budget for counts of the right family (E19).
        estimate_margin: the same for estimated counts (E19).
        duplicates_told: which of the facts that do not fit the drop report calls duplicates
            (§6.6): those that resemble a `shown` fact, or `all`; what is shown is the same.
        packing: name of the packing algorithm (§7.3): `greedy`; `in_order` stops at the first
            fact that does not fit; `density` takes most score for a token first; `knapsack`
            looks for the largest total score.
        ordering: name of the ordering algorithm (§7.4): `sandwich`, `sandwich_rank` with the
            two best first, `rank`, or `reversed` with the best last.
        layout: `position` orders all facts so; `cache-stable` begins with the previous
            envelope's facts and with pinned ones, so that a prompt cache finds its prefix.
        promote: without a fact that is critical for ordering, put the best first and the
            second best last (decision E7).
        critical_composite: composite from which a fact is critical for ordering (§7.4).
        important_composite: composite from which a fact is important for ordering (§7.4).
        coverage_of: what coverage divides by (§8.1, decision E2): `relevant` candidates, or
            `all` of them.
        relevant_floor: relevance from which a candidate counts as relevant (E2), unless
            the embedder's card calibrates it.
        coverage_weight: weight of coverage in the envelope's score (§8.1).
        saturation_weight: weight of saturation in the envelope's score (§8.1).
        relevance_mean_weight: weight of the mean relevance in the envelope's score (§8.1).
        score_s: smallest score of tier S; `score_a` to `score_c` likewise (§8.2).
        saturation_s: smallest saturation of tier S; `saturation_a`, `saturation_b` likewise
            (§8.2).
        sparse_saturation: saturation below which an envelope is sparse (§9.2).
        sparse_is_deficient: read a sparse envelope as tier D instead of C (decision E3).
        vital_importance: importance from which a fact that did not fit caps the tier (§8.3).
        coverage_minimum: coverage below which the tier is D (§8.3).
        freshness_check_days: age of the newest fact above which a temporal question is
            capped (§8.3), days.
        strict_saturation: saturation below which `context-strict` is capped (§13.1).
        pressure: what a saturation suggests (§9.3, §10.3).
        evolution: how a summary enters the next window (§14.1).
        reuse: what is known of earlier envelopes (§11).
        assembly: of the context assembly of CFS-021.
        decompose: how a question is taken apart (§5.2).
        graph: how far relations between facts are followed (Summit).
        screening: which candidates may not be shown at all (Summit).
        hybrid: what relevance is made of, and how stretches of facts fill what is left.
        adaptive: count freshness only for a temporal question, stale facts, or facts of several
            dates that contradict each other, and no diversity; the weight goes to relevance (§6.2).
    """

    k_nearest: int = Field(default=50, ge=1)
    k_lexical: int = Field(default=50, ge=0)
    expansion_below: int = Field(default=3, ge=0)
    expansion_reach: int = Field(default=10, ge=1)
    expansion_most: int = Field(default=10, ge=0)

    cascade: Literal["all", "until_full"] = "all"
    rerank_top: int = Field(default=50, ge=1)

    relevance_weight: float = Field(default=0.50, ge=0.0, le=1.0)
    importance_factor: float = Field(default=0.25, ge=0.0, le=1.0)
    freshness_weight: float = Field(default=0.15, ge=0.0, le=1.0)
    diversity_weight: float = Field(default=0.10, ge=0.0, le=1.0)
    adaptive: bool = True
    strict_importance_factor: float = Field(default=0.35, ge=0.0, le=1.0)
    open_relevance_weight: float = Field(default=0.35, ge=0.0, le=1.0)
    open_importance_factor: float = Field(default=0.15, ge=0.0, le=1.0)
    freshness_horizon_days: int = Field(default=365, ge=1)
    temporal_horizon_days: int = Field(default=90, ge=1)
    temporal_shift: float = Field(default=0.10, ge=0.0, le=1.0)
    diversity_share: float = Field(default=0.40, ge=0.0, le=1.0)
    duplicate_similarity: float = Field(default=0.95, ge=0.0, le=1.0)

    expected_response_tokens: int = Field(default=2048, ge=0)
    safety_margin_tokens: int = Field(default=512, ge=0)
    family_margin: float = Field(default=0.05, ge=0.0, le=1.0)
    estimate_margin: float = Field(default=0.25, ge=0.0, le=1.0)

    duplicates_told: Literal["shown", "all"] = "shown"
    packing: Literal["greedy", "in_order", "density", "knapsack"] = "greedy"
    ordering: Literal["sandwich", "sandwich_rank", "rank", "reversed"] = "sandwich"
    layout: Literal["position", "cache-stable"] = "position"
    promote: bool = True
    critical_composite: float = Field(default=0.80, ge=0.0, le=1.0)
    important_composite: float = Field(default=0.50, ge=0.0, le=1.0)

    coverage_of: Literal["relevant", "all"] = "relevant"
    relevant_floor: float = Field(default=0.50, ge=0.0, le=1.0)
    coverage_weight: float = Field(default=0.35, ge=0.0, le=1.0)
    saturation_weight: float = Field(default=0.30, ge=0.0, le=1.0)
    relevance_mean_weight: float = Field(default=0.35, ge=0.0, le=1.0)
    score_s: float = Field(default=0.95, ge=0.0, le=1.0)
    score_a: float = Field(default=0.85, ge=0.0, le=1.0)
    score_b: float = Field(default=0.70, ge=0.0, le=1.0)
    score_c: float = Field(default=0.50, ge=0.0, le=1.0)
    saturation_s: float = Field(default=0.99, ge=0.0, le=1.0)
    saturation_a: float = Field(default=0.95, ge=0.0, le=1.0)
    saturation_b: float = Field(default=0.85, ge=0.0, le=1.0)
    sparse_saturation: float = Field(default=0.70, ge=0.0, le=1.0)
    sparse_is_deficient: bool = False
    vital_importance: float = Field(default=0.90, ge=0.0, le=1.0)
    coverage_minimum: float = Field(default=0.30, ge=0.0, le=1.0)
    freshness_check_days: int = Field(default=90, ge=1)
    strict_saturation: float = Field(default=0.80, ge=0.0, le=1.0)

    pressure: PressureSettings = PressureSettings()
    evolution: EvolutionSettings = EvolutionSettings()
    reuse: ReuseSettings = ReuseSettings()
    assembly: AssemblySettings = AssemblySettings()
    decompose: DecomposeSettings = DecomposeSettings()
    hybrid: HybridSettings = HybridSettings()
    screening: ScreeningSettings = ScreeningSettings()
    graph: GraphSettings = GraphSettings()

    @classmethod
    def preset(cls, name: str) -> EnvelopeSettings:
        """The settings of one of the two presets that are kept and tested.

        Args:
            name: `default`, or `literal` for the specification's letter: vector candidates
                only, coverage over every candidate, a sparse envelope is tier D, no
                promotion, the fixed margin alone.

        Raises:
            ConfigError: there is no preset of that name.
        """
        if name == "default":
            return cls()
        if name == "literal":
            return cls(
                k_lexical=0,
                adaptive=False,
                hybrid=HybridSettings(enabled=False),
                coverage_of="all",
                sparse_is_deficient=True,
                promote=False,
                duplicates_told="all",
                family_margin=0.0,
                estimate_margin=0.0,
                assembly=AssemblySettings(count_rendered=False, tokenizer="simple"),
            )
        raise ConfigError(f"envelope preset {name!r} is not known, wanted 'default' or 'literal'")
