"""Edits: what changes between a source sentence and a claim that is nearly a copy of it.

Where almost all words agree in order, what does not agree was changed: a denial put in or taken
out, a word replaced by one that excludes it, a unit by another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from crp_integrations.dpe.verifier.value_origins import Token, rare, tokens
from crp_integrations.dpe.verifier.values import Reading, Value
from crp_integrations.language.differences import other_units, words_exclude
from crp_integrations.language.text import Span
from crp_integrations.language.words import STOP_WORDS

# Words of a claim that agree with the source in order, from which the others are edits.
NEARLY = 0.75
SAME = 0.95
HALF = 0.5
# Longer texts are no copies of one sentence, and the comparison is dear.
MOST_WORDS = 160
# Share of the source's stretch that a claim must have before a denial in it was changed: words
# gathered from all over a sentence are no copy of it.
COMPACT = 0.5
# A denial comes and goes with at most so many words; with more it belongs to another statement.
WITH_DENIAL = 1
# Words of a name that is written without capitals.
MOST_NAME = 4
# Replaced words that are compared one by one.
REPLACED = 3

_ARTICLE = re.compile(r"(?i)\b(?:the|an?|this|that|its|his|her|their|our|my|your|some|any)\s+\Z")
_OPENS = frozenset("([{")
_CLOSES = frozenset(")]}")


@dataclass(frozen=True, slots=True)
class Edit:
    """A stretch that one text has and the other has not, or has otherwise.

    Attributes:
        own, other: words of the claim and of the source; either may be empty.
    """

    own: tuple[Token, ...]
    other: tuple[Token, ...]


class Edits:
    """The edits between a claim and one source sentence."""

    def __init__(self, claim: Reading, source: Reading) -> None:
        self.claim, self.source = claim, source
        self.own, self.other = tokens(claim.text), tokens(source.text)

    @cached_property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """Runs of agreeing words: place in the claim, in the source, and length."""
        if not self.own or max(len(self.own), len(self.other)) > MOST_WORDS:
            return []
        own, other = [t.norm for t in self.own], [t.norm for t in self.other]
        matcher = SequenceMatcher(None, own, other, autojunk=False)
        return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()[:-1]]

    @cached_property
    def share(self) -> float:
        """Share of the claim's words that the source has in order, [0, 1].

        Denials aside; a word in the place of one that it excludes counts as had.
        """
        counted = sum(not token.denies for token in self.own)
        had = sum(size for *_, size in self._blocks)
        if not counted or not had:
            return 0.0
        return min(1.0, (had + len(self._pairs)) / counted)

    @property
    def nearly(self) -> bool:
        """Whether the claim is nearly a copy, so that what differs was edited."""
        return self.share >= NEARLY

    @property
    def same(self) -> bool:
        """Whether the source says just this, in these words."""
        return self.share >= SAME and not self.denials and not self._pairs

    @cached_property
    def edits(self) -> list[Edit]:
        """The edits in order; what the source has before and after the claim is none."""
        found: list[Edit] = []
        mine = theirs = 0
        blocks = self._blocks
        for number, (own, other, size) in enumerate(blocks):
            left = self.own[mine:own]
            # Before its first word the source may say anything else: the claim is a clause of it.
            low = theirs if number else max(0, other - max(1, len(left)))
            right = self.other[low:other]
            if left or (number and right and not self._aside(right)):
                found.append(Edit(left, right))
            mine, theirs = own + size, other + size
        if blocks and mine < len(self.own):
            rest = self.own[mine:]
            found.append(Edit(rest, self.other[theirs : theirs + len(rest)]))
        return found

    @property
    def silent(self) -> bool:
        """Whether what the two share in order shows no denial and no opposite on one side only.

        Or the words are gathered from all over the source, so that nothing can be told.
        """
        if any(rare(t, self.other) for t in self.own) or any(rare(t, self.own) for t in self.other):
            return True
        if self.share < HALF or self.moved:
            return False
        return (not self._denying and not self._pairs) or self._compact < COMPACT

    def _aside(self, words: tuple[Token, ...]) -> bool:
        """Whether words of the source stand in brackets, which a claim may leave out."""
        text = self.source.text
        start, end = words[0].start, words[-1].end
        return text[:start].rstrip()[-1:] in _OPENS and text[end:].lstrip()[:1] in _CLOSES

    @property
    def denials(self) -> int:
        """How many more denials the claim has than the source has within the claim's reach."""
        return sum(len(mine) - len(theirs) for _, mine, theirs in self._denying)

    @cached_property
    def _denying(self) -> list[tuple[Edit, list[Token], list[Token]]]:
        """Edits with denials on a side, and these.

        One that stands there among other words belongs to a statement that the claim left out.
        """
        found = []
        for edit in self.edits:
            mine = [t for t in edit.own if t.denies and not rare(t, self.other)]
            theirs = [t for t in edit.other if t.denies and not rare(t, self.own)]
            more = len([t for t in edit.other if _counts(t)]) - len(
                [t for t in edit.own if _counts(t)]
            )
            if (mine and -more > WITH_DENIAL) or (theirs and more > WITH_DENIAL):
                continue
            if mine or theirs:
                found.append((edit, mine, theirs))
        return found

    @property
    def _compact(self) -> float:
        """Share of the source's words, from the first to the last agreeing one, that agree."""
        last = self._blocks[-1]
        return sum(size for *_, size in self._blocks) / (last[1] + last[2] - self._blocks[0][1])

    def denied(self) -> tuple[Span, Span] | None:
        """A denial put in or taken out of an otherwise equal stretch, in the claim and source.

        The whole text stands for it where there is none. An opposite that came with it makes up
        for it: "not lawful" is "unlawful".
        """
        if not self.nearly or self.denials % 2 == 0 or self._pairs or self.moved:
            return None
        if self._compact < COMPACT:
            return None
        for edit, mine, theirs in self._denying:
            if len(mine) % 2 == len(theirs) % 2:
                continue
            return (
                _reach(mine) or Span(0, len(self.claim.text)),
                _reach(theirs or edit.other) or Span(0, len(self.source.text)),
            )
        return None

    @cached_property
    def _pairs(self) -> list[tuple[Token, Token]]:
        """Words and those that exclude them in their place."""
        found = []
        for edit in self.edits:
            own = [token for token in edit.own if _counts(token)]
            other = [token for token in edit.other if _counts(token)]
            size = min(len(own), len(other))
            if not 0 < size <= REPLACED:
                continue
            # One side may have more words before the replaced ones, or after them.
            pairs = max(
                _excluding(own[:size], other[:size]),
                _excluding(own[-size:], other[-size:]),
                key=len,
            )
            # Two in a row make up for each other, as "less unlikely" and "more likely" do.
            found += pairs if len(pairs) == 1 else []
        return found

    def turned(self) -> tuple[Span, Span] | None:
        """A word replaced by one that excludes it, in the claim and in the source.

        None where other words changed places with it ("A above B", "B below A"), or where a
        denial makes up for it.
        """
        if not self.nearly or self.denials or self._swapped:
            return None
        for mine, theirs in self._pairs:
            if not other_units(mine.lower, theirs.lower):
                return Span(mine.start, mine.end), Span(theirs.start, theirs.end)
        return None

    def units(self) -> list[tuple[Span, Span]]:
        """Units replaced by such as measure the same otherwise, in the claim and in the source.

        Those of figures are compared with their figures: "3 hours" are "180 minutes".
        """
        if not self.nearly:
            return []
        return [
            (Span(mine.start, mine.end), Span(theirs.start, theirs.end))
            for mine, theirs in self._pairs
            if other_units(mine.lower, theirs.lower)
            and not _measured(mine, self.claim)
            and not _measured(theirs, self.source)
        ]

    def renamed(self) -> list[tuple[Span, Value]]:
        """Two words or more without capitals in the place of a name of the source, and that name.

        As many as the name has, or one more or less; words with an article describe it instead.
        """
        if self.share < HALF:
            return []
        found = []
        taken = [(value.start, value.end) for value in self.claim.values]
        for edit in self.edits:
            if not 1 < len(edit.own) <= MOST_NAME or not edit.other:
                continue
            start, end = edit.own[0].start, edit.own[-1].end
            if any(token.lower in STOP_WORDS for token in edit.own) or any(
                low < end and start < high for low, high in taken
            ):
                continue
            first, last = edit.other[0].start, edit.other[-1].end
            name = next(
                (
                    value
                    for value in self.source.values
                    if value.family == "name" and value.start <= first and last <= value.end
                ),
                None,
            )
            if name is None or abs(len(edit.own) - len(edit.other)) > 1:
                continue
            if _ARTICLE.search(self.claim.text[max(0, start - 8) : start]) is None:
                found.append((Span(start, end), name))
        return found

    @cached_property
    def moved(self) -> bool:
        """Whether words of an edit stand elsewhere in the source, so that a clause was moved."""
        added = {t.norm for edit in self.edits for t in edit.own if _counts(t) and not t.denies}
        held = {
            self.other[place].norm
            for _, start, size in self._blocks
            for place in range(start, start + size)
        }
        return any(token.norm in added and token.norm not in held for token in self.other)

    @cached_property
    def _swapped(self) -> bool:
        """Whether other words than the turned ones stand on the other side of an edit."""
        gone = {t.norm for e in self.edits for t in e.own if t.norm not in STOP_WORDS}
        come = {t.norm for e in self.edits for t in e.other if t.norm not in STOP_WORDS}
        return bool(gone & come)


_WAYS = frozenset(
    "before after above below under over up down more most until except including plus".split()
)


def _counts(token: Token) -> bool:
    """Whether it is no stop word, or one that has an opposite, as "before" has."""
    return token.lower not in STOP_WORDS or token.lower in _WAYS


def _measured(token: Token, reading: Reading) -> bool:
    return any(value.start <= token.start < value.end for value in reading.values)


def _excluding(own: list[Token], other: list[Token]) -> list[tuple[Token, Token]]:
    return [
        (mine, theirs)
        for mine, theirs in zip(own, other, strict=True)
        if mine.norm != theirs.norm
        and not mine.denies
        and not theirs.denies
        and words_exclude(mine.lower, theirs.lower)
    ]


def _reach(found: tuple[Token, ...] | list[Token]) -> Span | None:
    return Span(found[0].start, found[-1].end) if found else None
