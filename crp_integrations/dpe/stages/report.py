"""Stage 13: writes the report; adds the window's identity and the hash when they are known.

Spec: CRP-SPEC-005 §15
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.dpe.derivation import FoundClaims, derive, with_numbers
from crp_integrations.dpe.judge.reasons import reasons
from crp_integrations.dpe.records import (
    COMPARISON,
    CONTRADICTION,
    REJECTED,
    Claim,
    Examined,
    Quality,
    Report,
    StageRun,
)
from crp_integrations.dpe.risk import level, quality_score
from crp_integrations.dpe.settings import DpeSettings, QualitySettings
from crp_integrations.dpe.stages.fidelity import counted, unpaired
from crp_integrations.dpe.state import State
from crp_integrations.seals import digest, sha256
from crp_integrations.vocabulary import (
    Attribution,
    Checked,
    ClaimStatus,
    ClaimType,
    DistortionType,
    ErrorKind,
    RiskLevel,
    Severity,
)

NO_EMBEDDER: Final = "lexical, no embedder"
RUN = StageRun(number=13, name="report generation", engine="report@1")
# Fields that are set after hashing.
UNHASHED = frozenset({"report_hash", "hmac", "chain_integrity"})


def write_report(state: State) -> Report:
    """The report on a state after all stages, without identity and hash.

    Amplifiers and level are computed here, since some amplifiers need stages 6, 7, 11 and 12
    (decision D8).

    Spec: CRP-SPEC-005 §15.2, §16.1
    """
    embedder, verifier = state.tools.embedder, state.tools.verifier
    # The numbers on claims are added below, by statuses or by the specification's arithmetic.
    fields: dict[str, Any] = {
        "grounding_mode": state.dossier.grounding,
        "repetition_level": state.repetition.level,
        "repetition_overlap": state.repetition.overlap,
        "completeness_score": state.completeness.score,
        "uncovered_sub_queries": state.completeness.uncovered,
        "flow_score": state.flow.score,
        "flow_remediation": state.flow.remediation,
        "cross_window_contradictions": state.coherence.contradictions,
        "quality": Quality(
            coherence=state.coherence,
            repetition=state.repetition,
            completeness=state.completeness,
            flow=state.flow,
        ),
        "rqa_score": quality_score(
            state.repetition,
            state.completeness,
            state.flow,
            state.coherence,
            state.tools.settings.quality,
        ),
        "omission_summary": _by_severity(state),
        "omissions": state.omissions,
        "gdpr_pii_detected": bool(state.personal.found),
        "personal": state.personal,
        "eu_ai_act_class": state.classification.eu_ai_act_class,
        "nist_tier": state.classification.nist_tier,
        "iso_42001_controls": state.classification.iso_42001_controls,
        "classification": state.classification,
        "claims": state.claims,
        "checked_by": verifier.identity if verifier else COMPARISON,
        "flags": _flags(state),
        "stages": (*state.stages, RUN),
        "verifier": verifier.identity if verifier else COMPARISON,
        "embedder": embedder.identity if embedder is not None else NO_EMBEDDER,
        "thresholds": _thresholds(state),
        "response_content_hash": sha256(state.dossier.answer),
    }
    texts = tuple(text for _, text in state.dossier.passages)
    examined = Examined(state.dossier.answer, state.dossier.question, texts)
    written = Report.model_construct(**fields).about(examined)
    if state.tools.settings.decides == "claims":
        return derive(written, state.dossier, state.tools.settings)
    return _by_arithmetic(written, state)


def _by_arithmetic(report: Report, state: State) -> Report:
    """The report by the specification's own arithmetic, which never gives UNKNOWN (`literal`)."""
    fabrications, distortions, contradictions = counted(state)
    kinds = {finding.kind for finding in state.findings}
    claims = tuple(map(_with_status, state.claims))
    summary = FoundClaims(
        claims=claims,
        stated=state.factual,
        fabrications=fabrications,
        distortions=distortions,
        types=frozenset(name for name in DistortionType if name.value in kinds),
        contradictions=contradictions,
        weakest=state.weakest,
    )
    report = with_numbers(report, summary, state.dossier, state.tools.settings)
    risk = level(report.composite_score)
    flagged = risk is not RiskLevel.LOW
    return report.model_copy(
        update={
            "risk_score": report.composite_score,
            "flagged": flagged,
            "risk_level": risk,
            "reasons": reasons(state.dossier.answer, claims) if flagged else (),
        }
    )


# The kind of error for each kind of finding of the specification's stages.
STAGE_ERRORS: Final = MappingProxyType(
    {
        "NUMBER_CHANGED": ErrorKind.NUMBER,
        "MAGNITUDE_ALTERED": ErrorKind.NUMBER,
        "DATE_SHIFTED": ErrorKind.DATE,
        "ENTITY_SUBSTITUTED": ErrorKind.NAME,
        "NEGATION_FLIP": ErrorKind.NEGATION,
        "CONTEXT_STRIPPED": ErrorKind.CONDITION,
        CONTRADICTION: ErrorKind.RELATION,
        "fabrication": ErrorKind.INVENTION,
        REJECTED: ErrorKind.INVENTION,
    }
)


