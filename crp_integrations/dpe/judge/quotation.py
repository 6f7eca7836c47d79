"""Where a quotation stands in a text, and which claims need no judge because theirs does.

Aside are letter case, white space, the form of quotation marks, dashes and spaces, composed and
compatibility forms of characters, and the asterisks and backticks of Markdown. Words and figures
are not: one that is cut, as `2` out of `12`, `2.5` or `-2`, does not stand there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from crp_integrations.dpe.judge.records import Quotation
from crp_integrations.dpe.records import REJECTED, Claim, Report
from crp_integrations.dpe.verifier.values import MARKER
from crp_integrations.language.negation import dropped_conditions, polarity_differs
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import content_stems
from crp_integrations.vocabulary import Checked, ClaimStatus, ClaimType, ErrorKind

# Left out, but for one between two figures, where it is a separator or a sign.
APOSTROPHES: Final = frozenset("'`´‘’‚‛‹›")
MARKS: Final = APOSTROPHES | frozenset('"“”„‟«»*\\')
DASHES: Final = frozenset("‐‑‒–—―−-")
NOTHING: Final = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
# What a quotation may be cut off with at its ends.
EDGES: Final = " .,;:…!?"
STOPS: Final = frozenset(EDGES) - {" "}
# Between two figures they make one of them.
SEPARATORS: Final = frozenset(".,'\"^٫٬·*")
# Digits of a group of thousands.
GROUP: Final = 3
_FIGURES: Final = re.compile(r"\d*")
# A number whose point is no group's, so that a comma behind it ends it.
_DECIMAL: Final = re.compile(r"\.(?:\d{1,2}|\d{4,})\Z")
# Written without blanks between words: from Thai to Burmese, Khmer, the syllabaries, Chinese.
UNSPACED: Final = (
    (0x0E00, 0x109F), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1950, 0x1AAF), (0x2E80, 0xA4CF),
    (0xA960, 0xA97F), (0xAA00, 0xAADF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0x1B000, 0x1B2FF),
    (0x20000, 0x3FFFF),
)  # fmt: skip
HAN_FIGURES: Final = frozenset("〇零一二三四五六七八九十百千万億亿兆两")


class Folded:
    """A text in the form in which quotations are compared.

    Attributes:
        text: the folded text.
        starts, ends: offsets in the original of what each of its characters stands for.
    """

    __slots__ = ("_apart", "ends", "starts", "text")

    def __init__(self, original: str) -> None:
        kept: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        # Places in the folded text in front of which a mark was left out.
        self._apart: set[int] = set()
        blank = True
        place, size = 0, len(original)
        while place < size:
            first = place
            character = original[place]
            place += 1
            if character in NOTHING:
                continue
            if character.isspace():
                if not blank:
                    kept.append(" ")
                    self.starts.append(first)
                    self.ends.append(place)
                    blank = True
                continue
            if character in MARKS:
                while place < size and original[place] in MARKS:
                    place += 1
                around = original[first - 1 : first] + original[place : place + 1]
                if len(around) < 2 or not around.isdigit():
                    self._apart.add(len(kept))
                    continue
                character = "'" if character in APOSTROPHES else character
                character = character if character in "'*" else '"'
                kept.append(character)
                self.starts.append(first)
                self.ends.append(place)
                continue
            blank = False
            while place < size and _joins(original[place]):
                place += 1
            told = "-" if character in DASHES else _folded(original[first:place], character)
            if kept and kept[-1].isdigit() and told[:1].isdigit() and not character.isdecimal():
                # A power or a fraction behind a figure is no further digit of it.
                told = (" " if "/" in told else "^") + told
            kept.extend(told)
            self.starts += [first] * len(told)
            self.ends += [place] * len(told)
        self.text = "".join(kept)

    def every(self, words: str) -> Iterator[tuple[int, int]]:
        """First and last offset in the original of each place where folded words stand."""
        at = self.text.find(words) if words else -1
        while at >= 0:
            end = at + len(words)
            if self._whole(at, end):
                yield self.starts[at], self.ends[end - 1]
            at = self.text.find(words, at + 1)

    def find(self, words: str, behind: int = 0) -> tuple[int, int] | None:
        """The first of those places that begins at or behind an offset; None for none."""
        return next((place for place in self.every(words) if place[0] >= behind), None)

    def _whole(self, at: int, end: int) -> bool:
        """Whether no character, word or figure is cut: `2` does not stand in `12` or `2.5`."""
        if self._cut(at) or self._cut(end) or self._signed(at):
            return False
        return not (self._behind_separator(at) or self._before_separator(at, end))

    def _cut(self, at: int) -> bool:
        """Whether what stands before and behind a place in the folded text is one."""
        text = self.text
        if not 0 < at < len(text) or at in self._apart:
            return False
        before, behind = text[at - 1], text[at]
        if _joins(behind):
            return True
        if self.starts[at - 1] == self.starts[at] and not {before, behind} & STOPS:
            return True
        if at + 1 < len(text) and behind in " ^" and self.starts[at] == self.starts[at + 1]:
            return True
        if _inner(before) and _inner(behind):
            return True
        return before in HAN_FIGURES and behind in HAN_FIGURES

    def _behind_separator(self, at: int) -> bool:
        """Whether a figure begins here behind another one and what makes them one.

        A comma does so before three figures: rows of a table have others between their commas.
        """
        text = self.text
        if at in self._apart or at < 1:
            return False
        before, figures = text[at - 1], len(_FIGURES.match(text, at)[0])  # type: ignore[index]
        if text[at] in SEPARATORS:
            return before.isdigit() and text[at + 1 : at + 2].isdigit()
        if before not in SEPARATORS or not text[at].isdigit():
            return False
        if before == "." and not (_word(text, at - 2) or text[max(0, at - 2) : at - 1] == "."):
            return True
        one = text[max(0, at - 2) : at - 1].isdigit()
        return one and (before != "," or figures == GROUP)

    def _before_separator(self, at: int, end: int) -> bool:
        """Whether a figure ends here in front of what makes it one with the next."""
        text = self.text
        if end + 1 >= len(text) or end in self._apart or text[end] not in SEPARATORS:
            return False
        figures = len(_FIGURES.match(text, end + 1)[0])  # type: ignore[index]
        if not figures or not text[end - 1].isdigit():
            return False
        return text[end] != "," or not (figures > GROUP or _DECIMAL.search(text[at:end]))

    def _signed(self, at: int) -> bool:
        """Whether a figure begins here that has a sign before it: `5` does not stand in `-5`."""
        text = self.text
        if not 0 < at < len(text) or text[at - 1] != "-":
            return False
        figure = text[at].isdigit() or unicodedata.category(text[at]) == "Sc"
        return figure and not _word(text, at - 2)


def _word(text: str, at: int) -> bool:
    """Whether a letter, a figure or a closing sign stands at a place."""
    return at >= 0 and (text[at].isalnum() or text[at] in ")]%°-")


@lru_cache(maxsize=8192)
def _folded(cluster: str, character: str) -> str:
    """A character with the marks on it; quotation marks and the like are gone already."""
    whole = character + cluster[1:]
    found = unicodedata.normalize("NFKC", whole)
    # A sign for an accent alone is a blank with that accent.
    return (whole if found[:1].isspace() else found).casefold().replace("\u2044", "/")


@lru_cache(maxsize=8192)
def _joins(character: str) -> bool:
    """Whether a character is a mark on the one before it."""
    if character < "\u0300":
        return False
    jamo = "\u1160" <= character <= "\u11ff" or character in "ﾞﾟ"
    return jamo or (unicodedata.category(character)[0] == "M")


@lru_cache(maxsize=8192)
def _inner(character: str) -> bool:
    """Whether a character is one of a word or figure that blanks stand around."""
    if character.isdigit():
        return True
    if not (character.isalnum() or _joins(character)):
        return False
    code = ord(character)
    return not any(low <= code <= high for low, high in UNSPACED)


def folded_words(quotation: str) -> str:
    """A quotation's words as `Folded.find` takes them; empty where nothing can be looked for.

    >>> folded_words("“4.2  million”.")
    '4.2 million'
    """
    whole = Folded(quotation).text
    found = whole.strip(EDGES)
    before = whole[: len(whole) - len(whole.lstrip(EDGES))]
    # The point of `.5` is a part of the figure, and what a mark stands on is one with it.
    point = found[:1].isdigit() and before.endswith(".") and not before.endswith("..")
    return before[-1:] + found if point or _joins(found[:1]) else found


def locate(
    quotation: str, text: Folded, outside: tuple[tuple[int, int], ...] = ()
) -> tuple[int, int] | None:
    """Offsets of a quotation in a text.

    Words that were left out with an ellipsis may be missing: the pieces must follow each other.

    Args:
        outside: spans of the text; a place that lies in none of them is preferred.

    >>> locate("4.2 MILLION", Folded("It was **4.2** million."))
    (9, 22)
    >>> locate("2 million", Folded("It was 4.2 million.")) is None
    True
    """
    whole = folded_words(quotation)
    if not any(character.isalnum() for character in whole):
        return None
    first: tuple[int, int] | None = None
    for place in text.every(whole):
        if not any(start <= place[0] and place[1] <= end for start, end in outside):
            return place
        first = first or place
    return first or _in_pieces(quotation, text)


def _in_pieces(quotation: str, text: Folded) -> tuple[int, int] | None:
    """Where words stand that an ellipsis shortens: the pieces follow each other."""
    pieces = [folded_words(one) for one in quotation.replace("...", "…").split("…")]
    pieces = [one for one in pieces if any(character.isalnum() for character in one)]
    if len(pieces) < 2:
        return None
    found: tuple[int, int] | None = None
    for piece in pieces:
        here = text.find(piece, found[1] if found else 0)
        if here is None:
            return None
        found = here if found is None else (found[0], here[1])
    return found


# Shorter ones match by chance.
LEAST_WORDS: Final = 3

_BETWEEN: Final = re.compile(r"[\W_]+")

# Words that answer a question alone.
ANSWERS: Final = frozenset({"yes", "no", "ja", "nein", "oui", "non", "sí", "si"})

# Which error each finding of the stages without a model call stands for.
ERRORS: Final = {
    "NUMBER_CHANGED": ErrorKind.NUMBER,
    "MAGNITUDE_ALTERED": ErrorKind.NUMBER,
    "DATE_SHIFTED": ErrorKind.DATE,
    "ENTITY_SUBSTITUTED": ErrorKind.NAME,
    "NEGATION_FLIP": ErrorKind.NEGATION,
    "CONTEXT_STRIPPED": ErrorKind.CONDITION,
    "contradiction": ErrorKind.RELATION,
    "fabrication": ErrorKind.INVENTION,
    "CITATION_WRONG": ErrorKind.INVENTION,
    REJECTED: ErrorKind.INVENTION,
}


def screened(report: Report, passages: Sequence[tuple[str, str]]) -> Report:
    """A report whose claims have the statuses that the stages without a model call give.

    SUPPORTED is what the evidence has word for word or value for value; CONTRADICTED and
    UNSUPPORTED is what a finding says; everything else is NOT_CHECKED. They raise no level.
    """
    units = _Units(passages)
    claims = tuple(_screened(claim, units, passages) for claim in report.claims)
    return report.model_copy(update={"claims": claims})


def without_doubt(claims: Sequence[Claim]) -> bool:
    """Whether every claim is matched, one at least; talk may stand between them.

    A bare yes or no, and talk with a figure or a name, says something that nobody matched.
    """
    talk = [claim for claim in claims if claim.status is not ClaimStatus.SUPPORTED]
    return len(talk) < len(claims) and all(map(_is_talk, talk))


def _is_talk(claim: Claim) -> bool:
    first = folded_words(claim.text).partition(" ")[0].strip(".,;:!")
    return (
        claim.status is ClaimStatus.NOT_CHECKABLE
        and claim.claim_type is ClaimType.META
        and first not in ANSWERS
        and not claim.entities
    )


def _screened(claim: Claim, units: _Units, passages: Sequence[tuple[str, str]]) -> Claim:
    if claim.checked is Checked.NOT_CHECKABLE:
        return claim.model_copy(update={"status": ClaimStatus.NOT_CHECKABLE})
    typed = [one for one in claim.findings if one.kind in ERRORS]
    if typed:
        first = typed[0]
        invented = ERRORS[first.kind] is ErrorKind.INVENTION
        status = ClaimStatus.UNSUPPORTED if invented else ClaimStatus.CONTRADICTED
        quotations: tuple[Quotation, ...] = ()
        if first.evidence is not None:
            found = _quoted(
                first.evidence.fact_id, first.evidence.start, first.evidence.end, passages
            )
            quotations = (found,) if found else ()
        return claim.model_copy(
            update={
                "status": status,
                "error": ERRORS[first.kind],
                "wrong": (first.start, first.end),
                "quotations": quotations,
                "reason": next((one.reason for one in typed if one.kind == REJECTED), ""),
            }
        )
    if claim.findings:
        return claim.model_copy(
            update={"status": ClaimStatus.UNSUPPORTED, "error": ErrorKind.OVERREACH}
        )
    place = units.matched(MARKER.sub("", claim.text).strip())
    if place is None:
        return claim
    found = _quoted(*place, passages)
    return claim.model_copy(
        update={"status": ClaimStatus.SUPPORTED, "quotations": (found,) if found else ()}
    )


def _quoted(
    fact_id: str, start: int, end: int, passages: Sequence[tuple[str, str]]
) -> Quotation | None:
    for number, (name, text) in enumerate(passages, 1):
        if name == fact_id and 0 <= start < end <= len(text):
            return Quotation(
                fact_id=name, passage=number, start=start, end=end, text=text[start:end]
            )
    return None


class _Units:
    """The sentences and lines of the evidence, in the form that claims are looked for in."""

    def __init__(self, passages: Sequence[tuple[str, str]]) -> None:
        self._passages = passages
        self._folded: dict[int, Folded] = {}
        self._letters: dict[int, str] = {}
        self._units: list[tuple[int, int, int, str, str]] | None = None

    def matched(self, claim: str) -> tuple[str, int, int] | None:
        """Fact and offsets of what says a claim word for word or value for value."""
        if len(claim.split()) < LEAST_WORDS:
            return None
        words, letters = folded_words(claim), _letters(claim)
        for number, (fact_id, text) in enumerate(self._passages):
            # Folding every passage takes a fifth of an examination: only where it may stand.
            if letters not in self._letters_of(number):
                continue
            place = self._folded_of(number).find(words)
            if place is not None and not self._conditioned(claim, text, place):
                return fact_id, *place
        return self._by_value(claim)

    def _letters_of(self, number: int) -> str:
        if number not in self._letters:
            self._letters[number] = _letters(self._passages[number][1])
        return self._letters[number]

    def _folded_of(self, number: int) -> Folded:
        if number not in self._folded:
            self._folded[number] = Folded(self._passages[number][1])
        return self._folded[number]

    def _conditioned(self, claim: str, text: str, place: tuple[int, int]) -> bool:
        """Whether the sentence around words has a condition or a negation that they leave out."""
        for span in split_sentences(text):
            if span.start <= place[0] < span.end:
                around = text[span.start : max(span.end, place[1])]
                return bool(dropped_conditions(claim, around)) or polarity_differs(claim, around)
        return False

    def _by_value(self, claim: str) -> tuple[str, int, int] | None:
        stems = content_stems(claim)
        if len(stems) < LEAST_WORDS:
            return None
        wanted = f" {' '.join(stems)} "
        if self._units is None:
            self._units = [
                (
                    number,
                    span.start,
                    span.end,
                    span.of(text),
                    f" {' '.join(content_stems(span.of(text)))} ",
                )
                for number, (_, text) in enumerate(self._passages)
                for span in split_sentences(text)
            ]
        for number, start, end, unit, told in self._units:
            if (
                wanted in told
                and not dropped_conditions(claim, unit)
                and not polarity_differs(claim, unit)
            ):
                return self._passages[number][0], start, end
        return None


def _letters(text: str) -> str:
    """The letters and figures of a text alone: what stands in it word for word stands here too."""
    return _BETWEEN.sub("", unicodedata.normalize("NFKC", text).casefold())
