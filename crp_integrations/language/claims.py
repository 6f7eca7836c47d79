"""Claims: what an answer asserts, cut into pieces that can be judged one by one.

Spec: CRP-SPEC-005 §3
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from crp_integrations.language.blocks import Block, blocks, item_marker
from crp_integrations.language.clauses import clauses
from crp_integrations.language.kinds import kind_of
from crp_integrations.language.sentences import split_sentences
from crp_integrations.language.spans import Span
from crp_integrations.language.specificity import specificity
from crp_integrations.language.tables import counting_cells
from crp_integrations.vocabulary import ClaimType

_CODE_SIGN = re.compile(r"[{}=;<>_\\$]|\(\)|^\s*(?:#|//|import |def |class |from |pip |crp )")
_PROSE = re.compile(r"\s*[A-Z\"'][^{}=;<>\\]*[.!?]\s*\Z")


@dataclass(frozen=True, slots=True)
class Segment:
    """A claim of an answer before anything is checked.

    Attributes:
        start, end: character offsets in the answer.
        sentence_index: number of its sentence, from 0.
        claim_type: FACTUAL unless it is clearly something else (decision D3).
        specificity: [0, 1], how much it commits itself.
        parts: what to read together to judge it alone: a borrowed subject from the same
            sentence where it has none of its own, and last its own stretch.
    """

    start: int
    end: int
    sentence_index: int
    claim_type: ClaimType
    specificity: float
    parts: tuple[Span, ...]

    def read(self, text: str) -> str:
        """The claim as one reads it alone, its parts joined by blanks."""
        return " ".join(part.of(text) for part in self.parts)


def segment(text: str) -> list[Segment]:
    """The claims of a text in order; they do not overlap.

    What lies between them is white space, list markers, rules of tables, fences of code,
    separating marks and the conjunctions that joined them. Table rows, list items and lines of
    code are claims of their own.

    Args:
        text: any answer.

    >>> text = "X is true and Y happened in 2024."
    >>> [text[claim.start : claim.end] for claim in segment(text)]
    ['X is true', 'Y happened in 2024.']
    """
    by_start = {block.start: block for block in blocks(text)}
    kept: list[Segment] = []
    block: Block | None = None
    code: list[tuple[int, Span]] = []
    numbered = False
    sentences = split_sentences(text)
    rules = {block.start for block in by_start.values() if block.kind == "rule"}
    counted = counting_cells(text, list(by_start.values()))
    for index, span in enumerate(sentences):
        if span.start in by_start:
            block = by_start[span.start]
            head = text[block.start : block.start + 4].strip("(")
            numbered = block.kind == "item" and head[:1].isdigit()
        kind = block.kind if block is not None else "paragraph"
        if kind == "code" and not _is_prose(span.of(text)):
            code.append((index, span))
            continue
        _flush(text, code, kept)
        if kind in ("rule", "fence"):
            continue
        following = sentences[index + 1].start if index + 1 < len(sentences) else -1
        if kind == "row" and following in rules:
            kind = "heading"  # the row of column names
        if span.start in counted:
            span = Span(counted[span.start], span.end)
        kept.extend(_claims(text, index, span, kind, numbered))
    _flush(text, code, kept)
    return kept


def _is_prose(line: str) -> bool:
    return _PROSE.match(line) is not None and len(line.split()) > 3 and not _CODE_SIGN.search(line)


def _flush(text: str, code: list[tuple[int, Span]], kept: list[Segment]) -> None:
    for index, line in code:
        own = _trim(text, line.start, line.end)
        if own is not None:
            kept.append(_make(own, index, ClaimType.PROCEDURAL, 0.0, None))
    code.clear()


def _make(
    span: Span, index: int, kind: ClaimType, specific: float, subject: Span | None
) -> Segment:
    parts = (span,) if subject is None else (subject, span)
    return Segment(span.start, span.end, index, kind, specific, parts)


def _claims(text: str, index: int, span: Span, kind: str, numbered: bool) -> list[Segment]:
    start = span.start
    sentence = span.of(text)
    marker = item_marker(sentence) if kind == "item" else 0
    if kind == "heading":
        marker = len(sentence) - len(sentence.lstrip("# \t"))
    start += marker
    if start >= span.end or not any(character.isalnum() for character in text[start : span.end]):
        return []
    body = text[start : span.end]
    if kind == "row" or sentence.startswith("|"):
        return [_typed(text, span, index, None, kind, numbered)]
    made = []
    for clause in clauses(body):
        own = _trim(text, start + clause.start, start + clause.end)
        subject = None
        if clause.subject is not None:
            subject = Span(start + clause.subject.start, start + clause.subject.end)
        if own is not None:
            made.append(_typed(text, own, index, subject, kind, numbered))
    return made


def _typed(
    text: str, own: Span, index: int, subject: Span | None, kind: str, numbered: bool
) -> Segment:
    body = own.of(text)
    shown = body if subject is None else f"{subject.of(text)} {body}"
    claim_type = kind_of(body, heading=kind == "heading", numbered=numbered)
    return _make(own, index, claim_type, specificity(shown), subject)


def _trim(text: str, start: int, end: int) -> Span | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end) if any(c.isalnum() for c in text[start:end]) else None
