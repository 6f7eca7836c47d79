"""Times as texts that sort as times do."""

from __future__ import annotations

from datetime import UTC, datetime


def sortable(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, always with microseconds."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")
