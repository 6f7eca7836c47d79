"""Guarantees of every store on facts, their vectors and sources, and its log of changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import FactsFacet, LogMark, Store
from crp_integrations.fabric.records import Edge, Fact, Where
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, facts, fill, rows, source
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus, SourceKind, SourceStatus

LATER = NOON + timedelta(days=1)
EMPTY = LogMark(0, "")


def after(store: Store, change: Callable[[FactsFacet], object]) -> list[str] | None:
    """The ids that the log lists for a committed change."""
    with store.begin(NAMESPACE) as transaction:
        mark = transaction.facts.mark()
        change(transaction.facts)
    with store.begin(NAMESPACE, write=False) as transaction:
        return transaction.facts.changes(mark)


def other_rows(count: int) -> FloatRows:
    """Unit rows that `rows` never returns, shape (count, 8)."""
    block = np.zeros((count, 8), dtype=np.float32)
    block[:, 0] = -1.0
    return block


class FactsConformance:
    """Facts, vectors, sources, counts, edges, and the log of changes."""

    def test_a_fact_comes_back_as_it_was_put_in(self, store: Store) -> None:
        whole = fact(
            "Line one\nline two \u0000 naïve 数 🜁 'quoted\" ;--",
            source_id="doc-1",
            source_location="p. 3 > Rates",
            kind=SourceKind.REGULATORY,
            importance_weight=0.1 + 0.2,
            community_label="c7",
            ingested_at=NOON + timedelta(microseconds=7),
            modified_at=LATER,
            access_count=3,
            last_accessed_at=LATER,
            ttl="P90D",
            status=FactStatus.STALE,
            labels=("secret", "eu"),
            valid_from=NOON,
            valid_to=LATER,
            supersedes="another",
            metadata={"a": [1, 2.5, None, {"b": True}], "ü": "\u241f"},
        )
        bare = fact("bare", ingested_at=None)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([whole, bare], rows([whole, bare]))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([whole.fact_id, bare.fact_id]) == [whole, bare]

    def test_the_order_asked_for_is_the_order_given(self, store: Store) -> None:
        ids = fill(store, *(f"fact number {n}" for n in range(20)))
        asked = [ids[7], "unknown", ids[3], ids[7], ids[19]]
        known = [ids[7], ids[3], ids[7], ids[19]]
        with store.begin(NAMESPACE, write=False) as transaction:
            stored = transaction.facts.get(asked)
            assert [item.fact_id for item in stored] == known
            block = transaction.facts.vectors(known)
            assert block.dtype == np.float32
            assert (block == rows(stored)).all()
            with pytest.raises(StoreError, match="unknown"):
                transaction.facts.vectors(asked)

    def test_ids_are_never_used_twice(self, store: Store) -> None:
        (old,) = fill(store, "old")
        again, new = fact("old"), fact("new")
        with store.begin(NAMESPACE) as transaction:
            with pytest.raises(StoreError, match=old):
                transaction.facts.add([new, again], rows([new, again]))
            with pytest.raises(StoreError, match=new.fact_id):
                transaction.facts.add([new, new], rows([new, new]))
            assert transaction.facts.get([new.fact_id]) == []
            assert transaction.facts.generation() == 1

    @pytest.mark.parametrize(
        ("shape", "number", "why"),
        [
            ((1, 8), 1.0, "shape"),
            ((2, 7), 1.0, "shape"),
            ((2,), 1.0, "shape"),
            ((2, 8), np.nan, "finite"),
        ],
    )
    def test_vectors_of_another_shape_and_no_numbers_are_refused(
        self, store: Store, shape: tuple[int, ...], number: float, why: str
    ) -> None:
        """One row per fact, with the dimensions of the stored rows; a NaN would break a search."""
        fill(store, "first")
        two = facts("a", "b")
        with store.begin(NAMESPACE) as transaction:
            with pytest.raises(StoreError, match=why):
                transaction.facts.add(two, np.full(shape, number, dtype=np.float32))
            assert transaction.facts.get([item.fact_id for item in two]) == []

    def test_retrievable_means_active_or_stale(self, store: Store) -> None:
        made = [fact(f"alpha text {n}", source_id="doc", labels=(f"l{n}",)) for n in range(4)]
        ids = {status: item.fact_id for status, item in zip(FactStatus, made, strict=True)}
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
            for status, id in ids.items():
                transaction.facts.set_status([id], status, LATER)
        live = sorted([ids[FactStatus.ACTIVE], ids[FactStatus.STALE]])
        with store.begin(NAMESPACE, write=False) as transaction:
            by_id = {item.fact_id: item for item in transaction.facts.get(list(ids.values()))}
            assert transaction.facts.retrievable() == [(id, by_id[id].labels) for id in live]
            assert list(transaction.facts.state()) == [
                (id, by_id[id].content_hash, by_id[id].status.value) for id in live
            ]
            assert sorted(id for id, _ in transaction.facts.search_text(["alpha"], 9)) == live
            assert {status: by_id[id].status for status, id in ids.items()} == {
                status: status for status in FactStatus
            }
            fact_ids = [item.fact_id for item in transaction.facts.of_source("doc")]
            assert fact_ids == sorted(ids.values())
            assert transaction.facts.of_source("other") == []

    def test_sources_by_id_and_settings_by_name(self, store: Store) -> None:
        made = [source(f"{n}.md", metadata={"n": n}, labels=("a",)) for n in range(5)]
        changed = source("3.md", status=SourceStatus.UPDATED, fact_count=4)
        with store.begin(NAMESPACE) as transaction:
            for item in [*made, changed]:
                transaction.facts.add_source(item)
            for value in ("a", "b"):
                transaction.facts.set_setting("embedder", value)
            transaction.facts.set_setting("gone", "a")
            transaction.facts.remove_setting("gone")
        wanted = {item.source_id: item for item in [*made, changed]}
        with store.begin(NAMESPACE, write=False) as transaction:
            assert list(transaction.facts.sources()) == [wanted[id] for id in sorted(wanted)]
            assert transaction.facts.source(changed.source_id) == changed
            assert transaction.facts.source("unknown") is None
            settings = [transaction.facts.setting(name) for name in ("embedder", "gone", "other")]
            assert settings == ["b", None, None]

    def test_a_replaced_fact_is_the_new_one_everywhere(self, store: Store) -> None:
        old, same = facts("the old walrus", "the same seal")
        new = old.changed(
            content="the new otter", source_id="doc-2", modified_at=LATER, labels=("eu",)
        )
        updated = same.changed(importance_weight=0.9, kind=SourceKind.OFFICIAL, metadata={"a": 1})
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([old, same], rows([old, same]))
            transaction.facts.save_token_counts("words", {old.fact_id: 3, same.fact_id: 3})
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.replace([new, updated], other_rows(2))
        assert new.fact_id == old.fact_id
        ids = [old.fact_id, same.fact_id]
        with store.begin(NAMESPACE, write=False) as transaction:
            stored = transaction.facts
            assert stored.get(ids) == [new, updated]
            assert (stored.vectors(ids) == other_rows(2)).all()
            assert stored.search_text(["walrus"], 5) == []
            assert [id for id, _ in stored.search_text(["otter"], 5)] == [new.fact_id]
            assert stored.token_counts("words", ids) == {same.fact_id: 3}
            assert [item.fact_id for item in stored.of_source("doc-2")] == [new.fact_id]
            assert (new.fact_id, ("eu",)) in stored.retrievable()

    def test_removing_takes_everything_that_hangs_on_a_fact(self, store: Store) -> None:
        gone, left = facts("the gone walrus", "the left walrus")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([gone, left], rows([gone, left]))
            transaction.facts.save_token_counts("words", {gone.fact_id: 3, left.fact_id: 3})
            transaction.facts.prepare("e", [gone.content_hash, left.content_hash], other_rows(2))
            ends = [(gone, left), (left, gone), (left, left)]
            transaction.facts.add_edges(
                Edge(source_fact=a.fact_id, target_fact=b.fact_id, kind="x") for a, b in ends
            )
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([gone.fact_id, "unknown", gone.fact_id, f"{left.fact_id}\0"])
        ids = [gone.fact_id, left.fact_id]
        with store.begin(NAMESPACE, write=False) as transaction:
            stored = transaction.facts
            assert stored.get(ids) == [left]
            assert [id for id, _ in stored.retrievable()] == [left.fact_id]
            assert [id for id, _ in stored.search_text(["walrus"], 5)] == [left.fact_id]
            assert list(stored.prepared("e", [gone.content_hash])) == []
            assert list(stored.prepared("e", [left.content_hash])) == [left.content_hash]
            assert stored.token_counts("words", ids) == {left.fact_id: 3}
            assert [edge.target_fact for edge in stored.edges(ids)] == [left.fact_id]
            assert stored.tally() == {"ACTIVE": 1}
            with pytest.raises(StoreError, match=gone.fact_id):
                stored.vectors([gone.fact_id])

    @pytest.mark.parametrize("status", FactStatus)
    def test_an_archived_fact_is_not_retrievable(self, store: Store, status: FactStatus) -> None:
        (id,) = fill(store, "walrus")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([id], status, NOON)
            before = transaction.facts.get([id])[0]
            transaction.facts.set_archived([id], LATER)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([id]) == [before.changed(archived_at=LATER)]
            assert transaction.facts.retrievable() == []
            assert transaction.facts.retrievable([id]) == []
            assert list(transaction.facts.state()) == []
            assert list(transaction.facts.outline()) == []
            assert transaction.facts.search_text(["walrus"], 5) == []
            assert transaction.facts.find(Where()) == []
            assert transaction.facts.tally() == {"ARCHIVED": 1}
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_archived([id], None)
            assert transaction.facts.get([id]) == [before]
            assert len(transaction.facts.retrievable([id])) == before.retrievable
            assert len(transaction.facts.search_text(["walrus"], 5)) == before.retrievable
            with pytest.raises(StoreError, match="unknown"):
                transaction.facts.set_archived([id, "unknown"], LATER)

    # --- the log of changes -----------------------------------------------------------------

    def test_the_log_names_what_changed(self, store: Store) -> None:
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.mark() == EMPTY
            assert transaction.facts.changes(EMPTY) == []
        a, b, c = fill(store, "a", "b", "c")
        (original,) = facts("a")

        def delete(facet: FactsFacet) -> None:
            facet.set_status([c], FactStatus.DELETED, LATER)
            facet.remove([c])

        changes: tuple[tuple[Callable[[FactsFacet], object], list[str]], ...] = (
            (lambda f: f.set_status([a, b], FactStatus.STALE, LATER), [a, b]),
            (lambda f: f.set_status([a], FactStatus.STALE, LATER), []),
            (lambda f: f.set_archived([c], LATER), [c]),
            (lambda f: f.set_communities({a: "x", b: "x", c: None}), [a, b]),
            (lambda f: f.replace([original.changed(labels=("eu",))]), [a]),
            (lambda f: f.replace([original.changed(content="another")]), [a]),
            (lambda f: f.replace([original], other_rows(1)), [a]),
            (lambda f: f.replace([original.changed(metadata={"k": 1})]), []),
            (lambda f: f.touch([a, b], LATER), []),
            (lambda f: f.save_token_counts("words", {a: 1}), []),
            (lambda f: f.remove([b, "unknown"]), [b]),
            (delete, [c]),
        )
        for change, wanted in changes:
            assert after(store, change) == sorted(wanted)
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.changes(EMPTY) == sorted([a, b, c])
            assert transaction.facts.changes(transaction.facts.mark()) == []


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
    """Contents of the facts that match the conditions, sorted."""
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
    """Search by words and by conditions, and prepared vectors."""

    def test_words_are_found_by_their_stem(self, store: Store) -> None:
        fill(store, *(f"filler text {n}" for n in range(6)))
        both, single = fill(store, "audits of envelopes", "an audited text about other things")
        with store.begin(NAMESPACE, write=False) as transaction:
            hits = transaction.facts.search_text(["auditing", "ENVELOPE"], 5)
            assert [id for id, _ in hits] == [both, single]
            assert all(score > 0 for _, score in hits)
            assert transaction.facts.search_text(["nowhere"], 5) == []
            assert transaction.facts.search_text([], 5) == []

    def test_words_of_every_script_are_found_whatever_their_case(self, store: Store) -> None:
        """Only Latin letters lose their marks, and stems are those of SQLite's FTS5."""
        texts = ("technologies", "naïve plan", "новый город", "οι Έλληνες", "あめが", "Łódź")
        terms = ("technology", "NAIVE", "НОВЫЙ", "ΈΛΛΗΝΕΣ", "あめが", "łódz")
        ids = fill(store, *texts, "новыи, ελληνες, あめか")
        with store.begin(NAMESPACE, write=False) as transaction:
            for id, term in zip(ids, terms, strict=False):
                assert [id for id, _ in transaction.facts.search_text([term], 5)] == [id]

    def test_a_term_of_several_words_is_a_phrase(self, store: Store) -> None:
        """`GPT-4` does not match a text in which 4 and GPT are apart."""
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
        """With `statuses`, archived facts match as well unless `archived` is False."""
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
        """1 equals 1.0; true is not a number; null is not a missing key."""
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
