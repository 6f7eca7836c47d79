"""`PostgresStore` keeps every promise of a persistent store, over a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial

import numpy as np
import psycopg
import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.testing.conformance import PersistentStoreConformance
from tests.conformance.laws import OwnStoreLaws
from tests.postgres import postgres_address, server  # noqa: F401 - a fixture

PASSWORD = "a-password"


class TestPostgresStore(OwnStoreLaws, PersistentStoreConformance):
    # Each time every file of the server is read.
    erasure_turns = 3
    erasure_batches = (3, 20)
    # From so many facts on there is an index to be kept up.
    index_from = 3

    @pytest.fixture
    def store(self, postgres_address: str) -> Iterator[Store]:  # noqa: F811
        self.address = postgres_address
        self.tenants: list[str] = []
        yield PostgresStore(postgres_address, index_from=self.index_from)
        with closing(PostgresStore(postgres_address)) as operator:
            for tenant in self.tenants:
                operator.dismiss(tenant, artifacts=[])

    def opener(self, store: Store) -> Callable[[], Store]:
        return partial(PostgresStore, self.address, index_from=self.index_from)

    def stored(self, store: Store) -> bytes:
        with psycopg.connect(self.address, autocommit=True) as raw:
            # What is in memory is written first.
            raw.execute("CHECKPOINT")
        files = sorted(path for path in (server().data / "base").rglob("*") if path.is_file())
        found = []
        for path in files:
            # The server takes files of its own away at any time.
            with suppress(FileNotFoundError):
                found.append(path.read_bytes())
        return b"".join(found)

    def number_bytes(self, row: np.ndarray) -> bytes:
        # pgvector keeps numbers with the highest byte first.
        return row.astype(">f4").tobytes()

    def login(self, store: Store, tenant: str, reads: Sequence[str] = ()) -> Store:
        assert isinstance(store, PostgresStore)
        role = store.admit(tenant, PASSWORD, reads=reads)
        self.tenants.append(tenant)
        # Over TCP with the password.
        return PostgresStore(server().address("postgres", role, PASSWORD), busy_seconds=5.0)
