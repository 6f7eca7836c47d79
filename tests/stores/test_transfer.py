"""A store copied to PostgreSQL and back is the same store."""

from __future__ import annotations

import sqlite3

import pytest
from typer.testing import CliRunner

from crp_integrations import Relay
from crp_integrations.cli.app import app
from crp_integrations.errors import StoreError
from crp_integrations.fabric.records import Edge
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores import transfer
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.transfer import TABLES, move
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import OPTIONS

TEXTS = [
    f"fact number {n} tells us quite a lot about tides and moons and {n % 7}" for n in range(600)
]
QUESTION = "what does fact number 17 tell about the moons?"
# What is derived, and counters and the log, which begin anew.
MADE_ANEW = {"own", "changes", "texts", "facts_text", "sqlite_sequence"}
# What an erasure has not put into the index yet; it arrives in the index.


@pytest.fixture
def folder(tmp_path):
    """A store with something of everything; its facts are more than a page."""
    with Relay.open(tmp_path / "kb", **OPTIONS) as relay:
        ids = list(
            relay.fabric.add(
                [*TEXTS, "a text with a NUL \x00 and a SUB \x1a between its many words"]
            ).facts
        )
        relay.ask(QUESTION, model="extractive")
        relay.fabric.quarantine(ids[:2])
        relay.fabric.archive(ids[2:4])
        relay.fabric.forget(facts=ids[4:6])
        relay.fabric.link([Edge(source_fact=ids[7], target_fact=ids[8], kind="x")])
    return tmp_path / "kb"


def rows_of(store) -> dict[str, list]:
    (name,) = store.namespaces()
    with store.begin(name, write=False) as transaction:
        return {
            table.name: transaction.facts.statements.rows(
                f"SELECT {', '.join(one for one in table.columns if one != 'padding')} FROM {table.name} ORDER BY {', '.join(table.key)}"
            )
            for table in TABLES
        }


def test_there_and_back_is_the_same(folder, tmp_path, postgres_address):  # noqa: F811
    back = tmp_path / "back"
    for source, target in ((folder, postgres_address), (postgres_address, back)):
        result = CliRunner().invoke(
            app, ["fabric", "migrate", "--from", str(source), "--to", str(target)]
        )
        assert result.exit_code == 0, result.output
        assert "state hash" in result.output
    stores = [SqliteStore(folder), PostgresStore(postgres_address), SqliteStore(back)]
    rows = [rows_of(store) for store in stores]
    assert rows[0] == rows[1] == rows[2]
    assert all(
        rows[0][name]
        for name in ("facts", "vectors", "edges", "events", "sessions", "receipts", "settings")
    )
    for store in stores:
        assert store.check(store.namespaces()[0]) == []
        store.close()
    hashes, tags = set(), set()
    for place in (folder, postgres_address, back):
        with Relay.open(place, **OPTIONS) as relay:
            hashes.add(relay.fabric.state_hash())
            tags.add(relay.preview(QUESTION).etag)
            assert relay.verify().windows == 1
            assert relay.fabric.add(
                [f"one more fact for the copy with all of its words {place}"]
            ).facts
            relay.ask(QUESTION, model="extractive")
            assert relay.verify().windows == 2
    assert len(hashes) == len(tags) == 1


def test_every_table_is_moved_or_made_anew(folder):
    (file,) = folder.rglob("fabric.sqlite")
    connection = sqlite3.connect(file)
    names = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }
    moved = {table.name for table in TABLES}
    assert {name for name in names - moved if not name.startswith(tuple(MADE_ANEW))} == set()
    for table in TABLES:
        found = {
            f'"{name}"' if name == "window" else name
            for (_, name, *_) in connection.execute(f"PRAGMA table_info({table.name})")
        }
        # A row number that only the index of prepared vectors in SQLite has.
        assert found - {"prepared"} == {*table.columns}
    connection.close()


def test_nothing_is_moved_over_something(folder, postgres_address):  # noqa: F811
    old, new = SqliteStore(folder), PostgresStore(postgres_address)
    (name,) = old.namespaces()
    assert move(old, new, name, lambda table, rows: None).facts == len(TEXTS) + 1
    with pytest.raises(StoreError, match="already"):
        move(old, new, name, lambda table, rows: None)
    new.close()
    old.close()


def test_a_folder_is_moved_into_memory(folder):
    old, new = SqliteStore(folder), MemoryStore()
    (name,) = old.namespaces()
    assert move(old, new, name, lambda table, rows: None).facts == len(TEXTS) + 1
    assert rows_of(new) == rows_of(old)
    new.close()
    old.close()


def test_a_password_is_not_shown(tmp_path):
    result = CliRunner().invoke(
        app,
        [
            "fabric",
            "migrate",
            "--from",
            str(tmp_path / "none"),
            "--to",
            "postgresql://a:secret@127.0.0.1:1/x",
        ],
    )
    assert result.exit_code != 0
    assert "secret" not in result.output + str(result.exception)


def migrated(source, target):
    return CliRunner().invoke(
        app, ["fabric", "migrate", "--from", str(source), "--to", str(target)]
    )


@pytest.fixture
def tenants(tmp_path):
    """A folder of three tenants; the name of one would steer a terminal."""
    for name in ("acme", "evil\u202e\x1b[2J", "zoo"):
        with Relay.open(tmp_path / "kb", subject=Subject(tenant=name), **OPTIONS) as relay:
            relay.add(TEXTS[:3])
            relay.ask(QUESTION, model="extractive")
    return tmp_path / "kb"


def test_a_copy_that_was_cut_off_goes_on(tenants, postgres_address, monkeypatch):  # noqa: F811
    def cut(old, new, name, told):
        if name == "zoo":
            raise StoreError("the server is gone")
        return move(old, new, name, told)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "move", cut)
        assert "gone" in str(migrated(tenants, postgres_address).exception)
    again = migrated(tenants, postgres_address)
    assert again.exit_code == 0, again.exception
    lines = again.stdout.splitlines()
    assert [line.endswith("there already") for line in lines] == [True, True, False]
    assert lines[0].startswith("acme: 3 facts, ")
    assert not {"\u202e", "\x1b"} & {*again.stdout}
    with Relay.open(postgres_address, subject=Subject(tenant="zoo"), **OPTIONS) as relay:
        assert relay.verify().windows == 1


def test_nothing_is_copied_where_one_tenant_is_another_one(tenants, tmp_path, postgres_address):  # noqa: F811
    with Relay.open(postgres_address, subject=Subject(tenant="zoo"), **OPTIONS) as relay:
        relay.add(TEXTS[5:8])
    refused = migrated(tenants, postgres_address)
    assert "nothing was copied" in str(refused.exception) and "'zoo'" in str(refused.exception)
    store = PostgresStore(postgres_address)
    assert store.namespaces() == ["zoo"]
    store.close()
    # The same facts with a trail that went on are not the same either.
    assert migrated(tenants, tmp_path / "copy").exit_code == 0
    with Relay.open(tmp_path / "copy", subject=Subject(tenant="acme"), **OPTIONS) as relay:
        relay.ask(QUESTION, model="extractive")
    assert "'acme'" in str(migrated(tenants, tmp_path / "copy").exception)
    assert "both stores" in str(migrated(tenants, tenants).exception)
