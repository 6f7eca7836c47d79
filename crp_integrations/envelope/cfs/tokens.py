"""Counting and cutting by tokens: the simple approximation, and any model's own counter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from crp_integrations.ports import TokenCounter

DOTS = "..."
SIMPLE = "simple@1"
CHARACTERS = 4


class ContextTokenizer(Protocol):
    """Counts the tokens of texts and cuts them.

    Spec: CFS-021 §4

    Equal identities count equally.
    """

    @property
    def identity(self) -> str:
        """Its name."""
        ...

    @property
    def keeps_counts(self) -> bool:
        """Whether counting costs so much that the fabric should keep the counts."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, at least 0."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        ...

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text, or its beginning and three dots; a code point is never split."""
        ...


class SimpleTokenizer:
    """Four characters a token; the default where no model is named.

    Spec: CFS-021 §4

    >>> SimpleTokenizer().count_tokens("12345"), SimpleTokenizer().truncate_to_tokens("1234567", 1)
    (2, '1234...')
    """

    identity: Final = SIMPLE
    keeps_counts: Final = False

    def count_tokens(self, text: str) -> int:
        """A quarter of the characters, rounded up."""
        return (len(text) + CHARACTERS - 1) // CHARACTERS

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count_tokens(text) for text in texts]

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text up to four characters a token; the three dots come on top of them."""
        most = max(0, max_tokens) * CHARACTERS
        return text if len(text) <= most else text[:most].strip() + DOTS


class ModelTokenizer:
    """Counts as a model does, through the counter of that model.

    Spec: CFS-021 §4
    """

    keeps_counts: Final = True

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    @property
    def identity(self) -> str:
        """The counter's identity."""
        return self._counter.identity

    def count_tokens(self, text: str) -> int:
        """Tokens as the model counts them."""
        return max(0, self._counter.count(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [max(0, count) for count in self._counter.count_many(texts)]

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text, or a beginning with three dots that has at most `max_tokens` with them.

        It is cut where one character more would be too much. Empty where not even the dots fit.
        """
        if self.count_tokens(text) <= max_tokens:
            return text

        def cut(end: int) -> str:
            return text[:end].strip() + DOTS

        def fits(end: int) -> bool:
            return self.count_tokens(cut(end)) <= max_tokens

        if not fits(0):
            return ""
        # Galloping first: a long text is not counted whole to keep a little of it.
        low, high = 0, min(len(text), max(1, max_tokens) * CHARACTERS)
        while fits(high):
            if high == len(text):
                return cut(high)
            low, high = high, min(len(text), 2 * high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return cut(low)
