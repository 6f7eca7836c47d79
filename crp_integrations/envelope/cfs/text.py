"""The text with a marker for each document (`cfs-format@1`), counted whole (`cfs-whole@1`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from crp_integrations.envelope.cfs.pack import ContextPackResult, Placed, cut_to
from crp_integrations.envelope.cfs.tokens import ContextTokenizer

FORMAT = "cfs-format@1"


class MarkedChunk(Protocol):
    """What is needed of a chunk to show it."""

    @property
    def document_id(self) -> str:
        """Of the document that it is from."""
        ...

    @property
    def document_path(self) -> str:
        """What stands in the marker."""
        ...

    @property
    def text(self) -> str:
        """What stands in the context."""
        ...


def marker(path: str) -> str:
    r"""The line above a document's chunks; a line break in a path would forge another.

    >>> marker("notes/a.md")
    '[DOC: notes/a.md]\n'
    """
    return f"[DOC: {' '.join(path.splitlines())}]\n"


def format_context(chunks: Iterable[MarkedChunk], separator: str = "\n") -> str:
    """The chunks in their order, a header wherever the document changes.

    Spec: CFS-021 §9 (decision F2)
    """
    parts: list[str] = []
    current: str | None = None
    for chunk in chunks:
        if chunk.document_id != current:
            if current is not None:
                parts.append(separator)
            parts.append(marker(chunk.document_path))
            current = chunk.document_id
        parts += (chunk.text, "\n")
    return "".join(parts)


WHOLE = "cfs-whole@1"


def fit_text(
    packing: ContextPackResult,
    *,
    available: int,
    places: Mapping[str, int],
    tokenizer: ContextTokenizer,
    separator: str,
    binding: bool,
) -> tuple[ContextPackResult, str, int]:
    """Format and count; where that binds, shorten what was cut and drop the lowest-ranked chunks.

    Markers are charged with a fixed number of tokens each, and a long path has more; and counts
    of parts need not add up to the count of the whole.

    Spec: CFS-021 §9, §P2 (decision F1)
    """
    while True:
        text = format_context(packing.placed, separator)
        count = tokenizer.count_tokens(text)
        if not binding or count <= available or not packing.placed:
            return packing, text, count
        packing = ContextPackResult(
            _lighter(packing.placed, count - available, places, tokenizer), packing.ended
        )


def _lighter(
    placed: Sequence[Placed], excess: int, places: Mapping[str, int], tokenizer: ContextTokenizer
) -> tuple[Placed, ...]:
    """The chunks with some tokens less, at least one."""
    cut = next((number for number, chunk in enumerate(placed) if chunk.cut), None)
    if cut is not None:
        chunk = placed[cut]
        shorter = cut_to(chunk.result.chunk.text, chunk.tokens - excess, tokenizer)
        kept = [] if shorter is None else [replace(chunk, text=shorter[0], tokens=shorter[1])]
        return (*placed[:cut], *kept, *placed[cut + 1 :])
    gone: set[str] = set()
    freed = 0
    # A chunk's share of the whole is at most twice what it was counted as, so none goes that
    # one by one would have stayed.
    for chunk in sorted(placed, key=lambda chunk: -places[chunk.result.chunk.id]):
        gone.add(chunk.result.chunk.id)
        freed += chunk.tokens
        if 2 * freed >= excess:
            break
    return tuple(chunk for chunk in placed if chunk.result.chunk.id not in gone)
