"""Claims: splits an answer into assertions that can be judged one by one.

Spec: CRP-SPEC-005 §3
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from crp_integrations.language.blocks import TextBlock, blocks
from crp_integrations.language.claim_kinds import kind_of
from crp_integrations.language.coverage import (
    JsonLeaf,
    json_leaves,
    markers,
    non_claims,
    reasoning_spans,
    without_reasoning,
)
from crp_integrations.language.dates import dates
from crp_integrations.language.names import names
from crp_integrations.language.quantities import Quantity, quantities
from crp_integrations.language.text import Span, fold, split_sentences
from crp_integrations.language.words import (
    AUXILIARIES,
    DETERMINERS,
    PREPOSITIONS,
    TextWord,
    content_words,
    finite_verb,
    is_finite,
    words,
)
from crp_integrations.vocabulary import ClaimType

_JOINT = re.compile(
    r"(?P<stop>\s?;)\s+(?:(?P<after>and|but|however,|moreover,|therefore,|also,)\s+)?"
    r"|(?<!\s)(?P<comma>,?)\s+(?P<plain>and then|and|but|yet)\s+(?!also\sonly\b"
    r"|(?:an?|one)\s(?:half|quarter|third)\b|three\squarters\b)"
    r"|(?<!\s)(?P<pause>,?)\s+(?=(?P<kept>while|whereas|although|though)\s)"
    r"|(?P<rel>,)\s+(?=(?P<relative>which|who|whose|where|because|since|so|as)\s)"
    r"|(?P<dash>\s?\u2013\s?|\s-\s)(?:(?:and|but)\s+)?",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"(?:^|\s)(?:if|unless|when|whenever|whether|until|once|provided|before|after|where|in case"
    r"|that both|not only)\s[^,;:]*\Z",
    re.IGNORECASE,
)
_NOT_ONLY = re.compile(r"\bnot\s+only\b", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:between|both)\s[^,;]{1,60}\Z", re.IGNORECASE)
_FEWEST = 2  # words on each side of a joint
_HEAD = 80  # characters read to see how the next clause begins
_LONGEST = 2_000  # longer sentences are cut into pieces, so that run time stays linear


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a sentence, with the subject that it shares with an earlier clause.

    Attributes:
        subject: subject taken from an earlier clause; None when the clause has its own.
    """

    start: int
    end: int
    subject: Span | None = None


def clauses(text: str) -> list[Clause]:
    """The clauses of one sentence in order; they do not overlap.

    Only conjunctions, separating marks and white space lie between them.
    """
    folded = fold(text)
    body = folded.text
    if folded.offsets is not None:
        # Joints are found in the folded text; their offsets are mapped back to the original.
        return [
            Clause(
                folded.start(clause.start),
                folded.end(clause.end),
                folded.span(clause.subject.start, clause.subject.end) if clause.subject else None,
            )
            for clause in clauses(body)
        ]
    if len(body) > _LONGEST:
        return _by_pieces(body)
    tokens = words(body)
    starts = [word.start for word in tokens]
    cuts = _cuts(body, tokens)
    result: list[Clause] = []
    start = 0
    subject: Span | None = None
    main: Span | None = None
    for end, after, kind in [*cuts, (len(body), len(body), "")]:
        inside = _inside(tokens, starts, start, end)
        own = _subject(inside)
        if kind or result:
            result.append(Clause(start, end, subject))
        else:
            result.append(Clause(start, end))
        if own is not None and subject is None:
            main = own
        subject = None
        following = _inside(tokens, starts, after, after + _HEAD)
        if kind == "plain" and following and _bare(following):
            subject = main
        elif kind == "relative":
            subject = _antecedent(inside)
        start = after
    return [clause for clause in result if body[clause.start : clause.end].strip()]


