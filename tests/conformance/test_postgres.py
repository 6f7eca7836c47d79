"""`PostgresStore` keeps every promise of a persistent store, over a real server."""

from __future__ import annotations

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.testing.conformance import PersistentStoreConformance
from tests.postgres import postgres_address  # noqa: F401 - a fixture


class TestPostgresStore(PersistentStoreConformance):
    @pytest.fixture
    def store(self, postgres_address: str) -> Store:  # noqa: F811
        self.address = postgres_address
        return PostgresStore(postgres_address)

    def reopen(self, store: Store) -> Store:
        return PostgresStore(self.address)
