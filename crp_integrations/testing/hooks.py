"""What the conformance suite asks of who writes a store, beside a fixture that makes one.

Each hook that is left as it is skips the tests that need it, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vectors import to_bytes


class Hooks:
    """How the tests reach what a store object does not show.

    Attributes:
        kills: how often a process is killed in one test.
        erasure_turns: turns of adding and removing before bytes are looked for, at least 3.
        erasure_batches: one of these numbers of facts is added in a turn.
    """

    kills: ClassVar[int] = 8
    erasure_turns: ClassVar[int] = 10
    erasure_batches: ClassVar[tuple[int, ...]] = (3, 40, 120)

    def reference(self) -> Store:
        """An empty store of another kind, which this one must do the same as."""
        return MemoryStore()

    def opener(self, store: Store) -> Callable[[], Store]:
        """What opens the same place in another process; picklable, such as a `partial`."""
        pytest.skip("this store lives in one process")

    def stored(self, store: Store) -> bytes:
        """Every byte that the store keeps where it keeps things, as it is now.

        Its files one behind the other; those of a server after a checkpoint. What an operator has
        to end himself, such as a log of writes, is left out.
        """
        pytest.skip("this store keeps no bytes that outlive it")

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
