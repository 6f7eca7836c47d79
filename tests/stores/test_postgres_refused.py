"""A server that refuses a login says so at once; what cannot be reached is waited for, and why."""

from __future__ import annotations

import time

import psycopg
import pytest
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from crp_integrations.errors import AccessDenied, ConfigError, StoreBusy, StoreError
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.testing.fixtures import NAMESPACE
from tests.commands import command
from tests.postgres import server

PASSWORD = "HUNTER2SECRET"
# A refusal is said long before the store's patience of 30 s ends.
AT_ONCE_SECONDS = 5.0
# A process imports the package, asks, and ends.
PROCESS_SECONDS = 20.0


@pytest.fixture
def bob():
    """A login whose password is another one."""
    with psycopg.connect(server().address(), autocommit=True) as raw:
        raw.execute("CREATE ROLE bob LOGIN PASSWORD 'another'")
        yield "bob"
        raw.execute("DROP ROLE bob")


def refusal(address: str, **options: float) -> tuple[Exception, float]:
    """The error of a first transaction, and the seconds until it came, closing included."""
    store = PostgresStore(address, **options)
    began = time.monotonic()
    with pytest.raises(StoreError) as told, store.begin(NAMESPACE, write=False):
        raise AssertionError("a transaction was begun")
    store.close()
    return told.value, time.monotonic() - began


def test_a_wrong_password_is_said_at_once(bob):
    error, seconds = refusal(server().address("postgres", bob, PASSWORD))
    assert not isinstance(error, StoreBusy) and seconds < AT_ONCE_SECONDS
    assert 'password authentication failed for user "bob"' in str(error)
    assert PASSWORD not in str(error) + repr(error.__cause__)


def test_a_login_that_was_refused_is_asked_again(bob):
    # A database of its own: pgvector may have been brought into the server's first one already.
    with server().database() as name:
        store = PostgresStore(server().address(name, bob, PASSWORD))
        try:
            with pytest.raises(StoreError, match="refused the login"):
                store.namespaces()
            with psycopg.connect(server().address(), autocommit=True) as raw:
                raw.execute(f"ALTER ROLE bob PASSWORD '{PASSWORD}'")
            # It gets in; that the role may bring no pgvector in is said at once too.
            with pytest.raises(AccessDenied):
                store.namespaces()
        finally:
            store.close()


@pytest.mark.parametrize(
    ("place", "cause"),
    [("127.0.0.1:1", "Connection refused"), ("no-host.invalid", "no-host.invalid'")],
)
def test_what_cannot_be_reached_is_waited_for_and_said_why(place, cause):
    error, seconds = refusal(f"postgresql://bob:{PASSWORD}@{place}/d", busy_seconds=1.0)
    assert isinstance(error, StoreBusy) and seconds > 0.9
    assert "gave up after 1 s" in str(error) and cause in str(error)
    assert PASSWORD not in str(error)


@pytest.mark.parametrize("torn", ["HUNTER@2SECRET", "HUNTER/2SECRET", "12/2SECRET"])
def test_an_address_that_its_password_tears_is_refused_unseen(torn):
    with pytest.raises(ConfigError, match="%40") as told:
        PostgresStore(f"postgresql://bob:{torn}@127.0.0.1/d")
    assert "2SECRET" not in str(told.value)


def test_the_command_ends_at_once(bob, tmp_path):
    began = time.monotonic()
    store = server().address("postgres", bob, PASSWORD)
    said = command("fabric", "stats", "--store", store, cwd=tmp_path, CRP_KEY="ab" * 32)
    assert said.returncode == 1 and time.monotonic() - began < PROCESS_SECONDS
    assert "password authentication failed" in said.stderr
    assert PASSWORD not in said.stdout + said.stderr


def test_no_command_shows_the_password_of_its_store(tmp_path, monkeypatch):
    """What reaches no server fails before it could print; so a server lets it in."""
    with server().database() as name:
        with psycopg.connect(server().address(), autocommit=True) as raw:
            raw.execute(f"CREATE ROLE alice LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        try:
            store = server().address(name, "alice", PASSWORD)
            (tmp_path / "a.md").write_text("The walrus sleeps until noon on every day of the week.")
            monkeypatch.setenv("CRP_KEY", "ab" * 32)
            monkeypatch.chdir(tmp_path)
            none = CliRunner().invoke(app, ["fabric", "stats", "--store", store])
            assert "there is no store at 'postgresql://…'" in str(none.exception)
            done = CliRunner().invoke(app, ["ingest", "a.md", "--store", store])
            assert "1 fact from 1 source added to postgresql://…" in done.stdout
            moved = CliRunner().invoke(app, ["fabric", "maintain", "--reembed", "--store", store])
            assert "the vectors are of all-MiniLM" in moved.stdout
            for said in (none, done, moved):
                assert PASSWORD not in said.output + str(said.exception)
        finally:
            with psycopg.connect(server().address(), autocommit=True) as raw:
                raw.execute(f"DROP DATABASE {name} WITH (FORCE)")
                raw.execute("DROP ROLE alice")
                raw.execute(f"CREATE DATABASE {name}")
