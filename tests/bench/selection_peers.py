"""Other ways to find and pack text: each ranks the same units, by the library's own object.

Units are whole sentences up to so many tokens. All are packed alike: in rank order, what does not
fit is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.evaluation.context_metrics import ContextUnit, MeasuredContext, TextAxis
from crp_integrations.evaluation.data_sets import Collection, SetDocument
from crp_integrations.evaluation.selection import PacksByBudget, SystemOpener
from crp_integrations.language.text import split_sentences
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.vectors import FloatRows
from tests.bench.peers.dense import Dense, fused
from tests.bench.peers.fts5 import RawFts5

if TYPE_CHECKING:
    from tests.bench.peers.bm25s import RawBm25s

UNIT_TOKENS = 200
CUTTER = "sentences-to-200@1"


def cut(text: str, counter: TokenCounter, limit: int = UNIT_TOKENS) -> Iterator[tuple[int, int]]:
    """Cut a text into stretches of whole sentences with at most `limit` tokens each.

    A sentence above the limit is cut at white space. Nothing overlaps; every character that is
    no white space is in exactly one stretch.

    Yields:
        Character offsets, half-open, in order.
    """
    pieces = list(_pieces(text, counter, limit))
    start, end, used = -1, -1, 0
    for first, last, tokens in pieces:
        if start >= 0 and (used + tokens > limit or counter.count(text[start:last]) > limit):
            yield start, end
            start, used = -1, 0
        start = first if start < 0 else start
        end, used = last, used + tokens
    if start >= 0:
        yield start, end


def _pieces(text: str, counter: TokenCounter, limit: int) -> Iterator[tuple[int, int, int]]:
    spans = split_sentences(text)
    counts = counter.count_many([text[span.start : span.end] for span in spans])
    for span, tokens in zip(spans, counts, strict=True):
        if tokens <= limit:
            yield span.start, span.end, tokens
        else:
            yield from _words(text, span.start, span.end, counter, limit)


def _words(
    text: str, start: int, end: int, counter: TokenCounter, limit: int
) -> Iterator[tuple[int, int, int]]:
    while start < end:
        # No token of these vocabularies is longer on average than this many characters.
        low, high = start + 1, min(end, start + 16 * limit)
        while low < high:
            middle = (low + high + 1) // 2
            if counter.count(text[start:middle]) <= limit:
                low = middle
            else:
                high = middle - 1
        stop = low
        if stop < end:
            space = max(text.rfind(" ", start + 1, stop + 1), text.rfind("\n", start + 1, stop + 1))
            stop = space if space > start else stop
        yield start, stop, counter.count(text[start:stop])
        start = stop
        while start < end and text[start].isspace():
            start += 1


def units(texts: Sequence[SetDocument], axis: TextAxis, counter: TokenCounter) -> list[ContextUnit]:
    """All documents of a collection as units, in order.

    Args:
        counter: counts the limit of a unit, and a unit as it is packed.
    """
    made: list[ContextUnit] = []
    for one in texts:
        spans = list(cut(one.text, counter))
        contents = [one.text[start:end].strip() for start, end in spans]
        counts = counter.count_many([marker_text(content) for content in contents])
        for number, (start, end) in enumerate(spans):
            made.append(
                ContextUnit(
                    f"{one.doc_id}#{number}",
                    one.doc_id,
                    contents[number],
                    counts[number],
                    (axis.at(one.doc_id, start, end),),
                )
            )
    return made


PACKER = "skip-and-continue"


def pack(ranked: Sequence[ContextUnit], budget: int, counter: TokenCounter) -> MeasuredContext:
    """Pack units as they are ranked, rendered and counted as an envelope is.

    Args:
        ranked: best first.
        budget: tokens that the rendered text may have.
    """
    chosen: list[ContextUnit] = []
    used = 0
    for unit in ranked:
        if used + unit.tokens <= budget:
            chosen.append(unit)
            used += unit.tokens
    while True:
        # Counts of parts need not add up to the count of the whole.
        tokens = counter.count(render([unit.text for unit in chosen])) if chosen else 0
        if tokens <= budget:
            return MeasuredContext(tuple(chosen), tuple(unit.unit_id for unit in chosen), tokens)
        chosen.pop()


# How many units each search gives; more than the largest budget of the documentation holds.
DEPTH = 100
_WORD = re.compile(r"[^\W_]+")


@dataclass
class Corpus:
    """The units of a collection, and what several peers share: vectors, indexes."""

    units: Sequence[ContextUnit]
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


class PeerContexts:
    """The contexts of a peer over a collection.

    Attributes:
        size: how many units it searches.
        digest: name and version of the library.
    """

    unplaced: set[str] = set()

    def __init__(self, name: str, corpus: Corpus, counter: TokenCounter) -> None:
        peer = PEERS[name](corpus)
        self.digest, self._rank = peer.name, peer.rank
        self.size = len(corpus.units)
        self._units = corpus.units
        self._counter = counter

    def contexts(
        self, question: str, budgets: Sequence[int]
    ) -> tuple[PacksByBudget, Sequence[ContextUnit]]:
        """The context for each budget, and all that was found, best first."""
        ranked = [self._units[place] for place in self._rank(question)]
        return {budget: pack(ranked, budget, self._counter) for budget in budgets}, ranked

    def close(self) -> None:
        """Nothing is held."""


class PeerOpeners:
    """Openers of the peers, which share the units and vectors of a collection."""

    def __init__(self) -> None:
        self._last: tuple[TextAxis, Corpus] | None = None

    def by_name(self) -> dict[str, SystemOpener]:
        """An opener for each peer."""
        return {name: partial(self._opened, name) for name in PEERS}

    def _opened(
        self,
        name: str,
        collection: Collection,
        axis: TextAxis,
        embedder: Embedder,
        counter: TokenCounter,
    ) -> PeerContexts:
        return PeerContexts(name, self.corpus(collection, axis, embedder, counter), counter)

    def corpus(
        self, collection: Collection, axis: TextAxis, embedder: Embedder, counter: TokenCounter
    ) -> Corpus:
        """The units of a collection, those of the last one kept."""
        if self._last is None or self._last[0] is not axis:
            self._last = axis, Corpus(units(collection.texts, axis, counter), embedder)
        return self._last[1]
