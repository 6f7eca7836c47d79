from __future__ import annotations

from pathlib import Path

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.conformance import PersistentStoreConformance


class TestSqliteStore(PersistentStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return SqliteStore(tmp_path / "kb")

    def reopen(self, store: Store) -> Store:
        return SqliteStore(store.name.removeprefix("sqlite:"))
