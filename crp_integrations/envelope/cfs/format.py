"""The text with a marker for each document (`cfs-format@1`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

FORMAT = "cfs-format@1"


class Shown(Protocol):
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


def format_context(chunks: Iterable[Shown], separator: str = "\n") -> str:
    """The chunks in their order, a header wherever the document changes.

    Spec: CFS-021 §9 (decision F2)

    Args:
        chunks: in the order of the context.
        separator: what stands before every header but the first; a line break gives an empty
            line between documents.
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
