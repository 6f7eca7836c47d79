"""Clauses: the parts of a sentence that can be judged apart.

A cut is made where a conjunction joins two finite clauses, or two finite verbs of one
subject. Names ("Johnson and Johnson"), lists of nouns, "between 5 and 10", quotations,
brackets and conditions stay whole. When in doubt between two finite verbs it cuts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from crp_integrations.language.lexicon import AUXILIARIES, DETERMINERS, PREPOSITIONS
from crp_integrations.language.text import Span, fold
from crp_integrations.language.words import TextWord, finite_verb, is_finite, words

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
_FEWEST = 2
_HEAD = 80
_LONGEST = 2_000  # longer sentences are cut by pieces, so that the work grows with the text


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of a sentence and the subject that it borrows.

    Attributes:
        start, end: character offsets in the text given.
        subject: words of an earlier clause that this one leaves out, None when it has its own.
    """

    start: int
    end: int
    subject: Span | None = None


def clauses(text: str) -> list[Clause]:
    """The clauses of one sentence in order; they do not overlap.

    Only conjunctions, separating marks and white space lie between them.

    >>> text = "The policy is strict and the board approved it in 2024."
    >>> [text[clause.start : clause.end] for clause in clauses(text)]
    ['The policy is strict', 'the board approved it in 2024.']
    """
    folded = fold(text)
    body = folded.text
    if folded.offsets is not None:
        # Joints are found in the folded text and led back to the text given.
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
    found = words(body)
    starts = [word.start for word in found]
    cuts = _cuts(body, found)
    result: list[Clause] = []
    start = 0
    subject: Span | None = None
    main: Span | None = None
    for end, after, kind in [*cuts, (len(body), len(body), "")]:
        inside = _inside(found, starts, start, end)
        own = _subject(inside)
        if kind or result:
            result.append(Clause(start, end, subject))
        else:
            result.append(Clause(start, end))
        if own is not None and subject is None:
            main = own
        subject = None
        following = _inside(found, starts, after, after + _HEAD)
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


def _cuts(body: str, found: list[TextWord]) -> list[tuple[int, int, str]]:
    """Accepted joints: end of the clause before, start of the one after, kind."""
    starts = [word.start for word in found]
    joints = [match for match in _JOINT.finditer(body) if not _shielded(body, match)]
    cuts: list[tuple[int, int, str]] = []
    start = 0
    for number, match in enumerate(joints):
        left = _inside(found, starts, start, match.start())
        stop = _next_strong(joints, number, len(body))
        right = _inside(found, starts, match.end(), stop)
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


def _inside(found: list[TextWord], starts: list[int], low: int, high: int) -> list[TextWord]:
    inside = found[bisect_left(starts, low) : bisect_left(starts, high)]
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
    """Where the right side ends at the latest: at the next joint that surely parts clauses."""
    for match in joints[number + 1 : number + 2]:
        return match.start() if match["plain"] is None or match["comma"] else end
    return end


def _joins_clauses(
    body: str, match: re.Match[str], left: list[TextWord], right: list[TextWord], start: int
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
        # "sells cars and trucks": a word in -s that nothing follows is a noun.
        lower = right[0].lower
        if lower in AUXILIARIES or not lower.endswith("s"):
            return len(right) > 1
        after = right[1].lower
        return after in DETERMINERS | PREPOSITIONS or after[0].isdigit() or after.endswith("ly")
    if verb > 1 and right[0].lower in PREPOSITIONS and not match["comma"]:
        return verb > 2
    return True


def _bare(following: list[TextWord]) -> bool:
    """Whether a clause begins with its verb and so borrows a subject."""
    place = 0
    while place < min(2, len(following)) and (
        following[place].lower.endswith("ly") or following[place].lower in ("also", "then", "not")
    ):
        place += 1
    return place < len(following) and is_finite(following, place)


def _subject(inside: list[TextWord]) -> Span | None:
    verb = finite_verb(inside)
    if verb is None or verb == 0:
        return None
    return Span(inside[0].start, inside[verb - 1].end)


def _antecedent(inside: list[TextWord]) -> Span | None:
    """The noun before a relative clause: what follows the last verb, preposition or article."""
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
    before = body[: match.start()]  # a sentence here is at most _LONGEST characters
    if before.count('"') % 2 == 1 and '"' in body[match.end() :]:
        return True
    return before.count("(") > before.count(")") or before.count("[") > before.count("]")
