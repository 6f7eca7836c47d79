"""A store of an older schema version is brought up to date by whoever opens it first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from crp_integrations.errors import AccessDenied, StoreError, StoreNewer
from crp_integrations.fabric.ports import Store
from crp_integrations.stores.postgres import PostgresStore, tables
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.sqlite import SqliteStore, schema
from crp_integrations.testing.fixtures import NAMESPACE, fill
from tests.postgres import server

PASSWORD = "a-password"
TEXTS = ["the sea", "the sky"]
STEP = ("CREATE TABLE later (number INTEGER)", "INSERT INTO later VALUES (7)")
FIRST = len(schema.STEPS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(SqliteStore(tmp_path / "kb")) as store:
        fill(store, *TEXTS)
    return tmp_path / "kb"


@pytest.fixture
def database() -> Iterator[str]:
    """The name of a database with one namespace."""
    with server().database() as name:
        with closing(PostgresStore(server().address(name))) as store:
            fill(store, *TEXTS)
        yield name


def texts(store: Store) -> list[str]:
    with store.begin(NAMESPACE, write=False) as transaction:
        ids = [id_ for id_, _ in transaction.facts.retrievable()]
        return sorted(one.content for one in transaction.facts.get(ids))


def opened(store: Store, how: str) -> None:
    if how == "read":
        assert texts(store) == TEXTS
    elif how == "write":
        fill(store, "one more")
    else:
        assert getattr(store, how)(NAMESPACE) in (True, None, [])


def raw(folder: Path, statement: str) -> list[tuple[int]]:
    (path,) = folder.rglob("*.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(statement).fetchall()
        connection.commit()
    return found


def test_nothing_is_older_than_the_first_version() -> None:
    assert len(schema.STEPS) == len(tables.STEPS) == 1


@pytest.mark.parametrize("how", ["read", "write", "check", "scrub", "compact"])
def test_a_folder_is_brought_up(folder: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, STEP))
    with closing(SqliteStore(folder)) as store:
        opened(store, how)
        assert {*TEXTS} <= {*texts(store)}
        assert store.check(NAMESPACE) == []
    assert raw(folder, "PRAGMA user_version") == [(FIRST + 1,)]
    assert raw(folder, "SELECT number FROM later") == [(7,)]
    monkeypatch.undo()
    with closing(SqliteStore(folder)) as store, pytest.raises(StoreNewer):
        texts(store)


def test_a_step_that_fails_leaves_the_older_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, (*STEP, "INSERT INTO nowhere VALUES (1)")))
    with closing(SqliteStore(folder)) as store:
        for write in (True, False):
            with pytest.raises(StoreError), store.begin(NAMESPACE, write=write):
                raise AssertionError("a transaction was begun")
    monkeypatch.undo()
    assert raw(folder, "PRAGMA user_version") == [(FIRST,)]
    with closing(SqliteStore(folder)) as store:
        assert texts(store) == TEXTS


@pytest.mark.parametrize("how", ["read", "write", "check", "scrub"])
def test_a_database_is_brought_up(database: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, STEP))
    address = server().address(database)
    with closing(PostgresStore(address)) as store, closing(PostgresStore(address)) as other:
        opened(store, how)
        assert {*TEXTS} <= {*texts(other)}
        fill(other, "the last of them")
        assert "the last of them" in texts(store)
        with store.begin(NAMESPACE, write=False) as transaction:
            rows = transaction.facts.statements.rows
            assert rows("SELECT number FROM later") == [(7,)]
            found = rows("SELECT value FROM own WHERE name = ?", [tables.VERSION_NAME])
            assert found == [(FIRST + 1,)]
    monkeypatch.undo()
    with closing(PostgresStore(address)) as store, pytest.raises(StoreNewer):
        texts(store)


def test_a_tenants_login_asks_for_its_operator(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStore(server().address(database))) as operator:
        role = operator.admit(NAMESPACE, PASSWORD)
        monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, STEP))
        address = server().address(database, role, PASSWORD)
        with closing(PostgresStore(address)) as tenant:
            for write in (True, False):
                wanted = rf"version {FIRST}, wanted {FIRST + 1}.*its owner must"
                with (
                    pytest.raises(AccessDenied, match=wanted),
                    tenant.begin(NAMESPACE, write=write),
                ):
                    raise AssertionError("a transaction was begun")
            with psycopg.connect(server().address(database), autocommit=True) as connection:
                for statement in (
                    f"UPDATE own SET value = {FIRST + 1} WHERE name = '{tables.VERSION_NAME}'",
                ):
                    connection.execute(f"SET search_path = {schema_of(NAMESPACE)}")
                    connection.execute(statement)
            assert texts(tenant) == TEXTS
        operator.dismiss(NAMESPACE, artifacts=[])
