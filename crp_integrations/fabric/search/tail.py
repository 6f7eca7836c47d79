"""Rows that grow at their end, shared by the pictures that each see a part of them."""

from __future__ import annotations

import numpy as np

from crp_integrations.vectors import FloatRows

_FIRST_ROOM = 64


class Tail:
    """The rows behind a base block, for one picture; `grown` makes that of the next.

    Rows are written once, behind the last that any picture sees, so pictures share one array and
    a new fact costs one row. Only the picture with the most rows grows in place; any other one
    copies what it sees. Growing happens under the lock of whoever makes pictures.
    """

    __slots__ = ("_length", "_room", "_used", "ids")

    def __init__(self, dimensions: int) -> None:
        self.ids: list[str] = []
        self._room: FloatRows = np.zeros((0, dimensions), dtype=np.float32)
        self._length = 0
        # Rows of `_room` and `ids` that are taken, by any picture; a list, since it is shared.
        self._used = [0]

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> FloatRows:
        """Unit rows, shape (length, dimensions)."""
        return self._room[: self._length]

    def grown(self, ids: list[str], rows: FloatRows) -> Tail:
        """The same with more rows at the end."""
        wanted = self._length + len(ids)
        made = object.__new__(Tail)
        if self._used[0] == self._length and wanted <= len(self._room):
            made.ids, made._room, made._used = self.ids, self._room, self._used
        else:
            room = np.empty((max(_FIRST_ROOM, 2 * wanted), self._room.shape[1]), dtype=np.float32)
            room[: self._length] = self.rows
            made.ids, made._room, made._used = self.ids[: self._length], room, [self._length]
        made._room[self._length : wanted] = rows
        made.ids.extend(ids)
        made._used[0] = wanted
        made._length = wanted
        return made
