"""Negation and conditions: cues, their scope, and differences between near-identical texts.

A word is denied when an odd number of cues and negative forms applies to it: "not", "without",
"fails to", a prefix as in "unlawful", or its opposite as in "fell" for "rose". Two sentences
differ when a word that they share, matched by its neighbours, is denied in only one of them;
`differ` also compares figures, dates and names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache

from crp_integrations.language.dates import DateMention, compatible, dates
from crp_integrations.language.measures import to_base
from crp_integrations.language.memo import (
    LONGEST,
    forgotten_with,
    remembered,
    remembered_of_sentences,
)
from crp_integrations.language.names import names
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import Span, fold, plain
from crp_integrations.language.word_lists import LISTS
from crp_integrations.language.words import PAST_OF, STOP_WORDS, stem

_CUE = re.compile(
    r"(?<![\w-])(?:not(?!\s+only\b|\s+just\b|\s+to\s+mention\b)|cannot|(?:ai|are|ca|could|did|do"
    r"|does|had|has|have|is"
    r"|might|must|need|sha|should|was|were|wo|would)n'?t|never|none|nobody|nothing|nowhere|neither"
    r"|nor|without|no\s+longer|no\s+one|no(?!\.\s?\d|\s\d|\s+(?:doubt|matter|one's)\b)"
    r"|hardly|scarcely|barely|seldom|rarely"
    r"|(?:refusal|failure|inability)\s+to|fail(?:s|ed|ing)?\s+to|refus(?:es|ed|e|ing)\s+to|declin(?:es|ed|e|ing)\s+to"
    r"|unable\s+to|far\s+from|instead\s+of|rather\s+than|lacks?|lacked|lacking|absence\s+of"
    r"|lack\s+of"
    r"|ceas(?:e|es|ed)\s+to|stopp?(?:s|ed)?\s+(?=\w+ing\b)|neglect(?:s|ed)?\s+to|free\s+of"
    r"|exempt\s+from)(?![\w])",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"non-[a-z]+|[^\W_]+(?:'[^\W_]+)*|[,;:.!?()\u2013]")
_STOPS = frozenset(",;:.!?()\u2013") | frozenset(
    """but because although though however while whereas and or if unless until which who
    that""".split()
)
_SCOPE = 4  # number of content words after a cue that it denies
_MAX_PLACES = 64  # bounds the comparisons for a word that is repeated often
# Opposites: the second word of a pair is the negation of the first.
_PAIRS = LISTS["opposites"]
_CLASSES: dict[str, tuple[str, bool]] = {}


def _learn() -> None:
    parent: dict[str, tuple[str, bool]] = {}

    def root(word: str) -> tuple[str, bool]:
        sign = False
        while word in parent:
            word, flip = parent[word]
            sign ^= flip
        return word, sign

    for pair in _PAIRS:
        good, bad = (stem(word) for word in pair.split("/"))
        (top, first), (low, second) = root(good), root(bad)
        if top != low:
            parent[low] = (top, not first ^ second)
    for word in {stem(part) for pair in _PAIRS for part in pair.split("/")}:
        _CLASSES[word] = root(word)


_learn()
_PREFIX = re.compile(r"(?:non-?|un|dis|il(?=l)|im(?=[mp])|in|ir(?=r))(?=[a-z]{4})")
_NO_PREFIX = frozenset(LISTS["without_prefix"])
# Function words that have an opposite, such as "before" and "after".
_SIGNED = frozenset(
    "before after above below with up down more less fewer most least same lower over under".split()
)


@dataclass(slots=True)
class _Mark:
    """A content word: its canonical stem, its polarity, and the cues that apply to it."""

    canon: str
    negative: bool
    cues: list[int] = field(default_factory=list)

    @property
    def denied(self) -> bool:
        return self.negative ^ (len(self.cues) % 2 == 1)


@remembered_of_sentences
def negations(text: str) -> tuple[Span, ...]:
    """The negation cues of a text in order."""
    folded = fold(text)
    return tuple(folded.span(match.start(), match.end()) for match in _CUE.finditer(folded.text))


def denies(text: str) -> bool:
    """Whether a text denies anything; if neither of two texts does, their polarity is equal."""
    return _stripped(text)[1] > 0 or any(mark.negative or mark.cues for mark in _marks(text))


def polarity_differs(left: str, right: str) -> bool:
    """Whether one of two near-identical sentences denies what the other asserts.

    Args:
        left, right: sentences that share most of their words; for others the result is mostly
            False.

    >>> polarity_differs("The policy applies to firms", "The policy does not apply to firms")
    True
    >>> polarity_differs("It is unlawful to enter", "It is not lawful to enter")
    False
    """
    if len(left) + len(right) > LONGEST:
        return _polarity_differs.__wrapped__(left, right)
    return _polarity_differs(left, right)


@lru_cache(maxsize=2048)
def _polarity_differs(left: str, right: str) -> bool:
    if _inserted(left, right):
        return True
    first, second = _marks(left), _marks(right)
    return _one_way(first, second) or _one_way(second, first)


forgotten_with(_polarity_differs.cache_clear)


_DENIALS = frozenset("not no never".split())
_EMPTY = frozenset("do does did any a an".split())
_SHORT_NOT = re.compile(r"\b(ca|wo|sha)n't\b|n't\b|\bcannot\b")
_FULL = {"ca": "can", "wo": "will", "sha": "shall"}


@remembered
def _stripped(text: str) -> tuple[tuple[str, ...], int]:
    """A sentence's words without its denials, and the number of denials."""
    body = fold(text).text.lower()
    body = _SHORT_NOT.sub(
        lambda match: f"{_FULL.get(match[1] or '', 'can' if 'cannot' in match[0] else '')} not",
        body,
    )
    every = re.findall(r"[^\W_]+", body)
    remaining = tuple(word for word in every if word not in _DENIALS and word not in _EMPTY)
    return remaining, sum(word in _DENIALS for word in every)


