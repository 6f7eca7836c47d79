"""How often facts were used and found wrong: a short row each, apart from the facts.

A fact's own row is long and stands in indexes, and each question uses dozens of facts. `facts`
keeps what a fact came with; `fact_uses` counts what was added since, and its moment is the later
word.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from crp_integrations.fabric.ports.store import FaultCounts
from crp_integrations.fabric.records import Fact
from crp_integrations.seals import iso
from crp_integrations.stores import rules
from crp_integrations.stores.relational.rows import columns
from crp_integrations.stores.rules import (
    AMONG,
    RETRIEVABLE_SQL,
    TOUCHED_SQL,
    Among,
    Statements,
    among,
)

# How often a fact was used, in a query that joins its `fact_uses`.
USED: Final = "access_count + coalesce(fact_uses.uses, 0)"
_TOLD: Final = {
    "access_count": USED,
    "last_accessed_at": "coalesce(fact_uses.last_used_at, last_accessed_at)",
}
# Facts as they read, in the order of `columns(Fact)`.
FACTS: Final = (
    f"SELECT {', '.join(_TOLD.get(name, name) for name in columns(Fact))} "
    "FROM facts LEFT JOIN fact_uses USING (fact)"
)
_UNUSED: Final = (
    f"SELECT fact FROM facts WHERE {{live}} AND {TOUCHED_SQL} < ? "
    "AND NOT EXISTS (SELECT 1 FROM fact_uses WHERE fact_uses.fact = facts.fact) "
    "UNION ALL SELECT fact FROM fact_uses JOIN facts USING (fact) "
    "WHERE rtrim(last_used_at, 'Z') < ? AND rtrim(coalesce(ingested_at, ''), 'Z') < ?"
)
# The first part in the words of an index, where retrievable facts alone are meant.
UNUSED: Final = f"fact IN ({_UNUSED.format(live='1 = 1')})"
UNUSED_LIVE: Final = f"fact IN ({_UNUSED.format(live=RETRIEVABLE_SQL)})"


def touch(connection: Statements, ids: Sequence[str], at: datetime) -> None:
    """Count one more use of each fact, within the transaction that is open."""
    connection.execute(
        "INSERT INTO fact_uses (fact, uses, last_used_at) "
        f"SELECT fact, 1, ? FROM facts WHERE fact_id {AMONG} "
        "ON CONFLICT (fact) DO UPDATE SET uses = fact_uses.uses + 1, "
        "last_used_at = excluded.last_used_at",
        [iso(at), among(ids)],
    )


def forget(connection: Statements, numbers: Sequence[int]) -> None:
    """Leave the word to the rows of some facts, which have just been written anew."""
    connection.execute(f"DELETE FROM fact_uses WHERE fact {AMONG}", [Among(numbers)])


class RelationalFaults:
    """Counts of one namespace."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
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
        rows = self._connection.rows(
            f"SELECT fact_id, findings, {USED} - uses_before FROM facts "
            "JOIN fact_findings USING (fact) LEFT JOIN fact_uses USING (fact) "
            f"WHERE fact_id {AMONG} ORDER BY fact_id",
            wanted,
        )
        return {id_: FaultCounts(findings, uses) for id_, findings, uses in rows}

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least so many findings, in such a share of their uses."""
        self._gate.reading()
        rows = self._connection.rows(
            "SELECT fact_id FROM facts JOIN fact_findings USING (fact) "
            f"LEFT JOIN fact_uses USING (fact) WHERE {RETRIEVABLE_SQL} AND findings >= ? "
            f"AND findings >= ? * ({USED} - uses_before) ORDER BY fact_id",
            [findings, share],
        )
        return [id_ for (id_,) in rows]

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
