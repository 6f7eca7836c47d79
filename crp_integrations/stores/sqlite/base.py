"""What the parts of the facts facet share: one connection, the gate, and a few statements."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from crp_integrations.fabric.ports import LogMark
from crp_integrations.stores import rules
from crp_integrations.stores.sqlite.upkeep import FACTS_DUE, note_due
from crp_integrations.stores.sqlite.values import number
from crp_integrations.stores.statements import AMONG, Statements, among

# In one statement, whose fixed cost is most of it.
_SEEN = (
    "SELECT 'own', name, value FROM own UNION ALL SELECT 'setting', name, value FROM settings "
    "UNION ALL SELECT * FROM "
    "(SELECT 'mark', sequence, token FROM changes ORDER BY sequence DESC LIMIT 1)"
)


@dataclass(slots=True)
class Seen:
    """What a reading transaction sees of its namespace as a whole, which does not change in it.

    Attributes:
        own: the namespace's own values.
        settings, mark: None until somebody asks for them.
    """

    own: Mapping[str, Any]
    settings: Mapping[str, str] | None = None
    mark: LogMark | None = None

    @classmethod
    def read(cls, connection: Statements) -> Self:
        """All of it, which also fixes what the transaction sees."""
        own: dict[str, Any] = {}
        settings: dict[str, str] = {}
        mark = LogMark(0, "")
        for kind, name, value in connection.rows(_SEEN):
            if kind == "own":
                own[name] = value
            elif kind == "setting":
                settings[name] = value
            else:
                mark = LogMark(name, value)
        return cls(own, settings, mark)


class Part:
    """A part of the facts facet of one namespace."""

    def __init__(
        self,
        connection: Statements,
        gate: rules.Gate,
        namespace: str,
        seen: Seen | None = None,
    ) -> None:
        """Take the connection.

        Args:
            seen: of a transaction that only reads; None for one that may write.
        """
        self._connection = connection
        self._gate = gate
        self._namespace = namespace
        self._seen = seen

    def _own(self, name: str) -> Any:
        if self._seen is not None:
            return self._seen.own.get(name)
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
        return None if found is None else number(found, "dimensions")

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
