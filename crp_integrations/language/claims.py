"""Claims: what an answer asserts, cut into pieces that can be judged one by one.

Spec: CRP-SPEC-005 §3
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from crp_integrations.language.blocks import TextBlock, blocks, counting_cells, item_marker
from crp_integrations.language.claim_kinds import kind_of
from crp_integrations.language.clauses import clauses
from crp_integrations.language.dates import dates
from crp_integrations.language.names import names
from crp_integrations.language.quantities import Quantity, quantities
from crp_integrations.language.sentences import split_sentences
from crp_integrations.language.text import Span
from crp_integrations.language.words import content_words
from crp_integrations.vocabulary import ClaimType

# What each thing that can be looked up adds; at least .30, so that one alone is specific.
NUMBER = 0.45
SMALL_NUMBER = 0.30
ORDINAL = 0.15
DATE = 0.45
NAME = 0.35
# Length adds little: fifteen content words or more without any of those stay below .30.
BASE = 0.05
WORD = 0.01
MOST_WORDS = 15


def specificity(text: str) -> float:
    """How specific a claim is: 1 − (1 − base) · Π (1 − weight of each thing named).

    Base is .05 and .01 for each content word up to 15. A number weighs .45 (.30 for a bare
    whole number up to 10, .15 for an ordinal), a date .45, a name, code or address .35.

    Spec: CRP-SPEC-005 §3.2

    Returns:
        A score in [0, 1], rounded to 4 places.

    >>> specificity("This is important.") < 0.3 <= specificity("Revenue was $4.2M.")
    True
    """
    open_share = 1.0 - (BASE + WORD * min(MOST_WORDS, len(content_words(text))))
    for quantity in quantities(text):
        open_share *= 1.0 - _weight(quantity)
    open_share *= (1.0 - DATE) ** len(dates(text))
    open_share *= (1.0 - NAME) ** len(names(text))
    return round(1.0 - open_share, 4)


def _weight(quantity: Quantity) -> float:
    if quantity.kind == "ordinal":
        return ORDINAL
    whole = quantity.value == quantity.value.to_integral_value()
    small = quantity.kind == "number" and whole and abs(quantity.value) <= 10
    return SMALL_NUMBER if small else NUMBER


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
    block: TextBlock | None = None
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
