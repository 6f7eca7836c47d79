"""Phase 1, step 1.1: the information needs of a question (`decompose@1`).

Every content word of a question occurs in at least one of its sub-queries, apart from words that
only say what to do with the result (compare, list, approach). A question with one need is
returned unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crp_integrations.envelope.settings import DecomposeSettings
from crp_integrations.language.questions.bridges import find_bridges
from crp_integrations.language.questions.comparisons import (
    QuestionComparison,
    find_alternatives,
    find_comparison,
    find_measured,
    find_of_both,
    listed_conditions,
    listed_properties,
)
from crp_integrations.language.questions.frame import (
    TELLING,
    WH,
    MaskedQuestion,
    mask_question,
    split_tasks,
    stands_alone,
    trim_frame,
)
from crp_integrations.language.words import content_stems, stem

DECOMPOSE = "decompose@1"

# Stems of words that ask, compare or name a view; they are not searched for.
FRAME: frozenset[str] = frozenset(
    stem(word)
    for word in TELLING
    | WH
    | set(
        """comparison versus vs differ differs difference differences different similarity
        similarities distinction distinctions contrasts tradeoff tradeoffs trade offs approach
        approaches attitude attitudes perspective perspectives position positions stance stances
        treatment treatments view views terms respect regard relation regarding concerning comes
        based common combined respectively compared relative two three four""".split()
    )
)
_EACH = re.compile(
    r"\s(?:for|of|in|under|by|about|from) (?:each|both|either|them|all|the (?:two|three|four))"
    r"(?: of (?:them|these))?\s*\Z",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")


def decompose(query: str, settings: DecomposeSettings) -> tuple[str, ...]:
    """The sub-queries of a question, in its order; the question itself if it has one need.

    Spec: CRP-SPEC-003 §5.2, CRP-SPEC-005 §10.2

    >>> decompose("Which is older, the Louvre or the Prado?", DecomposeSettings())
    ('Louvre older', 'Prado older')
    >>> decompose("What is the capital of France?", DecomposeSettings())
    ('What is the capital of France?',)
    """
    if not settings.rules or settings.most < 2 or len(query) > settings.longest:
        return (query,)
    parts = split_tasks(mask_question(query))
    needs: list[str] = []
    items: tuple[str, ...] = ()
    for part in parts:
        each = _for_each(part, items)
        many = None if each else _compared(part, alone=len(parts) == 1)
        if many is not None:
            items = many.items
            needs += [*many.needs, many.whole]
        else:
            needs += each or _needs(part, settings, whole=query if len(parts) == 1 else part.text)
    return complete_needs(query, needs, settings)


def complete_needs(
    query: str, needs: Sequence[str], settings: DecomposeSettings
) -> tuple[str, ...]:
    """Remove repeats and apply the limit; add the question if a content word would be lost."""
    unique: dict[tuple[str, ...], str] = {}
    for need in needs:
        key = tuple(word.casefold() for word in _WORD.findall(need))
        if key:
            unique.setdefault(key, need)
    chosen = list(unique.values())
    if len(chosen) > settings.most or lost_words(query, chosen):
        own = tuple(word.casefold() for word in _WORD.findall(query))
        chosen = [need for key, need in unique.items() if key != own][: settings.most - 1]
        chosen.append(query)
    return tuple(chosen) if len(chosen) > 1 else (query,)


def lost_words(query: str, needs: Sequence[str]) -> frozenset[str]:
    """Content stems of a question that no need contains, except words that only frame it."""
    covered = {word for need in needs for word in content_stems(need)}
    return frozenset(content_stems(query)) - covered - FRAME


def _compared(part: MaskedQuestion, *, alone: bool) -> QuestionComparison | None:
    return (
        find_comparison(part, alone=alone)
        or find_alternatives(part)
        or find_measured(part)
        or find_of_both(part)
    )


def _needs(part: MaskedQuestion, settings: DecomposeSettings, *, whole: str) -> list[str]:
    """The needs of a task without comparison: its listed items, or its bridge needs and itself."""
    listed = listed_properties(part) or listed_conditions(part)
    if listed and all(map(stands_alone, listed)):
        return list(listed)
    return [*filter(stands_alone, find_bridges(part, settings.depth)), whole]


def _for_each(part: MaskedQuestion, items: Sequence[str]) -> list[str]:
    """A task about "each" of the items compared before, as one need for each item."""
    match = _EACH.search(part.mask) if items else None
    if match is None:
        return []
    wanted = part.cut(0, match.start())
    if wanted.first in TELLING:
        wanted = wanted.cut(len(wanted.first))
    return [f"{item} {trim_frame(wanted).text}" for item in items]
