"""A store does the same with the same as a store of another kind."""

from __future__ import annotations

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.testing.hooks import Hooks
from crp_integrations.testing.records import NAMESPACE, NOON, facts, rows, source
from crp_integrations.testing.walk import Walk
from crp_integrations.vocabulary import FactStatus

STEPS = 40


class EqualConformance(Hooks):
    """Equal content has an equal state hash, whichever way it came there."""

    @pytest.mark.parametrize("seed", range(8))
    def test_two_stores_do_the_same_with_the_same(self, store: Store, seed: int) -> None:
        """Results, refusals, and all that is shown after each change; undone ones among them."""
        walk, other, changed = Walk(seed), self.reference(), 0
        for step in range(STEPS):
            change, fails = walk.step(), walk.chance.random() < 0.15
            told = [walk.outcome(one, change, fails=fails) for one in (store, other)]
            assert told[0] == told[1], f"step {step}"
            changed += told[0].startswith("done")
            if step % 10 == 9:
                assert store.scrub(NAMESPACE) is True
                store.compact(NAMESPACE)
            ours, theirs = walk.shown(store), walk.shown(other)
            assert ours == theirs, f"step {step}"
            for found, wanted in zip(walk.hits(store), walk.hits(other), strict=True):
                assert found == pytest.approx(wanted, rel=1e-9)
        assert changed > STEPS // 2
        assert store.check(NAMESPACE) == []
        other.close()

    def test_equal_content_has_an_equal_state_hash_whatever_came_before(self, store: Store) -> None:
        """The order of batches, and what was removed meanwhile, leave no trace in it."""
        made, passing = facts(*"abcdefgh"), facts("x", "y")
        other = self.reference()
        batches = [made[:3], made[3:]]
        for one, order, more in ((store, batches, passing), (other, batches[::-1], [])):
            for batch in [*order, more]:
                with one.begin(NAMESPACE) as transaction:
                    transaction.facts.add(batch, rows(batch))
            with one.begin(NAMESPACE) as transaction:
                transaction.facts.remove([old.fact_id for old in more])
                transaction.facts.set_status([made[0].fact_id], FactStatus.STALE, NOON)
                transaction.facts.add_source(source(one.name))
        hashes = []
        for one in (store, other):
            with one.begin(NAMESPACE, write=False) as transaction:
                hashes.append(state_hash(transaction.facts.state()))
        assert hashes[0] == hashes[1] != state_hash([])
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([made[1].fact_id], FactStatus.DELETED, NOON)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert state_hash(transaction.facts.state()) != hashes[0]
        other.close()
