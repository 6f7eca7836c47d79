"""A counter whose vocabulary is loaded when something is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import Exactness


class LaterCounter:
    """Counts as the counter that it makes at first use.

    A vocabulary takes a fifth of a second to load, and a relay that is opened to be searched
    counts nothing.

    Args:
        make: is called at most once for each thread that comes first.
    """

    def __init__(self, make: Callable[[], TokenCounter]) -> None:
        self._make = make
        self._made: TokenCounter | None = None

    @property
    def _counter(self) -> TokenCounter:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def identity(self) -> str:
        """The tokenizer's name."""
        return self._counter.identity

    @property
    def exactness(self) -> Exactness:
        """How far to trust it."""
        return self._counter.exactness

    @property
    def source(self) -> str:
        """Where the vocabulary is from."""
        return self._counter.source

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self._counter.count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return self._counter.count_many(texts)

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the family's overhead."""
        return self._counter.count_messages(messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions."""
        return self._counter.count_tools(tools)
