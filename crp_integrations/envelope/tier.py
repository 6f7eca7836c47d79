"""The quality tier: the worst of score, saturation ceiling and overrides (`tier@1`).

Values are compared exactly, as fractions of integers, so that a value equal to a bound gives
the same result on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from crp_integrations.envelope.budget import needed_places
from crp_integrations.envelope.candidates import Candidate, Candidates
from crp_integrations.envelope.pack import PackResult
from crp_integrations.envelope.rank import Ranking, age_microseconds
from crp_integrations.envelope.records import Cap
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import GroundingMode, QualityTier, SaturationLabel


def saturation(token_count: int, token_budget: int) -> Fraction:
    """Used share of the budget, exactly; 0 for a zero budget.

    Spec: CRP-SPEC-003 §9.1 (decision E20)
    """
    return Fraction(token_count, token_budget) if token_budget > 0 else Fraction(0)


def reaches(value: Fraction, threshold: float) -> bool:
    """Whether an exact value is at least a threshold from the settings."""
    # Multiplied out, since building a second fraction would reduce it first and be slower.
    return value.numerator * SCALE >= to_fixed(threshold) * value.denominator


def saturation_label(value: Fraction, settings: EnvelopeSettings) -> SaturationLabel:
    """The band of a saturation; bands include their lower bound (decision E23).

    Spec: CRP-SPEC-003 §9.2
    """
    if reaches(value, settings.saturation_s):
        return SaturationLabel.FULL
    if reaches(value, settings.saturation_a):
        return SaturationLabel.NEAR
    if reaches(value, settings.saturation_b):
        return SaturationLabel.WELL_PACKED
    if reaches(value, settings.sparse_saturation):
        return SaturationLabel.MODERATE
    return SaturationLabel.SPARSE


TIER = "tier@1"


@dataclass(frozen=True, slots=True)
class NeedShown:
    """How many of the facts that a question needs are in its context, each value in [0, 1].

    Attributes:
        coverage: share of the needed facts that are shown, in whole or in part.
        saturation: tokens of the context over those of the needed facts; 1 if all are shown whole.
        relevance: share of the needed facts' scores that belongs to shown ones.
    """

    coverage: Fraction
    saturation: Fraction
    relevance: Fraction

    @classmethod
    def of(
        cls, ranking: Ranking, packing: PackResult, token_count: int, settings: EnvelopeSettings
    ) -> NeedShown | None:
        """Measure a packing; None if no candidate has a score or `coverage_of` is not `needed`.

        Facts left out by the maximum number do not count (E2), nor do near-duplicates.
        """
        if settings.coverage_of != "needed":
            return None
        aside = {fact.candidate.fact_id for fact in packing.over_k}
        aside.update(fact.candidate.fact_id for fact, _ in packing.duplicates)
        places = needed_places(ranking.every, settings)
        needed = {
            fact.candidate.fact_id: fact.candidate
            for fact in (ranking.every[place] for place in places)
            if fact.candidate.fact_id not in aside
        }
        if not needed:
            return None
        shown = [fact.candidate for fact in packing.packed if fact.candidate.fact_id in needed]
        tokens = sum(fact.tokens for fact in needed.values())
        whole = len(shown) == len(needed) and not any(fact.spans for fact in shown)
        return cls(
            Fraction(len(shown), len(needed)),
            Fraction(1) if whole or token_count >= tokens else Fraction(token_count, tokens),
            Fraction(
                sum(fact.merit for fact in shown), sum(fact.merit for fact in needed.values())
            ),
        )


@dataclass(frozen=True, slots=True)
class TierResult:
    """A tier with the values and caps that explain it.

    Attributes:
        coverage: share of the candidates that are included, as `coverage_of` counts, [0, 1].
        relevance_mean: mean relevance of the included facts, [0, 1].
        score: weighted sum of coverage, saturation and relevance.
        caps: every ceiling below S that applies, with its reason.
    """

    tier: QualityTier
    coverage: Fraction
    relevance_mean: Fraction
    score: Fraction
    caps: tuple[Cap, ...]


def classify_tier(
    candidates: Candidates,
    ranking: Ranking,
    packing: PackResult,
    *,
    saturation: Fraction,
    grounding: GroundingMode,
    temporal: bool,
    now: datetime,
    settings: EnvelopeSettings,
    refused: Sequence[Candidate] = (),
    need: NeedShown | None = None,
) -> TierResult:
    """Classify an envelope.

    With `need`, coverage, saturation and relevance refer to the facts that the question needs
    instead of all candidates.

    Spec: CRP-SPEC-003 §8, §9.3, §13.1 (decisions E2 to E5, E23)
    """
    included = [ranked.candidate for ranked in packing.packed]
    mean = Fraction(sum(fact.relevance for fact in included), max(1, len(included)) * SCALE)
    relevance = mean
    if need is not None:
        floor = relevant_floor(candidates, settings) * to_fixed(settings.floor_share) // SCALE
        countable = sum(fact.relevance >= floor for fact in candidates.facts)
        coverage, saturation, relevance = need.coverage, need.saturation, need.relevance
    else:
        covered, countable = _count_coverage(candidates, packing, settings)
        coverage = Fraction(covered, countable) if countable else Fraction(0)
    score = (
        to_fixed(settings.coverage_weight) * coverage
        + to_fixed(settings.saturation_weight) * saturation
        + to_fixed(settings.relevance_mean_weight) * relevance
    ) / SCALE
    # A fact that is shown in part did not fit either.
    unfitting = [fact for fact in included if fact.spans]
    unfitting += [fact.candidate for fact in packing.over_budget]
    empty = Cap(ceiling=QualityTier.D, reason="no fact is included")
    caps = (
        *(() if included else (empty,)),
        *_saturation_caps(saturation, grounding, settings, need is not None),
        *_vital_caps(unfitting, "did not fit", settings),
        *_vital_caps(refused, "may not be shown", settings),
        *_coverage_caps(coverage, countable, settings),
        *_community_caps(ranking, included),
        *(_freshness_caps(included, now, settings) if temporal and included else ()),
    )
    tier = _by_score(score, settings)
    for cap in caps:
        tier = tier.capped(cap.ceiling)
    return TierResult(tier, coverage, mean, score, caps)


def relevant_floor(candidates: Candidates, settings: EnvelopeSettings) -> int:
    """Minimum relevance at which a fact is relevant: the embedder's, else the settings'."""
    floor = candidates.relevant_floor
    return to_fixed(settings.relevant_floor) if floor is None else floor


def _count_coverage(
    candidates: Candidates, packing: PackResult, settings: EnvelopeSettings
) -> tuple[int, int]:
    """Numbers of included facts and of candidates for coverage, without those cut by k (E2)."""
    if settings.coverage_of == "all":
        return len(packing.packed), len(candidates.facts) - len(packing.over_k)
    # Both numbers count only relevant facts; otherwise irrelevant ones would raise coverage.
    floor = relevant_floor(candidates, settings)
    included = sum(ranked.candidate.relevance >= floor for ranked in packing.packed)
    available = sum(fact.relevance >= floor for fact in candidates.facts)
    cut = sum(ranked.candidate.relevance >= floor for ranked in packing.over_k)
    return included, available - cut


def _by_score(score: Fraction, settings: EnvelopeSettings) -> QualityTier:
    for tier, least in (
        (QualityTier.S, settings.score_s),
        (QualityTier.A, settings.score_a),
        (QualityTier.B, settings.score_b),
        (QualityTier.C, settings.score_c),
    ):
        if reaches(score, least):
            return tier
    return QualityTier.D


def _saturation_caps(
    saturation: Fraction, grounding: GroundingMode, settings: EnvelopeSettings, needed: bool
) -> list[Cap]:
    caps: list[Cap] = []
    if not reaches(saturation, settings.sparse_saturation) and settings.sparse_is_deficient:
        ceiling, least = QualityTier.D, settings.sparse_saturation
    elif not reaches(saturation, settings.saturation_b):
        ceiling, least = QualityTier.C, settings.saturation_b
    elif not reaches(saturation, settings.saturation_a):
        ceiling, least = QualityTier.B, settings.saturation_a
    else:
        ceiling, least = QualityTier.A, settings.saturation_s
    of = "share of the needed tokens" if needed else "saturation"
    seen = f"{of} {float(saturation):.3f}"
    # With `needed`, a full context is no better than one with all that is needed.
    if not needed and not reaches(saturation, least):
        caps.append(Cap(ceiling=ceiling, reason=f"{seen} is below {least:.2f}"))
    if grounding is GroundingMode.STRICT and not reaches(saturation, settings.strict_saturation):
        reason = f"{seen} is below {settings.strict_saturation:.2f} in {grounding.value}"
        caps.append(Cap(ceiling=QualityTier.C, reason=reason))
    return caps


def _vital_caps(missing: Iterable[Candidate], why: str, settings: EnvelopeSettings) -> list[Cap]:
    least = to_fixed(settings.vital_importance)
    count = sum(fact.importance >= least for fact in missing)
    if not count:
        return []
    facts = "1 fact" if count == 1 else f"{count} facts"
    reason = f"{facts} of importance {settings.vital_importance:.2f} or more {why}"
    return [Cap(ceiling=QualityTier.B, reason=reason)]


def _coverage_caps(coverage: Fraction, countable: int, settings: EnvelopeSettings) -> list[Cap]:
    if countable and reaches(coverage, settings.coverage_minimum):
        return []
    reason = f"coverage {float(coverage):.3f} is below {settings.coverage_minimum:.2f}"
    if not countable:
        reason = "no candidate is relevant enough to count"
    return [Cap(ceiling=QualityTier.D, reason=reason)]


def _community_caps(ranking: Ranking, included: Sequence[Candidate]) -> list[Cap]:
    if not ranking.every:
        return []
    # The first fact is never a near-duplicate, as no fact is above it.
    top = ranking.every[0].candidate
    # A fact without a community forms its own (decision E8).
    if top.community is None:
        present = any(fact.fact_id == top.fact_id for fact in included)
    else:
        present = any(fact.community == top.community for fact in included)
    if present:
        return []
    return [Cap(ceiling=QualityTier.C, reason="no fact of the primary community is included")]


def _freshness_caps(
    included: Sequence[Candidate], now: datetime, settings: EnvelopeSettings
) -> list[Cap]:
    newest = min(age_microseconds(fact, now) for fact in included)
    limit = timedelta(days=settings.freshness_check_days)
    if newest <= limit // timedelta(microseconds=1):
        return []
    reason = (
        f"the question is temporal and the newest fact is older than "
        f"{settings.freshness_check_days} days"
    )
    return [Cap(ceiling=QualityTier.C, reason=reason)]
