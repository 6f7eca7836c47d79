"""What every store promises of facts, vectors, sources, words, edges and counts of findings."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.fabric.ports.store import FaultCounts, FaultCountsFacet, fault_counts_of
from crp_integrations.fabric.records import Edge
from crp_integrations.testing.conformance_facts import LATER
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, facts, fill, rows
from crp_integrations.vocabulary import FactStatus


class FactsLaws:
    """Facts, vectors, sources, text, counts and edges."""

    def test_a_stored_fact_names_its_namespace(self, store: Store) -> None:
        silent = fact("silent", namespace="")
        foreign = fact("foreign", namespace="elsewhere")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([silent], rows([silent]))
            with pytest.raises(StoreError, match="elsewhere"):
                transaction.facts.add([foreign], rows([foreign]))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([silent.fact_id])[0].namespace == NAMESPACE
            assert transaction.facts.get([foreign.fact_id]) == []

    def test_many_ids_at_once(self, store: Store) -> None:
        """More ids than a statement of SQL has parameters."""
        ids = fill(store, *(f"fact number {n}" for n in range(1_500)))
        many = ids * 30
        with store.begin(NAMESPACE, write=False) as transaction:
            assert [one.fact_id for one in transaction.facts.get(ids)] == ids
            assert transaction.facts.vectors(many).shape == (len(many), 8)

    def test_adding_nothing_changes_nothing(self, store: Store) -> None:
        fill(store, "one")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([], np.zeros((0, 8), dtype=np.float32))
            assert transaction.facts.generation() == 1

    def test_a_fact_that_becomes_active_again_is_found_again(self, store: Store) -> None:
        (id,) = fill(store, "saturation")
        for status, count in ((FactStatus.QUARANTINED, 0), (FactStatus.ACTIVE, 1)):
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.set_status([id], status, LATER)
            with store.begin(NAMESPACE, write=False) as transaction:
                assert len(transaction.facts.search_text(["saturation"], 5)) == count

    def test_a_change_of_status_bears_its_time(self, store: Store) -> None:
        first, second = fill(store, "first", "second")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([first], FactStatus.STALE, LATER)
            transaction.facts.set_status([second], FactStatus.ACTIVE, LATER)
            times = [one.modified_at for one in transaction.facts.get([first, second])]
            assert times == [LATER, None]
            with pytest.raises(StoreError, match="unknown"):
                transaction.facts.set_status([first, "unknown"], FactStatus.ACTIVE, LATER)
            assert transaction.facts.get([first])[0].status is FactStatus.STALE

    def test_a_use_is_counted_once_a_call(self, store: Store) -> None:
        """Ids that are not there are left out: a fact may be erased while its envelope is out."""
        first, second = fill(store, "first", "second")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch([first, first, "gone"], NOON)
            transaction.facts.touch([first], LATER)
        with store.begin(NAMESPACE, write=False) as transaction:
            used, unused = transaction.facts.get([first, second])
            assert (used.access_count, used.last_accessed_at) == (2, LATER)
            assert (unused.access_count, unused.last_accessed_at) == (0, None)
            assert used.modified_at is None

    def test_diacritics_do_not_matter(self, store: Store) -> None:
        """`cafe` finds `Café`."""
        (id,) = fill(store, "the Café opened")
        with store.begin(NAMESPACE, write=False) as transaction:
            assert [hit for hit, _ in transaction.facts.search_text(["cafe"], 5)] == [id]

    def test_many_terms_at_once(self, store: Store) -> None:
        (id,) = fill(store, "needle")
        terms = [f"word{n}" for n in range(3_000)]
        with store.begin(NAMESPACE, write=False) as transaction:
            found = transaction.facts.search_text([*terms, "needle"], 5)
            assert [hit for hit, _ in found] == [id]

    def test_the_generation_grows_with_changes_alone(self, store: Store) -> None:
        """Facts and statuses count; uses, counts, edges and reading do not."""
        first, second = fill(store, "first", "second")
        seen = [1]
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch([first], LATER)
            transaction.facts.save_token_counts("words", {first: 1})
            transaction.facts.add_edges([Edge(source_fact=first, target_fact=second, kind="x")])
            transaction.facts.set_status([first], FactStatus.ACTIVE, LATER)
            assert transaction.facts.generation() == seen[-1]
        for status in (FactStatus.STALE, FactStatus.DELETED):
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.set_status([first], status, LATER)
            with store.begin(NAMESPACE, write=False) as transaction:
                assert transaction.facts.generation() > seen[-1]
                seen.append(transaction.facts.generation())

    def test_edges_by_source_kind_and_target(self, store: Store) -> None:
        a, b, c = sorted(fill(store, "a", "b", "c"))
        made = [
            Edge(source_fact=b, target_fact=a, kind="similar", weight=0.5),
            Edge(source_fact=a, target_fact=c, kind="similar", weight=0.7),
            Edge(source_fact=a, target_fact=b, kind="similar", weight=0.9),
            Edge(source_fact=a, target_fact=c, kind="cites"),
        ]
        heavier = made[0].model_copy(update={"weight": 0.6})
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add_edges(iter(made))
            transaction.facts.add_edges([heavier])
            with pytest.raises(StoreError, match="unknown"):
                transaction.facts.add_edges([Edge(source_fact=a, target_fact="unknown", kind="x")])
        with store.begin(NAMESPACE, write=False) as transaction:
            found = transaction.facts.edges([b, a, "unknown"])
            assert found == [made[3], made[2], made[1], heavier]
            assert transaction.facts.edges([c]) == []

    def test_token_counts_belong_to_fact_and_tokenizer(self, store: Store) -> None:
        first, second = fill(store, "first", "second")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.save_token_counts("a", {first: 1, second: 2})
            transaction.facts.save_token_counts("b", {first: 3})
            transaction.facts.save_token_counts("a", {first: 0})
            with pytest.raises(StoreError, match="unknown"):
                transaction.facts.save_token_counts("a", {"unknown": 1})
        with store.begin(NAMESPACE, write=False) as transaction:
            both = [first, second, "unknown"]
            assert transaction.facts.token_counts("a", both) == {first: 0, second: 2}
            assert transaction.facts.token_counts("b", both) == {first: 3}
            assert transaction.facts.token_counts("a", [second]) == {second: 2}
            assert transaction.facts.token_counts("c", both) == {}


TEXTS = ("walrus sleeps", "otter swims")


def finding_counts(transaction: Transaction) -> FaultCountsFacet:
    """The counts of an open transaction; a store without them has nothing to show here."""
    facet = fault_counts_of(transaction)
    if facet is None:
        pytest.skip("this store counts no findings")
    return facet


def counted(store: Store, *fact_ids: str) -> dict[str, FaultCounts]:
    """Count a finding against facts in a transaction of its own."""
    with store.begin(NAMESPACE) as transaction:
        return finding_counts(transaction).count(fact_ids)


class FaultedLaws:
    """Findings against facts and their uses, which go with the facts."""

    def test_findings_and_uses_are_counted_for_each_fact(self, store: Store) -> None:
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
        one, other = fill(store, *TEXTS)
        with store.begin(NAMESPACE) as transaction:
            for hour in range(5):
                transaction.facts.touch([one], NOON + timedelta(hours=hour))
        for _ in range(2):
            counted(store, one, other)
        with store.begin(NAMESPACE) as transaction:
            due = finding_counts(transaction).due
            assert due(2, 0.5) == [other]
            assert due(2, 0.4) == sorted([one, other])
            assert due(3, 0.4) == []
            transaction.facts.set_status([other], FactStatus.QUARANTINED, NOON)
            assert due(2, 0.5) == []
            finding_counts(transaction).reset([one])
            assert due(1, 0.1) == []

    def test_a_reset_forgets_findings_and_the_uses_before_it(self, store: Store) -> None:
        one, other = fill(store, *TEXTS)
        counted(store, one, other)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch([one], NOON)
            finding_counts(transaction).reset([one, "unknown"])
            transaction.facts.touch([one], NOON + timedelta(hours=1))
        assert counted(store, one, other) == {one: FaultCounts(1, 1), other: FaultCounts(2, 0)}

    def test_findings_that_are_undone_count_nothing(self, store: Store) -> None:
        one, _ = fill(store, *TEXTS)

        def undone() -> None:
            with store.begin(NAMESPACE) as transaction:
                finding_counts(transaction).count([one])
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            undone()
        assert counted(store, one) == {one: FaultCounts(1, 0)}

    def test_findings_go_with_their_fact(self, store: Store) -> None:
        one, _ = fill(store, *TEXTS)
        counted(store, one)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([one])
        assert counted(store, one) == {}
        with store.begin(NAMESPACE) as transaction:
            again = facts(*TEXTS)[:1]
            transaction.facts.add(again, rows(again))
        assert counted(store, one) == {one: FaultCounts(1, 0)}
