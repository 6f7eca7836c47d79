"""The log of changes: which facts changed after a mark. Triggers write it, see `migrations.py`."""

from __future__ import annotations

from crp_integrations.fabric.ports import LogMark
from crp_integrations.stores.sqlite.base import Part


class Changes(Part):
    """The log of changes of one namespace."""

    def mark(self) -> LogMark:
        """The end of the log of changes."""
        self._gate.reading()
        if self._seen is not None and self._seen.mark is not None:
            return self._seen.mark
        last = self._connection.one(
            "SELECT sequence, token FROM changes ORDER BY sequence DESC LIMIT 1"
        )
        mark = LogMark(0, "") if last is None else LogMark(*last)
        if self._seen is not None:
            self._seen.mark = mark
        return mark

    def changes(self, since: LogMark) -> list[str] | None:
        """Ids of the facts that were added, changed or removed after a mark, each once, by id."""
        self._gate.reading()
        if not self._leads_back_to(since):
            return None
        found = self._connection.rows(
            "SELECT DISTINCT fact_id FROM changes WHERE sequence > ? ORDER BY fact_id",
            [since.sequence],
        )
        return [id for (id,) in found]

    def trim_changes(self, keep: int) -> None:
        """Forget the log but for its last `keep` entries; at least the last one stays."""
        self._gate.writing()
        # Entries have no gaps: what is undone gives its numbers back.
        self._connection.execute(
            "DELETE FROM changes WHERE sequence <= (SELECT max(sequence) FROM changes) - ?",
            [max(1, keep)],
        )

    def _leads_back_to(self, mark: LogMark) -> bool:
        if mark == LogMark(0, ""):
            first = self._connection.one("SELECT min(sequence) FROM changes")
            return first is not None and first[0] in (None, 1)
        found = self._connection.one(
            "SELECT token FROM changes WHERE sequence = ?", [mark.sequence]
        )
        return found is not None and found[0] == mark.token
