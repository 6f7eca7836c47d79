"""Cues: small closed lists of words that tell what kind of claim one is, counted in its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import methodcaller
from typing import Final

from crp_integrations.language.identifiers import gist


@dataclass(frozen=True, slots=True)
class Cues:
    """Words that are counted.

    Attributes:
        openings: of every match some word begins with one of these letters. A text that has no
            such word is not searched, and a claim holds cues of few kinds.
    """

    pattern: re.Pattern[str]
    openings: tuple[str, ...]

    def count(self, text: str) -> int:
        """How many stand in a text.

        >>> HEDGES.count("It may often rain."), HEDGES.count("It rained.")
        (2, 0)
        """
        known = gist(text).words
        if known is not None and not any(map(methodcaller("startswith", self.openings), known)):
            return 0
        return len(self.pattern.findall(text))


HEDGES: Final = Cues(
    re.compile(
        r"(?i)\b(?:may|might|could|possibl[ey]|perhaps|likely|probabl[ey]|seem\w*|appear\w*"
        r"|suggest\w*|potential\w*|generally|typically|often|usually|sometimes|can)\b"
    ),
    tuple(
        """may might could possibl perhaps likely probabl seem appear suggest potential generally
        typically often usually sometimes can""".split()
    ),
)
ABSOLUTES: Final = Cues(
    re.compile(
        r"(?i)\b(?:all|always|every|only|none|never|most|best|any|each|entire\w*|exclusively|must"
        r"|completely|significant\w*|various|numerous|wide)\b"
    ),
    tuple(
        """all always every only none never most best any each entire exclusively must completely
        significant various numerous wide""".split()
    ),
)
SILENCES: Final = Cues(
    re.compile(
        r"(?i)\b(?:unable to|cannot|can't|could not|couldn't)\s+(?:\w+\s+){0,2}(?:answer|find"
        r"|determine|provide)|\b(?:does|do|did|is|are|was|were|has|have|not)\s*(?:not|n't)?\s+"
        r"(?:\w+\s+){0,2}"
        r"(?:mention|provide|specif|contain|include|state|address|indicate)\w*|\bno (?:mention"
        r"|information|indication|specific)\b"
    ),
    tuple(
        """answer find determine provide mention specif contain include state address indicat
        information""".split()
    ),
)
SOURCES: Final = Cues(
    re.compile(
        r"(?i)\b(?:passages?|context|documents?|article|text|report|according|review\w*|customers?"
        r"|mention\w*|states?|provided|given|based on|data)\b"
    ),
    tuple(
        """passage context document article text report according review customer mention state
        provided given based data""".split()
    ),
)
OPINIONS: Final = Cues(
    re.compile(
        r"(?i)\b(?:great|perfect|ideal|excellent|popular|favou?rite|amazing|delicious|unique|cozy"
        r"|welcoming|friendly|comfortable|convenient|charming|vibrant|must-visit|highlight\w*"
        r"|ensur\w*|help\w*|provid\w*|offer\w*|experience|suitable|well-known|known for|loved"
        r"|praise\w*)\b"
    ),
    tuple(
        """great perfect ideal excellent popular favo amazing delicious unique cozy welcoming
        friendly comfortable convenient charming vibrant must highlight ensur help provid offer
        experience suitable well known loved praise""".split()
    ),
)
