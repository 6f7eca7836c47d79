"""Differences: whether two near-identical texts, or words in the same place, exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property

from crp_integrations.language.dates import DateMention, compatible, dates
from crp_integrations.language.measures import to_base
from crp_integrations.language.memo import remembered
from crp_integrations.language.names import names
from crp_integrations.language.negation import denies, polarity_differs
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import plain


class ComparedStatement:
    """A text and what in it decides whether it says something else; read once, when asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def plain(self) -> str:
        """The folded text in lower case."""
        return plain(self.text)

    @cached_property
    def values(self) -> frozenset[tuple[Decimal, str, Decimal, str]]:
        """Its quantities in base units."""
        amounts = quantities(self.text)
        return frozenset((*to_base(q.low, q.unit), *to_base(q.high, q.unit)) for q in amounts)

    @cached_property
    def dates(self) -> tuple[DateMention, ...]:
        """Its dates."""
        return tuple(dates(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        """Its names as plain text."""
        return frozenset(plain(name.text) for name in names(self.text))

    @cached_property
    def denies(self) -> bool:
        """Whether anything in it is denied."""
        return denies(self.text)

    def differs(self, other: ComparedStatement) -> bool:
        """Whether numbers, dates, names or negation differ (decision E11)."""
        if self.plain == other.plain:
            return False
        return (
            self.values != other.values
            or len(self.dates) != len(other.dates)
            or not _found(self.dates, other.dates)
            or not _found(other.dates, self.dates)
            or self.names != other.names
            or ((self.denies or other.denies) and polarity_differs(self.text, other.text))
        )


@remembered
def read_statement(text: str) -> ComparedStatement:
    """The statement of a text; what was read of it last is remembered."""
    return ComparedStatement(text)


def differ(left: str, right: str) -> bool:
    """Whether numbers, dates, names or negation of two texts differ (decision E11)."""
    return read_statement(left).differs(read_statement(right))


def _found(wanted: Sequence[DateMention], given: Sequence[DateMention]) -> bool:
    return all(any(compatible(mention, other) for other in given) for mention in wanted)
