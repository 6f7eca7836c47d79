"""What the rules may ask besides themselves: a model that knows injections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class InjectionModel(Protocol):
    """Says of texts how probable it is that they give orders to their reader. Thread-safe.

    Attributes:
        identity: name and version, shown in reports.
    """

    @property
    def identity(self) -> str: ...

    def score(self, texts: Sequence[str]) -> Sequence[float]:
        """One probability in [0, 1] for each text.

        Raises:
            EngineError: the model failed. Whoever asks must treat the texts as not looked at.
        """
        ...
