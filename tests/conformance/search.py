"""What every store promises of finding, listing and prepared vectors."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import FactBrief, FactOutline, Store
from crp_integrations.seals import sha256
from crp_integrations.testing.conformance_facts import LATER, longer, meant, put
from crp_integrations.testing.fixtures import NAMESPACE, NOON, OTHER, fact, facts, fill, rows
from crp_integrations.vocabulary import FactStatus, SourceKind

SOON = NOON + timedelta(microseconds=1)


class SearchLaws:
    """Facts by conditions, lists without texts, and vectors that are prepared."""

    def test_any_of_the_sources_kinds_and_communities(self, store: Store) -> None:
        put(
            store,
            fact("a", source_id="doc-1", kind=SourceKind.WEB, community_label="seas"),
            fact("b", source_id="doc-2", kind=SourceKind.WEB, community_label="skies"),
            fact("c", source_id="doc-1\0", kind=SourceKind.USER),
        )
        assert meant(store, sources=("doc-1", "doc-2")) == ["a", "b"]
        assert meant(store, sources=("doc-1\0",)) == ["c"]
        assert meant(store, kinds=("web",)) == ["a", "b"]
        assert meant(store, communities=("skies", "others")) == ["b"]
        assert meant(store, sources=("doc-1",), kinds=("user",)) == []
        for empty in ("sources", "kinds", "communities"):
            assert meant(store, **{empty: ()}) == []

    def test_a_ttl_follows_its_fact(self, store: Store) -> None:
        one = fact("one", ttl="P1D")
        put(store, one)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.replace([one.changed(ttl="P3D")])
        assert meant(store, expired_at=NOON + timedelta(days=2)) == []
        assert meant(store, expired_at=NOON + timedelta(days=4)) == ["one"]

    def test_what_selection_reads_of_a_fact_is_that_of_the_whole_one(self, store: Store) -> None:
        made = [
            fact("plain"),
            fact("Grüße, 世界 \u0301\t\n\x00", source_location='p. 3 · "§" > 1-2', source_id="d"),
            fact("new", ingested_at=SOON, importance_weight=0.0, community_label="c, d"),
            fact("old", ingested_at=None, importance_weight=1.0, status=FactStatus.STALE),
            fact("labelled", labels=("b", "a", "ü"), metadata={"key": [1, None]}),
            fact("deleted", status=FactStatus.DELETED),
            fact("aside", archived_at=NOON),
        ]
        put(store, *made)
        with store.begin(NAMESPACE, write=False) as transaction:
            ids = sorted(one.fact_id for one in made)
            whole = transaction.facts.get(ids)
            wanted = [FactBrief.of(one) for one in whole if one.retrievable]
            assert len(wanted) == 5
            assert transaction.facts.briefs(ids[::-1]) == wanted

    # --- prepared vectors -------------------------------------------------------------------

    def test_prepared_vectors_wait_by_text(self, store: Store) -> None:
        a, b = sha256("a"), sha256("b")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.prepare("e", [a, b], longer(2))
            transaction.facts.prepare("e", [b], longer(1, start=5))
            transaction.facts.prepare("f", [a], rows(facts("a")))
            with pytest.raises(StoreError, match="shape"):
                transaction.facts.prepare("e", [a], rows(facts("a")))
            with pytest.raises(StoreError, match="finite"):
                transaction.facts.prepare("e", [a], np.full((1, 12), np.nan, dtype=np.float32))
        with store.begin(NAMESPACE, write=False) as transaction:
            found = transaction.facts.prepared("e", [b, a, sha256("c")])
            assert {key: row.tolist() for key, row in found.items()} == {
                a: longer(1)[0].tolist(),
                b: longer(1, start=5)[0].tolist(),
            }
            assert list(transaction.facts.prepared("f", [a, b])) == [a]
            assert transaction.facts.prepared("none", [a]) == {}
        with store.begin(OTHER, write=False) as transaction:
            assert transaction.facts.prepared("e", [a]) == {}

    def test_prepared_vectors_are_forgotten(self, store: Store) -> None:
        a, b = sha256("a"), sha256("b")
        with store.begin(NAMESPACE) as transaction:
            for embedder in ("e", "f", "g"):
                transaction.facts.prepare(embedder, [a, b], longer(2))
            transaction.facts.clear_prepared("e", [a])
            assert list(transaction.facts.prepared("e", [a, b])) == [b]
            transaction.facts.clear_prepared("e")
            assert transaction.facts.prepared("e", [a, b]) == {}
            assert len(transaction.facts.prepared("f", [a, b])) == 2
            transaction.facts.clear_prepared()
            assert transaction.facts.prepared("g", [a, b]) == {}

    def test_what_has_no_prepared_vector_is_listed(self, store: Store) -> None:
        first, again = fact("same"), fact("same", source_id="doc-2")
        gone, other = fact("gone", status=FactStatus.DELETED), fact("other")
        put(store, first, again, gone, other)
        texts = sorted((sha256(text), text) for text in ("same", "gone", "other"))
        with store.begin(NAMESPACE) as transaction:
            assert transaction.facts.unprepared("e", 9) == texts
            assert transaction.facts.unprepared("e", 2) == texts[:2]
            assert transaction.facts.unprepared("e", 0) == []
            assert transaction.facts.unprepared("e", 2, after=texts[0][0]) == texts[1:]
            assert transaction.facts.unprepared("e", 2, after=texts[2][0]) == []
            transaction.facts.prepare("e", [first.content_hash, gone.content_hash], longer(2))
            assert transaction.facts.unprepared("e", 9) == [(other.content_hash, "other")]
            assert len(transaction.facts.unprepared("f", 9)) == 3
            assert transaction.facts.prepared_ids("e") == sorted([first.fact_id, again.fact_id])
            block = transaction.facts.vectors([again.fact_id, gone.fact_id], prepared_for="e")
            assert block.tolist() == longer(2).tolist()
            with pytest.raises(StoreError, match=other.fact_id):
                transaction.facts.vectors([other.fact_id], prepared_for="e")
            assert transaction.facts.vectors([], prepared_for="e").shape[0] == 0

    def test_without_facts_another_length_may_come(self, store: Store) -> None:
        (id,) = fill(store, "a")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([id])
            transaction.facts.use_prepared("e")
            new = facts("c")
            transaction.facts.add(new, longer(1))
            assert transaction.facts.vectors([new[0].fact_id]).shape == (1, 12)

    def test_times_are_bounds_to_the_microsecond(self, store: Store) -> None:
        put(
            store,
            fact("noon", modified_at=NOON, ttl="P1D"),
            fact("soon", ingested_at=SOON, modified_at=SOON, last_accessed_at=LATER, ttl="P1D"),
            fact("later", ingested_at=LATER, modified_at=LATER),
            fact("never", ingested_at=None, ttl="P1D"),
        )
        assert meant(store, ingested_after=NOON) == ["later", "noon", "soon"]
        assert meant(store, ingested_after=SOON) == ["later", "soon"]
        assert meant(store, ingested_before=SOON) == ["noon"]
        assert meant(store, ingested_after=NOON, ingested_before=LATER) == ["noon", "soon"]
        assert meant(store, modified_before=SOON) == ["noon"]
        assert meant(store, unused_since=SOON) == ["never", "noon"]
        assert meant(store, unused_since=LATER) == ["never", "noon"]
        assert meant(store, unused_since=LATER + timedelta(seconds=1)) == [
            *("later", "never", "noon", "soon")
        ]
        assert meant(store, expired_at=LATER) == []
        assert meant(store, expired_at=LATER + timedelta(microseconds=1)) == ["noon"]
        assert meant(store, expired_at=LATER + timedelta(microseconds=2)) == ["noon", "soon"]

    def test_lists_without_texts(self, store: Store) -> None:
        made = [
            fact(f"text {n}", source_id="doc", community_label="x", importance_weight=n / 4)
            for n in range(4)
        ]
        put(store, *made, fact("other"))
        stale, gone = made[0].fact_id, made[1].fact_id
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_status([stale], FactStatus.STALE, LATER)
            transaction.facts.set_status([gone], FactStatus.DELETED, LATER)
        with store.begin(NAMESPACE, write=False) as transaction:
            found = transaction.facts
            every = {one.fact_id: one for one in found.get([f.fact_id for f in made])}
            assert found.passages("doc") == sorted(
                (one.fact_id, one.content_hash, one.status) for one in every.values()
            )
            assert found.passages("none") == []
            assert found.tally() == {"ACTIVE": 3, "STALE": 1, "DELETED": 1}
            assert [one for one in found.outline() if one.fact_id in every] == [
                FactOutline(id, one.content_hash, "doc", "x", one.importance_weight)
                for id, one in sorted(every.items())
                if id != gone
            ]
            asked = [gone, stale, "unknown", stale]
            assert found.retrievable(asked) == [(stale, ())]
            assert [id for id, _, _ in found.state(asked)] == [stale]
            assert found.retrievable([]) == []
            assert found.texts(asked) == [(stale, "text 0")]
            assert found.texts([]) == []
            assert found.briefs(asked) == [FactBrief.of(every[stale])]
            assert found.briefs([]) == []
