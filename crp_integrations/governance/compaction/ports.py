"""What compaction asks of the world: a place for large texts, and a model that sums up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from crp_integrations.governance.compaction.records import ArtifactRef


class Artifacts(Protocol):
    """Keeps texts out of the prompt; equal texts get equal references."""

    def put(self, text: str, *, kind: str, sources: Sequence[str]) -> ArtifactRef:
        """Keep a text.

        Args:
            kind: `prose`, `log`, `search`, `data`, or `summary`.
            sources: ids of the items that it comes from.

        Raises:
            StoreError: it could not be kept; nothing is then taken out of the prompt.
        """
        ...


class Summariser(Protocol):
    """Writes a summary; what it writes is checked before it is used."""

    @property
    def identity(self) -> str:
        """A name for everything that decides its texts; it stands in the summary's record."""
        ...

    def summarise(self, passages: Sequence[str], question: str, tokens: int) -> str:
        """A summary of numbered passages, each sentence with its numbers, such as `[2]`.

        Args:
            passages: the first one's number is 1.
            tokens: most that the summary may have.

        Raises:
            ModelError: no summary came; the extractive one is used.
        """
        ...
