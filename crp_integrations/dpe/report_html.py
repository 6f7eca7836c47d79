"""A report as HTML: each claim with the evidence that its status rests on beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crp_integrations.dpe.claim_evidence import (
    DECIDED,
    Passages,
    findings_of,
    judge_of,
    quotes,
    remarks_of,
)
from crp_integrations.markup import counted, escaped, folded, listed, marked, pieces
from crp_integrations.vocabulary import ClaimStatus, RepetitionLevel, RiskLevel

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Claim, Report
    from crp_integrations.envelope.records import Envelope
    from crp_integrations.fabric.records import Fact

# So many claims are shown at once; of longer reports, parts that flag none are folded.
PART, MOST_OPEN = 25, 4
COLOURS = {
    ClaimStatus.SUPPORTED: "crp-ok",
    ClaimStatus.CONTRADICTED: "crp-no",
    ClaimStatus.UNSUPPORTED: "crp-no",
    ClaimStatus.NOT_CHECKABLE: "crp-na",
    ClaimStatus.NOT_CHECKED: "crp-un",
    RiskLevel.LOW: "crp-ok",
    RiskLevel.UNKNOWN: "crp-un",
    RiskLevel.MEDIUM: "crp-un",
    RiskLevel.HIGH: "crp-no",
    RiskLevel.CRITICAL: "crp-no",
}
NOTHING = '<span class="crp-quiet">no evidence</span>'
UNCHECKED = {
    "omissions-not-checked": "Omissions: the importance of the passages is not known.",
    "classification-not-checked": "The regulatory class: the policy engine failed.",
    "engine-code-not-checked": "The code of the installed package.",
    "context=0": "There was no context to check the answer against.",
    "not-paired": "Lists whose values could not be paired with the context's: {}.",
    "pairs-cut": "Pairs of claim and passage beyond the limit: {}.",
    "not-compared": "Claims not compared with earlier windows: {}.",
    "prior-not-read": "Earlier windows without a text: {}.",
    "personal-data-cut": "Personal data beyond the limit of places.",
}


def passages_of(context: Envelope | Sequence[Fact | str]) -> dict[str, tuple[str, str]]:
    """Name and text of each passage by its id; texts are named by their place."""
    items = getattr(context, "facts", context)
    return {
        f"context-{n}" if isinstance(item, str) else item.fact_id: (
            f"passage {n}",
            item if isinstance(item, str) else item.content,
        )
        for n, item in enumerate(items, 1)
    }


def answer_html(text: str, report: Report, passages: Passages) -> str:
    """An answer with what is wrong in it marked, and the report."""
    wrong = [claim.wrong or (claim.start, claim.end) for claim in report.claims if claim.flagged]
    shown = marked(pieces(text, wrong), "crp-no")
    answer = f'<p class="crp-text crp-answer" dir="auto">{shown}</p>'
    return answer + report_html(report, passages)


def report_html(report: Report, passages: Passages) -> str:
    """The report as HTML without its style."""
    level = f'<b class="{COLOURS[report.risk_level]}">{report.risk_level.value} risk</b>'
    summary = "" if report.risk_score is None else f"score {report.risk_score:.3f} · "
    summary += f"{report.claim_counts} · by {report.checked_by}"
    counts = " ".join(_counts(report.claims))
    judge = f'<p class="crp-quiet">{escaped(judge_of(report))}</p>'
    parts = [
        f'<div class="crp-head">{level}<span class="crp-quiet">{escaped(summary)}</span></div>',
        listed(map(_text, report.reasons)),
        f"<h3>{counted(len(report.claims), 'claim')}</h3><p>{counts}</p>" if counts else "",
        _claims(report, passages) or "<p>The answer makes no claim.</p>",
        _section("Also found", _further(report)),
        _section("Not checked", _unchecked(report)),
    ]
    return "".join([*parts, judge])


def _text(text: str) -> str:
    return f'<span class="crp-text" dir="auto">{escaped(text)}</span>'


def _section(title: str, lines: Sequence[str]) -> str:
    return f"<h3>{title}</h3>{listed(map(_text, lines))}" if lines else ""


def _counts(claims: Sequence[Claim]) -> list[str]:
    count = Counter(claim.status for claim in claims)
    return [_status(status, f"{count[status]} ") for status in ClaimStatus if count[status]]


def _status(status: ClaimStatus, before: str = "") -> str:
    words = status.value.replace("_", " ").lower()
    return f'<span class="crp-word {COLOURS[status]}">{before}{words}</span>'


def _claims(report: Report, passages: Passages) -> str:
    """Every claim in order; a long list is cut into parts, and the first flagged parts are open."""
    claims, judged = report.claims, report.was_read
    made, opened = [], 0
    for at in range(0, len(claims), PART):
        part = claims[at : at + PART]
        rows = "".join(_claim(claim, passages, judged=judged) for claim in part)
        body = f'<ol class="crp-claims" start="{at + 1}">{rows}</ol>'
        if len(claims) <= PART:
            return body
        flags = any(claim.flagged for claim in part) and opened < MOST_OPEN
        opened += flags
        summary = f"Claims {at + 1} to {at + len(part)} {' '.join(_counts(part))}"
        made.append(folded(summary, body, opened=flags))
    return "".join(made)


def _claim(claim: Claim, passages: Passages, *, judged: bool) -> str:
    wrong = [(claim.wrong[0] - claim.start, claim.wrong[1] - claim.start)] if claim.wrong else []
    text = marked(pieces(claim.text, wrong), "crp-no")
    finding, expected = findings_of(claim, judged=judged)
    finding = finding.replace("_", " ").lower()
    finding += f": the context has “{expected}”" if expected else ""
    notes = [note for note in (finding, claim.reason, *remarks_of(claim)) if note]
    remarks = "".join(
        f'<p class="crp-text crp-quiet" dir="auto">{escaped(note)}</p>' for note in notes
    )
    evidence = quotes(claim, passages, judged=judged)
    nearest = "" if claim.status in DECIDED else "nearest: "
    beside = "".join(
        f'<blockquote><p class="crp-text" dir="auto">{marked(quote.parts)}</p>'
        f'<span class="crp-quiet">{nearest}{escaped(quote.name)}</span></blockquote>'
        for quote in evidence
    )
    nothing = "" if claim.status is ClaimStatus.NOT_CHECKABLE else NOTHING
    return (
        f'<li><div>{_status(claim.status)}<p class="crp-text" dir="auto">{text}</p>{remarks}</div>'
        f"<div>{beside or nothing}</div></li>"
    )


def _further(report: Report) -> list[str]:
    """What concerns the answer as a whole, or other windows."""
    lines = [
        f"“{conflict.claim}” contradicts an earlier answer: “{conflict.prior_claim}”"
        for conflict in report.cross_window_contradictions
    ]
    lines += [f"The answer leaves open: {need}" for need in report.uncovered_sub_queries]
    if report.repetition_level is not RepetitionLevel.NONE:
        lines.append(f"It repeats earlier answers: {report.repetition_level.value}")
    missed = [f"{count} {name}" for name, count in report.omission_summary.items() if count]
    lines += [f"Important facts that it does not use: {', '.join(missed)}"] if missed else []
    kinds = Counter(f"{datum.kind} in the {datum.where}" for datum in report.personal.found)
    personal = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    return [*lines, *([f"Personal data: {personal}"] if personal else [])]


def _unchecked(report: Report) -> list[str]:
    """What no stage checked."""
    count = sum(claim.status is ClaimStatus.NOT_CHECKED for claim in report.claims)
    lines = [f"{counted(count, 'claim')}, marked above"] if count else []
    for flag in report.flags:
        name, _, number = flag.partition("=")
        if words := UNCHECKED.get(flag) or UNCHECKED.get(name):
            lines.append(words.format(number))
    if kinds := report.personal.not_checked:
        lines.append(f"Personal data of these kinds: {', '.join(kinds).replace('_', ' ')}")
    if report.judge and report.judge.left_out:
        reasons = Counter(passage.reason for passage in report.judge.left_out)
        named = ", ".join(f"{count} for {reason}" for reason, count in sorted(reasons.items()))
        lines.append(f"Passages that the judge was not shown: {named}")
    return lines
