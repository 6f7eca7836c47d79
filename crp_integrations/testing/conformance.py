"""The conformance suite of stores.

class TestMine(PersistentStoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        return MyStore(tmp_path)

    def opener(self, store):
        return partial(MyStore, store.path)

Override the hooks of `StoreAccess` that your store has: the bytes that it keeps, and logins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.testing.conformance_edits import EditsConformance
from crp_integrations.testing.conformance_equality import EqualityConformance
from crp_integrations.testing.conformance_erasure import ErasureConformance
from crp_integrations.testing.conformance_facts import FactsConformance, FaultedConformance
from crp_integrations.testing.conformance_isolation import IsolationConformance
from crp_integrations.testing.conformance_journal import JournalConformance, ReceiptsConformance
from crp_integrations.testing.conformance_processes import (
    ConcurrencyConformance,
    CrashConformance,
    JobsConformance,
)
from crp_integrations.testing.conformance_search import SearchConformance
from crp_integrations.testing.conformance_sessions import SessionsConformance, WithdrawalConformance
from crp_integrations.testing.conformance_transactions import (
    TransactionsConformance,
    UpkeepConformance,
)
from crp_integrations.testing.fixtures import NAMESPACE, fact, rows, seal, source


class StoreConformance(
    FactsConformance,
    EditsConformance,
    SearchConformance,
    JournalConformance,
    SessionsConformance,
    WithdrawalConformance,
    ReceiptsConformance,
    FaultedConformance,
    JobsConformance,
    TransactionsConformance,
    UpkeepConformance,
    EqualityConformance,
    IsolationConformance,
    ErasureConformance,
    CrashConformance,
    ConcurrencyConformance,
):
    """Every promise of a store. Override the fixture `store`, and the hooks that your store has."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store, a new one for each test."""
        raise NotImplementedError("override the fixture `store` with one that makes your store")

    @pytest.fixture(autouse=True)
    def _closed_afterwards(self, store: Store) -> Iterator[None]:
        yield
        store.close()


class PersistentStoreConformance(StoreConformance):
    """Also the promises of a store that outlives its process. Override `opener` as well."""

    def opener(self, store: Store) -> Callable[[], Store]:
        """What opens the same place in another process; picklable, such as a `partial`."""
        raise NotImplementedError("override `opener` with one that opens the same place again")

    def reopen(self, store: Store) -> Store:
        """Another store object over the same place; the first one may be open or closed."""
        return self.opener(store)()

    def test_what_was_committed_is_there_after_closing(self, store: Store) -> None:
        """Nothing acknowledged is lost."""
        kept = fact("the tier falls when a critical fact is dropped", metadata={"page": [1, None]})
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([kept], rows([kept]))
            transaction.facts.add_source(source("a.md"))
            transaction.facts.set_setting("embedder", "e/1")
            transaction.facts.save_token_counts("words", {kept.fact_id: 9})
            transaction.journal.seal(seal("s", 1))
            generation = transaction.facts.generation()
        store.close()
        again = self.reopen(store)
        with again.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([kept.fact_id]) == [kept]
            assert (transaction.facts.vectors([kept.fact_id]) == rows([kept])).all()
            assert [s.uri for s in transaction.facts.sources()] == ["a.md"]
            assert transaction.facts.setting("embedder") == "e/1"
            assert transaction.facts.token_counts("words", [kept.fact_id]) == {kept.fact_id: 9}
            assert transaction.facts.search_text(["critical"], 5)[0][0] == kept.fact_id
            assert transaction.journal.seals("s") == [seal("s", 1)]
            assert transaction.facts.generation() == generation
        again.close()

    def test_two_open_stores_see_each_other(self, store: Store) -> None:
        """What one commits, the other one reads in its next transaction."""
        other = self.reopen(store)
        first, second = fact("first"), fact("second")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([first], rows([first]))
        with other.begin(NAMESPACE) as transaction:
            assert transaction.facts.get([first.fact_id]) == [first]
            transaction.facts.add([second], rows([second]))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([second.fact_id]) == [second]
            assert transaction.facts.generation() == 2
        other.close()