def _with_status(claim: Claim) -> Claim:
    """The claim with the status that matches the specification's arithmetic."""
    if claim.checked is Checked.NOT_CHECKABLE:
        return claim.model_copy(update={"status": ClaimStatus.NOT_CHECKABLE})
    if claim.checked is Checked.NOT_CHECKED:
        return claim
    typed = next((finding for finding in claim.findings if finding.kind in STAGE_ERRORS), None)
    if typed is not None:
        error = STAGE_ERRORS[typed.kind]
        invented = error is ErrorKind.INVENTION
        return claim.model_copy(
            update={
                "status": ClaimStatus.UNSUPPORTED if invented else ClaimStatus.CONTRADICTED,
                "error": error,
                "wrong": (typed.start, typed.end),
                "reason": typed.reason,
            }
        )
    if claim.attribution in (Attribution.PARAMETRIC, Attribution.UNVERIFIABLE):
        return claim.model_copy(
            update={"status": ClaimStatus.UNSUPPORTED, "error": ErrorKind.OVERREACH}
        )
    return claim.model_copy(update={"status": ClaimStatus.SUPPORTED})


def _by_severity(state: State) -> dict[str, int]:
    """The number of omissions of each severity, gravest first (§12.2)."""
    counts = Counter(omission.severity for omission in state.omissions)
    return {
        name.value: counts[name] for name in (Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM)
    }


def _flags(state: State) -> tuple[str, ...]:
    flags = []
    if not state.factual:
        flags.append("claims=0")
    if not state.dossier.passages:
        flags.append("context=0")
    if state.language:
        flags.append(f"language={state.language}")
    opinions = sum(claim.claim_type is ClaimType.OPINION for claim in state.claims)
    if opinions:
        flags.append(f"opinions={opinions}")
    if state.tools.settings.decides == "composite" and (listings := unpaired(state)):
        flags.append(f"not-paired={listings}")
    if state.pairs_cut:
        flags.append(f"pairs-cut={state.pairs_cut}")
    if state.dossier.passages and not state.dossier.importances:
        flags.append("omissions-not-checked")
    flags += _of_session(state)
    if state.personal.truncated:
        flags.append("personal-data-cut")
    if state.personal.warning:
        flags.append("personal-data-without-no-store")
    if state.classification.failed:
        flags.append("classification-not-checked")
    return tuple(flags)


def _of_session(state: State) -> list[str]:
    """Flags on earlier windows that stages 6 to 9 could not read, or read only as a summary."""
    flags = []
    prior = state.dossier.prior
    for name, count in (
        ("prior-not-read", sum(not window.text.strip() for window in prior)),
        ("prior-summaries", sum(window.summarised and bool(window.text) for window in prior)),
        ("not-compared", state.coherence.unread),
    ):
        if count:
            flags.append(f"{name}={count}")
    # The answer may contradict these because their source has changed (CRP-SPEC-009 §4.5).
    flags += [f"prior-outdated={window.window_id}" for window in prior if window.outdated]
    if not state.dossier.sub_queries:
        flags.append("sub-queries=0")
    return flags


def _thresholds(state: State) -> dict[str, float]:
    """Every number that the verdict depended on, except weights that an operator changed.

    Spec: CRP-SPEC-005 §21.3 (decision D18)
    """
    tools = state.tools
    verifier = tuple(tools.verifier.thresholds.items()) if tools.verifier else ()
    return dict(_shown(tools.settings, tools.quality, verifier))


# Cached, as many windows have the same settings.
@lru_cache(maxsize=16)
def _shown(
    settings: DpeSettings, quality: QualitySettings, verifier: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """The names and values to publish, sorted by name."""
    published = _numbers(DpeSettings().model_dump())
    own = _numbers(settings.model_dump() | {"quality": quality.model_dump()})
    shown = {
        name: value
        for name, value in own.items()
        if not _is_weight(name) or value == published.get(name)
    }
    read = {f"{name}": float(value) for name, value in verifier}
    return tuple(sorted({**shown, **read}.items()))


def _is_weight(name: str) -> bool:
    """Whether a number weights scores; the settings' digest covers weights not published."""
    return name.endswith("_weight") or name.startswith("amplifiers.")


def _numbers(fields: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a settings tree, by path."""
    numbers: dict[str, float] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            numbers |= _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)):
            numbers[prefix + name] = float(value)
    return numbers


def finish(report: Report, **identity: Any) -> Report:
    """Add a window's identity to a report, and its hash.

    Spec: CRP-SPEC-005 §15.2, §15.3
    """
    return finished(report, **identity)[0]


def finished(
    report: Report,
    *,
    session_id: str = "",
    window_id: str = "",
    window_number: int = 1,
    timestamp: str = "",
    settings_digest: str = "",
) -> tuple[Report, dict[str, Any]]:
    """The finished report, and its JSON values, which are hashed and stored."""
    across = tuple(
        contradiction.model_copy(update={"window_id": window_id})
        for contradiction in report.cross_window_contradictions
    )
    coherence = report.quality.coherence.model_copy(update={"contradictions": across})
    # `model_copy` does not validate; these values are already valid.
    identified = report.model_copy(
        update={
            "cross_window_contradictions": across,
            "quality": report.quality.model_copy(update={"coherence": coherence}),
            "session_id": session_id,
            "window_id": window_id,
            "window_number": window_number,
            "timestamp": timestamp,
            "settings_digest": settings_digest,
        }
    )
    fields = identified.model_dump(mode="json")
    fields["report_hash"] = _hashed(fields)
    return identified.model_copy(update={"report_hash": fields["report_hash"]}), fields


def report_hash(report: Report) -> str:
    """`sha256:` hash of the report's canonical JSON without the fields in `UNHASHED`.

    Spec: CRP-SPEC-005 §15.2
    """
    return _hashed(report.model_dump(mode="json"))


def _hashed(fields: Mapping[str, Any]) -> str:
    return digest({name: value for name, value in fields.items() if name not in UNHASHED})
