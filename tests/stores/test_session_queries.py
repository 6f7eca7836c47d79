"""What is asked of sessions is found by an index, however many there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.sqlite.connection import SqliteConnection
from crp_integrations.testing.fixtures import (
    NAMESPACE,
    NOON,
    fact,
    prior,
    report,
    rows,
    seal,
    session,
    window,
)

# What SQLite goes through that no table is behind: a list in a parameter, and rows found so far.
NO_TABLES = ("json_each", "family", "CONSTANT ROW", "pragma_page_size")


def test_no_question_reads_a_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "kb")
    made = [fact(f"fact {number}", source_id="doc") for number in range(20)]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
        for name in ("s", "t", "u"):
            sessions_of(transaction).keep(session(name, parent_session="s" if name == "t" else ""))
    asked: dict[str, Sequence[Any]] = {}

    def heard(name: str) -> None:
        real = getattr(SqliteConnection, name)

        def listening(self: SqliteConnection, statement: str, given: Iterable[Any] = ()) -> Any:
            many = list(given)
            if statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH", "INSERT")):
                asked[statement] = (many[0] if many else []) if name == "executemany" else many
            return real(self, statement, many)

        monkeypatch.setattr(SqliteConnection, name, listening)

    for name in ("execute", "executemany", "rows", "one"):
        heard(name)
    with store.begin(NAMESPACE) as transaction:
        sessions = sessions_of(transaction)
        sessions.keep(session("s"))
        for number in range(1, 4):
            shown = made[number].fact_id
            sessions.add_window(
                window(number, continuation_id=f"c{number}"),
                prior=prior(number, shown),
                report=report(shown),
                given=["w-s-1"] if number == 3 else None,
            )
            transaction.journal.seal(seal("s", number))
        sessions.session("s")
        sessions.has("s")
        sessions.windows("s")
        sessions.continued("c1")
        sessions.priors(["w-s-1", "w-s-2"])
        sessions.report("w-s-1")
        sessions.idle(NOON)
        assert sessions.withdraw([made[2].fact_id], NOON, source_id="unknown") == 2
        transaction.facts.remove([made[1].fact_id])
        sessions.forget("s")
        transaction.journal.seals("s")
        transaction.journal.last_seal("s")
        list(sessions.session_ids())
        list(transaction.journal.all_seals())
    store.close()
    monkeypatch.undo()
    (database,) = tmp_path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    tables = ("sessions", "windows", "window_", "withdrawn_facts", "seals")
    looked_at = [one for one in asked if any(f" {table}" in one for table in tables)]
    assert len(looked_at) > 20
    for statement in looked_at:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", list(asked[statement]))
        for *_, step in plan.fetchall():
            whole = step.startswith("SCAN") and not any(name in step for name in NO_TABLES)
            assert not whole, (statement, step)
    connection.close()


def test_what_goes_with_a_session_is_found_by_an_index(tmp_path: Path) -> None:
    """A row that is removed with another one is looked for by the key that leads there."""
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE):
        pass
    store.close()
    (database,) = tmp_path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    found = 0
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'window%'"
    ).fetchall():
        for key in connection.execute('SELECT "from" FROM pragma_foreign_key_list(?)', [table]):
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN DELETE FROM {table} WHERE {key[0]} = ?", ["x"]
            ).fetchall()
            assert [step for *_, step in plan if step.startswith("SCAN")] == []
            found += 1
    connection.close()
    assert found == 5
