"""How closely a claim restates a sentence of its source, by the words outside of values."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.verifier.values import Reading
from crp_integrations.language.claims import clauses
from crp_integrations.language.words import content_words

# Words beside the value from which a sentence can be told from others.
FEWEST_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Restated:
    """How closely a claim restates a sentence, by the words outside of values.

    Attributes:
        kept: share of the claim's words that the sentence has.
        covered: share of the nearest clause's words, or of the sentence's, that the claim has.
        words: how many words of the sentence the claim has.
    """

    kept: float
    covered: float
    words: int

    @property
    def loosely(self) -> bool:
        """Whether it says the same about the same, by half of the words."""
        return self.kept >= 0.6 and self.covered >= 0.5

    @property
    def closely(self) -> bool:
        """Whether it has nearly all words of a clause, and hardly any other."""
        return self.kept >= 0.9 and self.covered >= 0.75

    @property
    def wholly(self) -> bool:
        """Whether it repeats a clause of some length word for word, whatever it adds."""
        whole = self.kept == self.covered == 1.0 and self.words > 0
        return whole or (self.kept >= 0.6 and self.covered >= 0.9 and self.words >= FEWEST_WORDS)


LONG: Final = 300
# Where a sentence ends that was not cut, or a subordinate clause begins.
_PART: Final = re.compile(
    r"(?<=[.!?])\s+(?=[A-Z])"
    r"|,?\s+(?=(?:when|if|unless|until|because|while|where|provided|so that)\b)"
)
NOT_AT_ALL: Final = Restated(0.0, 0.0, 0)


def stems_of(reading: Reading, start: int = 0, end: int | None = None) -> frozenset[str]:
    """Stems of a stretch's words outside its values."""
    last = len(reading.text) if end is None else end
    return frozenset(
        word.stem
        for word in content_words(reading.text)
        if start <= word.start < last
        and not any(value.start <= word.start < value.end for value in reading.values)
    )


def restated(claim: Reading, source: Reading) -> Restated:
    """How closely a claim restates a sentence or one of its clauses."""
    own, every = stems_of(claim), stems_of(source)
    kept = len(own & source.stems) / len(own) if own else 1.0
    best = Restated(kept, 0.0 if every else 1.0, 0)
    parts = [stems_of(source, part.start, part.end) for part in clauses(source.text)]
    ends = [0, *(match.start() for match in _PART.finditer(source.text)), len(source.text)]
    parts += [stems_of(source, low, high) for low, high in itertools.pairwise(ends)]
    if len(source.text) > LONG and claim.words:
        # A stretch without sentence ends: as much of it as the claim is long.
        first = claim.words[0].stem
        parts += [
            stems_of(source, word.start, word.start + len(claim.text))
            for word in source.words
            if word.stem == first
        ]
    for there in (every, *parts):
        if there:
            had = len(there & claim.stems)
            best = max(best, Restated(kept, had / len(there), had), key=_closeness)
    return best


def _closeness(how: Restated) -> tuple[bool, float, int]:
    return how.wholly, how.covered, how.words
