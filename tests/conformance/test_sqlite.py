from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.conformance import PersistentStoreConformance
from tests.conformance.laws import OwnStoreLaws


class TestSqliteStore(OwnStoreLaws, PersistentStoreConformance):
    kills = 15

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        self.folder = tmp_path / "kb"
        return SqliteStore(self.folder)

    def opener(self, store: Store) -> Callable[[], Store]:
        return partial(SqliteStore, self.folder, busy_seconds=60.0)

    def stored(self, store: Store) -> bytes:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in files)
