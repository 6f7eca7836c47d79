"""Conditions, exceptions and reservations, and which of them a claim leaves out."""

from __future__ import annotations

import re
from collections import Counter

from crp_integrations.language.text import Span, fold
from crp_integrations.language.words import content_stems

# These govern the words after them, up to the end of the clause.
_CLAUSE = re.compile(
    r"\b(?:if|unless|provided\s+(?:that\s+)?|providing\s+that|on\s+condition\s+(?:that|of)"
    r"|conditional\s+(?:up)?on|contingent\s+(?:up)?on|dependent\s+(?:up)?on|depending\s+on|pending"
    r"|subject\s+to|as\s+long\s+as|so\s+long\s+as|in\s+the\s+event\s+(?:that|of)"
    r"|in\s+case\s+(?:of)?"
    r"|only\s+(?:if|when|where|after|for|in|with)|except(?:ing)?(?:\s+(?:for|in|when|where|that"
    r"|as))?"
    r"|with\s+the\s+exception\s+of|other\s+than|excluding|apart\s+from|save\s+(?:for|that|as)"
    r"|until|when(?:ever)?|where(?:ver)?|without\s+prejudice\s+to|notwithstanding"
    r"|assuming(?:\s+that)?"
    r"|insofar\s+as|to\s+the\s+extent\s+that|limited\s+to|for\s+(?:patients|people|users|adults"
    r"|children|those|members|companies|firms|customers|employees)\s+(?:who|with|aged|under|over"
    r"|whose)"
    r")(?![\w-])",
    re.IGNORECASE,
)
# These are reservations by themselves.
_WORD = re.compile(
    r"\b(?:only|solely|conditionally|conditional|preliminar(?:y|ily)|provisional(?:ly)?"
    r"|tentative(?:ly)?|temporar(?:y|ily)|partial(?:ly)?|partly|interim|draft|proposed|planned"
    r"|alleged(?:ly)?|reported(?:ly)|potential(?:ly)?|possibl[ey]|probabl[ey]|likely|unlikely"
    r"|perhaps|may(?!\s+\d)|might|could|estimated|expected|projected|unaudited|unconfirmed"
    r"|in\s+principle|in\s+part|up\s+to|at\s+least|at\s+most|usually|generally|typically|sometimes"
    r"|some|most|mostly|mainly|not\s+all|in\s+some\s+cases|suggests?|appears?\s+to|seems?\s+to"
    r"|under\s+(?:certain|some|specific)\s+(?:conditions|circumstances))(?![\w-])",
    re.IGNORECASE,
)
# These keep an allegation one, though they are no reservation of their own.
_ALLEGES = re.compile(r"(?i)\b(?:alleg\w+|accus\w+|claim(?:s|ed|ing)?|reportedly|suspected)\b")
_STOP = re.compile(r"[,;:!?()\u2013]|\.(?!\w)|\n\s*\n|\s(?:but|then)\s", re.IGNORECASE)
_ASKED = re.compile(r"[^.!?\n]*\?")
_LONGEST = 240
_QUESTION = re.compile(r"(?:^|[.!?]\s+)\Z")
_GROUPS = (
    "may might could possibly possible perhaps potentially potential probably likely",
    "conditionally conditional pending subject provided contingent provisional provisionally",
    "preliminary preliminarily interim provisional provisionally tentative tentatively draft",
    "only solely limited",
    "except excluding exception apart other save unless",
    "if when whenever provided as so assuming in where unless",
    "some sometimes partly partial partially",
    "usually generally typically mostly mainly most",
    "estimated expected projected planned proposed",
    "suggests suggest appears appear seems seem",
    "allegedly alleged reportedly unconfirmed",
)


def find_conditions(text: str) -> list[Span]:
    """The conditions of a text in order: a cue with what it governs, or a word of reservation.

    >>> text = "It was conditionally approved, pending review by the board."
    >>> [span.of(text) for span in find_conditions(text)]
    ['conditionally', 'pending review by the board']
    """
    return [span for span, _ in _found(text)]


def _found(text: str) -> list[tuple[Span, str]]:
    folded = fold(text)
    body = folded.text
    found: list[tuple[int, int, str]] = []
    for match in _CLAUSE.finditer(body):
        if _asks(body, match):
            continue
        stop = _STOP.search(body, match.end(), min(len(body), match.end() + _LONGEST))
        end = stop.start() if stop is not None else min(len(body), match.end() + _LONGEST)
        while end > match.end() and body[end - 1].isspace():
            end -= 1
        if found and match.start() < found[-1][1]:
            continue
        found.append((match.start(), end, match.group().lower()))
    inside = [(start, end) for start, end, _ in found]
    for match in _WORD.finditer(body):
        near = _near(inside, match.start())
        if match.group() != "May" and not any(start <= match.start() < end for start, end in near):
            found.append((match.start(), match.end(), match.group().lower()))
    found.sort()
    return [(folded.span(start, end), cue) for start, end, cue in found]


def _asks(body: str, match: re.Match[str]) -> bool:
    """Whether "when" or "where" opens a question."""
    opens = match.group().lower().startswith(("when", "where")) and _QUESTION.search(
        body[max(0, match.start() - 4) : match.start()]
    )
    return bool(opens) and _ASKED.match(body, match.start(), match.start() + _LONGEST) is not None


def _near(inside: list[tuple[int, int]], place: int) -> list[tuple[int, int]]:
    low, high = 0, len(inside)
    while low < high:
        middle = (low + high) // 2
        if inside[middle][1] <= place:
            low = middle + 1
        else:
            high = middle
    return inside[low : low + 1]


def dropped_conditions(claim: str, source: str) -> list[Span]:
    """The conditions of a source that a claim about the same matter leaves out.

    A condition is kept when the claim has one of the same family whose words are among the
    source's, or repeats most of the words that the source's condition governs. A word that the
    source says outside the condition too is repeated when the claim has it as often.

    Returns:
        Spans in the source, in order.

    >>> source = "The drug was conditionally approved."
    >>> [span.of(source) for span in dropped_conditions("The drug was approved.", source)]
    ['conditionally']
    """
    own = _found(claim)
    families = [_family(cue) for _, cue in own]
    had = Counter(content_stems(claim))
    every = Counter(content_stems(source))
    if _ALLEGES.search(claim):
        families.append(_family("allegedly"))
    missing = []
    for span, cue in _found(source):
        governed = [part for part in content_stems(span.of(source)) if part not in _cue_stems(cue)]
        wanted = _family(cue)
        inside = Counter(governed)
        rest = every - inside
        stems = {part for part in inside if had[part] > rest[part]}
        kept = any(family & wanted for family in families)
        if kept and (not governed or any(part in had for part in governed)):
            continue
        if governed and sum(part in stems for part in governed) * 3 >= len(governed) * 2:
            continue
        missing.append(span)
    return missing


def _cue_stems(cue: str) -> set[str]:
    return set(content_stems(cue))


def _family(cue: str) -> frozenset[str]:
    first = cue.split()[0]
    joined = {first, " ".join(cue.split())}
    for number, group in enumerate(_GROUPS):
        if first in group.split():
            joined.add(f"#{number}")
    return frozenset(joined)
