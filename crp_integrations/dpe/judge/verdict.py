"""From a judge's replies to a report: statuses by `reading`, all else by `dpe.derivation`.

The same replies always come to the same report, so a recorded one can be read again by anybody.

Spec: CRP-SPEC-005 §6.2, §7.4 (decision D13)
"""

from __future__ import annotations

from typing import Final

from crp_integrations.dpe.derivation import ALLOWED, CONFLICT, derive
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.records import JudgeRun
from crp_integrations.dpe.judge.statuses import read_replies
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings

# How the flags begin that say what became of the judge, and what follows from its word.
JUDGE_FLAGS: Final = (
    "judge-not-asked=",
    "judge-failed=",
    "judge-calls-",
    "judge-passages-",
    "judge-own-",
    "judge-unplaced=",
)


def concluded(report: Report, dossier: Dossier, run: JudgeRun, settings: DpeSettings) -> Report:
    """A report with what became of its judge: asked, or left out with a reason."""
    return unjudged(report, run) if run.skipped else judged(report, dossier, run, settings)


def of_judge(flag: str) -> bool:
    """Whether a flag of a report is one that follows from its judge."""
    return flag.startswith(JUDGE_FLAGS) or flag in (ALLOWED, CONFLICT)


def judged(report: Report, dossier: Dossier, run: JudgeRun, settings: DpeSettings) -> Report:
    """A report with a judge's verdict on each claim, and what follows from it.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """
    replies = read_replies(report, dossier, run)
    if replies is None:
        return unjudged(report, run)
    run = run.model_copy(
        update={
            "unplaced": replies.unplaced,
            "needs": replies.needs,
            "conflicts": replies.conflicts,
        }
    )
    changed = report.model_copy(
        update={
            "claims": replies.claims,
            "checked_by": f"judge {run.asked}",
            "judge": run,
            "flags": (*report.flags, *_flags(run)),
        }
    )
    if settings.decides != "claims":
        return changed
    return derive(changed, dossier, settings, run.language)


def unjudged(report: Report, run: JudgeRun) -> Report:
    """A report as it was, with what became of the judge: not asked, or no reply that reads."""
    if run.skipped or not run.calls:
        flag = f"judge-not-asked={run.skipped or 'no claim'}"
    else:
        flag = f"judge-failed={run.calls[-1].error}"
    return report.model_copy(update={"judge": run, "flags": (*report.flags, flag)})


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
