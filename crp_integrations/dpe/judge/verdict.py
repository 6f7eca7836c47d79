"""From a judge's replies to the answer's level: statuses by `reading`, sentences by `reasons`.

The same replies always come to the same report, so a recorded one can be read again by anybody.

Spec: CRP-SPEC-005 §6.2, §7.4 (decision D13)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.reading import read_replies, with_status
from crp_integrations.dpe.judge.reasons import is_unread, reasons
from crp_integrations.dpe.judge.records import NO_DOUBT, JudgeRun
from crp_integrations.dpe.records import Claim, Report
from crp_integrations.vocabulary import (
    Checked,
    ClaimStatus,
    ClaimType,
    ErrorKind,
    GroundingMode,
    RiskLevel,
    Verification,
)

SPECIFIC: Final = frozenset(
    {ErrorKind.INVENTION, ErrorKind.NUMBER, ErrorKind.DATE, ErrorKind.NAME, ErrorKind.UNIT}
)
"""Kinds of error by which an unsupported claim is an invented specific."""

BASE: Final = {RiskLevel.LOW: 0.05, RiskLevel.MEDIUM: 0.30, RiskLevel.HIGH: 0.55}
"""Where the risk score stands within each level's band; further claims add to it."""

FURTHER: Final = 0.01
MOST_FURTHER: Final = 10
ORDER: Final = tuple(RiskLevel)
"""Best first."""

CONFLICT: Final = "judge-conflict"
"""Flag of an answer with a claim that exact comparison finds wrong and a judge calls supported."""

UNSUPPORTED_LEVEL: Final = {
    GroundingMode.STRICT: RiskLevel.HIGH,
    GroundingMode.PREFERRED: RiskLevel.MEDIUM,
    GroundingMode.OPEN: RiskLevel.LOW,
}
# Probability from which a verifier's word counts.
DECIDED: Final = 0.5
# How the flags begin that say what became of the judge, and the one on a claim that `open` allows.
JUDGE_FLAGS: Final = (
    "judge-not-asked=",
    "judge-failed=",
    "judge-calls-",
    "judge-passages-",
    "judge-own-",
    "judge-unplaced=",
    CONFLICT,
)
NOTED: Final = "unsupported-allowed"


@dataclass(frozen=True, slots=True)
class Level:
    """What the statuses of an answer's claims come to.

    Attributes:
        score: [0, 1], within the level's band, higher is worse; None for UNKNOWN.
        noted: a claim is not supported where the mode lets the model say what it knows.
    """

    risk: RiskLevel
    score: float | None
    verification: Verification
    noted: bool


def concluded(report: Report, dossier: Dossier, run: JudgeRun, *, decides: bool = True) -> Report:
    """A report with what became of its judge: asked, or left out with a reason."""
    if not run.skipped:
        return judged(report, dossier, run, decides=decides)
    found = unjudged(report, run)
    if run.skipped == NO_DOUBT and decides:
        # Every claim stands in the evidence: that decides, and no model looked at it.
        settled = decided(found, dossier, run.language)
        return settled.model_copy(update={"verification": Verification.VERIFIED})
    return found


def of_judge(flag: str) -> bool:
    """Whether a flag of a report is one that follows from its judge."""
    return flag.startswith(JUDGE_FLAGS) or flag == NOTED


def judged(report: Report, dossier: Dossier, run: JudgeRun, *, decides: bool = True) -> Report:
    """A report with what a judge said of each claim.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """
    found = read_replies(report, dossier, run)
    if found is None:
        return unjudged(report, run)
    added = len(found.claims) - len(report.claims)
    by_type = dict(report.claims_by_type)
    if added:
        factual = ClaimType.FACTUAL.value
        by_type[factual] = by_type.get(factual, 0) + added
    run = run.model_copy(
        update={
            "unplaced": found.unplaced,
            "needs": found.needs,
            "conflicts": found.conflicts,
        }
    )
    conflict = (CONFLICT,) if any(claim.disputed for claim in found.claims) else ()
    changed = report.model_copy(
        update={
            "claims": found.claims,
            "claims_total": len(found.claims),
            "claims_by_type": by_type,
            "checked_by": f"judge {run.asked}",
            "judge": run,
            "flags": (*report.flags, *_flags(run), *conflict),
        }
    )
    return decided(changed, dossier, run.language) if decides else changed


