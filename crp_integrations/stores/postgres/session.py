"""A connection of the pool, with what it keeps between transactions.

A statement that is asked again and again is prepared once and sent by libpq itself, which waits
for the server in one call: a cursor of psycopg costs a fifth of a millisecond more where an answer
comes in many pieces. No signal is heard meanwhile, so only searches of readers go this way, which
wait for no writer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import psycopg
from psycopg import errors
from psycopg.abc import Buffer, Query
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# After these psycopg has the server forget every prepared statement.
_FORGETS = re.compile(r"\b(?:DROP|ALTER|ROLLBACK|DISCARD|DEALLOCATE)\b", re.IGNORECASE)
# Statements that are kept prepared.
MOST_PREPARED = 50


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows its search path, and which statements of ours are prepared."""

    # The schema that readers find their tables in; empty when that is not known.
    schema = ""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._crp_names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        # Names that the server may have forgotten.
        self._crp_doubtful: list[bytes] = []
        self._crp_count = 0

    def execute(self, query: Query, *given: Any, **named: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """As psycopg does; notes what the server forgets with it."""
        text = query.decode() if isinstance(query, bytes) else str(query)
        if _FORGETS.search(text):
            self.forget()
        return super().execute(query, *given, **named)

    def rollback(self) -> None:
        """As psycopg does; notes what the server forgets with it."""
        self.forget()
        super().rollback()

    def forget(self) -> None:
        """Rely on nothing that was prepared or set."""
        self.schema = ""
        self._crp_doubtful += self._crp_names.values()
        self._crp_names.clear()

    def settle(self) -> None:
        """Let the server forget what is not relied on; outside of a transaction."""
        while self._crp_doubtful:
            # It answers with an error when it has forgotten it already.
            self.pgconn.exec_(b"DEALLOCATE " + self._crp_doubtful.pop())

    def sent(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of a query of ours, in binary form.

        Args:
            statement: with `$1` and so on for the values.
        """
        transformer = Transformer(self)
        parameters = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        types, formats = transformer.types or (), transformer.formats
        name = self._crp_names.get((statement, types))
        if name is None:
            name = self._crp_prepare(statement, types)
        # A value that is None would do as well; no search has one.
        given = cast("Sequence[Buffer]", parameters)
        result = self.pgconn.exec_prepared(name, given, formats, Format.BINARY)
        self.checked(result)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def checked(self, result: PGresult) -> PGresult:
        """The result of a statement that was carried out.

        Raises:
            psycopg.Error: it was not.
        """
        if result.status not in _DONE:
            if self.pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError("the connection is lost")
            raise errors.error_from_result(result)
        return result

    def _crp_prepare(self, statement: str, types: tuple[int, ...]) -> bytes:
        if len(self._crp_names) >= MOST_PREPARED:
            self._crp_doubtful += self._crp_names.values()
            self._crp_names.clear()
        self._crp_count += 1
        name = b"crp_%d" % self._crp_count
        self.checked(self.pgconn.prepare(name, statement.encode(), types))
        self._crp_names[statement, types] = name
        return name
