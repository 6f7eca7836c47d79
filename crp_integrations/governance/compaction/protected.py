"""What is never cut in two or rewritten: figures, ids, dates, code and quotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from crp_integrations.language.blocks import blocks
from crp_integrations.language.dates import dates
from crp_integrations.language.identifiers import identifiers
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import Span

# Within one paragraph; a longer one is more likely a mark that was never closed.
QUOTATION = re.compile(
    r"(?<!\w)\"(?!\s)(?:[^\"\n]|\n(?!\s*\n)){1,300}(?<!\s)\"(?!\w)"
    r"|\u201c(?:[^\u201c\u201d\n]|\n(?!\s*\n)){1,300}\u201d"
    r"|\u00ab(?:[^\u00ab\u00bb\n]|\n(?!\s*\n)){1,300}\u00bb"
)
_INLINE = re.compile(r"(?<!`)`[^`\n]{1,200}`(?!`)")
FIGURE = re.compile(r"\d|[\"\u201c\u00ab`]")


def code(text: str) -> Iterator[Span]:
    """Fenced blocks with their fences, and code within a line."""
    if "```" in text or "~~~" in text:
        opened = -1
        for block in blocks(text):
            if block.kind == "fence":
                if opened < 0:
                    opened = block.start
                else:
                    yield Span(opened, block.end)
                    opened = -1
        if opened >= 0:
            # Never closed: the rest is code as a reader sees it.
            yield Span(opened, len(text.rstrip()))
    for match in _INLINE.finditer(text):
        yield Span(*match.span())


def protected(text: str) -> list[Span]:
    """The stretches of a text that are shown whole or not at all, by where they begin.

    They may overlap: a date in a quotation is protected with it.

    >>> text = 'He said "not before 3 May 2025" of order PX-0042.'
    >>> [span.of(text) for span in protected(text)]
    ['"not before 3 May 2025"', '3 May 2025', 'PX-0042']
    """
    found = [Span(one.start, one.end) for one in quantities(text)]
    found += [Span(one.start, one.end) for one in dates(text)]
    found += identifiers(text)
    found += code(text)
    found += [Span(*match.span()) for match in QUOTATION.finditer(text)]
    return sorted(found, key=lambda span: (span.start, span.end))


def joined(pieces: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """Pieces of a text, in order, with those joined that a protected stretch runs across.

    Args:
        pieces: in order, not overlapping.
        spans: protected stretches, by where they begin.
    """
    found: list[Span] = []
    ahead = sorted(spans, key=lambda span: span.start)
    place, reach = 0, -1
    for piece in pieces:
        # The furthest end of what begins before this piece does.
        while place < len(ahead) and ahead[place].start < piece.start:
            reach = max(reach, ahead[place].end)
            place += 1
        if found and reach > piece.start:
            found[-1] = Span(found[-1].start, piece.end)
        else:
            found.append(piece)
    return found
