"""What assembling an envelope asks of an engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Reranker(Protocol):
    """Says how well texts answer a query, looking at both together; safe under threads.

    Attributes:
        identity: a name for everything that decides the scores; it stands in every envelope.
    """

    @property
    def identity(self) -> str: ...

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """A score in [0, 1] for each text, in order; higher is better.

        Raises:
            EngineError: the library behind it failed.
        """
        ...


class ContextTokenizer(Protocol):
    """Counts the tokens of texts and cuts them. Equal identities count equally.

    Spec: CFS-021 §4

    Attributes:
        identity: its name.
        keeps_counts: counting costs so much that the fabric should keep the counts.
    """

    @property
    def identity(self) -> str: ...

    @property
    def keeps_counts(self) -> bool: ...

    def count_tokens(self, text: str) -> int: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text, or its beginning and three dots; a code point is never split."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """A relation between two nodes of a graph, walked both ways.

    Attributes:
        left, right: names of nodes: ids of facts, or what facts have in common.
        kind: what relates them.
        weight: how much of a strength passes, fixed point in [0, SCALE].
        length: 2 between facts, 1 between a fact and what it has in common with others, so that
            two facts are one hop apart either way.
    """

    left: str
    right: str
    kind: str
    weight: int
    length: int


@dataclass(frozen=True, slots=True)
class Reached:
    """How a node is reached from the best facts.

    Attributes:
        hop: steps from fact to fact, at least 1.
        strength: of the fact that the way begins at, times the weights on the way, fixed point.
        via: kinds of the links on the way.
    """

    hop: int
    strength: int
    via: tuple[str, ...]


class Walker(Protocol):
    """Walks a graph; equal links always give equal ways. Safe under threads.

    Attributes:
        identity: library and version.
    """

    @property
    def identity(self) -> str: ...

    def reach(
        self,
        links: Sequence[Link],
        seeds: Mapping[str, int],
        hops: int,
        barred: Collection[str],
    ) -> dict[str, Reached]:
        """The way to each node within so many hops: the shortest, of equal ones the strongest.

        Args:
            seeds: where ways begin, with their strengths, fixed point; they are not reached.
            barred: nodes that no way may touch, such as those that a label filter shuts out.
        """
        ...
