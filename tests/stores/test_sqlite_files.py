from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.audit.journal import verify_journal
from crp_integrations.errors import (
    ChainBroken,
    ConfigError,
    EngineError,
    StoreDamaged,
    StoreError,
    StoreNewer,
)
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.sqlite import connection as connections
from crp_integrations.stores.sqlite.connection import SqliteConnection
from crp_integrations.stores.sqlite.schema import STEPS
from crp_integrations.testing.fixtures import KEY, NAMESPACE, OTHER
from tests.stores import processes

READ = False
WRITE = True


def made(path: Path, batches: int = 3) -> Path:
    """A store with some batches, closed; the path of its one database."""
    store = SqliteStore(path)
    for number in range(batches):
        processes.write_batch(store, str(number))
    store.close()
    (database,) = path.rglob("*.sqlite")
    return database


def raw(database: Path, *statements: str) -> None:
    connection = sqlite3.connect(database)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def read_all(path: Path) -> list[str]:
    """Every text, vector and event; the names of the batches."""
    store = SqliteStore(path)
    try:
        with store.begin(NAMESPACE, write=False) as transaction:
            ids = [id for id, _ in transaction.facts.retrievable()]
            texts = [one.content for one in transaction.facts.get(ids)]
            transaction.facts.vectors(ids)
            transaction.facts.search_text(["batch"], 99)
            events = list(transaction.journal.events())
            assert verify_journal(events, KEY) == len(events)
            names = [event.data["source"] for event in events]
            assert sorted(texts) == sorted(t for name in names for t in processes.batch(name))
            return names
    finally:
        store.close()


def test_opening_and_reading_make_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "deep" / "kb")
    with store.begin(NAMESPACE, write=False) as transaction:
        assert transaction.facts.retrievable() == []
        with pytest.raises(StoreError, match="reading"):
            transaction.facts.set_setting("a", "b")
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    connection = SqliteConnection(made(tmp_path / "kb"), 0.1)
    connection.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError, match="copy the store to where it can be"):
        connection.execute("DELETE FROM facts")
    connection.close()


def test_another_namespace_is_read_without_making_it(tmp_path: Path) -> None:
    made(tmp_path / "kb")
    before = sorted(tmp_path.rglob("*"))
    store = SqliteStore(tmp_path / "kb")
    with store.begin(OTHER, write=False) as transaction:
        assert transaction.facts.retrievable() == []
    store.close()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_folders_belong_to_their_owner_and_hide_names(tmp_path: Path) -> None:
    database = made(tmp_path / "kb")
    for folder in (database.parent, database.parent.parent, tmp_path / "kb"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert NAMESPACE not in str(database)


def test_write_ahead_log_with_every_commit_on_disk(tmp_path: Path) -> None:
    database = made(tmp_path / "kb")
    connection = sqlite3.connect(database)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    connection.close()
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE) as transaction:
        asked = transaction.facts._connection.rows
        assert asked("PRAGMA synchronous") == [(2,)]
        assert asked("PRAGMA foreign_keys") == [(1,)]
        assert asked("PRAGMA secure_delete") == [(1,)]
    store.close()


@pytest.mark.parametrize("way", ["file", "through a file"])
def test_a_path_that_is_no_folder(tmp_path: Path, way: str) -> None:
    file = tmp_path / "file.txt"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="is a file"):
        SqliteStore(file if way == "file" else file / "kb")
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_a_path_with_a_nul() -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteStore("a\0b")


def test_an_sqlite_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 32, 3))
    with pytest.raises(EngineError, match="too old") as refused:
        SqliteStore(tmp_path / "kb")
    assert refused.value.engine == "sqlite"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder nobody can write")
def test_a_folder_that_cannot_be_made() -> None:
    store = SqliteStore("/proc/self/kb")
    with pytest.raises(StoreError, match="cannot be made"), store.begin(NAMESPACE):
        raise AssertionError("a transaction was begun")


def cut(size: float) -> Callable[[Path], None]:
    def change(database: Path) -> None:
        whole = database.read_bytes()
        database.write_bytes(whole[: int(len(whole) * size)])

    return change


def garbage(database: Path) -> None:
    database.write_bytes(b"this is no database, whatever its name says " * 200)


def header(database: Path) -> None:
    whole = bytearray(database.read_bytes())
    whole[:100] = bytes(range(100))
    database.write_bytes(whole)


def foreign(database: Path) -> None:
    database.unlink()
    raw(database, "CREATE TABLE theirs (x)")


def dropped(database: Path) -> None:
    raw(database, "DROP TABLE vectors")


def orphaned(database: Path) -> None:
    raw(database, "DELETE FROM own")


