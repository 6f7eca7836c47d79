"""What assembling an envelope asks of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Reranker(Protocol):
    """Says how well texts answer a query, looking at both together; safe under threads.

    Attributes:
        identity: a name for everything that decides the scores; it stands in every envelope.
    """

    @property
    def identity(self) -> str: ...

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """A score in [0, 1] for each text, in order; higher is better.

        Raises:
            EngineError: the library behind it failed.
        """
        ...
