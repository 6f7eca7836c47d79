"""Counts that an envelope was made with: remembered as they are asked for, and given again.

Ranking and packing go by the candidates' own counts. A few more are asked for on the way: of the
text as a whole, of its beginning, and of parts of facts. They are remembered in their order, as
numbers alone, so that an envelope can be made again where its tokenizer is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.errors import EngineError
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import Exactness


class Remembering:
    """A counter that remembers what it has counted.

    Attributes:
        asked: every count of a text, in order.
    """

    def __init__(self, counter: TokenCounter) -> None:
        """Count as another counter does."""
        self._counter = counter
        self.asked: list[int] = []

    @property
    def identity(self) -> str:
        """The counter's own."""
        return self._counter.identity

    @property
    def exactness(self) -> Exactness:
        """The counter's own."""
        return self._counter.exactness

    @property
    def source(self) -> str:
        """The counter's own."""
        return self._counter.source

    def count(self, text: str) -> int:
        """Tokens of a text."""
        found = self._counter.count(text)
        self.asked.append(found)
        return found

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        found = self._counter.count_many(texts)
        self.asked += found
        return found

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation; no envelope asks for it, so it is not remembered."""
        return self._counter.count_messages(messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions; likewise."""
        return self._counter.count_tools(tools)


class Remembered:
    """A counter that gives remembered counts, in their order.

    Attributes:
        left: how many were not asked for.
    """

    def __init__(
        self, counts: Sequence[int], *, identity: str, exactness: Exactness, source: str
    ) -> None:
        """Take the counts and what the counter was."""
        self.identity = identity
        self.exactness = exactness
        self.source = source
        self._counts = counts
        self._next = 0

    @property
    def left(self) -> int:
        """How many counts were not asked for."""
        return len(self._counts) - self._next

    def count(self, text: str) -> int:
        """The next count.

        Raises:
            EngineError: there is none.
        """
        if self._next >= len(self._counts):
            raise EngineError(
                f"count {self._next + 1} is asked for, and {len(self._counts)} were remembered",
                engine=self.identity,
            )
        self._next += 1
        return self._counts[self._next - 1]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The next counts, one for each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """No envelope asks for it.

        Raises:
            EngineError: always.
        """
        raise EngineError("counts of conversations were not remembered", engine=self.identity)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """No envelope asks for it.

        Raises:
            EngineError: always.
        """
        raise EngineError("counts of tools were not remembered", engine=self.identity)
