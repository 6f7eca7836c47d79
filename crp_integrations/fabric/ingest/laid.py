"""Passages of long documents, put down while the documents are ingested."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable

from crp_integrations.fabric.ingest.chunking import Chunk
from crp_integrations.fabric.ports.scratch import Scratch


class Laid:
    """Pieces of one document in a scratch, in order; 8 bytes of each are in memory."""

    __slots__ = ("_ends", "_scratch")

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        # Where the first begins, and then where each ends.
        self._ends = array("Q")

    def __len__(self) -> int:
        return max(0, len(self._ends) - 1)

    def add(self, piece: Chunk) -> bool:
        """Put a piece down behind the others; whether there was room for it."""
        fields = [piece.content, piece.start, piece.end, piece.page, piece.last_page, piece.heading]
        data = json.dumps(fields, ensure_ascii=False).encode()
        start = self._scratch.put(data)
        if start is None:
            return False
        if not self._ends:
            self._ends.append(start)
        self._ends.append(start + len(data))
        return True

    def __getitem__(self, place: int) -> Chunk:
        start, end = self._ends[place], self._ends[place + 1]
        return Chunk(*json.loads(self._scratch.get(start, end - start)))


class Laying:
    """Gives each long document its place; the scratch is made when the first one needs it."""

    def __init__(self, make: Callable[[], Scratch | None]) -> None:
        self._make = make
        self._scratch: Scratch | None = None
        self._made = False

    def laid(self) -> Laid | None:
        """A place for the pieces of one document, to be filled before the next one is asked for.

        None where the store has none: then documents are cut again instead.
        """
        if not self._made:
            self._scratch, self._made = self._make(), True
        return None if self._scratch is None else Laid(self._scratch)

    def close(self) -> None:
        """Forget all of it."""
        if self._scratch is not None:
            self._scratch.close()