def _inserted(left: str, right: str) -> bool:
    """Whether two sentences differ only in an odd number of denials."""
    (first, some), (second, others) = _stripped(left), _stripped(right)
    return (some - others) % 2 == 1 and first == second


def _one_way(own: tuple[_Mark, ...], other: tuple[_Mark, ...]) -> bool:
    places: dict[str, list[int]] = {}
    for place, mark in enumerate(other):
        places.setdefault(mark.canon, []).append(place)
    heads: dict[int, int] = {}
    settled: set[int] = set()
    for place, mark in enumerate(own):
        if mark.canon not in places:
            continue
        fresh = [cue for cue in mark.cues if cue not in settled]
        settled.update(mark.cues)
        if fresh or mark.negative:
            heads[place] = len(fresh)
    for place in heads:
        mark = own[place]
        match = max(
            places[mark.canon][:_MAX_PLACES],
            key=lambda at: (_likeness(own, place, other, at), -abs(at - place)),
        )
        # Same form of the word without a new cue: whether an earlier cue reaches it is unsure.
        if not heads[place] and other[match].negative == mark.negative:
            continue
        if other[match].denied != mark.denied:
            return True
    return False


def _likeness(own: tuple[_Mark, ...], place: int, other: tuple[_Mark, ...], at: int) -> float:
    total = 0.0
    for step in range(-4, 5):
        if step == 0 or not 0 <= place + step < len(own):
            continue
        wanted = own[place + step].canon
        if wanted == own[place].canon:
            continue
        best = 0.0
        for shift in range(-4, 5):
            if shift and 0 <= at + shift < len(other) and other[at + shift].canon == wanted:
                best = max(best, 1.0 / (1 + abs(step - shift)))
        total += best * (2 if step < 0 else 1)  # the subject mostly comes before
    return total


@remembered
def _marks(text: str) -> tuple[_Mark, ...]:
    body = fold(text).text.lower()
    cues = [(match.start(), match.end()) for match in _CUE.finditer(body)]
    marks: list[_Mark] = []
    active: list[tuple[int, int]] = []  # cue and remaining number of words in its scope
    at = 0
    for match in _TOKEN.finditer(body):
        while at < len(cues) and cues[at][0] <= match.start():
            active.append((at, _SCOPE))
            at += 1
        word = match.group()
        if at and cues[at - 1][0] <= match.start() < cues[at - 1][1]:
            continue
        if word in _STOPS:
            # "neither A nor B", "not A or B": the cue still applies after "or".
            active = active if word == "or" else []
            continue
        if (word in STOP_WORDS and word not in _SIGNED) or word.endswith("n't"):
            continue
        canon, negative = _canon(word)
        marks.append(_Mark(canon, negative, [cue for cue, _ in active]))
        weight = 0 if word.endswith("ly") else 1
        active = [(cue, left - weight) for cue, left in active if left > weight]
    return tuple(marks)


def sense_of(word: str) -> tuple[str, bool]:
    """A word's canonical stem, and whether the word is the negative one of two opposites."""
    return _canon(word.lower())


@lru_cache(maxsize=16_384)
def _canon(word: str) -> tuple[str, bool]:
    word = PAST_OF.get(word, word)
    base = stem(word)
    known = _CLASSES.get(base)
    if known is not None:
        return known
    match = _PREFIX.match(word)
    if match is not None and word not in _NO_PREFIX and base not in _NO_PREFIX_STEMS:
        rest = stem(word[match.end() :].lstrip("-"))
        top, sign = _CLASSES.get(rest, (rest, False))
        return top, not sign
    return base, False


_NO_PREFIX_STEMS = frozenset(stem(word) for word in _NO_PREFIX)


