"""Derives a report from the statuses of its claims.

A judge, a verifier or the exact comparison gives each claim a status. This module computes the
report's other values from the statuses, in the same way for all three: attribution, grounding,
fidelity, entailment, completeness, the level and its score. `docs/adr` has the table.

Spec: CRP-SPEC-005 §4 to §7, §10 (decision D13)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.reasons import reasons
from crp_integrations.dpe.pii.spans import is_repeated
from crp_integrations.dpe.records import (
    CONTRADICTION,
    NO_SENTENCE,
    Claim,
    ClaimCounts,
    Classification,
    Evidence,
    PersonalDatum,
    Report,
)
from crp_integrations.dpe.report_parts import Completeness
from crp_integrations.dpe.risk import (
    Circumstances,
    Counts,
    amplified,
    applicable,
    assess,
    fidelity_score,
    grounding_pct,
    quality_score,
)
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.completeness import completeness_of
from crp_integrations.language.text import has_text
from crp_integrations.vocabulary import (
    AiActClass,
    Attribution,
    Checked,
    ClaimStatus,
    ClaimType,
    DistortionType,
    ErrorKind,
    GroundingMode,
    RiskLevel,
    Verification,
)

# What the evidence does not say, or says differently, comes from the model itself. The origin of
# an unread claim is unknown.
ATTRIBUTIONS: Final = MappingProxyType(
    {
        ClaimStatus.SUPPORTED: Attribution.CONTEXT_GROUNDED,
        ClaimStatus.CONTRADICTED: Attribution.PARAMETRIC,
        ClaimStatus.UNSUPPORTED: Attribution.PARAMETRIC,
        ClaimStatus.NOT_CHECKED: Attribution.UNVERIFIABLE,
        ClaimStatus.NOT_CHECKABLE: None,
    }
)
# Probabilities of entailment, contradiction and neutral by status.
CERTAINTIES: Final = MappingProxyType(
    {
        ClaimStatus.SUPPORTED: (1.0, 0.0, 0.0),
        ClaimStatus.CONTRADICTED: (0.0, 1.0, 0.0),
        ClaimStatus.UNSUPPORTED: (0.0, 0.0, 1.0),
    }
)
UNREAD: Final = (0.0, 0.0, 1.0)
READ: Final = MappingProxyType(
    {
        ClaimStatus.NOT_CHECKED: Checked.NOT_CHECKED,
        ClaimStatus.NOT_CHECKABLE: Checked.NOT_CHECKABLE,
    }
)
# The distortion type of §5.3 for each kind of error.
DISTORTIONS: Final = MappingProxyType(
    {
        ErrorKind.NUMBER: DistortionType.NUMBER_CHANGED,
        ErrorKind.UNIT: DistortionType.MAGNITUDE_ALTERED,
        ErrorKind.DATE: DistortionType.DATE_SHIFTED,
        ErrorKind.NAME: DistortionType.ENTITY_SUBSTITUTED,
        ErrorKind.RELATION: DistortionType.ENTITY_SUBSTITUTED,
        ErrorKind.NEGATION: DistortionType.NEGATION_FLIP,
        ErrorKind.OPPOSITE: DistortionType.NEGATION_FLIP,
        ErrorKind.CONDITION: DistortionType.CONTEXT_STRIPPED,
        ErrorKind.SCOPE: DistortionType.CONTEXT_STRIPPED,
    }
)
BASE: Final = MappingProxyType(
    {
        RiskLevel.LOW: 0.05,
        RiskLevel.MEDIUM: 0.30,
        RiskLevel.HIGH: 0.55,
        RiskLevel.CRITICAL: 0.80,
    }
)
"""Risk score of each level, to which further claims add. UNKNOWN has none, as no claim that was
not read can be scored."""

FURTHER: Final = 0.01
MOST_FURTHER: Final = 10
LEVELS: Final = tuple(RiskLevel)
UNSUPPORTED_LEVEL: Final = MappingProxyType(
    {
        GroundingMode.STRICT: RiskLevel.HIGH,
        GroundingMode.PREFERRED: RiskLevel.MEDIUM,
        GroundingMode.OPEN: RiskLevel.LOW,
    }
)


SPECIFIC: Final = frozenset(
    {ErrorKind.INVENTION, ErrorKind.NUMBER, ErrorKind.DATE, ErrorKind.NAME, ErrorKind.UNIT}
)
"""Kinds of error that make an unsupported claim an invented specific."""

ALLOWED: Final = "unsupported-allowed"
"""Report flag: the answer has unsupported claims, which `open` allows."""

CONFLICT: Final = "judge-conflict"
"""Report flag: a judge supports a claim that the exact comparison found wrong."""


@dataclass(frozen=True, slots=True)
class Level:
    """The risk level that follows from the statuses of an answer's claims.

    Attributes:
        score: [0, 1], within the level's band, higher is worse; None for UNKNOWN.
        allowed: True if a claim is unsupported, but the grounding mode allows that.
    """

    risk: RiskLevel
    score: float | None
    allowed: bool = False


def derive(report: Report, dossier: Dossier, settings: DpeSettings, language: str = "en") -> Report:
    """The report with every number on claims computed from their statuses.

    Spec: CRP-SPEC-005 §4.4, §5.5, §6.2, §7 (decision D13)

    Args:
        language: language of the reasons.
    """
    claims = tuple(_derived(claim, report) for claim in report.claims)
    stated = [claim for claim in claims if claim.status is not ClaimStatus.NOT_CHECKABLE]
    grounded = sum(claim.attribution is Attribution.CONTEXT_GROUNDED for claim in stated)
    distorted = [claim for claim in stated if claim.status is ClaimStatus.CONTRADICTED]
    summary = FoundClaims(
        claims=claims,
        stated=stated,
        fabrications=sum(map(_is_invented, stated)),
        distortions=len(distorted),
        types=frozenset(DISTORTIONS.get(claim.error) for claim in distorted if claim.error),
        contradictions=_conflicts_within(report),
        weakest=_weakest(stated, dossier.grounding),
    )
    report = with_numbers(report, summary, dossier, settings)
    level = level_of(claims, report, dossier)
    report = with_needs(report, dossier, settings)
    flags = [flag for flag in report.flags if flag not in (ALLOWED, CONFLICT)]
    flags += [ALLOWED] * level.allowed + [CONFLICT] * any(claim.disputed for claim in claims)
    quiet = level.risk is RiskLevel.LOW
    return report.model_copy(
        update={
            "grounding_pct": _share(grounded, len(stated), claims, dossier),
            "risk_level": level.risk,
            "risk_score": level.score,
            "flagged": LEVELS.index(level.risk) >= LEVELS.index(RiskLevel.MEDIUM),
            "flags": tuple(flags),
            "reasons": () if quiet else reasons(dossier.answer, claims, language),
        }
    )


@dataclass(frozen=True, slots=True)
class FoundClaims:
    """Counts over an answer's claims, by their statuses or by the specification's stages.

    Attributes:
        stated: the claims over which the scores are computed.
        weakest: entailment, contradiction and neutral of the claim with the least entailment.
    """

    claims: tuple[Claim, ...]
    stated: Sequence[Claim]
    fabrications: int
    distortions: int
    types: frozenset[DistortionType | None]
    contradictions: int
    weakest: tuple[float, float, float]


def with_numbers(
    report: Report, summary: FoundClaims, dossier: Dossier, settings: DpeSettings
) -> Report:
    """The report with the specification's numbers on its claims.

    Spec: CRP-SPEC-005 §4.5, §5.5, §6.3, §7.2, §15.2
    """
    claims, factual = summary.claims, len(summary.stated)
    attributions = Counter(claim.attribution for claim in summary.stated)
    breakdown = {name.value: attributions[name] for name in Attribution}
    by_type = Counter(claim.claim_type for claim in claims)
    across = len(report.cross_window_contradictions)
    fidelity = fidelity_score(
        fabrications=summary.fabrications,
        distortions=summary.distortions,
        contradictions=summary.contradictions,
        factual=factual,
        settings=settings,
    )
    # In `literal` stage 2 decides what is PARAMETRIC; otherwise, unsupported claims are.
    parametric = attributions[Attribution.PARAMETRIC]
    if settings.decides == "claims":
        parametric = sum(claim.status is ClaimStatus.UNSUPPORTED for claim in summary.stated)
    counts = Counts(
        factual=factual,
        grounded=attributions[Attribution.CONTEXT_GROUNDED],
        parametric=parametric,
        unverifiable=attributions[Attribution.UNVERIFIABLE],
        fidelity=fidelity,
        entailment=summary.weakest[0],
    )
    values, composite = assess(counts, dossier.grounding, settings)
    amplifiers = applicable(circumstances(report, dossier), settings.amplifiers)
    return report.model_copy(
        update={
            "claims": claims,
            "claims_total": len(claims),
            "claims_by_type": {name.value: by_type[name] for name in ClaimType},
            "claim_counts": count_claims(claims),
            "attribution_breakdown": breakdown,
            "attribution_dominant": dominant(breakdown),
            "grounding_pct": grounding_pct(counts.grounded, factual),
            "unverifiable_pct": counts.unverifiable / max(1, factual),
            "fabrication_count": summary.fabrications,
            "distortion_count": summary.distortions,
            "distortion_types": tuple(name for name in DistortionType if name in summary.types),
            "contradiction_count": summary.contradictions + across,
            "contradiction_scope": contradiction_scope(summary.contradictions, across),
            "fidelity_score": fidelity,
            "entailment_score": summary.weakest[0],
            "contradiction_probability": summary.weakest[1],
            "neutral_probability": summary.weakest[2],
            "signals": values,
            "base_score": composite,
            "composite_score": amplified(composite, amplifiers, settings.amplifiers),
            "amplifiers_applied": tuple(name.value for name in amplifiers),
            "verification": verification_of(claims, dossier),
            "checked_share": checked_share(claims, dossier),
        }
    )


def with_needs(report: Report, dossier: Dossier, settings: DpeSettings) -> Report:
    """The report with the completeness that its judge found; unchanged if the judge gave none.

    Spec: CRP-SPEC-005 §10.2
    """
    needs = dossier.sub_queries or ((dossier.question,) if dossier.question.strip() else ())
    read = {need.number: need.answered for need in report.judge.needs} if report.judge else {}
    if not needs or not read:
        return report
    here = [read.get(number, False) for number in range(1, len(needs) + 1)]
    completeness = completeness_of(
        needs, [False] * len(needs), here, settings.quality, dossier.windows_left
    )
    return with_completeness(report, completeness, settings)


def with_completeness(report: Report, completeness: Completeness, settings: DpeSettings) -> Report:
    """The report with this completeness and a recomputed quality score."""
    quality = report.quality.model_copy(update={"completeness": completeness})
    return report.model_copy(
        update={
            "quality": quality,
            "completeness_score": completeness.score,
            "uncovered_sub_queries": completeness.uncovered,
            "rqa_score": quality_score(
                quality.repetition, completeness, quality.flow, quality.coherence, settings.quality
            ),
        }
    )


def level_of(claims: Sequence[Claim], report: Report, dossier: Dossier) -> Level:
    """The level of the worst claim, and a score that further claims only raise.

    A contradicted claim and an invented specific are HIGH. A contradiction is CRITICAL in a
    registered high-risk use, or if it touches personal data that only the answer contains. Other
    unsupported claims are HIGH under `context-strict`, MEDIUM under `context-preferred`, and LOW
    with a flag under `open`. An unread claim makes the answer at least UNKNOWN.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """
    worst, counted, allowed = RiskLevel.LOW, 0, False
    high_risk = report.eu_ai_act_class is AiActClass.HIGH and dossier.system.domain is not None
    own = _own_personal_data(report, dossier)
    touched = [
        claim
        for claim in claims
        if any(datum.start < claim.end and claim.start < datum.end for datum in own)
    ]
    sentences = {claim.sentence_index for claim in touched} - {NO_SENTENCE}
    for claim in claims:
        level = RiskLevel.LOW
        if claim.disputed or any(finding.doubts for finding in claim.findings):
            level = RiskLevel.MEDIUM
        if claim.status is ClaimStatus.CONTRADICTED and not claim.disputed:
            at_stake = high_risk or claim in touched or claim.sentence_index in sentences
            level = RiskLevel.CRITICAL if at_stake else RiskLevel.HIGH
        elif claim.status is ClaimStatus.UNSUPPORTED and not claim.disputed:
            unsupported_level = (
                RiskLevel.HIGH if claim.error in SPECIFIC else UNSUPPORTED_LEVEL[dossier.grounding]
            )
            allowed = allowed or unsupported_level is RiskLevel.LOW
            level = worse(level, unsupported_level)
        elif claim.status is ClaimStatus.NOT_CHECKED:
            level = worse(level, RiskLevel.UNKNOWN)
        counted += level not in (RiskLevel.LOW, RiskLevel.UNKNOWN) or claim.flagged
        worst = worse(worst, level)
    if _conflicts_within(report):
        worst = worse(worst, RiskLevel.MEDIUM)
    if not _is_answer(claims, dossier):
        worst = worse(worst, RiskLevel.UNKNOWN)
    score = BASE.get(worst)
    if score is not None:
        score = round(score + FURTHER * min(counted, MOST_FURTHER), 6)
    return Level(worst, score, allowed)


def _own_personal_data(report: Report, dossier: Dossier) -> list[PersonalDatum]:
    """Personal data of the answer that is in neither the evidence nor the question."""
    known = "\n".join([dossier.question, *(text for _, text in dossier.passages)])
    return [
        datum
        for datum in report.personal.found
        if datum.where == "answer"
        and not is_repeated(dossier.answer[datum.start : datum.end], known)
    ]


def worse(level: RiskLevel, other: RiskLevel) -> RiskLevel:
    """The worse of two levels."""
    return max(level, other, key=LEVELS.index)


def count_claims(claims: Sequence[Claim]) -> ClaimCounts:
    """Count the claims that were read, supported, wrong and unread."""
    supported = sum(claim.status is ClaimStatus.SUPPORTED for claim in claims)
    wrong = sum(claim.flagged for claim in claims)
    unread = sum(claim.status is ClaimStatus.NOT_CHECKED for claim in claims)
    return ClaimCounts(read=supported + wrong, supported=supported, wrong=wrong, unread=unread)


def verification_of(claims: Sequence[Claim], dossier: Dossier) -> Verification:
    """How much of an answer was read; an answer without text is UNREAD."""
    counts = count_claims(claims)
    if not _is_answer(claims, dossier) or (counts.unread and not counts.read):
        return Verification.UNREAD
    return Verification.PARTIAL if counts.unread else Verification.VERIFIED


def checked_share(claims: Sequence[Claim], dossier: Dossier) -> float:
    """Characters of the claims that were read over those of all that assert something, [0, 1].

    Spec: CRP-SPEC-005 §6.2 (decision D6)
    """
    stated = [claim for claim in claims if claim.status is not ClaimStatus.NOT_CHECKABLE]
    read = sum(
        claim.end - claim.start for claim in stated if claim.status is not ClaimStatus.NOT_CHECKED
    )
    return _share(read, sum(claim.end - claim.start for claim in stated), claims, dossier)


def _share(part: int, whole: int, claims: Sequence[Claim], dossier: Dossier) -> float:
    """`part / whole`; if `whole` is 0, 1 for an answer with text and 0 for one without."""
    return part / whole if whole else float(_is_answer(claims, dossier))


def _is_answer(claims: Sequence[Claim], dossier: Dossier) -> bool:
    """Whether the answer has text and claims; reasoning alone makes no claims."""
    return bool(claims) and has_text(dossier.answer)


def circumstances(report: Report, dossier: Dossier) -> Circumstances:
    """The input of the amplifiers, taken from the stages' findings.

    Spec: CRP-SPEC-005 §17
    """
    return Circumstances(
        personal=bool(report.personal.found),
        ai_act_class=_feared(report.classification),
        sector=dossier.system.sector,
        loop_depth=dossier.loop_depth,
        contradictions=len(report.cross_window_contradictions),
        repetition=report.repetition_level,
    )


def _feared(classification: Classification) -> AiActClass:
    """The class used for the score: high-risk if classification failed and the answer halts."""
    if classification.failed and classification.halts:
        return AiActClass.HIGH
    return classification.eu_ai_act_class


def contradiction_scope(within: int, across: int) -> str:
    """Where contradictions occur: in the answer, between windows, in both or in none (§5.4)."""
    if within and across:
        return "both"
    return "intra" if within else "cross-window" if across else "none"


def dominant(breakdown: dict[str, int]) -> Attribution | None:
    """The most frequent attribution, the riskier one on a tie, None without claims.

    Spec: CRP-SPEC-005 §4.5
    """
    riskiest_last = (
        Attribution.CONTEXT_GROUNDED,
        Attribution.MIXED,
        Attribution.PARAMETRIC,
        Attribution.UNVERIFIABLE,
    )
    best = max(reversed(riskiest_last), key=lambda name: breakdown.get(name.value, 0))
    return best if breakdown.get(best.value, 0) else None


def _derived(claim: Claim, report: Report) -> Claim:
    """The claim with the fields that follow from its status."""
    certain: tuple[Any, Any, Any] = CERTAINTIES.get(claim.status, (None, None, None))
    if claim.entailment is not None and claim.status is not ClaimStatus.NOT_CHECKED:
        # A verifier's probabilities are more precise than 1 and 0.
        certain = (claim.entailment, claim.contradiction, claim.neutral)
    evidence = tuple(
        Evidence(
            fact_id=quotation.fact_id,
            start=quotation.start,
            end=quotation.end,
            score=1.0,
            engine=report.checked_by,
        )
        for quotation in claim.quotations
        if quotation.passage
    )
    return claim.model_copy(
        update={
            "attribution": ATTRIBUTIONS[claim.status],
            "checked": READ.get(claim.status, Checked.CHECKED),
            "entailment": certain[0],
            "contradiction": certain[1],
            "neutral": certain[2],
            "evidence": evidence,
            "hints": claim.hints if claim.status is ClaimStatus.NOT_CHECKED else (),
        }
    )


def _is_invented(claim: Claim) -> bool:
    return claim.status is ClaimStatus.UNSUPPORTED and claim.error in SPECIFIC


def _weakest(stated: Sequence[Claim], mode: GroundingMode) -> tuple[float, float, float]:
    """Entailment, contradiction and neutral of the claim with the least entailment.

    An unread claim has entailment 0. Under `open` an unsupported claim is allowed and does not
    count (decision E21).
    """
    rows = [
        CERTAINTIES.get(claim.status, UNREAD)
        for claim in stated
        if not (claim.status is ClaimStatus.UNSUPPORTED and mode is GroundingMode.OPEN)
    ]
    return min(rows, key=lambda row: (row[0], -row[1]), default=(1.0, 0.0, 0.0))


def _conflicts_within(report: Report) -> int:
    """The number of sets of claims that cannot all be true, by a judge or by comparison."""
    judged = [set(conflict.claims) for conflict in (report.judge.conflicts if report.judge else ())]
    exact = [
        {finding.claim_id, finding.other_claim_id}
        for claim in report.claims
        for finding in claim.findings
        if finding.kind == CONTRADICTION
    ]
    return sum(len(claims) > 1 for claims in judged) + sum(
        not any(pair <= claims for claims in judged) for pair in exact
    )
