"""Taking what windows said with facts that are gone, and what later windows may repeat of it."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.errors import StoreDamaged
from crp_integrations.session.records import WindowNode
from crp_integrations.stores import said
from crp_integrations.stores.sqlite import packed
from crp_integrations.stores.sqlite.receipts import erase
from crp_integrations.stores.sqlite.rows import read
from crp_integrations.stores.sqlite.upkeep import WINDOWS_DUE, note_due
from crp_integrations.stores.statements import AMONG, Among, Statements, among

# Sessions that some were delegated from, and those delegated to. With the inequality SQLite finds
# the latter in an index.
_NEXT = (
    f"SELECT parent_session FROM sessions WHERE session_id {AMONG} AND parent_session <> '' "
    f"UNION SELECT session_id FROM sessions WHERE parent_session {AMONG} AND parent_session <> ''"
)


def empty(connection: Statements, fact_ids: Sequence[str], source_id: str = "") -> int:
    """Take what windows said with some facts, within the transaction that is open.

    Returns:
        How many windows were emptied, or lost texts of their receipt alone.
    """
    packed.spread(connection, packed.WINDOWS)
    roots = connection.rows(
        f'SELECT "window" FROM window_facts WHERE fact_id {AMONG} '
        'UNION SELECT "window" FROM window_sources WHERE source_id = ?',
        [among(fact_ids), source_id],
    )
    wanted = {*fact_ids}
    roots += [
        (one.number,)
        for one in packed.left(connection, packed.WINDOWS)
        # Nobody can say what a damaged one names, and an erasure is not held up by that.
        if one.damaged or source_id in one.sources or not wanted.isdisjoint(one.facts)
    ]
    if not roots:
        # A fact may be a candidate of a window that did not show it.
        return len(erase(connection, fact_ids, source_id, ()))
    by_session: dict[str, list[tuple[str, str]]] = {}
    for session_id, window_id, closed_at in connection.rows(
        f'SELECT session_id, window_id, closed_at FROM windows WHERE "window" {AMONG}',
        [Among(window for (window,) in roots)],
    ):
        by_session.setdefault(session_id, []).append((window_id, closed_at))
    gone: set[str] = set()
    for session_id, shown in by_session.items():
        own = connection.rows(
            "SELECT window_id, record FROM windows WHERE session_id = ?", [session_id]
        )
        try:
            nodes = [read(WindowNode, text) for _, text in own]
            gone |= said.following(nodes, [window_id for window_id, _ in shown])
        except StoreDamaged:
            # Nobody can say what follows what, and an erasure is not held up by that.
            gone.update(window_id for window_id, _ in own)
        first = min(closed_at for _, closed_at in shown)
        for name in _family(connection, session_id):
            others = connection.rows(
                "SELECT window_id FROM windows WHERE session_id = ? AND closed_at >= ?",
                [name, first],
            )
            gone.update(window_id for (window_id,) in others if name != session_id)
    saying = connection.rows(
        'SELECT "window", window_id FROM windows JOIN window_contents USING ("window") '
        f'WHERE window_id {AMONG} ORDER BY "window"',
        [among(sorted(gone))],
    )
    numbers = Among(window for window, _ in saying)
    connection.execute(f'UPDATE windows SET emptied = 1 WHERE "window" {AMONG}', [numbers])
    # The ids that it came from go with it, see the tables.
    connection.execute(f'DELETE FROM window_contents WHERE "window" {AMONG}', [numbers])
    note_due(connection, WINDOWS_DUE)
    taken = {window_id for _, window_id in saying}
    return len(taken | erase(connection, fact_ids, source_id, gone))


def _family(connection: Statements, session_id: str) -> set[str]:
    """A session with those that it was delegated from and to, however far."""
    found, new = {session_id}, {session_id}
    while new:
        ids = among(sorted(new))
        new = {id_ for (id_,) in connection.rows(_NEXT, [ids, ids])} - found
        found |= new
    return found
