"""Which retriever found which fact: the evidence of a selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from crp_integrations.envelope.candidates import Candidate
from crp_integrations.envelope.ports import Reached
from crp_integrations.records import Part
from crp_integrations.scores import from_fixed

Retriever = Literal["keyword", "vector", "graph"]


class RetrieverHit(Part):
    """One retriever's word on a fact.

    Attributes:
        rank: place among what this retriever gave for any information need, from 1; 0 where it
            scored a fact that others had found.
        score: cosine, share of the best candidate's words, or strength of the way, [0, 1].
        hop: facts on the way, and one; 0 for a retriever that walks nowhere.
        via: kinds of the links on the way.
    """

    retriever: Retriever
    rank: int = Field(ge=0)
    score: float = Field(ge=0.0, le=1.0)
    hop: int = Field(default=0, ge=0)
    via: tuple[str, ...] = ()


class RetrieverHits:
    """What retrievers gave for one question; filled while the candidates are read."""

    def __init__(self) -> None:
        self._ranks: dict[Retriever, dict[str, int]] = {"keyword": {}, "vector": {}, "graph": {}}
        self._ways: dict[str, Reached] = {}

    def note(self, retriever: Retriever, ids: Sequence[str]) -> None:
        """What a retriever gave for one information need, best first."""
        ranks = self._ranks[retriever]
        for rank, id_ in enumerate(ids, start=1):
            ranks[id_] = min(rank, ranks.get(id_, rank))

    def walked(self, ways: Mapping[str, Reached]) -> None:
        """What the graph reached, strongest first."""
        self._ways = dict(ways)
        best = sorted(ways, key=lambda id_: (-ways[id_].strength, id_))
        self.note("graph", best)

    def of(self, fact: Candidate) -> tuple[RetrieverHit, ...]:
        """Every retriever's word on a candidate, highest score first, ties by name."""
        scores: dict[Retriever, int] = {"vector": fact.relevance, "keyword": fact.lexical}
        way = self._ways.get(fact.fact_id)
        if way is None and fact.hop:
            # The second hop of the mix: a name that one of the best facts has too.
            way = Reached(hop=1, strength=fact.hop, via=("entity",))
        found = [
            RetrieverHit(
                retriever=name,
                rank=self._ranks[name].get(fact.fact_id, 0),
                score=from_fixed(max(0, score)),
            )
            for name, score in scores.items()
            if score > 0 or fact.fact_id in self._ranks[name]
        ]
        if way is not None:
            rank = self._ranks["graph"].get(fact.fact_id, 0)
            strength = from_fixed(way.strength)
            found.append(
                RetrieverHit(retriever="graph", rank=rank, score=strength, hop=way.hop, via=way.via)
            )
        return tuple(sorted(found, key=lambda one: (-one.score, one.retriever)))
