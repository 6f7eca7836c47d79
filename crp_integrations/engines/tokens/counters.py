"""Token counters: with a vocabulary, scaled from another one, and by characters."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from crp_integrations.engines.tokens.chat_formats import (
    GENERIC,
    ChatFormat,
    messages_tokens,
    tools_tokens,
)
from crp_integrations.engines.tokens.encoders import encodable
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
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


class CounterBase(ABC):
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


class VocabularyCounter(CounterBase):
    """Counts with a vocabulary, as far as that is the model's own."""

    def __init__(
        self, encoder: Encoder, *, exactness: Exactness, source: str, chat: ChatFormat
    ) -> None:
        super().__init__(encoder.identity, exactness, source, chat)
        self._encoder = encoder

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self._encoder.count(text)


_LETTERS = re.compile(r"[A-Za-z ]")


class ScaledCounter(CounterBase):
    """Another vocabulary's count times a factor, rounded up.

    Attributes:
        per_mille: the factor in thousandths, so that counts stay integers.
    """

    def __init__(
        self, base: TokenCounter, *, per_mille: int, family: str, chat: ChatFormat
    ) -> None:
        super().__init__(
            f"estimate:{per_mille}:{base.identity}",
            Exactness.ESTIMATE,
            f"{base.source} × {per_mille / 1000:.2f} for {family}",
            chat,
        )
        self._base = base
        self.per_mille: Final = per_mille

    def count(self, text: str) -> int:
        """Estimated tokens of a text."""
        return -(-self._base.count(text) * self.per_mille // 1000)


class CharacterCounter(CounterBase):
    """The estimate without any vocabulary (`characters@1`), meant to err upwards.

    A third of a token for each ASCII letter or space, two thirds for every other ASCII
    character, half a token for each UTF-8 byte of the rest.
    """

    def __init__(self, chat: ChatFormat = GENERIC) -> None:
        source = "characters, since no vocabulary was found"
        super().__init__("characters@1", Exactness.ESTIMATE, source, chat)

    def count(self, text: str) -> int:
        """Estimated tokens of a text."""
        data = encodable(text).encode()
        ascii_characters = sum(byte < 128 for byte in data)
        letters = len(_LETTERS.findall(text))
        sixths = 2 * letters + 4 * (ascii_characters - letters) + 3 * (len(data) - ascii_characters)
        return -(-sixths // 6)