@pytest.mark.parametrize("write", [READ, WRITE])
@pytest.mark.parametrize("harm", [garbage, header, foreign, cut(0.1), cut(0.5), cut(0.99)])
def test_a_damaged_file_is_called_damaged(
    tmp_path: Path, harm: Callable[[Path], None], write: bool
) -> None:
    database = made(tmp_path / "kb", batches=30)
    harm(database)
    left = database.read_bytes()
    store = SqliteStore(tmp_path / "kb")
    with pytest.raises(StoreDamaged), store.begin(NAMESPACE, write=write):
        raise AssertionError("a transaction was begun")
    store.close()
    assert database.read_bytes() == left


@pytest.mark.parametrize("harm", [dropped, orphaned])
def test_tables_that_are_not_ours_are_called_damaged(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(made(tmp_path / "kb"))
    with pytest.raises(StoreDamaged):
        read_all(tmp_path / "kb")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE facts SET content = content || '!' WHERE fact = 2",
        "UPDATE facts SET content_hash = 'sha256:0' WHERE fact = 2",
        "UPDATE facts SET kind = 'gossip' WHERE fact = 2",
        "UPDATE facts SET metadata = '{' WHERE fact = 2",
        "UPDATE facts SET content = CAST(x'ff' AS TEXT) WHERE fact = 2",
        "UPDATE vectors SET vector = x'00' WHERE fact = 2",
        "DELETE FROM vectors WHERE fact = 2",
        "UPDATE facts SET schema = 'fact/9' WHERE fact = 2",
    ],
)
def test_a_changed_row_is_noticed(tmp_path: Path, statement: str) -> None:
    raw(made(tmp_path / "kb"), statement)
    with pytest.raises(StoreError):
        read_all(tmp_path / "kb")


@pytest.mark.parametrize("table", ["events", "seals"])
def test_the_journal_refuses_changes_and_removals(tmp_path: Path, table: str) -> None:
    database = made(tmp_path / "kb")
    seal = ", ".join(["'x', 1", *["'x'"] * 10])
    raw(database, f"INSERT INTO seals VALUES ({seal})")
    for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET hmac = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="never changed or removed"):
            raw(database, statement)
    with pytest.raises(sqlite3.IntegrityError, match="never changed or removed"):
        raw(
            database,
            "PRAGMA recursive_triggers = ON",
            f"REPLACE INTO {table} SELECT * FROM {table}",
        )


def test_who_removes_the_triggers_still_breaks_the_chain(tmp_path: Path) -> None:
    database = made(tmp_path / "kb")
    raw(
        database,
        "DROP TRIGGER events_update",
        """UPDATE events SET data = '{"batch":"x"}' WHERE seq = 2""",
    )
    with pytest.raises(ChainBroken) as broken:
        read_all(tmp_path / "kb")
    assert broken.value.index == 1


@pytest.mark.parametrize("write", [READ, WRITE])
def test_a_newer_store_is_left_alone(tmp_path: Path, write: bool) -> None:
    database = made(tmp_path / "kb")
    raw(database, f"PRAGMA user_version = {len(STEPS) + 1}")
    store = SqliteStore(tmp_path / "kb")
    with pytest.raises(StoreNewer, match=str(len(STEPS) + 1)), store.begin(NAMESPACE, write=write):
        raise AssertionError("a transaction was begun")
    store.close()


def test_a_database_moved_to_another_namespace_is_refused(tmp_path: Path) -> None:
    own = made(tmp_path / "kb")
    store = SqliteStore(tmp_path / "kb")
    with store.begin(OTHER) as transaction:
        transaction.facts.set_setting("a", "b")
    store.close()
    (other,) = {*(tmp_path / "kb").rglob("*.sqlite")} - {own}
    shutil.copy(own, other)
    with pytest.raises(StoreDamaged, match="another namespace"), store_at(tmp_path).begin(OTHER):
        raise AssertionError("a transaction was begun")


def store_at(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "kb")


