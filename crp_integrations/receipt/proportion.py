"""Counts by the recorded ones, for whoever supposes something and has not the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.messages import Message
from crp_integrations.vocabulary import Exactness


class Proportion:
    """Counts tokens in proportion to characters, as recorded counts of facts have them."""

    exactness = Exactness.ESTIMATE
    source = "in proportion to recorded counts"

    def __init__(self, candidates: Candidates, identity: str) -> None:
        """Take the proportion of candidates.

        Args:
            identity: of the counter that made their counts.
        """
        self.identity = identity
        around = len(marker_text(""))
        self._characters = max(1, sum(len(one.content) + around for one in candidates.facts))
        self._tokens = sum(one.tokens for one in candidates.facts)

    def count(self, text: str) -> int:
        """Tokens of a text, rounded up."""
        return -(-len(text) * self._tokens // self._characters)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the messages' texts."""
        return sum(self.count(message.content) for message in messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """None are counted."""
        return 0
