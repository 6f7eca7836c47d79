"""Where a stretch of text has a finite verb, by a small list and the shape of words."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.language.lexicon import (
    AUXILIARIES,
    DETERMINERS,
    IRREGULAR,
    PREPOSITIONS,
    PRONOUNS,
    VERBS,
)
from crp_integrations.language.words import Word

_NOT_PAST = frozenset("need indeed speed seed feed breed exceed hundred red bed shed based".split())
_ARTICLES = DETERMINERS - PRONOUNS
_BETWEEN = PREPOSITIONS | DETERMINERS | {"and", "or", "also", "then", "not", "never"}


def finite_verb(found: Sequence[Word], first: int = 0) -> int | None:
    """Place of the first finite verb among the words, None when there is none.

    Args:
        found: words of one clause in order.
        first: place to begin at.
    """
    for place in range(first, len(found)):
        if is_finite(found, place):
            return place
    return None


def is_finite(found: Sequence[Word], place: int) -> bool:
    """Whether the word at a place reads as a finite verb where it stands."""
    lower = found[place].lower
    before = found[place - 1].lower if place else ""
    if lower in AUXILIARIES or lower.endswith("n't"):
        return lower not in ("be", "been")
    if before in _ARTICLES or before in PREPOSITIONS:
        return False
    if lower in IRREGULAR:
        return True
    if found[place].text[:1].isupper() and place:
        return False
    if lower.endswith("ed") and len(lower) > 4 and lower not in _NOT_PAST:
        return True
    if _third_person(lower):
        return True
    return lower in VERBS and (
        before in ("i", "you", "we", "they", "who", "which", "that")
        or (before.endswith("s") and before not in _BETWEEN and not before.endswith(("ss", "'s")))
    )


def _third_person(lower: str) -> bool:
    if not lower.endswith("s") or len(lower) < 4:
        return False
    if lower[:-1] in VERBS:
        return True
    if lower.endswith("es") and lower[:-2] in VERBS:
        return True
    return lower.endswith("ies") and lower[:-3] + "y" in VERBS
