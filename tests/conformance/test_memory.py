from __future__ import annotations

from pathlib import Path

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.conformance.laws import OwnStoreLaws


class TestMemoryStore(OwnStoreLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        self.folder = tmp_path
        return MemoryStore()

    def reference(self) -> Store:
        # With itself it would agree whatever it did.
        return SqliteStore(self.folder / "kb")