def _by_pieces(body: str) -> list[Clause]:
    result: list[Clause] = []
    start = 0
    while start < len(body):
        end = min(len(body), start + _LONGEST)
        blank = body.rfind(" ", start + _LONGEST // 2, end) if end < len(body) else -1
        end = blank + 1 if blank > 0 else end
        for clause in clauses(body[start:end]):
            subject = clause.subject
            if subject is not None:
                subject = Span(start + subject.start, start + subject.end)
            result.append(Clause(start + clause.start, start + clause.end, subject))
        start = end
    return result


def _cuts(body: str, tokens: Sequence[TextWord]) -> list[tuple[int, int, str]]:
    """Accepted joints: end of the preceding clause, start of the following clause, kind."""
    starts = [word.start for word in tokens]
    joints = [match for match in _JOINT.finditer(body) if not _shielded(body, match)]
    cuts: list[tuple[int, int, str]] = []
    start = 0
    for number, match in enumerate(joints):
        left = _inside(tokens, starts, start, match.start())
        stop = _next_strong(joints, number, len(body))
        right = _inside(tokens, starts, match.end(), stop)
        if len(left) < _FEWEST or len(right) < _FEWEST:
            continue
        kind = _kind(match)
        if kind == "plain" and not _joins_clauses(body, match, left, right, start):
            continue
        if kind == "relative":
            second = right[0].lower in ("because", "since", "so", "as")
            if finite_verb(right, 1) is None or finite_verb(left) is None:
                continue
            kind = "kept" if second else kind
        elif kind in ("stop", "dash", "kept"):
            first = 1 if kind == "kept" else 0
            if finite_verb(left) is None or finite_verb(right, first) is None:
                continue
            if kind == "kept" and _CONDITION.search(body[start : match.start()]):
                continue
        cuts.append((match.start(), match.end(), kind))
        start = match.end()
    return cuts


def _inside(tokens: Sequence[TextWord], starts: list[int], low: int, high: int) -> list[TextWord]:
    inside = list(tokens[bisect_left(starts, low) : bisect_left(starts, high)])
    if inside and inside[-1].end > high:
        inside.pop()
    return inside


def _kind(match: re.Match[str]) -> str:
    if match["stop"] is not None:
        return "stop"
    if match["plain"] is not None:
        return "plain"
    if match["kept"] is not None:
        return "kept"
    return "relative" if match["rel"] is not None else "dash"


def _next_strong(joints: list[re.Match[str]], number: int, end: int) -> int:
    """Latest end of the right side: the next joint that certainly separates clauses."""
    for match in joints[number + 1 : number + 2]:
        return match.start() if match["plain"] is None or match["comma"] else end
    return end


def _joins_clauses(
    body: str, match: re.Match[str], left: Sequence[TextWord], right: Sequence[TextWord], start: int
) -> bool:
    before = body[start : match.start()]
    if _BETWEEN.search(before) and body[match.end() : match.end() + 1].isdigit():
        return False
    if _CONDITION.search(before) or _NOT_ONLY.search(before):
        return False
    if finite_verb(left) is None:
        return False
    last, first = left[-1], right[0]
    if not match["comma"] and last.text[0].isupper() and first.text[0].isupper():
        return False
    if first.lower in ("not", "the", "a", "an") and len(right) < 3:
        return False
    verb = finite_verb(right)
    if verb is None:
        return False
    if verb == 0:
        # "sells cars and trucks": a final word in -s is a noun.
        lower = right[0].lower
        if lower in AUXILIARIES or not lower.endswith("s"):
            return len(right) > 1
        after = right[1].lower
        return after in DETERMINERS | PREPOSITIONS or after[0].isdigit() or after.endswith("ly")
    if verb > 1 and right[0].lower in PREPOSITIONS and not match["comma"]:
        return verb > 2
    return True


def _bare(following: Sequence[TextWord]) -> bool:
    """Whether a clause begins with its verb and so needs the subject of an earlier clause."""
    place = 0
    while place < min(2, len(following)) and (
        following[place].lower.endswith("ly") or following[place].lower in ("also", "then", "not")
    ):
        place += 1
    return place < len(following) and is_finite(following, place)


def _subject(inside: Sequence[TextWord]) -> Span | None:
    verb = finite_verb(inside)
    if verb is None or verb == 0:
        return None
    return Span(inside[0].start, inside[verb - 1].end)


def _antecedent(inside: Sequence[TextWord]) -> Span | None:
    """The noun before a relative clause: the words after the last verb, preposition or article."""
    first = len(inside) - 1
    while first > 0 and len(inside) - first < 6:
        before = inside[first - 1].lower
        if before in PREPOSITIONS or before in AUXILIARIES or is_finite(inside, first - 1):
            break
        first -= 1
        if before in DETERMINERS:
            break
    return Span(inside[first].start, inside[-1].end) if inside else None


def _shielded(body: str, match: re.Match[str]) -> bool:
    """Whether a joint lies within quotation marks or brackets."""
    before = body[: match.start()]  # cheap: `body` has at most _LONGEST characters
    if before.count('"') % 2 == 1 and '"' in body[match.end() :]:
        return True
    return before.count("(") > before.count(")") or before.count("[") > before.count("]")


# Weight of each item that can be checked; .30 or more makes a claim specific by itself.
NUMBER = 0.45
SMALL_NUMBER = 0.30
ORDINAL = 0.15
DATE = 0.45
NAME = 0.35
# Length adds little: a claim of any length without such items stays below .30.
BASE = 0.05
WORD = 0.01
MAX_WORDS = 15


def specificity(text: str) -> float:
    """How specific a claim is: 1 − (1 − base) · Π (1 − weight of each thing named).

    Base is .05 plus .01 for each content word up to 15. A number weighs .45 (.30 for a bare
    whole number up to 10, .15 for an ordinal), a date .45, a name, code or address .35.

    Spec: CRP-SPEC-005 §3.2

    Returns:
        A score in [0, 1], rounded to 4 places.

    >>> specificity("This is important.") < 0.3 <= specificity("Revenue was $4.2M.")
    True
    """
    open_share = 1.0 - (BASE + WORD * min(MAX_WORDS, len(content_words(text))))
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
        claim_type: FACTUAL unless it is clearly something else (decision D3).
        specificity: score in [0, 1]; higher when the claim names more numbers, dates and names.
        parts: spans to read together when the claim is judged alone: first a subject from the
            same sentence if it has none of its own, or the JSON keys around its value; last
            the claim's own span.
        heading: whether it is a heading or the header row of a table.
    """

    start: int
    end: int
    sentence_index: int
    claim_type: ClaimType
    specificity: float
    parts: tuple[Span, ...]
    heading: bool = False

    def read(self, text: str) -> str:
        """The claim as a self-contained text: its parts joined by blanks."""
        return " ".join(part.of(text) for part in self.parts)


def segment(text: str) -> list[Segment]:
    """The claims of a text in order; they do not overlap.

    `coverage.non_claims` lists what lies between them: white space, punctuation, list markers,
    language names after code fences, conjunctions and reasoning; no other words or figures.
    Table rows, list items, lines of code and values of a JSON answer are separate claims.

    Args:
        text: any answer.

    >>> text = "X is true and Y happened in 2024."
    >>> [text[claim.start : claim.end] for claim in segment(text)]
    ['X is true', 'Y happened in 2024.']
    """
    shown = without_reasoning(text, reasoning_spans(text))
    leaves = json_leaves(shown)
    if leaves is not None:
        claims = [claim for leaf in leaves for claim in _of_leaf(shown, leaf)]
    else:
        claims = _of_prose(shown)
    # Remaining words and figures become claims too, so that nothing goes unchecked.
    for gap in non_claims(text, claims):
        if gap.kind == "unread":
            own = Span(gap.start, gap.end)
            claims.append(_make(own, 0, ClaimType.FACTUAL, specificity(own.of(text)), None))
    claims.sort(key=lambda claim: claim.start)
    starts = [span.start for span in split_sentences(text)]
    return [
        replace(claim, sentence_index=max(0, bisect_right(starts, claim.start) - 1))
        for claim in claims
    ]


def _of_leaf(text: str, leaf: JsonLeaf) -> Iterator[Segment]:
    """A JSON value as one claim, or one claim per sentence of a longer string."""
    around = tuple(key for key in leaf.keys if key.start < leaf.start)
    inner = leaf.value_span.of(text)
    spans = split_sentences(inner) if isinstance(leaf.value, str) else []
    first = leaf.value_span.start
    starts = [leaf.start, *(first + span.start for span in spans[1:])]
    for start, end in pairwise([*starts, leaf.end]):
        own = _trim(text, start, end) or Span(start, end)
        keys = around if start == leaf.start else leaf.keys
        specific = specificity(own.of(text))
        yield Segment(own.start, own.end, 0, ClaimType.FACTUAL, specific, (*keys, own))


def _of_prose(text: str) -> list[Segment]:
    by_start = {block.start: block for block in blocks(text)}
    claims: list[Segment] = []
    block: TextBlock | None = None
    code: list[tuple[int, Span]] = []
    numbered = False
    sentences = split_sentences(text)
    rules = {block.start for block in by_start.values() if block.kind == "rule"}
    marks = markers(text)
    for index, span in enumerate(sentences):
        if span.start in by_start:
            block = by_start[span.start]
            head = text[block.start : block.start + 4].strip("(")
            numbered = block.kind == "item" and head[:1].isdigit()
        kind = block.kind if block is not None else "paragraph"
        if kind == "code" and not _is_prose(span.of(text)):
            code.append((index, span))
            continue
        _flush(text, code, claims)
        if kind == "rule":
            continue
        following = sentences[index + 1].start if index + 1 < len(sentences) else -1
        if kind == "row" and following in rules:
            kind = "heading"  # the row of column names
        while span.start in marks:
            span = Span(marks[span.start], span.end)
        claims.extend(_claims(text, index, span, kind, numbered))
    _flush(text, code, claims)
    return claims


def _is_prose(line: str) -> bool:
    return _PROSE.match(line) is not None and len(line.split()) > 3 and not _CODE_SIGN.search(line)


def _flush(text: str, code: list[tuple[int, Span]], claims: list[Segment]) -> None:
    for index, line in code:
        own = _trim(text, line.start, line.end)
        if own is not None:
            claims.append(_make(own, index, ClaimType.PROCEDURAL, 0.0, None))
    code.clear()


def _make(
    span: Span, index: int, kind: ClaimType, specific: float, subject: Span | None
) -> Segment:
    parts = (span,) if subject is None else (subject, span)
    return Segment(span.start, span.end, index, kind, specific, parts)


def _claims(text: str, index: int, span: Span, kind: str, numbered: bool) -> list[Segment]:
    start = span.start
    sentence = span.of(text)
    if kind == "heading":
        start += len(sentence) - len(sentence.lstrip("# \t"))
    if not any(character.isalnum() for character in text[start : span.end]):
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
    made = _make(own, index, claim_type, specificity(shown), subject)
    return replace(made, heading=True) if kind == "heading" else made


def _trim(text: str, start: int, end: int) -> Span | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end) if any(c.isalnum() for c in text[start:end]) else None
