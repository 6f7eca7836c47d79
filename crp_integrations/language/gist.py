"""A first look at a text: what certainly does not stand in it, so that no rule searches for it.

Most sentences hold no figure and no name of a month. A rule that needs one asks here before it
walks through the text; the answer never says "no" wrongly.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from crp_integrations.language.memo import remembered_of_sentences

_FIGURE = re.compile(r"[\d\u00bc-\u00be\u2150-\u215e]")
_LETTERS = re.compile(r"[a-z]+")
# Rules that look at no case take these for ASCII letters, which lower case does not show.
_ODD = re.compile("[\u0130\u0131\u017f\u212a]")


class Gist(NamedTuple):
    """What a text may hold.

    Attributes:
        figures: whether a digit of any script, or a fraction in one character, stands in it.
        words: its runs of ASCII letters in lower case, a word with other letters in pieces;
            None where that cannot be told.
    """

    figures: bool
    words: frozenset[str] | None

    def lacks(self, words: frozenset[str]) -> bool:
        """Whether none of some words of ASCII letters stands in the text, in any case."""
        return self.words is not None and self.words.isdisjoint(words)


@remembered_of_sentences
def gist(text: str) -> Gist:
    """The first look at a text.

    >>> look = gist("Paid in March 2024.")
    >>> look.figures, look.lacks(frozenset({"march"})), look.lacks(frozenset({"may"}))
    (True, False, True)
    """
    known = None if _ODD.search(text) else frozenset(_LETTERS.findall(text.lower()))
    return Gist(_FIGURE.search(text) is not None, known)
