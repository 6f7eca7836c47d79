"""Computes both error rates of scored answers, overall and by domain, style and kind of error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from crp_integrations.evaluation.answers import ScoredAnswer
from crp_integrations.vocabulary import RiskLevel

# Minimum number of answers of a style with a row of its own; others are counted together.
FEWEST: Final = 5
OTHERS: Final = "others"
# The stage whose findings have a kind and offsets of the error.
TYPED: Final = 3
# Quantile of the normal distribution for a 95 % interval.
Z: Final = 1.96


@dataclass(slots=True)
class Tally:
    """Counts over a group of cases.

    Attributes:
        flagged, passed: right answers that are flagged, and wrong ones that are not.
        high, high_right: wrong and right answers at HIGH or above.
        unknown, wrong_unknown: right and wrong answers with the level UNKNOWN.
        met: wrong answers with a flagged claim that overlaps a marked stretch.
        one_call: answers that took at most one call.
        findings, findings_met: typed findings, and those of them on a marked stretch.
    """

    right: int = 0
    flagged: int = 0
    high_right: int = 0
    wrong: int = 0
    passed: int = 0
    high: int = 0
    met: int = 0
    marked: int = 0
    calls: int = 0
    one_call: int = 0
    findings: int = 0
    findings_met: int = 0
    unknown: int = 0
    wrong_unknown: int = 0
    overlaps: list[float] = field(default_factory=list)

    def add(self, answer: ScoredAnswer) -> None:
        """Count a case."""
        self.calls += answer.calls
        self.one_call += answer.calls <= 1
        high = answer.report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
        unknown = answer.report.risk_level is RiskLevel.UNKNOWN
        if answer.case.marked or not answer.case.wrong:
            typed = [finding for finding in answer.report.findings if finding.stage == TYPED]
            self.findings += len(typed)
            self.findings_met += sum(
                any(
                    finding.start < mark.end and mark.start < finding.end
                    for mark in answer.case.marked
                )
                for finding in typed
            )
        if answer.case.wrong:
            self.wrong += 1
            self.passed += not answer.flagged
            self.wrong_unknown += unknown
            self.high += high
            self.marked += bool(answer.case.marked)
            self.met += answer.met
            if answer.overlap is not None:
                self.overlaps.append(answer.overlap)
        else:
            self.right += 1
            self.flagged += answer.flagged
            self.unknown += unknown
            self.high_right += high

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON values; a share is None if its denominator is 0."""
        total = self.right + self.wrong
        return {
            "right": self.right,
            "right_flagged": _share(self.flagged, self.right),
            "right_high": _share(self.high_right, self.right),
            "right_unknown": _share(self.unknown, self.right),
            "wrong": self.wrong,
            "wrong_passed": _share(self.passed, self.wrong),
            "wrong_unknown": _share(self.wrong_unknown, self.wrong),
            "wrong_high": _share(self.high, self.wrong),
            "stretch_met": _share(self.met, self.marked),
            "stretch_overlap": _share(sum(self.overlaps), len(self.overlaps)),
            "one_call": _share(self.one_call, total),
            "typed_findings": precision(self.findings_met, self.findings),
            "high": precision(self.high, self.high + self.high_right),
            "calls": self.calls,
        }


def precision(right: int, of: int) -> dict[str, Any]:
    """The count, the share that is right, and the lower bound of its 95 % interval.

    >>> precision(9, 10)
    {'count': 10, 'right': 0.9, 'at_least': 0.5958}
    """
    if not of:
        return {"count": 0, "right": None, "at_least": None}
    share = right / of
    spread = Z * (share * (1 - share) / of + Z * Z / (4 * of * of)) ** 0.5
    least = (share + Z * Z / (2 * of) - spread) / (1 + Z * Z / of)
    return {"count": of, "right": round(share, 4), "at_least": round(least, 4)}


def _share(count: float, of: int) -> float | None:
    return round(count / of, 4) if of else None


def figures(verdicts: Sequence[ScoredAnswer]) -> dict[str, Any]:
    """The figures of all cases, and by domain, style and kind of error."""
    whole = Tally()
    tables: dict[str, dict[str, Tally]] = {"domain": {}, "style": {}, "kind": {}}
    styles = Counter(verdict.case.style for verdict in verdicts)
    for verdict in verdicts:
        whole.add(verdict)
        tables["domain"].setdefault(verdict.case.domain, Tally()).add(verdict)
        if verdict.case.style:
            style = verdict.case.style if styles[verdict.case.style] >= FEWEST else OTHERS
            tables["style"].setdefault(style, Tally()).add(verdict)
        for kind in {mark.kind for mark in verdict.case.marked}:
            tables["kind"].setdefault(kind, Tally()).add(verdict)
    return {
        "all": {**whole.as_json(), "auroc": auroc(verdicts)},
        **{
            name: {group: tally.as_json() for group, tally in sorted(groups.items())}
            for name, groups in tables.items()
        },
    }


