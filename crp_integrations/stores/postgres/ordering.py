"""Writers of one namespace take turns, from the first thing on that depends on the others.

The lock is the row of the generation. A transaction that only adds facts takes it last, when the
slow work on the indexes is done.
"""

from __future__ import annotations

from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.rules import Gate

_LOCK = "SELECT value FROM own WHERE name = 'generation' FOR UPDATE"


class Turn(Gate):
    """A gate that takes the namespace's lock before the first read or write of a writer."""

    __slots__ = ("_connection", "_held")

    def __init__(self, connection: Connection, *, write: bool) -> None:
        super().__init__(write=write)
        self._connection = connection
        # A reader sees one state throughout and waits for nobody.
        self._held = not write

    def reading(self) -> None:
        """Let a read pass; a writer's sees what the last writer left.

        Raises:
            StoreBusy: another writer held the lock for too long.
            StoreError: the transaction has ended.
        """
        super().reading()
        if not self._held:
            self._connection.rows(_LOCK)
            self._held = True

    def adding(self) -> None:
        """Let facts be added before the lock is taken.

        Raises:
            StoreError: the transaction has ended or was opened for reading.
        """
        if self._held:
            self.writing()
        else:
            super().reading()
