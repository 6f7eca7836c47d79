"""Whether a question asks for recent knowledge."""

from __future__ import annotations

import re
from datetime import datetime

_WORDS = re.compile(
    r"\b(?:current|latest|now|today|recent|newest|this\s+(?:year|month|week|quarter))\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<![\w.,])([0-9]{4})(?![\w]|[.,][0-9])")


def temporal_triggers(query: str, now: datetime) -> tuple[str, ...]:
    """The words of a question that make it temporal, in their order, in lower case.

    Spec: CRP-SPEC-003 §6.4 (decision E10)

    Args:
        query: the question as asked.
        now: the current time; a year within one of its year is a trigger.

    Returns:
        Empty when the question is not temporal.

    >>> from datetime import UTC
    >>> temporal_triggers("What is the latest rule of 2026?", datetime(2026, 5, 1, tzinfo=UTC))
    ('latest', '2026')
    """
    found = [(match.start(), match.group().lower()) for match in _WORDS.finditer(query)]
    found += [
        (match.start(), match.group(1))
        for match in _YEAR.finditer(query)
        if abs(int(match.group(1)) - now.year) <= 1
    ]
    return tuple(word for _, word in sorted(found))


def is_temporal(query: str, now: datetime) -> bool:
    """Whether a question asks for recent knowledge.

    Spec: CRP-SPEC-003 §6.4
    """
    return bool(temporal_triggers(query, now))
