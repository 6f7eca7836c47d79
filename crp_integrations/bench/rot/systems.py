"""The systems that are compared: ours, and the two frameworks' vector stores as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, Self

from crp_integrations.bench.selection.axis import Axis
from crp_integrations.bench.selection.data import Collection
from crp_integrations.bench.selection.metrics import Packed
from crp_integrations.bench.selection.ours import Ours
from crp_integrations.bench.selection.packing import pack
from crp_integrations.bench.selection.peers import Corpus
from crp_integrations.bench.selection.units import units
from crp_integrations.envelope.prompt import render
from crp_integrations.ports import Embedder, TokenCounter


class System(Protocol):
    """Makes the context for a question from one collection."""

    def pack(self, question: str, budget: int, k: int | None = None) -> Packed:
        """The context.

        Args:
            budget: tokens that it may have.
            k: passages that a peer asks its store for; None for the library's default. Ours has
                no such number.
        """
        ...

    def conversation(self, questions: Sequence[str], budget: int) -> list[str]:
        """The rendered contexts of questions that follow each other."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Relayed:
    """Our own envelope, under given settings."""

    def __init__(
        self, collection: Collection, axis: Axis, embedder: Embedder, settings: Mapping[str, Any]
    ) -> None:
        self._ours = Ours(collection, axis, embedder, dict(settings))

    def pack(self, question: str, budget: int, k: int | None = None) -> Packed:
        """The envelope of a turn."""
        return self._ours.packs(question, [budget])[budget]

    def conversation(self, questions: Sequence[str], budget: int) -> list[str]:
        """The envelopes' texts, each made with the one before."""
        return [one.text for one in self._ours.conversation(questions, budget)]

    def close(self) -> None:
        """Release the store."""
        self._ours.close()


class Store:
    """A framework's store: the k nearest passages, best first, as far as they fit."""

    def __init__(self, searched: Any, corpus: Corpus, counter: TokenCounter) -> None:
        self._store = searched
        self._corpus = corpus
        self._counter = counter

    @classmethod
    def langchain(cls, corpus: Corpus, counter: TokenCounter) -> Self:
        """LangChain's `InMemoryVectorStore`.

        Raises:
            ImportError: LangChain is not installed.
        """
        from crp_integrations.bench.peers.langchain import LangChainInMemory

        return cls(LangChainInMemory(corpus.ids, corpus.texts, corpus.rows), corpus, counter)

    @classmethod
    def llama_index(cls, corpus: Corpus, counter: TokenCounter) -> Self:
        """LlamaIndex's `SimpleVectorStore`.

        Raises:
            ImportError: LlamaIndex is not installed.
        """
        from crp_integrations.bench.peers.llama_index import LlamaIndexSimple

        return cls(LlamaIndexSimple(corpus.ids, corpus.texts, corpus.rows), corpus, counter)

    def pack(self, question: str, budget: int, k: int | None = None) -> Packed:
        """The nearest passages in rank order."""
        vector = self._corpus.embedder.embed_query(question)
        found = self._store.search(vector, k or self._store.default_k)
        return pack([self._corpus.units[int(place)] for place, _ in found], budget, self._counter)

    def conversation(self, questions: Sequence[str], budget: int) -> list[str]:
        """Each as if it were asked alone: a store knows of no conversation."""
        packs = [self.pack(question, budget) for question in questions]
        return [render([unit.text for unit in packed.units]) for packed in packs]

    def close(self) -> None:
        """Nothing is held."""


CRP: Final = "crp"
PEERS: Final[Mapping[str, Callable[[Corpus, TokenCounter], System]]] = {
    "langchain": Store.langchain,
    "llama_index": Store.llama_index,
}
SYSTEMS: Final = (CRP, *PEERS)


def opened(
    name: str,
    collection: Collection,
    axis: Axis,
    embedder: Embedder,
    counter: TokenCounter,
    settings: Mapping[str, Any] = {},
) -> System:
    """A system over a collection.

    Args:
        settings: ours, as arguments of `relay.settings.load`; a peer has none.

    Raises:
        ImportError: a peer is not installed.
    """
    if name not in PEERS:
        return Relayed(collection, axis, embedder, settings)
    return PEERS[name](Corpus(units(collection.texts, axis, counter), embedder), counter)
