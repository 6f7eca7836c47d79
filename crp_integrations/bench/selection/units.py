"""Units of text that the peers search and pack: whole sentences, up to so many tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crp_integrations.bench.selection.axis import Axis, Stretch
from crp_integrations.bench.selection.data import Text
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.language.sentences import split_sentences
from crp_integrations.ports import TokenCounter

UNIT_TOKENS = 200
CUTTER = "sentences-to-200@1"


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of a document that is found and packed as a whole.

    Attributes:
        tokens: of its text with marker and separator, as rendered.
        stretches: where it stands on the collection's axis; empty when no document holds it.
    """

    unit_id: str
    doc_id: str
    text: str
    tokens: int
    stretches: tuple[Stretch, ...]


def cut(text: str, counter: TokenCounter, limit: int = UNIT_TOKENS) -> Iterator[tuple[int, int]]:
    """Cut a text into stretches of whole sentences with at most `limit` tokens each.

    A sentence above the limit is cut at white space. Nothing overlaps; every character that is
    no white space is in exactly one stretch.

    Yields:
        Character offsets, half-open, in order.
    """
    pieces = list(_pieces(text, counter, limit))
    start, end, used = -1, -1, 0
    for first, last, tokens in pieces:
        if start >= 0 and (used + tokens > limit or counter.count(text[start:last]) > limit):
            yield start, end
            start, used = -1, 0
        start = first if start < 0 else start
        end, used = last, used + tokens
    if start >= 0:
        yield start, end


def _pieces(text: str, counter: TokenCounter, limit: int) -> Iterator[tuple[int, int, int]]:
    spans = split_sentences(text)
    counts = counter.count_many([text[span.start : span.end] for span in spans])
    for span, tokens in zip(spans, counts, strict=True):
        if tokens <= limit:
            yield span.start, span.end, tokens
        else:
            yield from _words(text, span.start, span.end, counter, limit)


def _words(
    text: str, start: int, end: int, counter: TokenCounter, limit: int
) -> Iterator[tuple[int, int, int]]:
    while start < end:
        # No token of these vocabularies is longer on average than this many characters.
        low, high = start + 1, min(end, start + 16 * limit)
        while low < high:
            middle = (low + high + 1) // 2
            if counter.count(text[start:middle]) <= limit:
                low = middle
            else:
                high = middle - 1
        stop = low
        if stop < end:
            space = max(text.rfind(" ", start + 1, stop + 1), text.rfind("\n", start + 1, stop + 1))
            stop = space if space > start else stop
        yield start, stop, counter.count(text[start:stop])
        start = stop
        while start < end and text[start].isspace():
            start += 1


def units(texts: Sequence[Text], axis: Axis, counter: TokenCounter) -> list[Unit]:
    """All documents of a collection as units, in order.

    Args:
        counter: counts the limit of a unit, and a unit as it is packed.
    """
    made: list[Unit] = []
    for one in texts:
        spans = list(cut(one.text, counter))
        contents = [one.text[start:end].strip() for start, end in spans]
        counts = counter.count_many([marker_text(content) for content in contents])
        for number, (start, end) in enumerate(spans):
            made.append(
                Unit(
                    f"{one.doc_id}#{number}",
                    one.doc_id,
                    contents[number],
                    counts[number],
                    (axis.at(one.doc_id, start, end),),
                )
            )
    return made
