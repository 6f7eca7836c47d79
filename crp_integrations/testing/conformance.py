"""The conformance suite: tests for the guarantees of every store, whatever its backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.testing.conformance_facts import FactsConformance, SearchConformance
from crp_integrations.testing.conformance_sessions import (
    JournalConformance,
    ReceiptsConformance,
    SessionsConformance,
    WithdrawalConformance,
)
from crp_integrations.testing.conformance_transactions import (
    SECRET,
    TransactionsConformance,
    UpkeepConformance,
    fill_namespace,
    snapshot,
)
from crp_integrations.testing.fixtures import (
    NAMESPACE,
    NOON,
    OTHER,
    add_window,
    fact,
    facts,
    fill,
    open_session,
    prior,
    rows,
    source,
    window,
    withdraw,
)
from crp_integrations.vocabulary import FactStatus

GONE, STAYS = "zqgone", "zqstays"


class StoreConformance(
    FactsConformance,
    SearchConformance,
    JournalConformance,
    ReceiptsConformance,
    SessionsConformance,
    WithdrawalConformance,
    TransactionsConformance,
    UpkeepConformance,
):
    """Every guarantee of a store. Override the fixture `store`, and the hooks that your store has.

    Without the override of a hook, the tests that need it are skipped.
    """

    @pytest.fixture
    def store(self) -> Store:
        """A new empty store for each test."""
        raise NotImplementedError("override the fixture `store` with one that creates your store")

    @pytest.fixture(autouse=True)
    def _closed_afterwards(self, store: Store) -> Iterator[None]:
        yield
        store.close()

    def reference(self) -> Store:
        """An empty store of another kind, for comparing results."""
        return MemoryStore()

    def stored(self, store: Store) -> bytes:
        """Every byte that the store has on disk now.

        Concatenate its files; for a server, after a checkpoint. Leave out files that the operator
        has to purge, such as a write-ahead log.
        """
        pytest.skip("this store has no persistent bytes")

    def test_equal_content_has_equal_hashes_and_hits_whatever_came_before(
        self, store: Store
    ) -> None:
        made = facts("the tier", "tiers and tiers", "GPT-4 tier", "naïve", *"abcd")
        passing = facts("x", "y")
        other = self.reference()
        batches = [made[:3], made[3:]]
        for each, order, more in ((store, batches, passing), (other, batches[::-1], [])):
            for batch in [*order, more]:
                with each.begin(NAMESPACE) as transaction:
                    transaction.facts.add(batch, rows(batch))
            with each.begin(NAMESPACE) as transaction:
                transaction.facts.remove([old.fact_id for old in more])
                transaction.facts.set_status([made[0].fact_id], FactStatus.STALE, NOON)
                transaction.facts.add_source(source(each.name))
        hashes, hits = [], []
        for each in (store, other):
            with each.begin(NAMESPACE, write=False) as transaction:
                hashes.append(state_hash(transaction.facts.state()))
                hits.append(dict(transaction.facts.search_text(["tier", "GPT-4", "naive"], 9)))
        assert hashes[0] == hashes[1] != state_hash([])
        assert hits[0] == pytest.approx(hits[1], rel=1e-9)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([made[1].fact_id], FactStatus.DELETED, NOON)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert state_hash(transaction.facts.state()) != hashes[0]
        other.close()

    def test_no_byte_of_what_was_removed_is_left(self, store: Store) -> None:
        """Texts, locations, labels and metadata, and the answers that used them."""
        self.stored(store)
        ids = {}
        open_session(store, "s", "t")
        for mark, name in ((GONE, "s"), (STAYS, "t")):
            made = [
                fact(
                    f"{mark} {number}", source_id="doc", source_location=mark,
                    labels=(mark,), metadata={mark: mark},
                )
                for number in range(40)
            ]  # fmt: skip
            ids[mark] = [each.fact_id for each in made]
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.add(made, rows(made))
            add_window(store, window(1, name), prior=prior(1, *ids[mark], answer=mark))
        assert {mark for mark in ids if mark.encode() in self.stored(store)} == {GONE, STAYS}
        assert withdraw(store, *ids[GONE][:1]) == 1
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[GONE])
        assert store.scrub(NAMESPACE) is True
        assert {mark for mark in ids if mark.encode() in self.stored(store)} == {STAYS}
        assert store.check(NAMESPACE) == []


class PersistentStoreConformance(StoreConformance):
    """Also the guarantees of a store that outlives its process. Override `reopen` as well."""

    def reopen(self, store: Store) -> Store:
        """Another store object for the same location; the first one may be open or closed."""
        raise NotImplementedError("override `reopen` with one that opens the same location again")

    def test_what_was_committed_is_there_after_closing(self, store: Store) -> None:
        """No committed data is lost."""
        ids = fill_namespace(store, NAMESPACE)
        fill_namespace(store, OTHER)
        before = snapshot(store, NAMESPACE, ids)
        store.close()
        again = self.reopen(store)
        assert again.namespaces() == sorted([NAMESPACE, OTHER])
        assert snapshot(again, NAMESPACE, ids) == before
        with again.begin(NAMESPACE, write=False) as transaction:
            assert sessions_of(transaction).priors(["w-s-1"])["w-s-1"].answer == SECRET
        again.close()

    def test_two_open_stores_see_each_other(self, store: Store) -> None:
        """What one store commits, the other reads in its next transaction."""
        other = self.reopen(store)
        (first,) = fill(store, "first")
        second = fact("second")
        with other.begin(NAMESPACE) as transaction:
            assert transaction.facts.get([first])
            transaction.facts.add([second], rows([second]))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([second.fact_id]) == [second]
            assert transaction.facts.generation() == 2
        other.close()
