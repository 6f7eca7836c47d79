"""The words of a text as edits compare them: contractions undone, verbs in their base form."""

from __future__ import annotations

import re
from typing import NamedTuple

from crp_integrations.language.lexicon import PAST_OF
from crp_integrations.language.memo import remembered
from crp_integrations.language.text import fold
from crp_integrations.language.words import stem

_WORD = re.compile(r"[^\W_]+(?:['.&-][^\W_]+)*")
_NOT = re.compile(r"(ca|wo|sha)n't\Z|n't\Z")
_NUMBER = re.compile(r"\.?\s?\d")
_FULL = {"ca": "can", "wo": "will", "sha": "shall"}
# They come and go with a denial or a style, and say nothing.
_EMPTY = frozenset("a an the do does did that also any been".split())
_BE = dict.fromkeys("am is are was were 's".split(), "be")
_JOINED = {"cannot": ("can", "not"), "never": ("not",)}
_DENIALS = frozenset("not no without none nobody nothing nowhere".split())
_FAILING = frozenset(stem(word) for word in "fail refuse decline unable cease neglect".split())
_TO = re.compile(r"\s+to\b")
_LESS = frozenset("hardly scarcely barely seldom rarely".split())


class Token(NamedTuple):
    """A word as it is compared, and where it stands."""

    norm: str
    lower: str
    start: int
    end: int

    @property
    def denies(self) -> bool:
        """Whether it is a denial by itself."""
        return self.norm in _DENIALS or self.lower in _LESS


@remembered
def tokens(text: str) -> tuple[Token, ...]:
    """The words of a text as they are compared: contractions undone, verbs in their base form."""
    folded = fold(text)
    shifted = folded.offsets is not None
    found: list[Token] = []
    skip = 0
    for match in _WORD.finditer(folded.text):
        start, end = match.span()
        if shifted:
            start, end = folded.start(start), folded.end(end)
        lower = match.group().casefold()
        if lower == "no" and _NUMBER.match(folded.text, match.end()):
            continue
        if stem(lower) in _FAILING and (to := _TO.match(folded.text, match.end())):
            # "Failed to pass" is "did not pass".
            found.append(Token("not", lower, start, folded.end(to.end())))
            skip = to.end()
            continue
        if match.start() < skip:
            continue
        if lower == "nor":
            # After "neither" it only goes on with it.
            lower = "or" if any(token.lower == "neither" for token in found) else "not"
        elif lower == "neither":
            found.append(Token("not", lower, start, end))
            continue
        short = _NOT.search(lower) if lower.endswith("n't") else None
        if short is not None:
            head = _FULL.get(short[1] or "", lower[: short.start()])
            parts: tuple[str, ...] = (head, "not")
        else:
            parts = _JOINED.get(lower, (lower.removesuffix("'s"),))
        for part in parts:
            if part in _EMPTY:
                continue
            if part == "one" and found and found[-1].lower == "no":
                last = found.pop()
                found.append(Token("none", "none", last.start, end))
                continue
            if part == "longer" and found and found[-1].norm == "no":
                last = found.pop()
                found.append(Token("not", "no-longer", last.start, end))
                continue
            found.append(Token(_BE.get(part) or stem(PAST_OF.get(part, part)), part, start, end))
    return tuple(found)


def rare(token: Token, other: tuple[Token, ...]) -> bool:
    """Whether "rarely" is "in rare cases" on the other side."""
    root = token.lower.removesuffix("ly")
    return token.lower in _LESS and any(t.lower == root for t in other)