def unjudged(report: Report, run: JudgeRun) -> Report:
    """A report as it was, with what became of the judge: not asked, or no reply that reads."""
    why = "" if run.skipped else run.calls[-1].error if run.calls else "no claim"
    flags = [f"judge-not-asked={run.skipped}"] if run.skipped else [f"judge-failed={why}"]
    if why == "no claim":
        flags = ["judge-not-asked=no claim"]
    return report.model_copy(update={"judge": run, "flags": (*report.flags, *flags)})


def decided(report: Report, dossier: Dossier, language: str = "en") -> Report:
    """A report whose level follows from its claims' statuses, with the reasons for it."""
    found = level_of(report.claims, dossier.grounding)
    noted = (NOTED,) if found.noted else ()
    flagged = ORDER.index(found.risk) >= ORDER.index(RiskLevel.MEDIUM)
    low = found.risk is RiskLevel.LOW
    told = () if low else reasons(dossier.answer, report.claims, language)
    return report.model_copy(
        update={
            "risk_level": found.risk,
            "risk_score": found.score,
            "verification": found.verification,
            "flagged": flagged,
            "flags": (*report.flags, *noted),
            "reasons": told,
        }
    )


def of_verifier(claim: Claim) -> Claim:
    """A claim with the status that a verifier's probabilities stand for."""
    if claim.checked is Checked.NOT_CHECKABLE:
        return with_status(claim, ClaimStatus.NOT_CHECKABLE)
    if claim.entailment is None:
        return with_status(claim, ClaimStatus.NOT_CHECKED)
    if claim.entailment >= DECIDED:
        return with_status(claim, ClaimStatus.SUPPORTED)
    if (claim.contradiction or 0.0) >= DECIDED:
        return with_status(claim, ClaimStatus.CONTRADICTED)
    return claim.model_copy(
        update={"status": ClaimStatus.UNSUPPORTED, "error": ErrorKind.OVERREACH}
    )


def level_of(claims: Sequence[Claim], mode: GroundingMode) -> Level:
    """The level of the worst claim; a score that further claims only raise.

    Contradicted or an invented specific is HIGH. Other unsupported claims are HIGH under
    `context-strict`, MEDIUM under `context-preferred`, LOW with a note under `open`. A claim that
    exact comparison finds wrong and a judge calls supported is MEDIUM. One that nobody read makes
    the answer UNKNOWN at least.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """
    worst, counted, read, unread, noted = RiskLevel.LOW, 0, 0, 0, False
    for claim in claims:
        level = RiskLevel.LOW
        if claim.status is ClaimStatus.CONTRADICTED:
            level = RiskLevel.HIGH
        elif claim.status is ClaimStatus.UNSUPPORTED:
            specific = claim.error in SPECIFIC
            level = RiskLevel.HIGH if specific else UNSUPPORTED_LEVEL[mode]
            noted = noted or level is RiskLevel.LOW
        elif claim.disputed:
            level = RiskLevel.MEDIUM
        elif is_unread(claim):
            level = RiskLevel.UNKNOWN
        counted += claim.flagged or claim.disputed
        unread += is_unread(claim)
        read += claim.status not in (ClaimStatus.NOT_CHECKED, ClaimStatus.NOT_CHECKABLE)
        worst = max(worst, level, key=ORDER.index)
    verification = Verification.VERIFIED
    if unread:
        verification = Verification.PARTIAL if read else Verification.UNREAD
    score = None
    if worst is not RiskLevel.UNKNOWN:
        score = round(BASE[worst] + FURTHER * min(counted, MOST_FURTHER), 6)
    return Level(worst, score, verification, noted)


def _flags(run: JudgeRun) -> list[str]:
    flags = []
    failed = [call.error for call in run.calls if call.error]
    if failed and len({call.id for call in run.calls}) > 1:
        flags += [f"judge-calls-failed={len(failed)}"]
    if run.left_out:
        flags.append(f"judge-passages-left-out={len(run.left_out)}")
    if run.unplaced:
        flags.append(f"judge-unplaced={run.unplaced}")
    if run.own_answer:
        flags.append("judge-own-answer")
    return flags
