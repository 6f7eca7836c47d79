"""A store with a table of jobs, so that many processes share a work and do nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

from crp_integrations.fabric.ports.store import Store


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that nobody else has.

    Attributes:
        finish: notes the job's result, ids and numbers as JSON; it stands when the block ends.
    """

    job_id: str
    finish: Callable[[str], None]


class Jobs(Protocol):
    """Jobs of one batch after another; a job is its id, a hash, and its result is no content."""

    def put(self, namespace: str, batch: str, ids: Sequence[str]) -> int:
        """Add the jobs that are not there yet; returns how many that were."""
        ...

    def claim(self, namespace: str, batch: str) -> AbstractContextManager[Claim | None]:
        """The next job without a result that nobody has, for the length of the block.

        When the block raises, or the process dies, the job is free again without a result.

        Returns:
            None when every job has a result or is somebody's.
        """
        ...

    def results(self, namespace: str, batch: str) -> Mapping[str, str | None]:
        """The result of each job in the order they came, None for one without."""
        ...

    def forget(self, namespace: str, batch: str) -> int:
        """Remove a batch; returns how many jobs it had."""
        ...


class _WithJobs(Protocol):
    @property
    def jobs(self) -> Jobs: ...

    def loading(self, namespace: str) -> AbstractContextManager[None]: ...


def jobs_of(store: Store) -> Jobs | None:
    """The jobs of a store; None for one that keeps none."""
    if not hasattr(store, "jobs"):
        return None
    return cast("_WithJobs", store).jobs


def loading(store: Store, namespace: str) -> AbstractContextManager[None]:
    """Tells a store that many batches of facts come within the block.

    One that keeps an index of vectors builds it once, after them; for another it does nothing.
    """
    if not hasattr(store, "loading"):
        return nullcontext()
    return cast("_WithJobs", store).loading(namespace)
