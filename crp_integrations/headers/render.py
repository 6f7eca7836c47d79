"""Response headers of one window: values only for what was computed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from pydantic import ValidationError

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import values
from crp_integrations.headers.passed import Passed
from crp_integrations.headers.records import (
    CacheOutcome,
    CompletenessSaid,
    Contradictions,
    Distortions,
    FlowSaid,
    OmissionsSaid,
    RepetitionSaid,
    ResponseHeaders,
)
from crp_integrations.headers.settings import HeaderSettings
from crp_integrations.headers.write import write
from crp_integrations.vocabulary import AdviceWord, CacheStatus, RepetitionLevel

# Windows whose answer was examined; a failed or cancelled one has no verdict to report.
EXAMINED: Final = frozenset({"released", "halted"})
# Without one of them the quality score would count as good what was not looked at.
QUALITY_STAGES: Final = frozenset({6, 7, 8, 9})


def render(
    envelope: Envelope,
    report: Report,
    *,
    session_id: str,
    window_number: int,
    window_total: int,
    seal: WindowSeal | None = None,
    window_hmac: str | None = None,
    cache_status: CacheOutcome | None = None,
    continuation_id: str | None = None,
    passed: Passed | None = None,
    settings: HeaderSettings | None = None,
) -> dict[str, str]:
    """The response headers of one window.

    Spec: CRP-SPEC-003 §15
    Spec: CRP-SPEC-005 §20

    Args:
        report: the headers of stages 1–5 are left out when the seal's outcome says that no
            answer was examined; the attribution is left out without a factual claim.
        window_number: place of the window in its session, from 1.
        window_total: the most windows that the session may have.
        seal: the window's seal, None before it is sealed.
        window_hmac: the window's HMAC without its parent; for a first window, which has no
            parent, it is the seal's own.
        cache_status: what a conditional request came to; None when the request was none, and then
            a sparse envelope is PARTIAL (CRP-SPEC-003 §9.3).
        continuation_id: of the window that may follow, None when none is suggested.
        passed: what session, policy and agents say; None for nothing of it.
        settings: what is told at all; None for the defaults.

    Returns:
        Values by name, without line breaks and without any text of a fact or answer.

    Raises:
        HeaderSyntaxError: a value does not follow its header's grammar.
    """
    told, chosen = passed or Passed(), settings or HeaderSettings()
    examined = seal is None or seal.outcome in EXAMINED
    said: dict[str, Any] = {
        "session_id": session_id,
        "window": (window_number, window_total),
        **_of_envelope(envelope, chosen),
        "cache_status": cache_status or _sparse(envelope),
        "continuation_id": continuation_id,
        **told.said(halted=seal is not None and seal.outcome == "halted"),
    }
    if examined:
        said |= _of_report(report) | _of_compliance(report)
        said |= _of_quality(report, told.flow_remedy)
    if seal is not None:
        unchained = window_hmac or (seal.hmac if not seal.parent_hmac else None)
        said |= {
            "chained_hmac": seal.hmac,
            "window_hmac": unchained,
            "chain_integrity": report.chain_integrity,
        }
    try:
        return write(ResponseHeaders(**said))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = first["loc"][0] if first["loc"] else "headers"
        raise HeaderSyntaxError(f"no header can say this {field}: {first['msg']}") from None


def _of_envelope(envelope: Envelope, settings: HeaderSettings) -> dict[str, Any]:
    label = next(iter(envelope.ckf_communities), "") if settings.show_community else ""
    return {
        "strategy": envelope.strategy,
        "quality_tier": envelope.quality_tier,
        "saturation": envelope.saturation,
        "facts_used": (envelope.total_facts_included, envelope.total_facts_available),
        "tokens_used": envelope.token_count,
        "etag": envelope.etag or None,
        "tier_hit": envelope.memory_tier_hit,
        # Every candidate is either included or dropped with a reason; tier 0 is no retrieval.
        "ckf_hits": len(envelope.facts) + len(envelope.dropped) - envelope.tier_hits[0],
        "ckf_community": values.slug(label) or None,
        "knowledge_age": _age(envelope),
    }


def _sparse(envelope: Envelope) -> CacheOutcome | None:
    """What a sparse envelope says without being asked.

    Spec: CRP-SPEC-003 §9.3
    """
    word = AdviceWord.LIMITED
    if not envelope.suggests(word):
        return None
    return CacheOutcome(status=CacheStatus.PARTIAL, reason=word.value)


def _age(envelope: Envelope) -> timedelta | None:
    times = [fact.ingested_at for fact in envelope.facts if fact.ingested_at is not None]
    return values.whole(envelope.created_at - max(times)) if times else None


def _of_report(report: Report) -> dict[str, Any]:
    types = tuple(dict.fromkeys(report.distortion_types)) if report.distortion_count else ()
    scope = report.contradiction_scope.lower() if report.contradiction_count else ""
    return {
        "claim_count": report.claims_total,
        "attribution": report.attribution_dominant,
        "grounding_pct": report.grounding_pct,
        "attribution_score": report.grounding_pct,
        "fabrications": report.fabrication_count,
        "distortions": Distortions(count=report.distortion_count, types=types),
        "contradictions": Contradictions(count=report.contradiction_count, scope=scope),
        "entailment_score": report.entailment_score,
        "fidelity_score": report.fidelity_score,
        "hallucination_risk": report.risk_level,
        "hallucination_score": report.risk_score,
    }


def _of_quality(report: Report, flow_remedy: str) -> dict[str, Any]:
    """What stages 6 to 9 said, as far as they ran."""
    ran = {run.number for run in report.stages}
    said: dict[str, Any] = {}
    complete = report.quality.completeness
    if 7 in ran:
        level = report.repetition_level
        overlap = None if level is RepetitionLevel.NONE else report.repetition_overlap
        said["repetition"] = RepetitionSaid(level=level, overlap=overlap)
    covered, missing = len(complete.covered), len(complete.uncovered)
    if 8 in ran and covered + missing:
        said["completeness"] = CompletenessSaid(
            level=complete.level,
            covered=covered,
            total=covered + missing,
            uncovered=tuple(
                values.slug(need) or f"need-{place}"
                for place, need in enumerate(complete.uncovered, 1)
            ),
        )
    if 9 in ran:
        said["flow"] = FlowSaid(score=report.flow_score, remediation=flow_remedy)
    if ran >= QUALITY_STAGES:
        said["quality_score"] = report.rqa_score
    return said


def _of_compliance(report: Report) -> dict[str, Any]:
    """What stages 10 to 12 said, as far as they ran."""
    ran = {run.number for run in report.stages}
    said: dict[str, Any] = {}
    if 10 in ran:
        counts = {name.lower(): count for name, count in report.omission_summary.items()}
        said["omissions"] = OmissionsSaid(**counts)
    if 11 in ran:
        said["personal_data"] = report.gdpr_pii_detected
    if 12 in ran:
        said["ai_act_class"] = report.eu_ai_act_class
        found = report.classification
        # A tier and counts that nobody computed have no header.
        if not found.failed:
            said["nist_tier"] = None if report.nist_tier == "UNKNOWN" else report.nist_tier
            said["iso_42001"] = report.iso_42001_controls or None
            said["controls_met"] = (found.controls_met, found.controls_total)
    return said
