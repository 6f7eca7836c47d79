"""Which stretch of an answer cites what, and whether what is cited says it (`citing@1`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from crp_integrations.governance.compaction.figures import missing
from crp_integrations.governance.roles.records import Cited, Draft
from crp_integrations.language.words import content_stems

CITING: Final = "citing@1"
# Share of a stretch's content words that what it cites must have.
LEAST_SHARED: Final = 0.6
# Content words from which a stretch says something.
SAYS: Final = 3
# Marks that follow each other are one citation: [1][2], [1, 2].
_MARKS: Final = re.compile(r"(?:\s*\[\d{1,4}(?:\s?,\s?\d{1,4})*\])+")
_NUMBER: Final = re.compile(r"\d{1,4}")
_OPENING: Final = re.compile(r"\A[^\n:]{0,80}:\s*\n")


def cited(text: str, item_ids: Sequence[str]) -> tuple[Cited, ...]:
    """The stretches of an answer that end in marks, with the items that the marks name.

    Args:
        item_ids: of what was shown; the first one's number is 1.

    >>> [one.item_ids for one in cited("Built in 1957 [2]. Run by Northfield [1][3].", ["a", "b"])]
    [('b',), ('a', '')]
    """
    found, start = [], 0
    opening = _OPENING.match(text)
    if opening:
        start = opening.end()
    for match in _MARKS.finditer(text, start):
        named = (int(number) for number in _NUMBER.findall(match[0]))
        ids = [item_ids[n - 1] if 1 <= n <= len(item_ids) else "" for n in named]
        found.append(Cited(start=start, end=match.start(), item_ids=tuple(dict.fromkeys(ids))))
        start = match.end()
    return tuple(found)


def holds(said: str, source: str) -> bool:
    """Whether a source has the figures, dates, ids and quotations of a stretch, and its words."""
    stems = set(content_stems(said))
    shared = len(stems & set(content_stems(source)))
    enough = not stems or shared >= LEAST_SHARED * len(stems)
    return enough and not any(True for _ in missing(said, source))


def uncited(draft: Draft) -> list[str]:
    """Stretches of an answer that say something and cite nothing."""
    left, start = [], 0
    opening = _OPENING.match(draft.text)
    if opening:
        start = opening.end()
    for one in draft.cited:
        start = max(start, one.end)
    rest = _MARKS.sub("", draft.text[start:])
    if len(content_stems(rest)) >= SAYS:
        left.append(rest)
    return left
