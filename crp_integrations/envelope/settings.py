"""Settings of the envelope: every number of its specification, as one frozen settings class."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crp_integrations.envelope.cfs.records import AssemblySettings
from crp_integrations.errors import ConfigError
from crp_integrations.guard.settings import ScreeningSettings
from crp_integrations.records import Part
from crp_integrations.vocabulary import BudgetTokens


class BudgetSettings(Part):
    """How many tokens an envelope may have where no number is given.

    Spec: CRP-SPEC-003 §7.2

    Attributes:
        tokens: `auto` for what the question needs, `window` for all that the model's context
            limit leaves (§7.2), or a number of tokens.
        fact_tokens: tokens that the best fact adds to `auto` (ours); any other fact adds this
            times its score relative to the best one's, raised to `score_power`.
        score_power: exponent by which `fact_tokens` falls with a fact's score.
        part_share: share that each further need of a question adds to `auto` (ours).
        needed_share: minimum score of a needed fact, as a share of the best fact's score (ours).
        least, most: minimum and maximum tokens that `auto` may give (ours).
    """

    tokens: BudgetTokens = "auto"
    fact_tokens: int = Field(default=300, ge=1)
    score_power: int = Field(default=3, ge=1, le=8)
    part_share: float = Field(default=0.30, ge=0.0, le=1.0)
    needed_share: float = Field(default=0.50, ge=0.0, le=1.0)
    least: int = Field(default=512, ge=1)
    most: int = Field(default=4_096, ge=1)


class DecomposeSettings(Part):
    """How a question is split into sub-queries.

    Spec: CRP-SPEC-003 §5.2

    Attributes:
        rules: split questions by rules; off leaves every question whole.
        most: maximum number of sub-queries of one question.
        depth: maximum number of needs that build on each other within one task.
        longest: characters above which a question is left whole, since a pasted text is not a
            list of needs. Also the maximum length of a sub-query taken from a model.
        reply_tokens: maximum tokens of the reply of a model that decomposes.
    """

    rules: bool = True
    most: int = Field(default=8, ge=1)
    depth: int = Field(default=2, ge=0)
    longest: int = Field(default=1_000, ge=1)
    reply_tokens: int = Field(default=512, ge=16)


class HybridSettings(Part):
    """How relevance is mixed, and how stretches of facts fill the budget that whole facts leave.

    Chosen on five public sets; docs/evidence/selection.md has the ablation.

    Spec: CRP-SPEC-003 §6.3, §7.3

    Attributes:
        enabled: rank by the mix; otherwise by the cosine alone, as the specification says.
        lexical_share: share of the word score in the mix; the rest is the cosine.
        cosine_power: exponent of the cosine relative to the best one, in steps of 0.5; above 1
            the best candidates stand out more.
        lexical_power: exponent of the word score relative to the best one.
        stretch_power: exponent of the score of a fact's best stretch in the fact's score.
        stretch_share: share of a fact's score that comes from its best stretch.
        neighbour_share: share added of the score of the better neighbour in the same document.
        neighbour_gap: maximum number of characters between two neighbouring facts.
        hop_sources: number of best facts whose names are followed.
        hop_names: maximum number of these names that are looked up, the best facts' first.
        hop_hits: number of facts read for these names; 0 reads none.
        hop_weight: factor of the second hop's score that is added to a fact's; 0 omits the hop.
        hop_decay: exponent of a source's score, relative to the best, in the weight of its names.
        whole_share: share of the budget that whole facts fill first; stretches fill the rest.
            1 shows whole facts alone.
        passed_over: maximum number of facts skipped because they do not fit this share, for each
            one included; beyond it, stretches are added. None for any number.
        parent_share: share of the fact's score in the score of its stretches.
        stretch_neighbour_share: share added of the score of the better adjoining stretch.
        stretch_hop_share: share of the second hop in the score of a stretch.
        stretches_seen: number of best stretches considered when the rest is filled.
        read_passages: number of a caller's passages that the built-in embedder reads, if there
            are more than that and at least 20, besides near-copies of others; more where a
            budget in tokens holds more, but not all; 0 reads all.
    """

    enabled: bool = True
    lexical_share: float = Field(default=0.30, ge=0.0, le=1.0)
    cosine_power: float = Field(default=2.0, ge=0.5, le=8.0, multiple_of=0.5)
    lexical_power: float = Field(default=1.5, ge=0.5, le=8.0, multiple_of=0.5)
    stretch_power: float = Field(default=2.0, ge=0.5, le=8.0, multiple_of=0.5)
    stretch_share: float = Field(default=0.20, ge=0.0, le=1.0)
    neighbour_share: float = Field(default=0.15, ge=0.0, le=1.0)
    neighbour_gap: int = Field(default=80, ge=0)
    hop_sources: int = Field(default=5, ge=0)
    hop_names: int = Field(default=60, ge=0)
    hop_hits: int = Field(default=50, ge=0)
    hop_weight: float = Field(default=0.80, ge=0.0, le=2.0)
    hop_decay: float = Field(default=4.0, ge=0.0)
    whole_share: float = Field(default=0.80, ge=0.0, le=1.0)
    passed_over: int | None = Field(default=2, ge=0)
    parent_share: float = Field(default=0.70, ge=0.0, le=1.0)
    stretch_neighbour_share: float = Field(default=0.30, ge=0.0, le=1.0)
    stretch_hop_share: float = Field(default=0.50, ge=0.0, le=1.0)
    stretches_seen: int = Field(default=250, ge=1)
    read_passages: int = Field(default=16, ge=0)


class GraphExpansionSettings(Part):
    """How far and how strongly the graph of relations, names and communities counts.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        hops: number of steps from fact to fact, starting at the best facts; 0 follows none.
        seeds: number of best facts at which paths begin.
        names: maximum number of names looked up for each hop.
        hits: number of facts read for the names of a hop.
        community_hits: number of facts read from the seeds' communities, nearest to the question.
        community_weight: weight of the link between two facts of one community.
        most_named: maximum number of facts with a name for the name to link them.
        frontier: maximum number of facts from which the next hop continues.
        most_facts: maximum number of facts read in total.
        decay: factor on the strength for each hop after the first.
        weight: share added to a fact's score of the strength that exceeds the second hop of the
            mix.
    """

    hops: int = Field(default=0, ge=0, le=8)
    seeds: int = Field(default=5, ge=1)
    names: int = Field(default=60, ge=0)
    hits: int = Field(default=50, ge=0)
    community_hits: int = Field(default=10, ge=0)
    community_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    most_named: int = Field(default=20, ge=2)
    frontier: int = Field(default=20, ge=1)
    most_facts: int = Field(default=400, ge=1)
    decay: float = Field(default=0.5, ge=0.0, le=1.0)
    weight: float = Field(default=0.15, ge=0.0, le=1.0)


class PressureSettings(Part):
    """When an envelope suggests something. Saturations are in [0, 1].

    Spec: CRP-SPEC-003 §9.3, §10.3, §14.3

    Attributes:
        reuse_saturation: minimum saturation at which `reuse-ckf` is suggested (§9.3).
        continue_saturation: minimum saturation at which a continuation window is suggested when
            relevant facts did not fit (§9.3).
        pressure_saturation: minimum saturation at which `budget-pressure` is suggested (§10.3).
        falling_windows: number of consecutive windows, each of a worse tier than the one before,
            after which `hierarchical` is suggested (§14.3).
    """

    reuse_saturation: float = Field(default=0.95, ge=0.0, le=1.0)
    continue_saturation: float = Field(default=0.95, ge=0.0, le=1.0)
    pressure_saturation: float = Field(default=0.98, ge=0.0, le=1.0)
    falling_windows: int = Field(default=3, ge=2)


class EvolutionSettings(Part):
    """How the summary of an earlier window enters the next one. Scores are in [0, 1].

    Spec: CRP-SPEC-003 §14.1

    Attributes:
        summary_relevance: relevance of a summary; at 1 it is packed before other facts.
        summary_importance: importance of a summary (related facts §5).
    """

    summary_relevance: float = Field(default=1.0, ge=0.0, le=1.0)
    summary_importance: float = Field(default=0.95, ge=0.0, le=1.0)


class ReuseSettings(Part):
    """How many earlier envelopes are kept in memory, for conditional requests.

    Spec: CRP-SPEC-003 §11, §16.2

    Attributes:
        envelopes: maximum number of envelopes kept; 0 keeps none.
        bytes: approximate maximum memory for all of them; an envelope takes some 200 kB.
        lifetime_seconds: seconds after which an envelope is dropped, as long as a session token
            lives. Needed because no validator shows that facts lose freshness with time.
        salt_etags: mix a secret of the session into every ETag, so that the ETags of two sessions
            cannot be compared (§16.2).
    """

    envelopes: int = Field(default=64, ge=0)
    bytes: int = Field(default=8_000_000, ge=0)
    lifetime_seconds: int = Field(default=3_600, ge=1)
    salt_etags: bool = False


class EnvelopeSettings(Part):
    """Numbers and choices that determine an envelope. Scores, weights, shares are in [0, 1].

    Spec: CRP-SPEC-003 §5, §6, §7, §8, §13

    Attributes:
        k_nearest: number of nearest facts read for each sub-query (§5.2).
        k_lexical: number of best lexical hits read for each sub-query; 0 reads none.
        expansion_below: number of facts of a community below which more of it are read (§5.2).
        expansion_reach: minimum number of its facts within retrieval distance (§5.2).
        expansion_distance: minimum cosine within retrieval distance, as a share of the K-th
            hit's; 1 means as near as the K-th hit (decision E16).
        expansion_most: maximum number of facts added from one community (decision E16).
        cascade: how the memory tiers are searched (§5.2): `all` always searches the whole fabric;
            `until_full` does so only where recently used facts give fewer than `k_nearest` facts
            at or above the relevance floor, which can miss nearer ones.
        rerank_top: number of best candidates that a reranker scores, where one is given.
        relevance_weight: weight of the cosine to the question (§6.2).
        importance_factor: weight of the fact's own importance (§6.2).
        freshness_weight: weight of recency (§6.2).
        diversity_weight: weight of the bonus for communities not yet shown (§6.2).
        strict_importance_factor: importance factor under `context-strict` (§13.1).
        open_relevance_weight: relevance weight under `open` (§13.1).
        open_importance_factor: importance factor under `open` (§13.1).
        freshness_horizon_days: age at which freshness reaches 0 (§6.4), days.
        temporal_horizon_days: age at which it reaches 0 for a temporal question (§6.4), days.
        temporal_shift: weight that a temporal question moves from relevance to freshness
            (§6.4, decision E23).
        diversity_share: share of a community above which its bonus is 0 (§6.5).
        duplicate_similarity: cosine above which two facts are near-duplicates (§6.6).
        expected_response_tokens: tokens kept free for the answer when `max_tokens` is not
            given (§7.2).
        safety_margin_tokens: minimum margin kept free for counting errors (§7.2), tokens.
        reserve_share: maximum share of a small window for both reserves together (decision E20).
        least_context_tokens: minimum tokens for facts that a deployment must offer to be called,
            when the facts found for the question have more; 0 calls any.
        family_margin: margin as a share of the budget for counts of the right family (E19).
        estimate_margin: margin as a share of the budget for estimated counts (E19).
        duplicates_told: which facts that do not fit are reported as duplicates (§6.6): those
            that resemble a `shown` fact, or `all`; the facts shown are the same either way.
        packing: name of the packing algorithm (§7.3): `greedy`, or `in_order`, which stops at the
            first fact that does not fit.
        ordering: name of the ordering algorithm (§7.4): `sandwich`, `sandwich_rank` with the
            two best first, `rank`, or `reversed` with the best last.
        layout: `position` applies `ordering` to all facts; `cache-stable` begins with the previous
            envelope's facts and with pinned ones, so that a prompt cache finds its prefix.
        promote: if no fact is critical for ordering, put the best first and the second best
            last (decision E7).
        critical_composite: minimum composite of a fact that is critical for ordering (§7.4).
        important_composite: minimum composite of a fact that is important for ordering (§7.4).
        coverage_of: the candidates that coverage divides by (§8.1, decision E2): those that are
            `needed` (`budget.needed_share`), to which saturation and relevance then refer too;
            `relevant` candidates, or `all` of them.
        floor_share: share of the relevant floor that the best candidate must reach; otherwise
            no candidate is on topic, and the tier is D if `coverage_of` is `needed` (ours).
        relevant_floor: minimum relevance at which a candidate counts as relevant (E2), unless
            the embedder's card calibrates it.
        coverage_weight: weight of coverage in the envelope's score (§8.1).
        saturation_weight: weight of saturation in the envelope's score (§8.1).
        relevance_mean_weight: weight of the mean relevance in the envelope's score (§8.1).
        score_s, score_a, score_b, score_c: minimum score of the tier (§8.2).
        saturation_s, saturation_a, saturation_b: minimum saturation of the tier (§8.2).
        sparse_saturation: saturation below which an envelope is sparse (§9.2).
        sparse_is_deficient: give a sparse envelope tier D instead of C (decision E3).
        vital_importance: minimum importance at which a fact left out caps the tier (§8.3).
        coverage_minimum: coverage below which the tier is D (§8.3).
        freshness_check_days: age of the newest fact above which the tier of a temporal question
            is capped (§8.3), days.
        strict_saturation: saturation below which the tier of `context-strict` is capped (§13.1).
        budget: how many tokens an envelope may have where no number is given (§7.2).
        pressure: saturations at which an envelope suggests something (§9.3, §10.3).
        evolution: how a summary enters the next window (§14.1).
        reuse: how many earlier envelopes are kept (§11).
        assembly: settings of the context assembly of CFS-021.
        decompose: how a question is split into sub-queries (§5.2).
        graph: how far relations between facts are followed (Summit).
        screening: which candidates may not be shown at all (Summit).
        hybrid: how relevance is mixed, and how stretches of facts fill the rest of the budget.
        adaptive: use freshness only for temporal questions, stale facts, or facts of different
            dates that contradict each other; never diversity; relevance gets the weight (§6.2).
    """

    k_nearest: int = Field(default=50, ge=1)
    k_lexical: int = Field(default=50, ge=0)
    expansion_below: int = Field(default=3, ge=0)
    expansion_reach: int = Field(default=10, ge=1)
    expansion_most: int = Field(default=10, ge=0)
    expansion_distance: float = Field(default=0.7, gt=0.0, le=1.0)

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
    reserve_share: float = Field(default=0.25, ge=0.0, le=1.0)
    least_context_tokens: int = Field(default=128, ge=0)
    family_margin: float = Field(default=0.05, ge=0.0, le=1.0)
    estimate_margin: float = Field(default=0.25, ge=0.0, le=1.0)

    duplicates_told: Literal["shown", "all"] = "shown"
    packing: Literal["greedy", "in_order"] = "greedy"
    ordering: Literal["sandwich", "sandwich_rank", "rank", "reversed"] = "sandwich"
    layout: Literal["position", "cache-stable"] = "position"
    promote: bool = True
    critical_composite: float = Field(default=0.80, ge=0.0, le=1.0)
    important_composite: float = Field(default=0.50, ge=0.0, le=1.0)

    coverage_of: Literal["needed", "relevant", "all"] = "needed"
    floor_share: float = Field(default=0.80, ge=0.0, le=1.0)
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

    budget: BudgetSettings = BudgetSettings()
    pressure: PressureSettings = PressureSettings()
    evolution: EvolutionSettings = EvolutionSettings()
    reuse: ReuseSettings = ReuseSettings()
    assembly: AssemblySettings = AssemblySettings()
    decompose: DecomposeSettings = DecomposeSettings()
    hybrid: HybridSettings = HybridSettings()
    screening: ScreeningSettings = ScreeningSettings()
    graph: GraphExpansionSettings = GraphExpansionSettings()

    @classmethod
    def preset(cls, name: str) -> EnvelopeSettings:
        """The settings of a preset, `default` or `literal`."""
        if name == "default":
            return cls()
        if name == "literal":
            return cls(
                k_lexical=0,
                expansion_distance=1.0,
                adaptive=False,
                hybrid=HybridSettings(enabled=False),
                budget=BudgetSettings(tokens="window"),
                coverage_of="all",
                sparse_is_deficient=True,
                promote=False,
                duplicates_told="all",
                family_margin=0.0,
                estimate_margin=0.0,
                reserve_share=1.0,
                assembly=AssemblySettings(count_rendered=False, tokenizer="simple"),
            )
        raise ConfigError(f"envelope preset {name!r} is not known, wanted 'default' or 'literal'")
