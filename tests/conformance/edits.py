"""What every store promises of changed and removed facts, and of its log of changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import FactsFacet, LogMark, Store
from crp_integrations.fabric.records import Where
from crp_integrations.testing.conformance_facts import EMPTY, LATER, other_rows
from crp_integrations.testing.fixtures import NAMESPACE, fact, facts, fill, rows, source


def generation(store: Store) -> int:
    """The generation that a reader sees."""
    with store.begin(NAMESPACE, write=False) as transaction:
        return transaction.facts.generation()


class EditsLaws:
    """Facts replaced, removed, put aside and regrouped; settings removed; the log of changes."""

    def test_without_vectors_the_old_ones_stay(self, store: Store) -> None:
        (id,) = fill(store, "one")
        with store.begin(NAMESPACE) as transaction:
            (old,) = transaction.facts.get([id])
            transaction.facts.replace([old.changed(metadata={"k": [1]})])
        with store.begin(NAMESPACE, write=False) as transaction:
            assert (transaction.facts.vectors([id]) == rows([old])).all()
            assert transaction.facts.get([id])[0].metadata == {"k": [1]}

    def test_a_replacement_that_cannot_be_is_refused(self, store: Store) -> None:
        one, two, strange = facts("one", "two", "strange")
        fill(store, "one", "two")
        foreign = one.changed(namespace="elsewhere")
        with store.begin(NAMESPACE) as transaction:
            for wrong, vectors, words in (
                ([strange], None, strange.fact_id),
                ([one, one], None, "twice"),
                ([foreign], None, "elsewhere"),
                ([one, two], rows([one]), "shape"),
                ([one], np.ones((1, 7), dtype=np.float32), "shape"),
                ([one], np.full((1, 8), np.inf, dtype=np.float32), "finite"),
            ):
                with pytest.raises(StoreError, match=words):
                    transaction.facts.replace(wrong, vectors)
            assert transaction.facts.get([one.fact_id, two.fact_id]) == [one, two]
            assert transaction.facts.generation() == 1

    def test_what_was_removed_can_be_added_again(self, store: Store) -> None:
        (one,) = facts("one")
        fill(store, "one")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.touch([one.fact_id], LATER)
            transaction.facts.save_token_counts("words", {one.fact_id: 1})
            transaction.facts.remove([one.fact_id])
            transaction.facts.add([one], other_rows(1))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([one.fact_id]) == [one]
            assert transaction.facts.token_counts("words", [one.fact_id]) == {}
            assert (transaction.facts.vectors([one.fact_id]) == other_rows(1)).all()

    def test_communities(self, store: Store) -> None:
        a, b, c = fill(store, "a", "b", "c")
        with store.begin(NAMESPACE) as transaction:
            before = transaction.facts.generation()
            transaction.facts.set_communities({a: "seas", b: "seas", c: None})
            assert transaction.facts.generation() == before + 1
            transaction.facts.set_communities({a: "seas"})
            assert transaction.facts.generation() == before + 1
            transaction.facts.set_communities({a: None, c: "skies"})
            found = transaction.facts.get([a, b, c])
            assert [one.community_label for one in found] == [None, "seas", "skies"]
            assert [one.modified_at for one in found] == [None] * 3
            assert transaction.facts.find(Where(communities=("seas", "skies"))) == sorted([b, c])
            with pytest.raises(StoreError, match="unknown"):
                transaction.facts.set_communities({b: "x", "unknown": "x"})
            assert transaction.facts.get([b])[0].community_label == "seas"

    def test_every_change_grows_the_generation(self, store: Store) -> None:
        (one,) = facts("one")
        (id,) = fill(store, "one")

        def change_embedder(found: FactsFacet) -> None:
            found.prepare("e", [one.content_hash], rows([one]))
            found.use_prepared("e")

        grows: tuple[Callable[[FactsFacet], object], ...] = (
            lambda f: f.replace([one.changed(metadata={"a": 1})]),
            lambda f: f.replace([one], other_rows(1)),
            lambda f: f.set_archived([id], LATER),
            lambda f: f.set_communities({id: "x"}),
            change_embedder,
            lambda f: f.remove([id]),
        )
        stays: tuple[Callable[[FactsFacet], object], ...] = (
            lambda f: f.prepare("e", [one.content_hash], rows([one])),
            lambda f: f.clear_prepared(),
            lambda f: f.set_setting("a", "b"),
            lambda f: f.remove_setting("a"),
            lambda f: f.remove_setting("a"),
            lambda f: f.add_source(source("a.md")),
            lambda f: f.trim_changes(0),
            lambda f: f.remove(["unknown"]),
            lambda f: f.replace([]),
            lambda f: f.set_archived([id], None),
        )
        for change in (*stays, *grows):
            before = generation(store)
            with store.begin(NAMESPACE) as transaction:
                change(transaction.facts)
            assert (generation(store) > before) is (change in grows)

    def test_the_log_is_undone_with_its_transaction(self, store: Store) -> None:
        """A mark that was undone leads nowhere, also when its number comes again."""
        fill(store, "a")
        new = facts("new")
        marks: list[LogMark] = []

        def fails() -> None:
            with store.begin(NAMESPACE) as transaction:
                marks.append(transaction.facts.mark())
                transaction.facts.add(new, rows(new))
                marks.append(transaction.facts.mark())
                assert transaction.facts.changes(marks[0]) == [new[0].fact_id]
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            fails()
        before, undone = marks
        fill(store, "b")
        with store.begin(NAMESPACE, write=False) as transaction:
            now = transaction.facts.mark()
            assert (now.sequence, now.token) != (undone.sequence, undone.token)
            assert transaction.facts.changes(undone) is None
            assert transaction.facts.changes(before) == [fact("b").fact_id]

    def test_a_log_of_another_history_leads_nowhere(self, store: Store) -> None:
        fill(store, "a")
        with store.begin(NAMESPACE, write=False) as transaction:
            mark = transaction.facts.mark()
            for wrong in (
                LogMark(mark.sequence, "other"),
                LogMark(mark.sequence + 1, mark.token),
                LogMark(-1, mark.token),
                LogMark(0, mark.token),
                LogMark(mark.sequence, ""),
            ):
                assert transaction.facts.changes(wrong) is None

    def test_a_trimmed_log_says_so(self, store: Store) -> None:
        """Marks before its first entry lead nowhere; the last entry always stays."""
        marks = [EMPTY]
        for name in "abcd":
            fill(store, name)
            with store.begin(NAMESPACE, write=False) as transaction:
                marks.append(transaction.facts.mark())
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.trim_changes(2)
        with store.begin(NAMESPACE, write=False) as transaction:
            found = [transaction.facts.changes(mark) for mark in marks]
            assert found == [None, None, None, [fact("d").fact_id], []]
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.trim_changes(0)
            assert transaction.facts.mark() == marks[-1]
        fill(store, "e")
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.changes(marks[-1]) == [fact("e").fact_id]
            assert transaction.facts.mark().sequence == marks[-1].sequence + 1
