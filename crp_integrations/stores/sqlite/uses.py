"""How often facts were used, and when last: a short row each, apart from the facts.

A fact's own row is long and stands in indexes, and each question uses dozens of facts. `facts`
keeps what a fact came with; `fact_uses` counts what was added since, and its moment is the later
word.
"""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from crp_integrations.fabric.records import Fact
from crp_integrations.seals import iso
from crp_integrations.stores.sqlite.migrations import RETRIEVABLE_SQL, TOUCHED_SQL
from crp_integrations.stores.sqlite.rows import columns
from crp_integrations.stores.statements import AMONG, Among, Statements, among

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
