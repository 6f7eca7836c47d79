"""What the counts of findings against facts do, in a store that keeps them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.fabric.ports.store import FaultCounts, FaultCountsFacet, fault_counts_of
from crp_integrations.testing.records import NAMESPACE, NOON, facts, fill, rows
from crp_integrations.vocabulary import FactStatus

TEXTS = ("walrus sleeps", "otter swims")


def kept(transaction: Transaction) -> FaultCountsFacet:
    """The counts of an open transaction; a store without them has nothing to show here."""
    facet = fault_counts_of(transaction)
    if facet is None:
        pytest.skip("this store counts no findings")
    return facet


def counted(store: Store, *fact_ids: str) -> dict[str, FaultCounts]:
    """Count a finding against facts in a transaction of its own."""
    with store.begin(NAMESPACE) as transaction:
        return kept(transaction).count(fact_ids)


class FaultedConformance:
    """Findings against facts and their uses, which go with the facts."""

    def test_findings_and_uses_are_counted_for_each_fact(self, store: Store) -> None:
        """Of facts that are not stored nothing is."""
        one, other = fill(store, *TEXTS)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch([one, other], NOON)
            transaction.facts.touch([one], NOON + timedelta(hours=1))
        assert counted(store, one) == {one: FaultCounts(1, 2)}
        assert counted(store, one, other) == {one: FaultCounts(2, 2), other: FaultCounts(1, 1)}
        assert counted(store, "unknown") == {}

    def test_what_is_due_has_so_many_findings_in_such_a_share_of_its_uses(
        self, store: Store
    ) -> None:
        """Of what can be retrieved; what was reset is not due any more."""
        one, other = fill(store, *TEXTS)
        with store.begin(NAMESPACE) as transaction:
            for hour in range(5):
                transaction.facts.touch([one], NOON + timedelta(hours=hour))
        for _ in range(2):
            counted(store, one, other)
        with store.begin(NAMESPACE) as transaction:
            due = kept(transaction).due
            assert due(2, 0.5) == [other]
            assert due(2, 0.4) == sorted([one, other])
            assert due(3, 0.4) == []
            transaction.facts.set_status([other], FactStatus.QUARANTINED, NOON)
            assert due(2, 0.5) == []
            kept(transaction).reset([one])
            assert due(1, 0.1) == []

    def test_a_reset_forgets_findings_and_the_uses_before_it(self, store: Store) -> None:
        """Later ones count from there."""
        one, other = fill(store, *TEXTS)
        counted(store, one, other)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch([one], NOON)
            kept(transaction).reset([one, "unknown"])
            transaction.facts.touch([one], NOON + timedelta(hours=1))
        assert counted(store, one, other) == {one: FaultCounts(1, 1), other: FaultCounts(2, 0)}

    def test_findings_that_are_undone_count_nothing(self, store: Store) -> None:
        """As everything else in the transaction."""
        one, _ = fill(store, *TEXTS)

        def undone() -> None:
            with store.begin(NAMESPACE) as transaction:
                kept(transaction).count([one])
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            undone()
        assert counted(store, one) == {one: FaultCounts(1, 0)}

    def test_findings_go_with_their_fact(self, store: Store) -> None:
        """A fact that comes again begins anew."""
        one, _ = fill(store, *TEXTS)
        counted(store, one)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([one])
        assert counted(store, one) == {}
        with store.begin(NAMESPACE) as transaction:
            again = facts(*TEXTS)[:1]
            transaction.facts.add(again, rows(again))
        assert counted(store, one) == {one: FaultCounts(1, 0)}
