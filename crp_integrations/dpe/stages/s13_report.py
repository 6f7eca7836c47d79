"""Stage 13: the report, and its identity and hash once the window has them.

Spec: CRP-SPEC-005 §15
"""

from __future__ import annotations

from collections import Counter

from crp_integrations.dpe.records import Report, StageRun
from crp_integrations.dpe.stages.s02_attribution import LEXICAL
from crp_integrations.dpe.stages.s03_fidelity import counted
from crp_integrations.dpe.stages.s03c_contradiction import unpaired
from crp_integrations.dpe.state import State
from crp_integrations.dpe.verifier.features import THRESHOLDS
from crp_integrations.seals import digest, sha256
from crp_integrations.vocabulary import Attribution, Checked, ClaimType, DistortionType

RUN = StageRun(number=13, name="report generation", engine="report@1")
# What is sealed around the hash is not part of what is hashed.
UNHASHED = frozenset({"report_hash", "hmac", "chain_integrity"})


def write_report(state: State) -> Report:
    """The report on a state that went through stages 1 to 5, without identity and hash.

    Spec: CRP-SPEC-005 §15.2
    """
    assert state.risk is not None
    factual = state.factual
    breakdown = {name.value: state.count(name) for name in Attribution}
    fabricated, distorted, contradicted = counted(state)
    types = {finding.kind for finding in state.findings}
    entailment, contradiction, neutral = state.weakest
    grounded = breakdown[Attribution.CONTEXT_GROUNDED.value]
    by_type = Counter(claim.claim_type for claim in state.claims)
    embedder = state.tools.embedder
    return Report(
        grounding_mode=state.dossier.grounding,
        claims_total=len(state.claims),
        claims_by_type={name.value: by_type[name] for name in ClaimType},
        attribution_dominant=dominant(breakdown),
        attribution_breakdown=breakdown,
        grounding_pct=grounded / len(factual) if factual else 1.0,
        unverifiable_pct=breakdown[Attribution.UNVERIFIABLE.value] / max(1, len(factual)),
        fabrication_count=fabricated,
        distortion_count=distorted,
        distortion_types=tuple(name for name in DistortionType if name.value in types),
        contradiction_count=contradicted,
        contradiction_scope="intra" if contradicted else "none",
        fidelity_score=state.fidelity,
        entailment_score=entailment,
        contradiction_probability=contradiction,
        neutral_probability=neutral,
        signals=dict(state.risk.signals),
        composite_score=state.risk.composite,
        risk_level=state.risk.level,
        claims=state.claims,
        checked_share=checked_share(state),
        flags=_flags(state),
        stages=(*state.stages, RUN),
        verifier=state.tools.verifier.identity,
        embedder=embedder.identity if embedder is not None else LEXICAL,
        thresholds=_thresholds(state),
        response_content_hash=sha256(state.dossier.answer),
    )


def dominant(breakdown: dict[str, int]) -> Attribution | None:
    """The most frequent attribution, the riskier one on a tie, None without claims.

    Spec: CRP-SPEC-005 §4.5

    >>> dominant({"CONTEXT_GROUNDED": 31, "PARAMETRIC": 1, "MIXED": 2}).value
    'CONTEXT_GROUNDED'
    """
    riskiest_last = (
        Attribution.CONTEXT_GROUNDED,
        Attribution.MIXED,
        Attribution.PARAMETRIC,
        Attribution.UNVERIFIABLE,
    )
    best = max(reversed(riskiest_last), key=lambda name: breakdown.get(name.value, 0))
    return best if breakdown.get(best.value, 0) else None


def checked_share(state: State) -> float:
    """Characters of checked claims over characters of checkable ones, 1.0 when there are none.

    Spec: CRP-SPEC-005 §6.2 (decision D6)
    """
    sizes = {
        word: sum(c.end - c.start for c in state.claims if c.checked is word) for word in Checked
    }
    checkable = sizes[Checked.CHECKED] + sizes[Checked.NOT_CHECKED]
    return sizes[Checked.CHECKED] / checkable if checkable else 1.0


def _flags(state: State) -> tuple[str, ...]:
    flags = []
    if not state.factual:
        flags.append("claims=0")
    if not state.dossier.passages:
        flags.append("context=0")
    opinions = sum(claim.claim_type is ClaimType.OPINION for claim in state.claims)
    if opinions:
        flags.append(f"opinions={opinions}")
    unchecked = sum(claim.checked is Checked.NOT_CHECKED for claim in state.claims)
    if unchecked:
        flags.append(f"not-checked={unchecked}")
    listings = unpaired(state)
    if listings:
        flags.append(f"not-paired={listings}")
    return tuple(flags)


def _thresholds(state: State) -> dict[str, float]:
    """Every number that the verdict depended on."""
    settings = state.tools.settings
    own = {
        name: float(value)
        for name, value in settings.model_dump().items()
        if isinstance(value, (int, float))
    }
    verifier = {f"{name}": float(value) for name, value in state.tools.verifier.thresholds.items()}
    return dict(sorted({**THRESHOLDS, **own, **verifier}.items()))


def finish(
    report: Report,
    *,
    session_id: str = "",
    window_id: str = "",
    window_number: int = 1,
    timestamp: str = "",
    settings_digest: str = "",
) -> Report:
    """Give a report its window's identity, and hash it.

    Spec: CRP-SPEC-005 §15.2, §15.3

    Args:
        timestamp: ISO 8601.
        settings_digest: hash of every setting in force (decision D18).

    Returns:
        The report with `report_hash`, to be sealed with the window.
    """
    identified = report.changed(
        session_id=session_id,
        window_id=window_id,
        window_number=window_number,
        timestamp=timestamp,
        settings_digest=settings_digest,
    )
    return identified.changed(report_hash=report_hash(identified))


def report_hash(report: Report) -> str:
    """`sha256:` hash of the report's canonical JSON without its seal.

    Spec: CRP-SPEC-005 §15.2
    """
    return digest(report.model_dump(mode="json", exclude=set(UNHASHED)))
