"""Response headers of one window; a value that was not computed has no header."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from crp_integrations import vocabulary
from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.rejections import rejected_claims
from crp_integrations.dpe.stages.completeness import NOTHING
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import grammar, names
from crp_integrations.headers.codec import write_response
from crp_integrations.headers.names import AgentPhase, RetryCondition
from crp_integrations.headers.records import (
    CacheOutcome,
    CompletenessValue,
    ContradictionsValue,
    DistortionsValue,
    FlowValue,
    HeaderSettings,
    OmissionsValue,
    RepetitionValue,
    ResponseHeaders,
    RetryAfter,
    SetSessionValue,
)
from crp_integrations.headers.values import write_flagged
from crp_integrations.validation import require_settings

# What is needed after a halt: a person, or a new session, since a budget never recovers.
RETRY: Final = MappingProxyType(
    {
        vocabulary.HaltReason.CRITICAL_RISK: RetryCondition.OVERSIGHT,
        vocabulary.HaltReason.UNACCEPTABLE: RetryCondition.OVERSIGHT,
        vocabulary.HaltReason.POLICY: RetryCondition.OVERSIGHT,
        vocabulary.HaltReason.OVERSIGHT: RetryCondition.OVERSIGHT,
        # The answer was not read: a person can do that, or the judge on another call.
        vocabulary.HaltReason.JUDGE_FAILED: RetryCondition.OVERSIGHT,
        vocabulary.HaltReason.ACTION: RetryCondition.OVERSIGHT,
        vocabulary.HaltReason.BUDGET_DEPLETED: RetryCondition.NEW_SESSION,
    }
)
_REGION: Final = re.compile("[A-Za-z]{2}", re.ASCII)
_NO_HEADER: Final = frozenset({"halt_reason", "flow_remedy"})


def retry_for(reason: vocabulary.HaltReason | None) -> RetryCondition:
    """What must happen before the caller may ask again.

    Spec: related facts §3
    """
    return RETRY[reason] if reason else RetryCondition.OVERSIGHT


@dataclass(frozen=True, slots=True)
class WindowContext:
    """Header values in addition to envelope, report and seal; empty ones and None have no header.

    Spec: related facts §3

    Attributes:
        violation: `inheritance`, or the names of unmet directives, terms and settings.
        halt_reason: why the answer is withheld; has no header of its own.
        retry_after: when to ask again; None uses, for a halted window, the condition of its reason.
        residency: region of the data; has no header unless its name has two letters.
        loop_depth: nesting depth of agents around this window, 0 for the root.
        dag_root: a token such as the root window's id.
        report_uri, trail_uri: an absolute URI, or a path on the gateway.
        flow_remedy: the remedy used for a broken flow: `prompt-augmented`, `stitched` or
            `re-dispatched`; part of `CRP-Quality-Flow`.
    """

    policy_applied: str = ""
    violation: tuple[str, ...] = ()
    oversight_mode: vocabulary.Oversight | None = None
    halt_reason: vocabulary.HaltReason | None = None
    retry_after: RetryAfter | None = None
    nonce: str = ""
    seed: int | None = None
    residency: str = ""
    dispatch_strategy: vocabulary.Strategy | None = None
    phase: AgentPhase | None = None
    loop_depth: int | None = None
    safety_budget: float | None = None
    budget_warning: vocabulary.BudgetWarning | str | None = None
    tool_calls: int | None = None
    session_parent: str = ""
    revision_round: tuple[int, int] | None = None
    dag_root: str = ""
    lineage: tuple[str, ...] = ()
    report_uri: str = ""
    trail_id: str = ""
    trail_uri: str = ""
    set_session: SetSessionValue | None = None
    flow_remedy: str = ""

    def values(self, *, halted: bool) -> dict[str, Any]:
        """The fields of `ResponseHeaders` that have a value here."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in _NO_HEADER and getattr(self, field.name) not in (None, "", ())
        }
        if not _REGION.fullmatch(self.residency):
            values.pop("residency", None)
        if halted and self.retry_after is None:
            values["retry_after"] = retry_for(self.halt_reason)
        return values


# Windows whose answer was examined; a failed or cancelled one has no verdict to report.
EXAMINED: Final = frozenset({"released", "halted"})
# All are needed, since the quality score would count a stage that did not run as good.
QUALITY_STAGES: Final = frozenset({6, 7, 8, 9})


def render_headers(
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
    passed: WindowContext | None = None,
    settings: HeaderSettings | None = None,
) -> dict[str, str]:
    """The response headers of one window.

    Spec: CRP-SPEC-003 §15
    Spec: CRP-SPEC-005 §20
    """
    context, chosen = passed or WindowContext(), require_settings(settings, HeaderSettings)
    examined = seal is None or seal.outcome in EXAMINED
    values: dict[str, Any] = {
        "session_id": session_id,
        "window": (window_number, window_total),
        **envelope_fields(envelope, chosen),
        "cache_status": cache_status or _sparse_outcome(envelope),
        "continuation_id": continuation_id,
        **context.values(halted=seal is not None and seal.outcome == "halted"),
    }
    if examined:
        values |= _answer_fields(report, context.flow_remedy)
    if seal is not None:
        unchained = window_hmac or (seal.hmac if not seal.parent_hmac else None)
        values |= {
            "chained_hmac": seal.hmac,
            "window_hmac": unchained,
            "chain_integrity": report.chain_integrity,
        }
    flags = _flagged_claims(report) if examined and context.session_parent else {}
    try:
        return write_response(ResponseHeaders(**values)) | flags
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = first["loc"][0] if first["loc"] else "headers"
        raise HeaderSyntaxError(f"{field} is invalid in a header: {first['msg']}") from None