# Cues of conditions that include the words after them, up to the end of the clause.
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
# Single words or phrases that are a reservation by themselves.
_WORD = re.compile(
    r"\b(?:only|solely|conditionally|conditional|preliminar(?:y|ily)|provisional(?:ly)?"
    r"|tentative(?:ly)?|temporar(?:y|ily)|partial(?:ly)?|partly|interim|draft|proposed|planned"
    r"|alleged(?:ly)?|reported(?:ly)|potential(?:ly)?|possibl[ey]|probabl[ey]|likely|unlikely"
    r"|perhaps|may(?!\s+\d)|might|could|estimated|expected|projected|unaudited|unconfirmed"
    r"|in\s+principle|in\s+part|on\s+average|an?\s+average\s+of|from(?=\s[$\u20ac\u00a3]?\d)(?![^.;]{0,24}\bto\b)"
    r"|per\s+(?:person|head|night|guest|adult|child|user|seat|unit|item|piece|visit|room)"
    r"|plus\s+(?:vat|tax(?:es)?|shipping|postage|fees)|(?:in|for|during)\s+the\s+first\s+(?:year|month|week|day|hour|term|season)s?(?:\s+only)?"
    r"|(?:intend|plan|aim|hope|propos|attempt|want|promis)(?:s|es|ed|ing)?\s+to|tr(?:y|ies|ied|ying)\s+to"
    r"|up\s+to|at\s+least|at\s+most|usually|generally|typically|sometimes"
    r"|some|most|mostly|mainly|not\s+all|in\s+some\s+cases|suggests?|appears?\s+to|seems?\s+to"
    r"|under\s+(?:certain|some|specific)\s+(?:conditions|circumstances))(?![\w-])",
    re.IGNORECASE,
)
_STOP = re.compile(r"[,;:!?()\u2013]|\.(?!\w)|\n\s*\n|\s(?:but|then)\s", re.IGNORECASE)
_ASKED = re.compile(r"[^.!?\n]*\?")
_LONGEST = 240  # characters of a condition
_QUESTION = re.compile(r"(?:^|[.!?]\s+)\Z")


def find_conditions(text: str) -> list[Span]:
    """The conditions of a text in order: a cue with its clause, or a word of reservation.

    >>> text = "It was conditionally approved, pending review by the board."
    >>> [span.of(text) for span in find_conditions(text)]
    ['conditionally', 'pending review by the board']
    """
    folded = fold(text)
    body = folded.text
    clauses: list[tuple[int, int]] = []
    for match in _CLAUSE.finditer(body):
        if _asks(body, match) or (clauses and match.start() < clauses[-1][1]):
            continue
        stop = _STOP.search(body, match.end(), min(len(body), match.end() + _LONGEST))
        end = stop.start() if stop is not None else min(len(body), match.end() + _LONGEST)
        while end > match.end() and body[end - 1].isspace():
            end -= 1
        clauses.append((match.start(), end))
    ends = [end for _, end in clauses]
    words = []
    for match in _WORD.finditer(body):
        near = bisect_right(ends, match.start())
        governed = near < len(clauses) and clauses[near][0] <= match.start()
        if match.group() != "May" and not governed:
            words.append((match.start(), match.end()))
    return [folded.span(start, end) for start, end in sorted([*clauses, *words])]


def _asks(body: str, match: re.Match[str]) -> bool:
    """Whether "when" or "where" opens a question."""
    opens = match.group().lower().startswith(("when", "where")) and _QUESTION.search(
        body[max(0, match.start() - 4) : match.start()]
    )
    return bool(opens) and _ASKED.match(body, match.start(), match.start() + _LONGEST) is not None


class ComparedStatement:
    """A text with the features that `differs` compares; each is computed once, on first use."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def plain(self) -> str:
        """The folded text in lower case."""
        return plain(self.text)

    @cached_property
    def values(self) -> frozenset[tuple[Decimal, str, Decimal, str]]:
        """Its quantities in base units."""
        amounts = quantities(self.text)
        return frozenset((*to_base(q.low, q.unit), *to_base(q.high, q.unit)) for q in amounts)

    @cached_property
    def dates(self) -> tuple[DateMention, ...]:
        """Its dates."""
        return tuple(dates(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        """Its names as plain text."""
        return frozenset(plain(name.text) for name in names(self.text))

    @cached_property
    def denies(self) -> bool:
        """Whether anything in it is denied."""
        return denies(self.text)

    def differs(self, other: ComparedStatement) -> bool:
        """Whether numbers, dates, names or negation differ (decision E11)."""
        if self.plain == other.plain:
            return False
        return (
            self.values != other.values
            or len(self.dates) != len(other.dates)
            or not _found(self.dates, other.dates)
            or not _found(other.dates, self.dates)
            or self.names != other.names
            or ((self.denies or other.denies) and polarity_differs(self.text, other.text))
        )


@remembered
def read_statement(text: str) -> ComparedStatement:
    """The `ComparedStatement` of a text; recent ones are cached."""
    return ComparedStatement(text)


def differ(left: str, right: str) -> bool:
    """Whether numbers, dates, names or negation of two texts differ (decision E11)."""
    return read_statement(left).differs(read_statement(right))


def _found(wanted: Sequence[DateMention], mentions: Sequence[DateMention]) -> bool:
    return all(any(compatible(mention, other) for other in mentions) for mention in wanted)