def doubt_curve(
    screens: Sequence[ScoredAnswer], judges: Sequence[ScoredAnswer]
) -> list[dict[str, Any]]:
    """For values of `judge_when`: the share of calls saved, and of wrong answers that pass."""
    curve = []
    for when in ("always", "doubt", "sample:0.5", "sample:0.1"):
        tally, asked = Tally(), 0
        for number, (plain, full) in enumerate(zip(screens, judges, strict=True)):
            if when == "always":
                ask = True
            elif when == "doubt":
                ask = not plain.settled
            else:
                ask = Random(number).random() < float(when.partition(":")[2])  # noqa: S311
            asked += ask
            if ask:
                tally.add(full)
            elif when == "doubt":
                tally.add(_unflagged(plain))
            else:
                tally.add(plain)
        shares = tally.as_json()
        curve.append(
            {
                "when": when,
                "calls_saved": _share(len(judges) - asked, len(judges)),
                "right_flagged": shares["right_flagged"],
                "wrong_passed": shares["wrong_passed"],
            }
        )
    return curve


def _unflagged(answer: ScoredAnswer) -> ScoredAnswer:
    return ScoredAnswer(answer.case, answer.report, 0, flagged=False, met=False, overlap=None,
                   settled=True)  # fmt: skip


def auroc(verdicts: Sequence[ScoredAnswer]) -> float | None:
    """Probability that a wrong answer ranks as riskier than a right one; ties count half."""
    wrong = [_rank(verdict) for verdict in verdicts if verdict.case.wrong]
    right = [_rank(verdict) for verdict in verdicts if not verdict.case.wrong]
    if not wrong or not right:
        return None
    above = sum((w > r) + 0.5 * (w == r) for w in wrong for r in right)
    return round(above / (len(wrong) * len(right)), 4)


def _rank(answer: ScoredAnswer) -> tuple[int, float]:
    """Sort key for the risk of an answer: its level, then its score within the level."""
    level = tuple(RiskLevel).index(answer.report.risk_level)
    return level, answer.report.risk_score or 0.0


def repaired_row(answer: ScoredAnswer) -> dict[str, Any]:
    """A case with its repaired answer and its edits, for a reader who judges the repair."""
    repair = answer.report.repair()
    return {
        "id": answer.case.name,
        "question": answer.case.question,
        "contexts": list(answer.case.passages),
        "original": answer.case.answer,
        "repaired": repair.text,
        "edits": [edit.model_dump(mode="json") for edit in repair.edits],
        "unrepaired": [row.model_dump() for row in repair.unrepaired],
        "hallucinated": answer.case.wrong,
        "marked": [[mark.start, mark.end, mark.kind] for mark in answer.case.marked],
    }


def repair_figures(answers: Sequence[ScoredAnswer]) -> dict[str, Any]:
    """How many wrong answers are repaired, and whether anything else changes.

    Returns:
        `full`, `part` and `none`: wrong answers by the flagged claims that were repaired (`none`
        counts also those without a flagged claim); `left`: claims left as they are, by reason;
        `right_altered`: right answers with an edit; `outside`: edits that touch a claim that is
        not flagged; `changed`: characters replaced or inserted in wrong answers with marked
        stretches, and `marked`: characters of these stretches, both per stretch.
    """
    count, left = Counter[str](), Counter[str]()
    changed = marked = stretches = 0
    for answer in answers:
        repair = answer.report.repair()
        left.update(row.reason for row in repair.unrepaired)
        count["outside"] += sum(
            not claim.flagged and edit.start < claim.end and claim.start < edit.end
            for edit in repair.edits
            for claim in answer.report.claims
            if claim.sentence_index >= 0 and edit.claim[:1] != "u"
        )
        if not answer.case.wrong:
            count["right_altered"] += repair.changed
            continue
        count[
            "full"
            if repair.changed and not repair.unrepaired
            else "part"
            if repair.changed
            else "none"
        ] += 1
        if repair.changed and answer.case.marked:
            changed += sum(max(len(edit.old), len(edit.new)) for edit in repair.edits)
            marked += sum(mark.end - mark.start for mark in answer.case.marked)
            stretches += len(answer.case.marked)
    names = ("full", "part", "none", "right_altered", "outside")
    return {
        **{name: count[name] for name in names},
        "left": dict(left.most_common()),
        "changed": round(changed / stretches, 1) if stretches else None,
        "marked": round(marked / stretches, 1) if stretches else None,
    }