def answer_headers(
    report: Report, *, flow_remedy: str = "", session_parent: str = ""
) -> dict[str, str]:
    """The headers that follow from the report on an answer alone.

    Spec: CRP-SPEC-005 §20
    """
    flags = _flagged_claims(report) if session_parent else {}
    return write_response(ResponseHeaders(**_answer_fields(report, flow_remedy))) | flags


def _answer_fields(report: Report, flow_remedy: str) -> dict[str, Any]:
    return (
        _report_fields(report) | _compliance_fields(report) | _quality_fields(report, flow_remedy)
    )


def _flagged_claims(report: Report) -> dict[str, str]:
    """The claims that a parent agent flags if it repeats them."""
    flagged = rejected_claims(report)
    return {names.FLAGGED_CLAIMS: write_flagged(flagged)} if flagged else {}


def envelope_fields(envelope: Envelope, settings: HeaderSettings) -> dict[str, Any]:
    """The fields of `ResponseHeaders` that an envelope determines."""
    label = next(iter(envelope.ckf_communities), "") if settings.show_community else ""
    return {
        "strategy": envelope.strategy,
        "quality_tier": envelope.quality_tier,
        "saturation": envelope.saturation,
        "facts_used": (envelope.total_facts_included, envelope.total_facts_available),
        "tokens_used": envelope.token_count,
        "etag": envelope.etag or None,
        "tier_hit": envelope.memory_tier_hit,
        # All candidates are included or dropped; those of tier 0 were not retrieved.
        "ckf_hits": len(envelope.facts) + len(envelope.dropped) - envelope.tier_hits[0],
        "ckf_community": grammar.slug(label) or None,
        "knowledge_age": _knowledge_age(envelope),
    }


def _sparse_outcome(envelope: Envelope) -> CacheOutcome | None:
    """The cache status that marks an envelope with few facts.

    Spec: CRP-SPEC-003 §9.3
    """
    word = vocabulary.AdviceWord.LIMITED
    if not envelope.suggests(word):
        return None
    return CacheOutcome(status=vocabulary.CacheStatus.PARTIAL, reason=word.value)


def _knowledge_age(envelope: Envelope) -> timedelta | None:
    times = [fact.ingested_at for fact in envelope.facts if fact.ingested_at is not None]
    return grammar.whole_seconds(envelope.created_at - max(times)) if times else None


def _report_fields(report: Report) -> dict[str, Any]:
    types = tuple(dict.fromkeys(report.distortion_types)) if report.distortion_count else ()
    scope = report.contradiction_scope.lower() if report.contradiction_count else ""
    return {
        "claim_count": report.claims_total,
        "attribution": report.attribution_dominant,
        "grounding_pct": report.grounding_pct,
        "attribution_score": report.grounding_pct,
        "fabrications": report.fabrication_count,
        "distortions": DistortionsValue(count=report.distortion_count, types=types),
        "contradictions": ContradictionsValue(count=report.contradiction_count, scope=scope),
        "entailment_score": report.entailment_score,
        "fidelity_score": report.fidelity_score,
        "hallucination_risk": report.risk_level,
        "hallucination_score": report.risk_score,
    }


def _quality_fields(report: Report, flow_remedy: str) -> dict[str, Any]:
    """The header fields of those stages 7 to 9 that ran, and the quality score."""
    ran = {run.number for run in report.stages}
    values: dict[str, Any] = {}
    complete = report.quality.completeness
    if 7 in ran:
        level = report.repetition_level
        overlap = None if level is vocabulary.RepetitionLevel.NONE else report.repetition_overlap
        values["repetition"] = RepetitionValue(level=level, overlap=overlap)
    covered, missing = len(complete.covered), len(complete.uncovered)
    if 8 in ran and complete.level is not None and covered + missing:
        values["completeness"] = CompletenessValue(
            level=complete.level,
            covered=covered,
            total=covered + missing,
            uncovered=tuple(
                grammar.slug(need) or f"need-{place}"
                for place, need in enumerate(complete.uncovered, 1)
            ),
        )
    if 9 in ran:
        values["flow"] = FlowValue(score=report.flow_score, remediation=flow_remedy)
    values["quality_score"] = known_quality(report)
    return values


def known_quality(report: Report) -> float | None:
    """The quality score; None unless stages 6 to 9 ran and completeness, if asked for, was read."""
    complete = report.quality.completeness.score is not None or NOTHING in report.stages
    ran = {run.number for run in report.stages}
    return report.rqa_score if complete and ran >= QUALITY_STAGES else None


def _compliance_fields(report: Report) -> dict[str, Any]:
    """The header fields of those stages 10 to 12 that ran."""
    ran = {run.number for run in report.stages}
    values: dict[str, Any] = {}
    if 10 in ran:
        counts = {name.lower(): count for name, count in report.omission_summary.items()}
        values["omissions"] = OmissionsValue(**counts)
    if 11 in ran:
        values["personal_data"] = report.gdpr_pii_detected
    if 12 in ran:
        values["ai_act_class"] = report.eu_ai_act_class
        classification = report.classification
        # After a failed classification there is no tier and no count to send.
        if not classification.failed:
            values["nist_tier"] = None if report.nist_tier == "UNKNOWN" else report.nist_tier
            values["iso_42001"] = report.iso_42001_controls or None
            values["controls_met"] = (classification.controls_met, classification.controls_total)
    return values
