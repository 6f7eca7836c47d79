"""Hooks by which the deeper laws reach what a store object does not show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.testing.conformance import StoreConformance
from crp_integrations.vectors import to_bytes


def run_threads(works: Iterable[Callable[[], None]]) -> None:
    """Run functions in a thread each, and wait for all of them."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class StoreHooks(StoreConformance):
    """The suite that ships, with more hooks; one that is left as it is skips what needs it.

    Attributes:
        kills: how often a process is killed in one test.
        erasure_turns: turns of adding and removing before bytes are looked for, at least 3.
        erasure_batches: one of these numbers of facts is added in a turn.
    """

    kills: ClassVar[int] = 8
    erasure_turns: ClassVar[int] = 10
    erasure_batches: ClassVar[tuple[int, ...]] = (3, 40, 120)

    def opener(self, store: Store) -> Callable[[], Store]:
        """What opens the same place in another process; picklable, such as a `partial`."""
        pytest.skip("this store lives in one process")

    def reopen(self, store: Store) -> Store:
        """Another store object over the same place."""
        return self.opener(store)()

    def number_bytes(self, row: npt.NDArray[np.float32]) -> bytes:
        """How the store writes the numbers of a vector; four little-endian bytes each."""
        return to_bytes(row)

    def login(self, store: Store, tenant: str, reads: Sequence[str] = ()) -> Store:
        """The store as the processes of a tenant have it, with the tenant's rights alone.

        Args:
            tenant: name of the namespace that it has; written before.
            reads: namespaces that it may read as well.
        """
        pytest.skip("this store has no logins")
