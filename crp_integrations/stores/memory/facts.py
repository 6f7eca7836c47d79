"""The facts facet over one draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import numpy as np

from crp_integrations.fabric.records import Edge, Fact, Source
from crp_integrations.stores import rules
from crp_integrations.stores.memory.state import Draft, State
from crp_integrations.stores.memory.text import TextIndex
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

Kept = TypeVar("Kept", Fact, Source)


class MemoryFacts:
    """Facts, vectors, sources, text index, token counts and edges of one namespace."""

    def __init__(self, draft: Draft, index: Callable[[State], TextIndex]) -> None:
        self._draft = draft
        self._index = index

    def generation(self) -> int:
        """A number that grows with every committed change of facts, statuses or labels."""
        return self._draft.state.generation

    def setting(self, name: str) -> str | None:
        """A stored value."""
        return self._draft.state.settings.get(name)

    def set_setting(self, name: str, value: str) -> None:
        """Store a value."""
        self._draft.change("settings").settings[name] = value

    def add_source(self, source: Source) -> None:
        """Add a source or replace the record of the same id."""
        self._draft.change("sources").sources[source.source_id] = _own(source)

    def source(self, source_id: str) -> Source | None:
        """A source by id."""
        found = self._draft.state.sources.get(source_id)
        return None if found is None else _own(found)

    def sources(self) -> Iterator[Source]:
        """All sources by id."""
        return iter([_own(found) for _, found in sorted(self._draft.state.sources.items())])

    def add(self, facts: Sequence[Fact], vectors: FloatRows) -> None:
        """Add facts with their unit vectors, shape (len(facts), dimensions)."""
        self._draft.gate.writing()
        state = self._draft.state
        named = rules.checked_facts(
            facts,
            vectors,
            namespace=self._draft.namespace,
            dimensions=state.dimensions,
            taken=[fact.fact_id for fact in facts if fact.fact_id in state.facts],
        )
        if not named:
            return
        self._draft.fix_dimensions(vectors.shape[1])
        state = self._draft.change("facts", "vectors", generation=True)
        state.facts.update((fact.fact_id, _own(fact)) for fact in named)
        rows = np.array(vectors, dtype=np.float32)
        state.vectors.update((fact.fact_id, row) for fact, row in zip(named, rows, strict=True))

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id in the order asked for; unknown ids are left out."""
        facts = self._draft.state.facts
        return [_own(facts[id]) for id in ids if id in facts]

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        found = (f for f in self._draft.state.facts.values() if f.source_id == source_id)
        return [_own(fact) for fact in sorted(found, key=lambda fact: fact.fact_id)]

    def retrievable(self) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every ACTIVE or STALE fact, by id."""
        return [(fact.fact_id, fact.labels) for fact in _retrievable(self._draft.state)]

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order asked for."""
        state = self._draft.state
        rules.unknown(ids, state.vectors)
        if not ids:
            return np.zeros((0, state.dimensions or 0), dtype=np.float32)
        return np.stack([state.vectors[id] for id in ids])

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that hold any of the terms: id and BM25 score."""
        return self._index(self._draft.state).search(terms, k)

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Change the status."""
        self._draft.gate.writing()
        facts = self._draft.state.facts
        rules.unknown(ids, facts)
        changed = [
            facts[id].changed(status=status, modified_at=at)
            for id in dict.fromkeys(ids)
            if facts[id].status is not status
        ]
        if changed:
            own = self._draft.change("facts", generation=True)
            own.facts.update((fact.fact_id, fact) for fact in changed)

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope."""
        facts = self._draft.change("facts").facts
        for id in dict.fromkeys(ids):
            if id in facts:
                used = facts[id].access_count + 1
                facts[id] = facts[id].changed(access_count=used, last_accessed_at=at)

    def state(self) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id."""
        facts = _retrievable(self._draft.state)
        return iter([(fact.fact_id, fact.content_hash, fact.status.value) for fact in facts])

    def token_counts(self, tokenizer: str, ids: Sequence[str]) -> Mapping[str, int]:
        """Stored counts; facts never counted with that tokenizer are absent."""
        counts = self._draft.state.counts
        return {id: counts[tokenizer, id] for id in ids if (tokenizer, id) in counts}

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; leaves the generation alone."""
        self._draft.gate.writing()
        rules.unknown(list(counts), self._draft.state.facts)
        own = self._draft.change("counts").counts
        own.update(((tokenizer, id), count) for id, count in counts.items())

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges or replace those between the same facts of the same kind."""
        self._draft.gate.writing()
        listed = list(edges)
        ends = [end for edge in listed for end in (edge.source_fact, edge.target_fact)]
        rules.unknown(ends, self._draft.state.facts)
        own = self._draft.change("edges").edges
        own.update(((e.source_fact, e.kind, e.target_fact), e) for e in listed)

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that leave any of the facts, by source, kind and target."""
        wanted = set(ids)
        edges = self._draft.state.edges
        return [edge for key, edge in sorted(edges.items()) if key[0] in wanted]


def _own(record: Kept) -> Kept:
    """The record, with metadata that nobody else can change."""
    return record.model_copy(deep=True) if record.metadata else record


def _retrievable(state: State) -> list[Fact]:
    found = (fact for fact in state.facts.values() if fact.status in RETRIEVABLE)
    return sorted(found, key=lambda fact: fact.fact_id)
