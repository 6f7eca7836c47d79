"""What every counter shares: its identity, and sums over texts, messages and tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from crp_integrations.engines.tokens.formats import GENERIC
from crp_integrations.engines.tokens.overhead import ChatFormat, messages_tokens, tools_tokens
from crp_integrations.messages import Message
from crp_integrations.vocabulary import Exactness


class Encoder(Protocol):
    """A loaded vocabulary; several counters share one."""

    @property
    def identity(self) -> str:
        """Engine, vocabulary and hash."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text, without those that open or close one."""
        ...


class Counted(ABC):
    """A token counter that only has to say how it counts one text.

    Attributes:
        identity: engine, vocabulary and hash; the key under which counts are stored.
        exactness: how far the counts can be trusted for the model at hand.
        source: the vocabulary and where it was found.
        chat: the format around messages and tools.
    """

    def __init__(
        self, identity: str, exactness: Exactness, source: str, chat: ChatFormat = GENERIC
    ) -> None:
        self.identity: Final = identity
        self.exactness: Final = exactness
        self.source: Final = source
        self.chat: Final = chat

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens of a text."""

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the format around each message."""
        return messages_tokens(messages, self.count, self.chat)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions in the form in which the family is sent them."""
        return tools_tokens(tools, self.count, self.chat)


class VocabularyCounter(Counted):
    """Counts with a vocabulary, as far as that is the model's own."""

    def __init__(
        self, encoder: Encoder, *, exactness: Exactness, source: str, chat: ChatFormat
    ) -> None:
        super().__init__(encoder.identity, exactness, source, chat)
        self._encoder = encoder

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self._encoder.count(text)
