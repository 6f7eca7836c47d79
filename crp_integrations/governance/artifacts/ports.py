"""What artifacts need of the world: named bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ObjectStore(Protocol):
    """Bytes by name; safe under threads and between processes.

    A name is parts of `[A-Za-z0-9._-]` with `/` between, none of which begins with a dot.
    """

    @property
    def name(self) -> str:
        """Kind and place for people; no credential."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that is not there yet, whole or not at all.

        Returns:
            False, and nothing changes, where the name is taken. Of several that create one name at
            the same time exactly one gets True.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """An object's bytes; None where there is none.

        Raises:
            StoreError: it could not be read.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there does nothing.

        Raises:
            StoreError: it could not be removed.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Names that begin with whole parts, such as `a/b` for `a/b/c`, ascending.

        Raises:
            StoreError: they could not be listed.
        """
        ...
