"""A place for bytes that are wanted again within the same call, and by nobody else."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Scratch(Protocol):
    """Bytes that bear no name: no other process finds them, and they are gone when it is closed."""

    def put(self, data: bytes) -> int | None:
        """Where the bytes begin; None where there is no room for them."""
        ...

    def get(self, start: int, size: int) -> bytes:
        """Bytes that were put.

        Raises:
            StoreError: they cannot be read back.
        """
        ...

    def close(self) -> None:
        """Forget everything."""
        ...


@runtime_checkable
class Scratching(Protocol):
    """What a store has that can put bytes down for a while, beside `Store`."""

    def scratch(self) -> Scratch | None:
        """A new scratch; None where none can be made."""
        ...


def scratch_in(store: object) -> Scratch | None:
    """As `Scratching`; None of a store that has none."""
    return store.scratch() if isinstance(store, Scratching) else None