def test_a_file_that_was_made_and_never_committed_is_empty(tmp_path: Path) -> None:
    database = made(tmp_path / "kb")
    database.write_bytes(b"")
    store = store_at(tmp_path)
    with store.begin(NAMESPACE, write=False) as transaction:
        assert transaction.facts.retrievable() == []
    processes.write_batch(store, "new")
    store.close()
    assert read_all(tmp_path / "kb") == ["new"]


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    processes.write_batch(store, "old")
    shutil.rmtree(tmp_path / "kb")
    processes.write_batch(store, "new")
    assert read_all(tmp_path / "kb") == ["new"]
    store.close()


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A store whose commits lie in the write-ahead log, as a loss of power leaves it."""
    root = tmp_path_factory.mktemp("torn")
    store = SqliteStore(root / "kb")
    processes.write_batch(store, "0")
    # As long as somebody reads, nothing is moved from the log into the database.
    with store.begin(NAMESPACE, write=False):
        for number in range(1, 6):
            processes.write_batch(store, str(number))
        shutil.copytree(root / "kb", root / "copy")
    store.close()
    (log,) = (root / "copy").rglob("*-wal")
    return log, log.read_bytes()


@given(share=st.floats(0.0, 1.0), flip=st.booleans())
@settings(max_examples=30)
def test_a_torn_log_gives_whole_commits(torn: tuple[Path, bytes], share: float, flip: bool) -> None:
    log, whole = torn
    root = log.parents[2]
    copy = root.with_name("again")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    at = int(share * (len(whole) - 1))
    changed = bytearray(whole if flip else whole[:at])
    if flip:
        changed[at] ^= 0x40
    (copy / log.relative_to(root)).write_bytes(changed)
    (copy / log.relative_to(root)).with_name(log.name.replace("-wal", "-shm")).unlink()
    names = read_all(copy)
    assert names == [str(number) for number in range(len(names))]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE facts SET content = content || '!' WHERE fact = 2", "content hash"),
        ("UPDATE facts SET content = CAST(x'ff' AS TEXT) WHERE fact = 2", "content hash"),
        ("UPDATE vectors SET vector = x'00' WHERE fact = 2", "has 1 bytes, wanted 32"),
        ("DELETE FROM vectors WHERE fact = 2", "has no vector"),
        ("INSERT INTO facts_text (facts_text) VALUES ('delete-all')", "text index"),
        ("INSERT INTO token_counts VALUES (99, 'words', 1)", "belongs to nothing"),
        ("DELETE FROM own", "belongs to another namespace"),
        ("PRAGMA user_version = 99", "schema version 99"),
    ],
)
def test_a_check_says_what_is_wrong(tmp_path: Path, statement: str, words: str) -> None:
    database = made(tmp_path / "kb")
    store = store_at(tmp_path)
    assert store.check(NAMESPACE) == []
    store.close()
    raw(database, statement)
    store = store_at(tmp_path)
    (sentence,) = store.check(NAMESPACE)
    assert words in sentence
    assert "batch" not in sentence
    store.close()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [emptied, Path.unlink], ids=["emptied", "deleted"])
def test_a_check_misses_a_database_whose_cache_is_there(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    database = made(tmp_path / "kb")
    store = store_at(tmp_path)
    store.cache(NAMESPACE).save(
        "graph", {}, lambda path: Path(path).write_bytes(b"made from it"), lambda _: True
    )
    store.close()
    for beside in database.parent.glob(f"{database.name}-*"):
        beside.unlink()
    harm(database)
    (sentence,) = store_at(tmp_path).check(NAMESPACE)
    assert "is gone or empty" in sentence
    # Nothing was ever written here, so nothing is missed.
    assert store_at(tmp_path).check(OTHER) == []


def test_a_check_misses_no_database_when_a_first_file_was_never_finished(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    left: list[Path] = []

    def killed(path: str) -> None:
        Path(path).write_bytes(b"half of it")
        # As it would lie there when nobody could clear it away.
        left.append(Path(path).with_suffix(".0.tmp"))
        left[0].write_bytes(b"half of it")
        raise OSError("killed")

    with pytest.raises(StoreError):
        store.cache(NAMESPACE).save("graph", {}, killed, lambda _: True)
    assert left[0].exists()
    assert store_at(tmp_path).check(NAMESPACE) == []


@pytest.mark.parametrize("harm", [garbage, header, foreign, cut(0.5), cut(0.99)])
def test_a_check_of_a_damaged_file_is_a_sentence(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(made(tmp_path / "kb", batches=30))
    assert store_at(tmp_path).check(NAMESPACE) != []
    with pytest.raises(StoreDamaged):
        store_at(tmp_path).namespaces()


def test_connections_of_many_namespaces_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds three files open, and a process may have a thousand."""
    alive: set[SqliteConnection] = set()

    class Counted(SqliteConnection):
        def __init__(self, path: Path, busy_seconds: float) -> None:
            super().__init__(path, busy_seconds)
            alive.add(self)

        def close(self) -> None:
            super().close()
            alive.discard(self)

    monkeypatch.setattr(connections, "SqliteConnection", Counted)
    monkeypatch.setattr("crp_integrations.stores.sqlite.store.MAX_IDLE_POOLS", 3)
    store = SqliteStore(tmp_path / "kb")
    with store.begin("tenant-0") as long:
        long.facts.set_setting("written", "0")
        for number in range(1, 9):
            with store.begin(f"tenant-{number}") as transaction:
                transaction.facts.set_setting("written", str(number))
        assert len(alive) == 1 + 3
        long.facts.set_setting("to the end", "yes")
    assert len(alive) == 3
    for number in range(9):
        with store.begin(f"tenant-{number}", write=False) as transaction:
            assert transaction.facts.setting("written") == str(number)
            assert transaction.facts.setting("to the end") == (None if number else "yes")
    assert len(alive) == 3
    assert store.namespaces() == [f"tenant-{number}" for number in range(9)]
    store.close()
    assert not alive
