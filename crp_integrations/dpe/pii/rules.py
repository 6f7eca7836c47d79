"""A rule for numbers that have a form: pattern, check digits, and the words beside it.

Every pattern has bounded repetitions only, so a search is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.pii.spans import PersonalSpan, span

# Characters on either side in which a word counts as beside.
BEFORE: Final = 60
AFTER: Final = 24
_DIGIT: Final = re.compile(r"\d")
_SEPARATORS: Final = re.compile(r"[^0-9A-Za-z]")


def beside(plain: str, start: int, end: int, words: re.Pattern[str]) -> bool:
    """Whether a word of the pattern stands shortly before a place, or just after it."""
    before = plain[max(0, start - BEFORE) : start]
    # Another line or another sentence is about something else, except for a heading above.
    before = "\n".join(re.split(r"(?<=[.!?;])\s", before)[-1].split("\n")[-2:])
    after = re.split(r"[.!?;\n]", plain[end : end + AFTER], maxsplit=1)[0]
    return words.search(before) is not None or words.search(after) is not None


def any_of(words: str) -> re.Pattern[str]:
    """Whole words or phrases in any case; `_` stands for one or two blanks, signs or nothing."""
    parts = [re.escape(word).replace("_", r"[\s'./-]{0,2}") for word in words.split()]
    return re.compile(r"(?<![^\W_])(?:" + "|".join(parts) + r")(?![^\W_])", re.IGNORECASE)


def _compact(text: str) -> str:
    return _SEPARATORS.sub("", text).upper()


def _always(text: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of number is found.

    Attributes:
        name: `name@n` of the recogniser.
        pattern: its group `n`, or all of it without one, is the number.
        valid: looks at the number without separators, letters in upper case.
        words: what stands beside it; None for nothing that could.
        bare: score without such a word, 0 for none.
        told: score with one.
        digits: a text with fewer of them has no such number.
    """

    kind: str
    name: str
    pattern: re.Pattern[str]
    valid: Callable[[str], bool] = _always
    words: re.Pattern[str] | None = None
    bare: float = 0.0
    told: float = 1.0
    digits: int = 1

    def find(self, plain: str) -> Iterator[PersonalSpan]:
        """Every place of the kind."""
        for found in self.pattern.finditer(plain):
            group: str | int = "n" if "n" in found.re.groupindex else 0
            start, end = found.span(group)
            score = self.bare
            if self.words is not None and beside(plain, start, end, self.words):
                score = self.told
            if score and self.valid(_compact(found.group(group))):
                yield span(self.kind, start, end, self.name, score)


def found_by(rules: Sequence[Rule], plain: str) -> list[PersonalSpan]:
    """What all rules find; a text without digits enough for a rule is not searched by it."""
    there = len(_DIGIT.findall(plain))
    return [one for rule in rules if rule.digits <= there for one in rule.find(plain)]
