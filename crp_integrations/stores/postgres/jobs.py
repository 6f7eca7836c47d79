"""Jobs as rows: who works on one holds its row's lock, which goes with his connection.

`FOR UPDATE SKIP LOCKED` passes over what others hold. The result is written and committed by the
same transaction, so a job has at most one. That transaction is open for as long as the work takes:
while one is, `scrub` of any namespace is put off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from crp_integrations.fabric.ports.store import ClaimedJob
from crp_integrations.stores.postgres.connection import Connection
from crp_integrations.stores.statements import Among

_NEXT = (
    "SELECT job_id FROM jobs WHERE batch = ? AND result IS NULL "
    "ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_PUT = (
    "INSERT INTO jobs (batch, job_id) SELECT ?, job_id FROM unnest(?::text[]) "
    "WITH ORDINALITY AS given (job_id, number) ORDER BY number ON CONFLICT DO NOTHING"
)


class PostgresJobs:
    """The jobs of a store's namespaces."""

    def __init__(self, begin: Callable[[str], AbstractContextManager[Connection]]) -> None:
        """Take what opens a transaction in the schema of a namespace."""
        self._begin = begin

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that are not there yet."""
        with self._begin(namespace) as connection:
            return connection.execute(_PUT, [batch, Among(dict.fromkeys(ids))]).rowcount

    @contextmanager
    def claim(self, namespace: str, batch: str) -> Iterator[ClaimedJob | None]:
        """The next job without a result whose row nobody has locked."""
        with self._begin(namespace) as connection:
            found = connection.one(_NEXT, [batch])
            if found is None:
                yield None
                return
            job_id = str(found[0])

            def finish(result: str) -> None:
                connection.execute(
                    "UPDATE jobs SET result = ? WHERE batch = ? AND job_id = ?",
                    [result, batch, job_id],
                )

            yield ClaimedJob(job_id, finish)

    def results(self, namespace: str, batch: str) -> dict[str, str | None]:
        """The result of each job in the order they came."""
        with self._begin(namespace) as connection:
            statement = "SELECT job_id, result FROM jobs WHERE batch = ? ORDER BY place"
            return dict(connection.rows(statement, [batch]))

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch; waits for those who work on it."""
        with self._begin(namespace) as connection:
            return connection.execute("DELETE FROM jobs WHERE batch = ?", [batch]).rowcount
