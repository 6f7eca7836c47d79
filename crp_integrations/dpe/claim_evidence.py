"""A report in words: what each claim rests on, what is wrong with it, and who decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crp_integrations.language.text import split_sentences
from crp_integrations.markup import Pieces, counted, pieces
from crp_integrations.vocabulary import ClaimStatus

if TYPE_CHECKING:
    from crp_integrations.dpe.judge.records import Quotation
    from crp_integrations.dpe.records import Claim, Finding, Report

# Name and text of each passage by the id that a report gives it.
Passages = Mapping[str, tuple[str, str]]

# Characters of a sentence that is quoted whole.
SENTENCE = 240
# Where a claim's evidence decides, and is not only the nearest that there is.
DECIDED = (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED)


@dataclass(frozen=True, slots=True)
class ClaimQuote:
    """Words of a passage, those marked that a claim's status rests on."""

    name: str
    parts: Pieces

    @property
    def text(self) -> str:
        """All of it, on one line."""
        return " ".join("".join(part for part, _ in self.parts).split())


def quotes(claim: Claim, passages: Passages, *, judged: bool) -> list[ClaimQuote]:
    """The evidence of a claim: its quotations in their sentences, or what comes nearest.

    Args:
        passages: without the text of a passage, the quotation stands alone.
        judged: a judge read the claims, so what the stages before it found decides nothing.
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
                    name or _name(quotation), pieces(quotation.text, [(0, len(quotation.text))])
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
    """The sentence around some words, or the words where it is long or they are of several."""
    for span in split_sentences(text):
        if span.start <= start and end <= span.end and span.end - span.start <= SENTENCE:
            return span.start, span.end
    return start, end


def _name(one: Quotation) -> str:
    return f"passage {one.passage}" if one.passage else one.fact_id


def findings_of(claim: Claim, *, judged: bool) -> tuple[str, str]:
    """What is wrong with a claim, and what the context has instead; empty for nothing."""
    if claim.error is None:
        return "", ""
    # Beside a judge's word no other finding counts, and hidden text is a remark.
    findings = () if judged else [finding for finding in claim.findings if not is_hidden(finding)]
    expected = next((finding.expected for finding in findings if finding.expected), "")
    return ", ".join(
        dict.fromkeys(finding.kind for finding in findings)
    ) or claim.error.value, expected


def is_hidden(finding: Finding) -> bool:
    """Whether a finding is on text that a reader does not see."""
    # The module of the records needs this one.
    from crp_integrations.dpe.records import HIDDEN_TEXT

    return finding.kind == HIDDEN_TEXT


def remarks_of(claim: Claim) -> list[str]:
    """What else a reader should know of a claim: text that it hides, a dispute, and hints.

    Hidden words were escaped to printable ASCII when they were found.
    """
    hidden = [finding.reason for finding in claim.findings if is_hidden(finding)]
    names = ", ".join(dict.fromkeys(" ".join(hint.text.split()) for hint in claim.hints))
    disputed = ["exact comparison finds it wrong, and the judge supports it"]
    return [
        *hidden,
        *(disputed if claim.disputed else []),
        *([f"not in the evidence: {names}"] if names else []),
    ]


def judge_of(report: Report) -> str:
    """Whether a judge was asked, what that took, and what it was not shown."""
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
        summary += f"; {failed[0]}, so the word of the stages without it stands"
    if run.left_out:
        summary += f"; it was not shown {counted(len(run.left_out), 'passage')}"
    return summary
