"""A stretch of text by character offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch [start, end) of character offsets in some text.

    >>> Span(0, 2).of("abc")
    'ab'
    """

    start: int
    end: int

    def of(self, text: str) -> str:
        """The characters of the text that the span covers."""
        return text[self.start : self.end]

    def holds(self, other: Span) -> bool:
        """Whether the other span lies within this one."""
        return self.start <= other.start and other.end <= self.end
