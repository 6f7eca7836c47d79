"""The facts facet over one draft: settings, sources, facts, counts and edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from crp_integrations.fabric.records import Edge, Fact, Source
from crp_integrations.stores import rules
from crp_integrations.stores.memory.base import own
from crp_integrations.stores.memory.edits import Edits
from crp_integrations.stores.memory.finding import Finding
from crp_integrations.stores.memory.prepared import Vectors
from crp_integrations.vectors import FloatRows


class MemoryFacts(Edits, Vectors, Finding):
    """Facts, vectors, sources, text index, token counts and edges of one namespace."""

    def generation(self) -> int:
        """A number that grows with every committed change of facts, statuses or labels."""
        return self._draft.state.generation

    def setting(self, name: str) -> str | None:
        """A stored value."""
        return self._draft.state.settings.get(name)

    def set_setting(self, name: str, value: str) -> None:
        """Store a value."""
        self._draft.change("settings").settings[name] = value

    def remove_setting(self, name: str) -> None:
        """Forget a value; one that is not there is no error."""
        self._draft.change("settings").settings.pop(name, None)

    def add_source(self, source: Source) -> None:
        """Add a source or replace the record of the same id."""
        self._draft.change("sources").sources[source.source_id] = own(source)

    def source(self, source_id: str) -> Source | None:
        """A source by id."""
        found = self._draft.state.sources.get(source_id)
        return None if found is None else own(found)

    def sources(self) -> Iterator[Source]:
        """All sources by id."""
        return iter([own(found) for _, found in sorted(self._draft.state.sources.items())])

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
        self._draft.set_dimensions(vectors.shape[1])
        state = self._draft.change("facts", "vectors", generation=True)
        state.facts.update((fact.fact_id, own(fact)) for fact in named)
        rows = np.array(vectors, dtype=np.float32)
        state.vectors.update((fact.fact_id, row) for fact, row in zip(named, rows, strict=True))
        self._draft.log(fact.fact_id for fact in named)

    def get(self, ids: Sequence[str]) -> list[Fact]:
        """Facts by id in the order asked for; unknown ids are left out."""
        facts = self._draft.state.facts
        return [own(facts[id]) for id in ids if id in facts]

    def of_source(self, source_id: str) -> list[Fact]:
        """A source's facts by id, whatever their status."""
        found = (f for f in self._draft.state.facts.values() if f.source_id == source_id)
        return [own(fact) for fact in sorted(found, key=lambda fact: fact.fact_id)]

    def token_counts(self, tokenizer: str, ids: Sequence[str]) -> Mapping[str, int]:
        """Stored counts; facts never counted with that tokenizer are absent."""
        counts = self._draft.state.counts
        return {id: counts[tokenizer, id] for id in ids if (tokenizer, id) in counts}

    def save_token_counts(self, tokenizer: str, counts: Mapping[str, int]) -> None:
        """Store counts; leaves the generation alone."""
        self._draft.gate.writing()
        rules.unknown(list(counts), self._draft.state.facts)
        table = self._draft.change("counts").counts
        table.update(((tokenizer, id), count) for id, count in counts.items())

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges or replace those between the same facts of the same kind."""
        self._draft.gate.writing()
        listed = list(edges)
        ends = [end for edge in listed for end in (edge.source_fact, edge.target_fact)]
        rules.unknown(ends, self._draft.state.facts)
        table = self._draft.change("edges").edges
        table.update(((e.source_fact, e.kind, e.target_fact), e) for e in listed)

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges that leave any of the facts, by source, kind and target."""
        wanted = set(ids)
        edges = self._draft.state.edges
        return [edge for key, edge in sorted(edges.items()) if key[0] in wanted]
