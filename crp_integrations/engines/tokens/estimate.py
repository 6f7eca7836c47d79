"""Counts for models without a vocabulary on this machine; always labelled as estimates."""

from __future__ import annotations

import re
from typing import Final

from crp_integrations.engines.tokens.counted import Counted
from crp_integrations.engines.tokens.formats import GENERIC
from crp_integrations.engines.tokens.overhead import ChatFormat
from crp_integrations.engines.tokens.text import encodable
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import Exactness

_LETTERS = re.compile(r"[A-Za-z ]")


class ScaledCounter(Counted):
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


class CharacterCounter(Counted):
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
