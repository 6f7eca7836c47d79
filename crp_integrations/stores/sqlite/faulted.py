"""Findings against facts, over one connection."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.fabric.ports.store import FaultCounts
from crp_integrations.stores import rules
from crp_integrations.stores.sqlite.migrations import RETRIEVABLE_SQL
from crp_integrations.stores.sqlite.uses import USED
from crp_integrations.stores.statements import AMONG, Statements, among


class SqliteFaulted:
    """Counts of one namespace."""

    def __init__(self, connection: Statements, gate: rules.Gate) -> None:
        self._connection = connection
        self._gate = gate

    def count(self, fact_ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count one more finding against each fact."""
        self._gate.writing()
        wanted = [among(fact_ids)]
        self._connection.execute(
            "INSERT INTO fact_findings (fact, findings, uses_before) "
            f"SELECT fact, 1, 0 FROM facts WHERE fact_id {AMONG} "
            "ON CONFLICT (fact) DO UPDATE SET findings = fact_findings.findings + 1",
            wanted,
        )
        found = self._connection.rows(
            f"SELECT fact_id, findings, {USED} - uses_before FROM facts "
            "JOIN fact_findings USING (fact) LEFT JOIN fact_uses USING (fact) "
            f"WHERE fact_id {AMONG} ORDER BY fact_id",
            wanted,
        )
        return {id_: FaultCounts(findings, uses) for id_, findings, uses in found}

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least so many findings, in such a share of their uses."""
        self._gate.reading()
        found = self._connection.rows(
            "SELECT fact_id FROM facts JOIN fact_findings USING (fact) "
            f"LEFT JOIN fact_uses USING (fact) WHERE {RETRIEVABLE_SQL} AND findings >= ? "
            f"AND findings >= ? * ({USED} - uses_before) ORDER BY fact_id",
            [findings, share],
        )
        return [id_ for (id_,) in found]

    def reset(self, fact_ids: Sequence[str]) -> None:
        """Begin anew with some facts."""
        self._gate.writing()
        self._connection.execute(
            "UPDATE fact_findings SET findings = 0, uses_before = "
            f"(SELECT {USED} FROM facts LEFT JOIN fact_uses USING (fact) "
            "WHERE facts.fact = fact_findings.fact) "
            f"WHERE fact IN (SELECT fact FROM facts WHERE fact_id {AMONG})",
            [among(fact_ids)],
        )
