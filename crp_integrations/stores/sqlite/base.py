"""What the parts of the facts facet share: one connection, the gate, and a few statements."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.fabric.ports import Mark
from crp_integrations.stores import rules
from crp_integrations.stores.sqlite.upkeep import FACTS_DUE, note_due
from crp_integrations.stores.statements import AMONG, Statements, among


class Part:
    """A part of the facts facet of one namespace.

    What a reading transaction sees does not change, so what it has read of the namespace as a whole
    is not read twice.
    """

    def __init__(
        self,
        connection: Statements,
        gate: rules.Gate,
        namespace: str,
        owned: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the connection.

        Args:
            owned: the namespace's own values, of a transaction that only reads; None for one that
                may write.
        """
        self._connection = connection
        self._gate = gate
        self._namespace = namespace
        self._owned = owned
        self._settings: Mapping[str, str] | None = None
        self._mark: Mark | None = None

    def _own(self, name: str) -> Any:
        if self._owned is not None:
            return self._owned.get(name)
        found = self._connection.one("SELECT value FROM own WHERE name = ?", [name])
        return None if found is None else found[0]

    def _set_own(self, name: str, value: Any) -> None:
        self._connection.execute(
            "INSERT INTO own (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )

    def _dimensions(self) -> int | None:
        found = self._own("dimensions")
        return None if found is None else int(found)

    def _numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """Row numbers of those ids that are stored."""
        return dict(
            self._connection.rows(
                f"SELECT fact_id, fact FROM facts WHERE fact_id {AMONG}", [among(ids)]
            )
        )

    def _grow(self) -> None:
        self._connection.execute("UPDATE own SET value = value + 1 WHERE name = 'generation'")

    def _leave_to_scrub(self) -> None:
        """Note in this transaction that bytes are left which `scrub` has to take off the disk."""
        note_due(self._connection, FACTS_DUE)
