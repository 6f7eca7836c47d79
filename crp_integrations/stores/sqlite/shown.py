"""Taking what windows said with facts that are gone, and what later windows may repeat of it."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Sequence

from crp_integrations.stores.sqlite.base import AMONG, among
from crp_integrations.stores.sqlite.connection import Connection
from crp_integrations.stores.sqlite.upkeep import WINDOWS_DUE, note_due

# A session with those that it was delegated from and to, however far. The order of a CROSS JOIN is
# kept as it is written.
_FAMILY = """WITH RECURSIVE family (session_id) AS (
    SELECT ?
    UNION
    SELECT parent_session FROM family CROSS JOIN sessions USING (session_id)
        WHERE parent_session <> ''
    UNION
    SELECT child.session_id FROM family CROSS JOIN sessions AS child
        ON child.parent_session = family.session_id AND child.parent_session <> ''
) SELECT session_id FROM family"""


def empty(connection: Connection, fact_ids: Sequence[str], source_id: str = "") -> int:
    """Take what windows said with some facts, within the transaction that is open.

    Returns:
        How many windows were emptied.
    """
    roots = connection.rows(
        "SELECT window FROM window_facts WHERE fact_id "
        f"{AMONG} UNION SELECT window FROM window_sources WHERE source_id = ?",
        [among(fact_ids), source_id],
    )
    if not roots:
        return 0
    gone = {window for (window,) in roots}
    first = connection.rows(
        "SELECT session_id, min(window_number), min(closed_at) FROM windows "
        f"WHERE window {AMONG} GROUP BY session_id",
        [json.dumps(sorted(gone))],
    )
    for session_id, number, closed_at in first:
        gone.update(
            window
            for (window,) in connection.rows(
                "SELECT window FROM windows JOIN window_contents USING (window) "
                "WHERE session_id = ? AND window_number > ?",
                [session_id, number],
            )
        )
        family = {name for (name,) in connection.rows(_FAMILY, [session_id])} - {session_id}
        for name in sorted(family):
            gone.update(
                window
                for (window,) in connection.rows(
                    "SELECT window FROM windows JOIN window_contents USING (window) "
                    "WHERE session_id = ? AND closed_at >= ?",
                    [name, closed_at],
                )
            )
    numbers = json.dumps(sorted(gone))
    connection.execute(f"UPDATE windows SET emptied = 1 WHERE window {AMONG}", [numbers])
    # The ids that it came from go with it, see the tables.
    connection.execute(f"DELETE FROM window_contents WHERE window {AMONG}", [numbers])
    note_due(connection, WINDOWS_DUE)
    return len(gone)
