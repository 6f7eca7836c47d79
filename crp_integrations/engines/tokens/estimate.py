"""Counts for models without a vocabulary on this machine; always labelled as estimates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crp_integrations.engines.tokens.overhead import GENERIC, messages_tokens
from crp_integrations.engines.tokens.text import encodable
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import Exactness

_LETTERS = re.compile(r"[A-Za-z ]")


class ScaledCounter:
    """Another vocabulary's count times a factor, rounded up.

    Attributes:
        per_mille: the factor in thousandths, so that counts stay integers.
    """

    def __init__(self, base: TokenCounter, *, per_mille: int, family: str) -> None:
        self._base = base
        self.per_mille = per_mille
        self._family = family

    @property
    def identity(self) -> str:
        """The factor and the identity of the counter behind it."""
        return f"estimate:{self.per_mille}:{self._base.identity}"

    @property
    def exactness(self) -> Exactness:
        """Always an estimate."""
        return Exactness.ESTIMATE

    @property
    def source(self) -> str:
        """What is multiplied by what, and for which family."""
        return f"{self._base.source} × {self.per_mille / 1000:.2f} for {self._family}"

    def count(self, text: str) -> int:
        """Estimated tokens of a text."""
        return -(-self._base.count(text) * self.per_mille // 1000)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Estimated tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Estimated tokens of a conversation."""
        return messages_tokens(messages, self.count, GENERIC)


class CharacterCounter:
    """The estimate without any vocabulary (`characters@1`), meant to err upwards.

    A third of a token for each ASCII letter or space, two thirds for every other ASCII
    character, half a token for each UTF-8 byte of the rest.
    """

    @property
    def identity(self) -> str:
        """Name and version of the rule."""
        return "characters@1"

    @property
    def exactness(self) -> Exactness:
        """Always an estimate."""
        return Exactness.ESTIMATE

    @property
    def source(self) -> str:
        """Says that no vocabulary is behind the counts."""
        return "characters, since no vocabulary was found"

    def count(self, text: str) -> int:
        """Estimated tokens of a text."""
        data = encodable(text).encode()
        ascii_characters = sum(byte < 128 for byte in data)
        letters = len(_LETTERS.findall(text))
        sixths = 2 * letters + 4 * (ascii_characters - letters) + 3 * (len(data) - ascii_characters)
        return -(-sixths // 6)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Estimated tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Estimated tokens of a conversation."""
        return messages_tokens(messages, self.count, GENERIC)
