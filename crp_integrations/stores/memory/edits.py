"""Facts that are stored already: replaced, removed, put aside, regrouped, used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from crp_integrations.fabric.records import Fact
from crp_integrations.stores import rules
from crp_integrations.stores.memory.base import Part, own
from crp_integrations.stores.memory.sessions import empty
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus


class Edits(Part):
    """Changes of the facts of one namespace."""

    def replace(self, facts: Sequence[Fact], vectors: FloatRows | None = None) -> None:
        """Put records in the place of those with the same ids."""
        self._draft.gate.writing()
        state = self._draft.state
        named = rules.checked_replacements(
            facts,
            vectors,
            namespace=self._draft.namespace,
            dimensions=state.dimensions,
            known=state.facts,
        )
        if not named:
            return
        old = {fact.fact_id: state.facts[fact.fact_id] for fact in named}
        changed = [f.fact_id for f in named if _logged(f) != _logged(old[f.fact_id])]
        state = self._draft.change("facts", "counts", generation=True)
        state.facts.update((fact.fact_id, own(fact)) for fact in named)
        rewritten = {f.fact_id for f in named if f.content_hash != old[f.fact_id].content_hash}
        for key in [key for key in state.counts if key[1] in rewritten] if rewritten else ():
            del state.counts[key]
        if rewritten:
            gone = {old[id].content_hash for id in rewritten}
            prepared = self._draft.change("prepared").prepared
            for entry in [entry for entry in prepared if entry[1] in gone]:
                del prepared[entry]
        if vectors is not None:
            table = self._draft.change("vectors").vectors
            for fact, row in zip(named, np.array(vectors, dtype=np.float32), strict=True):
                if row.tobytes() != table[fact.fact_id].tobytes():
                    changed.append(fact.fact_id)
                table[fact.fact_id] = row
        self._draft.log(changed)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and everything that hangs on them; unknown ids are left out."""
        self._draft.gate.writing()
        known = self._draft.state.facts
        gone = {id: known[id].content_hash for id in ids if id in known}
        if not gone:
            return
        tables = ("facts", "vectors", "counts", "edges", "prepared", "faulted")
        state = self._draft.change(*tables, generation=True)
        for id in gone:
            del state.facts[id]
            del state.vectors[id]
            state.faulted.pop(id, None)
        for count in [key for key in state.counts if key[1] in gone]:
            del state.counts[count]
        for edge in [key for key in state.edges if key[0] in gone or key[2] in gone]:
            del state.edges[edge]
        hashes = set(gone.values())
        for prepared in [key for key in state.prepared if key[1] in hashes]:
            del state.prepared[prepared]
        empty(self._draft, gone)
        self._draft.log(gone)

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Put facts aside, or bring them back with None; status and `modified_at` stay."""
        self._draft.gate.writing()
        facts = self._draft.state.facts
        rules.unknown(ids, facts)
        self._put(
            [
                facts[id].changed(archived_at=at)
                for id in dict.fromkeys(ids)
                if facts[id].archived_at != at
            ]
        )

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Give facts their community; leaves `modified_at` alone."""
        self._draft.gate.writing()
        facts = self._draft.state.facts
        rules.unknown(list(labels), facts)
        self._put(
            [
                facts[id].model_copy(update={"community_label": label})
                for id, label in labels.items()
                if facts[id].community_label != label
            ]
        )

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Change the status, and `modified_at` of the facts that had another one."""
        self._draft.gate.writing()
        facts = self._draft.state.facts
        rules.unknown(ids, facts)
        self._put(
            [
                facts[id].changed(status=status, modified_at=at)
                for id in dict.fromkeys(ids)
                if facts[id].status is not status
            ]
        )

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope."""
        facts = self._draft.change("facts").facts
        for id in dict.fromkeys(ids):
            if id in facts:
                used = facts[id].access_count + 1
                facts[id] = facts[id].changed(access_count=used, last_accessed_at=at)

    def _put(self, changed: Sequence[Fact]) -> None:
        if changed:
            table = self._draft.change("facts", generation=True).facts
            table.update((fact.fact_id, fact) for fact in changed)
            self._draft.log(fact.fact_id for fact in changed)


def _logged(fact: Fact) -> tuple[object, ...]:
    """What of a fact the log of changes is about; its vector is not in it."""
    return (fact.content, fact.status, fact.archived_at, fact.labels, fact.community_label)
