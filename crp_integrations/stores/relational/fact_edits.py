"""Facts that are stored already: replaced, removed, put aside, regrouped, used."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from crp_integrations.fabric.records import Fact
from crp_integrations.seals import iso
from crp_integrations.stores import rules
from crp_integrations.stores.relational import usage
from crp_integrations.stores.relational.rows import columns, row, sortable
from crp_integrations.stores.relational.transaction import FactsPart
from crp_integrations.stores.relational.window_contents import empty_windows
from crp_integrations.stores.statements import AMONG, Among, PackedVector, among
from crp_integrations.vectors import FloatRows, to_bytes
from crp_integrations.vocabulary import FactStatus

_ASSIGNMENTS = ", ".join(f"{name} = ?" for name in ("expires_at", *columns(Fact)))
REPLACE_FACT = f"UPDATE facts SET {_ASSIGNMENTS} WHERE fact = ?"


class FactEdits(FactsPart):
    """Changes of the facts of one namespace."""

    def replace(self, facts: Sequence[Fact], vectors: FloatRows | None = None) -> None:
        """Put records in the place of those with the same ids."""
        self._gate.writing()
        ids = [fact.fact_id for fact in facts]
        numbers = self._numbers(ids)
        named = rules.checked_replacements(
            facts,
            vectors,
            namespace=self._namespace,
            dimensions=self._dimensions(),
            known=numbers,
        )
        if not named:
            return
        old = dict(
            self._connection.rows(
                f"SELECT fact_id, content_hash FROM facts WHERE fact_id {AMONG}", [among(ids)]
            )
        )
        rewritten = [f.fact_id for f in named if f.content_hash != old[f.fact_id]]
        if rewritten:
            self._connection.execute(
                f"DELETE FROM token_counts WHERE fact {AMONG}",
                [Among(numbers[id] for id in rewritten)],
            )
            self._connection.execute(
                f"DELETE FROM prepared_vectors WHERE content_hash {AMONG}",
                [Among(sorted({old[id] for id in rewritten}))],
            )
            self._leave_to_scrub()
        self._connection.executemany(
            REPLACE_FACT,
            ((sortable(f.expires_at), *row(f), numbers[f.fact_id]) for f in named),
        )
        usage.forget(self._connection, [numbers[f.fact_id] for f in named])
        if vectors is not None:
            self._connection.executemany(
                "UPDATE vectors SET vector = ? WHERE fact = ?",
                (
                    (PackedVector(to_bytes(one)), numbers[id])
                    for one, id in zip(vectors, ids, strict=True)
                ),
            )
        self._grow()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove facts and everything that hangs on them; unknown ids are left out."""
        self._gate.writing()
        known = self._numbers(ids)
        numbers = Among(known[id] for id in dict.fromkeys(ids) if id in known)
        if not numbers:
            return
        self._connection.execute(
            "DELETE FROM prepared_vectors WHERE content_hash IN "
            f"(SELECT content_hash FROM facts WHERE fact {AMONG})",
            [numbers],
        )
        empty_windows(self._connection, list(known))
        # Vectors, counts and edges go with their fact, see the tables.
        self._connection.execute(f"DELETE FROM facts WHERE fact {AMONG}", [numbers])
        self._leave_to_scrub()
        self._grow()

    def set_archived(self, ids: Sequence[str], at: datetime | None) -> None:
        """Put facts aside, or bring them back with None; status and `modified_at` stay."""
        self._gate.writing()
        rules.unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            "UPDATE facts SET archived_at = ? WHERE coalesce(archived_at, '') <> coalesce(?, '') "
            f"AND fact_id {AMONG}",
            [at and iso(at), at and iso(at), among(ids)],
        )
        if changed.rowcount:
            self._grow()

    def set_communities(self, labels: Mapping[str, str | None]) -> None:
        """Give facts their community; leaves `modified_at` alone."""
        self._gate.writing()
        numbers = self._numbers(list(labels))
        rules.unknown(list(labels), numbers)
        now = dict(
            self._connection.rows(
                f"SELECT fact_id, community_label FROM facts WHERE fact_id {AMONG}",
                [among(list(labels))],
            )
        )
        changed = [(label, numbers[id]) for id, label in labels.items() if now[id] != label]
        if changed:
            self._connection.executemany(
                "UPDATE facts SET community_label = ? WHERE fact = ?", changed
            )
            self._grow()

    def set_status(self, ids: Sequence[str], status: FactStatus, at: datetime) -> None:
        """Change the status, and `modified_at` of the facts that had another one."""
        self._gate.writing()
        rules.unknown(ids, self._numbers(ids))
        changed = self._connection.execute(
            f"UPDATE facts SET status = ?, modified_at = ? WHERE status <> ? AND fact_id {AMONG}",
            [status.value, iso(at), status.value, among(ids)],
        )
        if changed.rowcount:
            self._grow()

    def touch(self, ids: Sequence[str], at: datetime) -> None:
        """Record that facts were put into an envelope."""
        self._gate.writing()
        usage.touch(self._connection, ids, at)
