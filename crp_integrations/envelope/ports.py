"""Protocols that assembling an envelope needs: reranker, tokenizer and graph walker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Reranker(Protocol):
    """Scores how well texts answer a query, reading both together; thread-safe.

    Attributes:
        identity: a name for everything that determines the scores; every envelope records it.
    """

    @property
    def identity(self) -> str: ...

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """A score in [0, 1] for each text, in order; higher is better.

        Raises:
            EngineError: the library that it uses failed.
        """
        ...


class ContextTokenizer(Protocol):
    """Counts the tokens of texts and cuts them. Equal identities count equally.

    Spec: CFS-021 §4

    Attributes:
        identity: the tokenizer's name.
        keeps_counts: whether counting is so slow that the fabric should store the counts.
    """

    @property
    def identity(self) -> str: ...

    @property
    def keeps_counts(self) -> bool: ...

    def count_tokens(self, text: str) -> int: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text, or its beginning with three dots; a code point is never split."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """An undirected link between two nodes of a graph.

    Attributes:
        left, right: names of nodes: ids of facts, or something that facts have in common.
        kind: the kind of relation, such as `entity`.
        weight: share of a strength that the link passes on, fixed point in [0, SCALE].
        length: 2 between two facts, 1 between a fact and something it has in common with others,
            so that two linked facts are always one hop apart.
    """

    left: str
    right: str
    kind: str
    weight: int
    length: int


@dataclass(frozen=True, slots=True)
class ReachedNode:
    """How a node is reached from the best facts.

    Attributes:
        hop: number of steps from fact to fact, at least 1.
        strength: strength of the path's first fact times the weights of its links, fixed point.
        via: kinds of the links on the path.
    """

    hop: int
    strength: int
    via: tuple[str, ...]


class Walker(Protocol):
    """Walks a graph; equal links always give equal paths. Thread-safe.

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
    ) -> dict[str, ReachedNode]:
        """The path to each node within this many hops: the shortest, among these the strongest.

        Args:
            seeds: nodes where paths begin, with fixed-point strengths; they are not in the result.
            barred: nodes that no path may touch, such as those that a label filter excludes.
        """
        ...
