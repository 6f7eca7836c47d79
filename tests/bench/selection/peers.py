"""The peers by name: each ranks the same units, by the library's own object."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows
from tests.bench.peers.dense import Dense, fused
from tests.bench.peers.fts5 import RawFts5
from tests.bench.selection.units import Unit

if TYPE_CHECKING:
    from tests.bench.peers.bm25s import RawBm25s

# How many units each search gives; more than the largest budget of the documentation holds.
DEPTH = 100
_WORD = re.compile(r"[^\W_]+")


@dataclass
class Corpus:
    """The units of a collection, and what several peers share: vectors, indexes."""

    units: Sequence[Unit]
    embedder: Embedder

    @cached_property
    def ids(self) -> list[str]:
        """The units' places as texts: what the libraries are given as ids."""
        return [str(place) for place in range(len(self.units))]

    @cached_property
    def texts(self) -> list[str]:
        """The units' texts."""
        return [unit.text for unit in self.units]

    @cached_property
    def rows(self) -> FloatRows:
        """A unit vector for each unit, shape (n, d)."""
        return self.embedder.embed_passages(self.texts)

    @cached_property
    def dense(self) -> Dense:
        """Exact vector search."""
        return Dense(self.rows)

    @cached_property
    def index(self) -> RawBm25s | RawFts5:
        """BM25 over stems: bm25s, else SQLite's, which is always there."""
        try:
            from tests.bench.peers.bm25s import RawBm25s
        except ImportError:
            return RawFts5(self.ids, self.texts)
        return RawBm25s(self.ids, self.texts)

    def nearest(self, question: str) -> list[int]:
        """Places by cosine, best first."""
        return self.dense.search(self.embedder.embed_query(question), DEPTH)

    def worded(self, question: str) -> list[int]:
        """Places of the units that hold a word of the question, by BM25, best first."""
        terms = list(dict.fromkeys(_WORD.findall(question.lower())))
        return [int(found) for found, _ in self.index.search(terms, DEPTH)] if terms else []


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to find units.

    Attributes:
        name: library and version, for the report.
        rank: gives the places of units for a question, best first.
    """

    name: str
    rank: Callable[[str], list[int]]


def _bm25(corpus: Corpus) -> Peer:
    return Peer(corpus.index.name, corpus.worded)


def _dense(corpus: Corpus) -> Peer:
    return Peer("numpy, exact", corpus.nearest)


def _rrf(corpus: Corpus) -> Peer:
    def rank(question: str) -> list[int]:
        return fused([corpus.worded(question), corpus.nearest(question)])[:DEPTH]

    return Peer(f"{corpus.index.name} and numpy", rank)


def _langchain_ensemble(corpus: Corpus) -> Peer:
    from tests.bench.peers.langchain_retrievers import Ensemble

    made = Ensemble(corpus.ids, corpus.texts, corpus.rows, corpus.embedder.embed_query, DEPTH)
    return Peer(made.name, made.rank)


def _langchain_mmr(corpus: Corpus) -> Peer:
    from tests.bench.peers.langchain_retrievers import Mmr

    made = Mmr(corpus.ids, corpus.texts, corpus.rows, corpus.embedder.embed_query, DEPTH)
    return Peer(made.name, made.rank)


def _llama_index_vector(corpus: Corpus) -> Peer:
    from tests.bench.peers.llama_index_retrievers import vector

    made = vector(corpus.ids, corpus.texts, corpus.rows, corpus.embedder.embed_query, DEPTH)
    return Peer(made.name, made.rank)


def _llama_index_fusion(corpus: Corpus) -> Peer:
    from tests.bench.peers.llama_index_retrievers import fusion

    made = fusion(corpus.ids, corpus.texts, corpus.rows, corpus.embedder.embed_query, DEPTH)
    return Peer(made.name, made.rank)


PEERS: dict[str, Callable[[Corpus], Peer]] = {
    "bm25": _bm25,
    "dense": _dense,
    "rrf": _rrf,
    "langchain_ensemble": _langchain_ensemble,
    "langchain_mmr": _langchain_mmr,
    "llama_index_vector": _llama_index_vector,
    "llama_index_fusion": _llama_index_fusion,
}
