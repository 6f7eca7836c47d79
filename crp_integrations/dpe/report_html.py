"""Renders a report as text and HTML: each claim next to the evidence for its status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crp_integrations.language.text import split_sentences
from crp_integrations.markup import (
    Pieces,
    counted,
    escaped,
    folded,
    listed,
    marked,
    pieces,
    tracked,
)
from crp_integrations.vocabulary import ClaimStatus, RepetitionLevel, RiskLevel

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Claim, Report
    from crp_integrations.envelope.records import Envelope
    from crp_integrations.fabric.records import Fact


# Name and text of each passage by its id in the report.
Passages = Mapping[str, tuple[str, str]]

# Maximum characters of a sentence that is quoted as a whole.
SENTENCE = 240
# Statuses whose evidence decided; for others, the nearest evidence is shown as such.
DECIDED = (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED)


@dataclass(frozen=True, slots=True)
class ClaimQuote:
    """Words of a passage, with marks on those that decide a claim's status."""

    name: str
    parts: Pieces

    @property
    def text(self) -> str:
        """The whole quote on one line."""
        return " ".join("".join(part for part, _ in self.parts).split())


def quotes(claim: Claim, passages: Passages, *, judged: bool) -> list[ClaimQuote]:
    """The evidence of a claim: its quotations in their sentences, or the nearest passage.

    Args:
        passages: a quotation from a passage that is missing here is shown without its sentence.
        judged: whether a judge or verifier read the claims; the nearest passage is then left out.
    """
    if claim.status is ClaimStatus.NOT_CHECKABLE:
        return []
    spans: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    alone = []
    for quotation in claim.quotations:
        # Passages given as plain texts are named by their position, not by the report's id.
        id_ = quotation.fact_id if quotation.fact_id in passages else f"context-{quotation.passage}"
        name, text = passages.get(id_, ("", ""))
        if quotation.text and text[quotation.start : quotation.end] == quotation.text:
            start, end = _sentence(text, quotation.start, quotation.end)
            spans.setdefault((id_, start, end), []).append((quotation.start, quotation.end))
        else:
            alone.append(
                ClaimQuote(
                    name or quotation.source, pieces(quotation.text, [(0, len(quotation.text))])
                )
            )
    for near in () if judged or claim.quotations else claim.evidence[:1]:
        if near.fact_id in passages and 0 < near.end - near.start <= SENTENCE:
            spans[near.fact_id, near.start, near.end] = []
    return [
        ClaimQuote(
            passages[id_][0],
            pieces(passages[id_][1][start:end], [(a - start, b - start) for a, b in marks]),
        )
        for (id_, start, end), marks in spans.items()
    ] + alone


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """The sentence around a stretch; the stretch itself if it is long or spans sentences."""
    for span in split_sentences(text):
        if span.start <= start and end <= span.end and span.end - span.start <= SENTENCE:
            return span.start, span.end
    return start, end


def findings_of(claim: Claim, *, judged: bool) -> tuple[str, str]:
    """The error in a claim, and the context's value instead; empty for none."""
    if claim.error is None:
        return "", ""
    # After a judge's verdict no other finding counts; doubts are shown as remarks.
    findings = () if judged else [finding for finding in claim.findings if not finding.doubts]
    expected = next((finding.expected for finding in findings if finding.expected), "")
    return ", ".join(
        dict.fromkeys(finding.kind for finding in findings)
    ) or claim.error.value, expected


def remarks_of(claim: Claim) -> list[str]:
    """Further remarks on a claim: hidden text, a contradiction, a dispute, and hints.

    Hidden words were escaped to printable ASCII when they were found.
    """
    doubts = [finding.reason for finding in claim.findings if finding.doubts]
    names = ", ".join(dict.fromkeys(" ".join(hint.text.split()) for hint in claim.hints))
    disputed = ["exact comparison finds it wrong, and the judge supports it"]
    return [
        *doubts,
        *(disputed if claim.disputed else []),
        *([f"not in the evidence: {names}"] if names else []),
    ]


def judge_of(report: Report) -> str:
    """Whether a judge was asked, its calls and cost, and the passages that it was not shown."""
    run = report.judge
    if run is None:
        return "No judge was asked: none is configured"
    if run.skipped:
        return f"No judge was asked: {run.skipped}"
    took = f"{counted(len(run.calls), 'call')}, {counted(run.tokens, 'token')}"
    price = "" if run.cost_usd is None else f", ${run.cost_usd:.4f}"
    summary = f"Judge {run.model}: {took}{price}"
    failed = [flag for flag in report.flags if flag.startswith("judge-failed=")]
    if failed:
        summary += f"; {failed[0]}, so the result without the judge applies"
    if run.left_out:
        summary += f"; it was not shown {counted(len(run.left_out), 'passage')}"
    return summary


# Claims in one part of a long report, and maximum number of parts with flags that are unfolded.
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
    """Name and text of each passage by its id; plain texts have ids by their position."""
    items = getattr(context, "facts", context)
    return {
        f"context-{n}" if isinstance(item, str) else item.fact_id: (
            f"passage {n}",
            item if isinstance(item, str) else item.content,
        )
        for n, item in enumerate(items, 1)
    }


def edits_of(report: Report) -> dict[str, tuple[int, int, str]]:
    """Start, end and new words of each edit that repairs the answer, by its claim.

    Empty for a report that was read from JSON, which has no answer.
    """
    edits = report.repair().edits if report.answer is not None else ()
    return {edit.claim: (edit.start, edit.end, edit.new) for edit in edits}


def repair_of(
    claim: Claim, edits: Mapping[str, tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    """The edit of a claim as far as it lies in its text, with offsets in that text."""
    if claim.claim_id not in edits:
        return []
    start, end, new = edits[claim.claim_id]
    start, end = (min(max(at, claim.start), claim.end) - claim.start for at in (start, end))
    return [(start, end, new)]


def answer_html(text: str, report: Report, passages: Passages) -> str:
    """An answer with its errors marked and its repair as tracked changes, and the report."""
    edits = edits_of(report) if report.answer == text else {}
    wrong = [
        claim.wrong or (claim.start, claim.end)
        for claim in report.claims
        if claim.flagged and claim.claim_id not in edits
    ]
    shown = tracked(text, edits.values(), wrong)
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
    """Every claim in order; a long list is folded in parts, the first flagged ones unfolded."""
    claims, judged, edits = report.claims, report.was_read, edits_of(report)
    made, opened = [], 0
    for at in range(0, len(claims), PART):
        part = claims[at : at + PART]
        rows = "".join(
            _claim(claim, passages, repair_of(claim, edits), judged=judged) for claim in part
        )
        body = f'<ol class="crp-claims" start="{at + 1}">{rows}</ol>'
        if len(claims) <= PART:
            return body
        flags = any(claim.flagged for claim in part) and opened < MOST_OPEN
        opened += flags
        summary = f"Claims {at + 1} to {at + len(part)} {' '.join(_counts(part))}"
        made.append(folded(summary, body, opened=flags))
    return "".join(made)


def _claim(
    claim: Claim, passages: Passages, edits: list[tuple[int, int, str]], *, judged: bool
) -> str:
    wrong = [(claim.wrong[0] - claim.start, claim.wrong[1] - claim.start)] if claim.wrong else []
    text = tracked(claim.text, edits, [] if edits else wrong)
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
    """Remarks on the answer as a whole, or on other windows."""
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
    """Remarks on everything that no stage checked."""
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
