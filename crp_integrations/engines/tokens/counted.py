"""What every counter shares: its identity, and sums over texts and messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from crp_integrations.engines.tokens.overhead import GENERIC, Overhead, messages_tokens
from crp_integrations.messages import Message
from crp_integrations.vocabulary import Exactness


class Counted(ABC):
    """A token counter that only has to say how it counts one text.

    Attributes:
        identity: engine, vocabulary and hash; the key under which counts are stored.
        exactness: how far the counts can be trusted for the model at hand.
        source: the vocabulary and where it was found.
    """

    def __init__(
        self,
        identity: str,
        exactness: Exactness,
        source: str,
        overhead: Overhead = GENERIC,
    ) -> None:
        self.identity: Final = identity
        self.exactness: Final = exactness
        self.source: Final = source
        self._overhead = overhead

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens of a text."""

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the format around each message."""
        return messages_tokens(messages, self.count, self._overhead)
