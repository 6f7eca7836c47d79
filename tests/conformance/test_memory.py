from __future__ import annotations

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
