"""Jobs of the threads of one process."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from crp_integrations.fabric.ports.store import ClaimedJob

_Batch = tuple[str, str]


class MemoryJobs:
    """Jobs and results in memory; safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: defaultdict[_Batch, dict[str, str | None]] = defaultdict(dict)
        self._taken: set[tuple[_Batch, str]] = set()

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that are not there yet."""
        with self._lock:
            held = self._results[namespace, batch]
            fresh = [one for one in dict.fromkeys(ids) if one not in held]
            held.update(dict.fromkeys(fresh))
            return len(fresh)

    @contextmanager
    def claim(self, namespace: str, batch: str) -> Iterator[ClaimedJob | None]:
        """The next job without a result that no thread has."""
        place = (namespace, batch)
        with self._lock:
            free = (
                one
                for one, result in self._results[place].items()
                if result is None and (place, one) not in self._taken
            )
            found = next(free, None)
            if found is not None:
                self._taken.add((place, found))
        if found is None:
            yield None
            return
        said: list[str] = []
        try:
            yield ClaimedJob(found, said.append)
            with self._lock:
                if said:
                    self._results[place][found] = said[-1]
        finally:
            with self._lock:
                self._taken.discard((place, found))

    def results(self, namespace: str, batch: str) -> dict[str, str | None]:
        """The result of each job in the order they came."""
        with self._lock:
            return dict(self._results[namespace, batch])

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch."""
        with self._lock:
            return len(self._results.pop((namespace, batch), {}))
