"""Findings against facts, over one draft."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.fabric.ports.store import FaultCounts
from crp_integrations.stores.memory.state import Draft
from crp_integrations.vocabulary import RETRIEVABLE


class MemoryFaulted:
    """Counts of one namespace."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def count(self, fact_ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count one more finding against each fact."""
        state = self._draft.change("faulted")
        found: dict[str, FaultCounts] = {}
        for id_ in sorted({*fact_ids} & state.facts.keys()):
            findings, before = state.faulted.get(id_, (0, 0))
            state.faulted[id_] = findings + 1, before
            found[id_] = FaultCounts(findings + 1, state.facts[id_].access_count - before)
        return found

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least so many findings, in such a share of their uses."""
        state = self._draft.state
        return sorted(
            id_
            for id_, (found, before) in state.faulted.items()
            if state.facts[id_].status in RETRIEVABLE
            and found >= findings
            and found >= share * (state.facts[id_].access_count - before)
        )

    def reset(self, fact_ids: Sequence[str]) -> None:
        """Begin anew with some facts."""
        state = self._draft.change("faulted")
        for id_ in {*fact_ids} & state.faulted.keys():
            state.faulted[id_] = 0, state.facts[id_].access_count
