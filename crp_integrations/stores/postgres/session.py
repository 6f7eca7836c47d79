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

from crp_integrations.stores.postgres.dialect import vector_sent

_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# After these psycopg has the server forget every prepared statement.
_FORGETS = re.compile(r"\b(?:DROP|ALTER|ROLLBACK|DISCARD|DEALLOCATE)\b", re.IGNORECASE)
# Statements that are kept prepared.
MOST_PREPARED = 50


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows its search path, and which statements of ours are prepared."""

    # The schema that readers find their tables in; empty when that is not known.
    schema = ""
    # Of pgvector's type; 0 before it is known.
    vector_oid = 0

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

    @property
    def doubts(self) -> bool:
        """Whether there is something to settle."""
        return bool(self._crp_doubtful)

    def settle(self) -> None:
        """Let the server forget what is not relied on; outside of a transaction."""
        while self._crp_doubtful:
            # It answers with an error when it has forgotten it already.
            self.pgconn.exec_(b"DEALLOCATE " + self._crp_doubtful.pop())

    def sent(self, statement: str, values: Sequence[Any], then: str = "") -> list[tuple[Any, ...]]:
        """The rows of a query of ours, in binary form.

        Args:
            statement: with `$1` and so on for the values.
            then: a statement without values for the same round trip; none by default.
        """
        transformer = Transformer(self)
        parameters = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        # A value that is None would do as well; no search has one.
        given = cast("Sequence[Buffer]", parameters)
        asked = (given, transformer.types or (), transformer.formats or ())
        result = self._crp_sent(statement, *asked, then)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def sent_near(self, statement: str, vector: bytes, then: str = "") -> list[tuple[Any, ...]]:
        """As `sent`, for a vector as the one value and bytes in every column.

        Args:
            vector: little-endian numbers.
        """
        given = (vector_sent(vector),)
        result = self._crp_sent(statement, given, (self.vector_oid,), (Format.BINARY,), then)
        columns = range(result.nfields)
        return [
            tuple([result.get_value(row, column) for column in columns])
            for row in range(result.ntuples)
        ]

    def together(self, *statements: str) -> PGresult:
        """Carry out statements of ours without values in one round trip.

        Returns:
            What the last one gave, as texts.

        Raises:
            psycopg.Error: one was refused, and those behind it were not carried out.
        """
        return self._crp_in_turn(*[(self._crp_named(one, ()), ()) for one in statements])[-1]

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

    def _crp_sent(
        self,
        statement: str,
        given: Sequence[Buffer],
        types: tuple[int, ...],
        formats: Sequence[Format],
        then: str,
    ) -> PGresult:
        name = self._crp_named(statement, types)
        asked = (name, given, formats, Format.BINARY)
        if then:
            return self._crp_in_turn(asked, (self._crp_named(then, ()), ()))[0]
        return self.checked(self.pgconn.exec_prepared(*asked))

    def _crp_in_turn(self, *asked: tuple[Any, ...]) -> list[PGresult]:
        """What prepared statements gave, carried out one behind the other in one round trip.

        Args:
            asked: what `send_query_prepared` takes for each.
        """
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        for one in asked:
            pgconn.send_query_prepared(*one)
        pgconn.pipeline_sync()
        results = [self._crp_next() for _ in asked]
        # The end of the pipeline.
        self._crp_next()
        pgconn.exit_pipeline_mode()
        return [self.checked(result) for result in results]

    def _crp_next(self) -> PGresult:
        """What the server says next in a pipeline."""
        result = self.pgconn.get_result()
        if result is None:
            # The end of what the statement before gave.
            result = self.pgconn.get_result()
        if result is None:
            raise psycopg.OperationalError("the connection is lost")
        return result

    def _crp_named(self, statement: str, types: tuple[int, ...]) -> bytes:
        name = self._crp_names.get((statement, types))
        return self._crp_prepare(statement, types) if name is None else name

    def _crp_prepare(self, statement: str, types: tuple[int, ...]) -> bytes:
        if len(self._crp_names) >= MOST_PREPARED:
            self._crp_doubtful += self._crp_names.values()
            self._crp_names.clear()
        self._crp_count += 1
        name = b"crp_%d" % self._crp_count
        self.checked(self.pgconn.prepare(name, statement.encode(), types))
        self._crp_names[statement, types] = name
        return name
