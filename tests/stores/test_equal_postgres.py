"""PostgreSQL does the same with the same as the store in memory; hypothesis looks for a difference."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import rule

from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore
from tests.postgres import server
from tests.stores.test_equal_stores import EqualStores


class EqualPostgres(EqualStores):
    def __init__(self) -> None:
        super().__init__()
        self.stores[1].close()
        self.database = server().database()
        # From the third fact on there is an index to be kept up.
        self.address = server().address(self.database.__enter__())
        self.stores = [MemoryStore(), self.opened()]

    def opened(self) -> PostgresStore:
        return PostgresStore(self.address, index_from=3, connections=4)

    @rule()
    def reopen(self) -> None:
        self.stores[1].close()
        self.stores[1] = self.opened()

    def teardown(self) -> None:
        super().teardown()
        self.database.__exit__(None, None, None)


TestEqualPostgres = EqualPostgres.TestCase
TestEqualPostgres.settings = settings(max_examples=6, stateful_step_count=15, deadline=None)
