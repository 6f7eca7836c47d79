"""What a connection remembers of a file's state, beside every way in which it can change."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crp_integrations.stores.sqlite.base import Seen
from crp_integrations.stores.sqlite.connection import Connection

# Who does it, and what: a change that is kept, one that is undone, or a look.
STEPS = st.lists(
    st.tuples(st.sampled_from(["reader", "other"]), st.sampled_from(["keep", "undo", "look"])),
    max_size=25,
)


def _opened(path: Path) -> Connection:
    connection = Connection(path, 1.0)
    if not connection.version():
        connection.execute("PRAGMA journal_mode = WAL")
        connection.in_turn("BEGIN IMMEDIATE")
        connection.migrate()
        connection.execute("COMMIT")
    return connection


def _changed(connection: Connection, value: int, *, keep: bool) -> None:
    connection.in_turn("BEGIN IMMEDIATE")
    connection.execute("INSERT OR REPLACE INTO settings VALUES ('it', ?)", [str(value)])
    connection.execute("COMMIT" if keep else "ROLLBACK")


def _looked(connection: Connection) -> tuple[bool, Seen]:
    """Whether it was remembered, and what was, or else what is read now."""
    connection.execute("BEGIN")
    known = connection.remembered()
    found = known or Seen.read(connection)
    assert found == Seen.read(connection)
    connection.remember(found)
    connection.execute("ROLLBACK")
    return known is not None, found


@given(steps=STEPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_remembered_is_what_is_there(
    tmp_path_factory, steps: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("remembered") / "fabric.sqlite"
    by = {"reader": _opened(path), "other": _opened(path)}
    try:
        for value, (who, what) in enumerate(steps):
            if what == "look":
                _looked(by[who])
            else:
                _changed(by[who], value, keep=what == "keep")
            # `_looked` compares with what is read anew.
            _looked(by["reader"])
    finally:
        for connection in by.values():
            connection.close()


def test_it_is_remembered_while_nothing_changes_and_read_anew_after_a_commit(
    tmp_path: Path,
) -> None:
    reader, other = _opened(tmp_path / "fabric.sqlite"), _opened(tmp_path / "fabric.sqlite")
    assert not _looked(reader)[0]
    assert _looked(reader)[0]
    _changed(other, 1, keep=False)
    assert _looked(reader)[0]
    _changed(other, 2, keep=True)
    known, found = _looked(reader)
    assert not known and found.settings["it"] == "2"
    _changed(reader, 3, keep=True)
    known, found = _looked(reader)
    assert not known and found.settings["it"] == "3"
    reader.close()
    other.close()


def test_a_transaction_keeps_its_state_while_another_commits(tmp_path: Path) -> None:
    reader, other = _opened(tmp_path / "fabric.sqlite"), _opened(tmp_path / "fabric.sqlite")
    _changed(other, 1, keep=True)
    _looked(reader)
    reader.execute("BEGIN")
    known = reader.remembered()
    _changed(other, 2, keep=True)
    assert known == Seen.read(reader) == reader.remembered()
    reader.execute("ROLLBACK")
    reader.execute("BEGIN")
    assert reader.remembered() is None
    assert Seen.read(reader).settings["it"] == "2"
    reader.execute("ROLLBACK")
    reader.close()
    other.close()
