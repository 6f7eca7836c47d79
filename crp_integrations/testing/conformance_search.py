"""What every store promises of words, conditions, lists and prepared vectors."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, facts, fill, rows
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus

STRANGE_TERMS = (
    *('"', '""', "*", "sea*", "(", ")", "-", "NOT", "sea OR sky", "content:sea", "^sea", "{a b}"),
    *("NEAR(a b)", "a\u0000b", "\ud800", "", " ", "'; DROP TABLE facts; --", "+", ":", "\\"),
)

LATER = NOON + timedelta(days=1)


def longer(count: int, start: int = 0) -> FloatRows:
    """Distinct unit rows of another embedder, shape (count, 12)."""
    block = np.zeros((count, 12), dtype=np.float32)
    block[np.arange(count), (start + np.arange(count)) % 12] = 1.0
    return block


def meant(store: Store, **conditions: object) -> list[str]:
    """Contents of the facts that the conditions mean, sorted."""
    with store.begin(NAMESPACE, write=False) as transaction:
        ids = transaction.facts.find(Where.model_validate(conditions))
        matches = transaction.facts.get(ids)
        assert ids == sorted(ids)
    return sorted(item.content for item in matches)


def put(store: Store, *made: Fact) -> None:
    """Add facts."""
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))


class SearchConformance:
    """Facts by words and by conditions, lists without texts, and vectors that are prepared."""

    def test_words_are_found_by_their_stem(self, store: Store) -> None:
        fill(store, *(f"filler text {n}" for n in range(6)))
        both, single = fill(store, "audits of envelopes", "an audited text about other things")
        with store.begin(NAMESPACE, write=False) as transaction:
            hits = transaction.facts.search_text(["auditing", "ENVELOPE"], 5)
            assert [id for id, _ in hits] == [both, single]
            assert all(score > 0 for _, score in hits)
            assert transaction.facts.search_text(["nowhere"], 5) == []
            assert transaction.facts.search_text([], 5) == []

    def test_a_term_of_several_words_is_a_phrase(self, store: Store) -> None:
        """`GPT-4` is not found where 4 and GPT stand apart."""
        exact, _ = fill(store, "we asked GPT-4 today", "4 of them asked GPT")
        with store.begin(NAMESPACE, write=False) as transaction:
            assert [id for id, _ in transaction.facts.search_text(["GPT-4"], 5)] == [exact]

    def test_equal_scores_go_by_id_and_k_cuts(self, store: Store) -> None:
        ids = fill(store, *(f"sameword {n}x" for n in range(12)), *(f"rest {n}" for n in range(20)))
        with store.begin(NAMESPACE, write=False) as transaction:
            hits = transaction.facts.search_text(["sameword"], 50)
            assert len({score for _, score in hits}) == 1
            assert [id for id, _ in hits] == sorted(ids[:12])
            assert transaction.facts.search_text(["sameword"], 5) == hits[:5]
            assert transaction.facts.search_text(["sameword"], 0) == []

    @pytest.mark.parametrize("term", STRANGE_TERMS)
    def test_no_character_of_a_term_has_a_meaning(self, store: Store, term: str) -> None:
        sea, _ = fill(store, "the sea", "the sky")
        with store.begin(NAMESPACE, write=False) as transaction:
            alone = {id for id, _ in transaction.facts.search_text([term], 5)}
            with_sea = {id for id, _ in transaction.facts.search_text([term, "sea"], 5)}
            assert with_sea == alone | {sea}
            assert alone <= {sea}

    def test_no_condition_means_every_retrievable_fact(self, store: Store) -> None:
        """With statuses named, archived ones are meant as well unless they are left out."""
        words = [status.value for status in FactStatus]
        made = [fact(word.lower(), status=FactStatus(word)) for word in words]
        aside = [fact(f"{word.lower()} aside", status=word, archived_at=NOON) for word in words]
        put(store, *made, *aside)
        assert meant(store) == ["active", "stale"]
        assert meant(store, archived=True) == ["active", "stale"]
        assert meant(store, statuses=("DELETED",)) == ["deleted", "deleted aside"]
        assert meant(store, statuses=("DELETED",), archived=False) == ["deleted"]
        assert meant(store, statuses=("ACTIVE",), archived=True) == ["active aside"]
        assert meant(store, statuses=()) == []
        assert len(meant(store, statuses=tuple(FactStatus))) == 8

    def test_all_of_the_labels(self, store: Store) -> None:
        strange = ('x"a', "a", ", ", '["b"', "\\", "%", "a\0b")
        put(store, *(fact(f"has {n}", labels=(label,)) for n, label in enumerate(strange)))
        put(store, fact("has all", labels=strange))
        for number, label in enumerate(strange):
            assert meant(store, labels=(label,)) == [f"has {number}", "has all"]
        assert meant(store, labels=strange) == ["has all"]
        assert meant(store, labels=("b",)) == []

    def test_metadata_are_compared_as_json(self, store: Store) -> None:
        """A number is the same as 1 and as 1.0; true is no number; null is not absence."""
        values: tuple[object, ...] = (
            *(1, 1.5, True, None, "1", "", 'a": 1', [1, 2], {"x": {"z": 1, "y": 2}}),
            *({"k": 1}, "\0", -0.0, 10**30, 1e300),
        )
        put(store, *(fact(f"value {n}", metadata={"k": v}) for n, v in enumerate(values)))
        put(store, fact("other key", metadata={"j": 1, 'k": 1, "': 3}), fact("no key"))
        for number, value in enumerate(values):
            assert meant(store, metadata={"k": value}) == [f"value {number}"]
        assert meant(store, metadata={"k": 1.0}) == ["value 0"]
        assert meant(store, metadata={"k": 0}) == ["value 11"]
        assert meant(store, metadata={"k": {"x": {"y": 2.0, "z": 1}}}) == ["value 8"]
        assert meant(store, metadata={"k": [2, 1]}) == []
        assert meant(store, metadata={"l": None}) == []
        assert meant(store, metadata={'k": 1, "': 3, "j": 1}) == ["other key"]

    def test_prepared_vectors_are_put_to_use_as_a_whole(self, store: Store) -> None:
        a, b = facts("a", "b")
        put(store, a, b)
        ids = [a.fact_id, b.fact_id]
        with store.begin(NAMESPACE) as transaction:
            mark = transaction.facts.mark()
            transaction.facts.prepare("e", [a.content_hash], longer(1))
            transaction.facts.prepare("f", [a.content_hash], rows([a]))
            with pytest.raises(StoreError, match=b.fact_id):
                transaction.facts.use_prepared("e")
            assert (transaction.facts.vectors(ids) == rows([a, b])).all()
            transaction.facts.prepare("e", [b.content_hash], longer(1, start=1))
            transaction.facts.use_prepared("e")
        with store.begin(NAMESPACE) as transaction:
            assert transaction.facts.vectors(ids).tolist() == longer(2).tolist()
            assert transaction.facts.changes(mark) == sorted(ids)
            assert transaction.facts.prepared("e", [a.content_hash]) == {}
            assert transaction.facts.prepared("f", [a.content_hash]) == {}
            new = facts("c")
            with pytest.raises(StoreError, match="shape"):
                transaction.facts.add(new, rows(new))
            transaction.facts.add(new, longer(1))
