"""What becomes of facts: the table of statuses, the verbs, and changing what a fact says."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import (
    AccessDenied,
    FactRejected,
    IllegalTransition,
    RequestError,
    StoreError,
)
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.lifecycle import LEGAL, check_transition
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Notice
from crp_integrations.guard.decisions import Subject
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus
from tests.doubles import NOON, HashEmbedder, erase_all
from tests.fabric.lifecycle_fixtures import (
    ACME,
    Counted,
    Labelled,
    document,
    events,
    everything,
    fabric,
    formula,
    seen,
    sentence,
    source_of,
    store,
    stored,
)

__all__ = ["store"]

A, S, D, Q = FactStatus.ACTIVE, FactStatus.STALE, FactStatus.DELETED, FactStatus.QUARANTINED


def put_into(made: Fabric, status: FactStatus, *ids: str) -> None:
    """Bring facts into a status past the verbs."""
    with made.store.begin("acme") as transaction:
        transaction.facts.set_status(ids, status, NOON)


def status_of(made: Fabric, *ids: str) -> list[FactStatus]:
    return [fact.status for fact in stored(made, *ids)]


# --- the table -------------------------------------------------------------------------


@pytest.mark.requirement("009-2-9", "009-2.2-7")
@pytest.mark.parametrize(("start", "to"), list(product(FactStatus, FactStatus)))
def test_the_table_allows_eight_changes_and_refuses_every_other_by_name(
    start: FactStatus, to: FactStatus
) -> None:
    assert {status.value for status in FactStatus} == {"ACTIVE", "STALE", "DELETED", "QUARANTINED"}
    legal = {(A, S), (A, D), (A, Q), (S, A), (S, D), (S, Q), (Q, A), (Q, D)}
    fact = Fact(content="any", status=start)
    if (start, to) in legal:
        check_transition([fact], to)
        assert "§" in LEGAL[start, to] or "decision" in LEGAL[start, to]
        return
    ways = [way.value for before, way in legal if before is start]
    with pytest.raises(IllegalTransition) as refused:
        check_transition([fact], to)
    message = str(refused.value)
    assert fact.fact_id in message
    same = f"is {to.value} already"
    assert (same if start is to else f"is {start.value} and cannot become {to.value}") in message
    said = message.partition(";")[2]
    assert {way.value for way in FactStatus if way.value in said} - {start.value} == set(ways)


VERBS: dict[str, tuple[FactStatus, frozenset[FactStatus]]] = {
    "mark_stale": (S, frozenset({A})),
    "forget": (D, frozenset({A, S, Q})),
    "quarantine": (Q, frozenset({A, S})),
    "lift": (A, frozenset({Q})),
}


def call(namespace: Any, verb: str, ids: list[str]) -> Any:
    if verb == "forget":
        return namespace.forget(facts=ids)
    return getattr(namespace, verb)(ids)


@pytest.mark.requirement("009-2.2-1", "009-2.2-5", "009-2.2-7")
@pytest.mark.parametrize("start", list(FactStatus))
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_verb_starts_from_its_statuses_alone(
    store: Store, verb: str, start: FactStatus
) -> None:
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    one, other = namespace.add([sentence(1), sentence(2)]).facts
    put_into(made, start, one)
    to, legal = VERBS[verb]
    before, hashed = everything(made), namespace.state_hash()
    if start not in legal:
        with pytest.raises(IllegalTransition, match=f"fact {one} is {start.value}"):
            call(namespace, verb, [one])
        assert everything(made) == before
        return
    made.clock.moment += timedelta(hours=1)  # type: ignore[attr-defined]
    report = call(namespace, verb, [one, one])
    assert report.facts == (one,)
    assert report.sources == tuple(source.source_id for source in namespace.sources())
    (fact,) = stored(made, one)
    assert (fact.status, fact.modified_at) == (to, NOON + timedelta(hours=1))
    assert status_of(made, other) == [A]
    assert seen(namespace) == ({one, other} if to in (A, S) else {other})
    assert report.state_hash == namespace.state_hash() == formula(made)
    assert (report.state_hash != hashed) == (to in (A, S) or start in (A, S))
    assert events(made)


@pytest.mark.requirement("009-2.2-7")
@pytest.mark.parametrize("verb", [*sorted(VERBS), "archive", "restore"])
def test_one_illegal_or_unknown_fact_refuses_the_whole_batch(store: Store, verb: str) -> None:
    told: list[Notice] = []
    made = fabric(store, notify=told.append)
    namespace = made.bind(ACME)
    ids = list(namespace.add([sentence(n) for n in range(3)]).facts)
    if verb == "lift":
        put_into(made, Q, *ids)
    if verb == "restore":
        namespace.archive(ids)
    before = everything(made)
    with pytest.raises(RequestError, match=r"fact 'unknown' is not in namespace 'acme'"):
        call(namespace, verb, [*ids, "unknown"])
    assert everything(made) == before
    put_into(made, D, ids[1])
    before = everything(made)
    with pytest.raises(IllegalTransition, match=ids[1]):
        call(namespace, verb, ids)
    assert everything(made) == before
    assert told == []


def test_verbs_on_nothing_write_nothing(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.add([sentence(1)])
    before = everything(made)
    for verb in ("mark_stale", "quarantine", "lift", "archive", "restore"):
        assert call(namespace, verb, []).facts == ()
    with pytest.raises(RequestError, match="neither"):
        namespace.forget()
    assert everything(made) == before


def test_verbs_on_a_store_that_was_never_written_make_no_file(tmp_path: Any) -> None:
    from crp_integrations.stores.keys import FileKeyRing
    from crp_integrations.stores.sqlite import SqliteStore

    root = tmp_path / "kb"
    namespace = fabric(SqliteStore(root), keyring=FileKeyRing(root / "keys")).bind(ACME)
    for verb in (*VERBS, "archive", "restore"):
        with pytest.raises(RequestError):
            call(namespace, verb, ["unknown"])
    with pytest.raises(RequestError):
        namespace.erase("unknown")
    with pytest.raises(RequestError):
        namespace.update("unknown", importance_weight=0.5)
    assert namespace.maintain().stale == 0
    assert not root.exists()


# --- guard -----------------------------------------------------------------------------


def test_what_the_guard_withholds_is_as_unknown_as_what_is_not_there(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    boss = made.bind(Subject(tenant="acme", roles=("secret",)), Labelled())
    clerk = made.bind(ACME, Labelled())
    report = boss.ingest([document("s", sentence(1))], labels=["secret"])
    (secret,), (source,) = report.facts, report.sources
    before = everything(made)
    absent = "0" * 36
    for verb in (*VERBS, "archive", "restore"):
        messages = []
        for id_ in (secret, absent):
            with pytest.raises(RequestError) as refused:
                call(clerk, verb, [id_])
            messages.append(str(refused.value).replace(id_, "…"))
        assert messages[0] == messages[1]
    for change in (clerk.erase, lambda name: clerk.forget(source=name)):
        messages = []
        for id_ in (source, absent):
            with pytest.raises(RequestError) as refused:
                change(id_)
            messages.append(str(refused.value).replace(id_, "…"))
        assert messages[0] == messages[1]
    with pytest.raises(RequestError):
        clerk.update(secret, importance_weight=0.1)
    assert everything(made) == before
    assert boss.mark_stale([secret]).facts == (secret,)


def test_seeing_is_not_changing_and_changing_is_not_erasing(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    boss = made.bind(Subject(tenant="acme", roles=("x",)), Labelled())
    reader = made.bind(Subject(tenant="acme", roles=("read:x",)), Labelled())
    writer = made.bind(Subject(tenant="acme", roles=("read:x", "write:x")), Labelled())
    report = boss.ingest([document("s", sentence(1), sentence(2))], labels=["x"])
    before = everything(made)
    for verb in ("mark_stale", "quarantine", "archive", "forget"):
        with pytest.raises(AccessDenied):
            call(reader, verb, [report.facts[0]])
    with pytest.raises(AccessDenied):
        reader.update(report.facts[0], content=sentence(3))
    for change in (
        lambda: writer.forget(facts=report.facts[:1]),
        lambda: writer.forget(source=report.sources[0]),
        lambda: writer.erase(report.sources[0]),
    ):
        with pytest.raises(AccessDenied):
            change()
    assert everything(made) == before
    assert writer.mark_stale(report.facts[:1]).facts == report.facts[:1]


def test_a_hidden_fact_keeps_its_source_from_being_erased_by_who_may_not(store: Store) -> None:
    made = fabric(store)
    boss = made.bind(Subject(tenant="acme", roles=("secret",)), Labelled())
    clerk = made.bind(ACME, Labelled())
    boss.add([Fact(content=sentence(1), source_id="notes"),
              Fact(content=sentence(2), source_id="notes", labels=("secret",))])  # fmt: skip
    before = everything(made)
    with pytest.raises(AccessDenied):
        clerk.erase("notes")
    with pytest.raises(AccessDenied):
        clerk.forget(source="notes")
    assert everything(made) == before
    assert len(boss.erase("notes").facts) == 2


def test_new_labels_are_asked_for_as_well_as_old_ones(store: Store) -> None:
    made = fabric(store)
    boss = made.bind(Subject(tenant="acme", roles=("secret",)), Labelled())
    clerk = made.bind(ACME, Labelled())
    (id_,) = clerk.add([sentence(1)]).facts
    before = everything(made)
    with pytest.raises(AccessDenied):
        clerk.update(id_, labels=["secret"])
    assert everything(made) == before
    assert boss.update(id_, labels=["secret", "secret"]).labels == ("secret",)
    assert seen(clerk) == set()
    assert seen(boss) == {id_}


# --- changing a fact -------------------------------------------------------------------


@pytest.mark.requirement("009-2-4")
def test_updated_content_keeps_the_id_and_changes_hash_time_and_vector(store: Store) -> None:
    embedder, told = Counted(), list[Notice]()
    made = fabric(store, embedder=embedder, notify=told.append)
    namespace = made.bind(ACME)
    id_, other = namespace.add([sentence(1), sentence(2)]).facts
    (old,), hashed = namespace.facts([id_]), namespace.state_hash()
    (vector,) = namespace.vectors([id_])
    namespace.token_counts("k", [id_], lambda texts: [1] * len(texts))
    embedder.texts.clear()
    made.clock.moment += timedelta(days=2)  # type: ignore[attr-defined]
    text = "Wholly different words stand here now, about zebras and their many stripes."
    new = namespace.update(id_, content=text)
    assert embedder.texts == [text]
    assert (new.fact_id, new.content) == (id_, text)
    assert new.content_hash != old.content_hash
    assert new.modified_at == NOON + timedelta(days=2)
    assert new.ingested_at == old.ingested_at
    assert (new.status, new.source_id, new.labels) == (old.status, old.source_id, old.labels)
    assert namespace.facts([id_]) == [new]
    (row,) = namespace.vectors([id_])
    assert not np.array_equal(row, vector)
    best = namespace.nearest(namespace.embedder.embed_query(text), 1)[0]
    assert best.fact_id == id_
    assert best.score == pytest.approx(1.0, abs=1e-5)
    assert [hit.fact_id for hit in namespace.search_text("zebras", 5)] == [id_]
    assert [hit.fact_id for hit in namespace.search_text("value1", 5)] == []
    assert namespace.token_counts("k", [id_], lambda texts: [2] * len(texts)) == {id_: 2}
    assert namespace.state_hash() == formula(made) != hashed
    assert [notice.facts for notice in told] == [(id_,)]
    first, second = events(made)[-2:]
    assert (first.event_type, first.data["changed"]) == (EventType.FACT_INGESTED, [id_])
    assert (second.event_type, second.data["cause"]) == (EventType.CKF_ETAG_CHANGED, "updated")
    assert "zebras" not in first.model_dump_json() + second.model_dump_json()
    assert namespace.facts([other])[0].modified_at == NOON


def test_an_update_that_changes_nothing_writes_nothing(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([Fact(content=sentence(1), ttl="P90D", metadata={"a": 1})]).facts
    before = everything(made)
    made.clock.moment += timedelta(days=2)  # type: ignore[attr-defined]
    kept = namespace.update(id_, content=sentence(1), metadata={"a": 1}, ttl="P90D")
    assert kept.modified_at == NOON
    namespace.update(id_)
    assert everything(made) == before


@pytest.mark.requirement("009-2-8")
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
            max_leaves=6,
        ),
        max_size=4,
    )
)
def test_metadata_comes_back_as_it_was_given(metadata: dict[str, Any]) -> None:
    for made in METADATA:
        namespace = made.bind(ACME)
        id_ = namespace.add([Fact(content=sentence(1))]).unchanged[0]
        hashed = namespace.state_hash()
        assert namespace.update(id_, metadata=metadata).metadata == metadata
        (again,) = namespace.facts([id_])
        assert again.metadata == metadata
        assert namespace.state_hash() == hashed


METADATA: list[Fabric] = []


@pytest.fixture(scope="module", autouse=True)
def _metadata(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from crp_integrations.stores.sqlite import SqliteStore

    for kept in (None, SqliteStore(tmp_path_factory.mktemp("metadata") / "kb")):
        made = fabric(kept)
        made.bind(ACME).add([Fact(content=sentence(1))])
        METADATA.append(made)
    yield
    METADATA.clear()


def test_fields_are_changed_and_emptied_one_by_one(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    (id_,) = namespace.add([Fact(content=sentence(1), ttl="P1D")]).facts
    full = namespace.update(
        id_, ttl="PT36H", importance_weight=0.25, valid_from=NOON, valid_to=NOON + timedelta(1)
    )
    assert (full.ttl, full.importance_weight, full.valid_from) == ("PT36H", 0.25, NOON)
    bare = namespace.update(id_, ttl=None, valid_from=None)
    assert (bare.ttl, bare.valid_from, bare.valid_to) == (None, None, NOON + timedelta(1))
    assert bare.importance_weight == 0.25


@pytest.mark.requirement("009-2-7", "009-2-10", "009-2.1-1", "009-2.1-2")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"content": "too short"}, "would have 2 tokens, wanted 10 to 2048"),
        ({"content": "word " * 2049}, "would have 2049 tokens"),
        ({"content": ""}, "content"),
        ({"ttl": "90 days"}, "ISO 8601"),
        ({"ttl": "-P1D"}, "duration"),
        ({"ttl": "PT0S"}, "above zero"),
        ({"importance_weight": 1.1}, "importance_weight"),
        ({"importance_weight": -0.1}, "importance_weight"),
        ({"importance_weight": float("nan")}, "importance_weight"),
        ({"valid_from": NOON.replace(tzinfo=None)}, "valid_from"),
        ({"metadata": {"a": object()}}, "metadata"),
        ({"metadata": {"a": float("nan")}}, "not finite"),
        ({"metadata": {"a": {"b": [float("inf")]}}}, "not finite"),
        ({"metadata": {"a": "\ud800"}}, "metadata"),
    ],
)
def test_unusable_values_are_refused_by_name(
    store: Store, change: dict[str, Any], message: str
) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([sentence(1)]).facts
    before = everything(made)
    with pytest.raises(FactRejected, match=message) as refused:
        namespace.update(id_, **change)
    assert id_ in str(refused.value)
    assert "too short" not in str(refused.value)
    assert everything(made) == before


@pytest.mark.requirement("009-2-10")
@pytest.mark.parametrize("weight", [-0.01, 1.01, float("nan"), float("inf")])
def test_no_fact_of_another_weight_can_be_made(weight: float) -> None:
    with pytest.raises(ValueError, match="importance_weight"):
        Fact(content=sentence(1), importance_weight=weight)


@pytest.mark.requirement("009-2-7")
@pytest.mark.parametrize("ttl", ["P90D", "PT1H", "P1W", "P1Y2M3DT4H5M6S"])
def test_durations_of_iso_8601_are_kept(store: Store, ttl: str) -> None:
    namespace = fabric(store).bind(ACME)
    with_, without = namespace.add([Fact(content=sentence(1), ttl=ttl), sentence(2)]).facts
    assert [fact.ttl for fact in namespace.facts([with_, without])] == [ttl, None]


@pytest.mark.parametrize("status", [D, Q])
def test_withdrawn_facts_are_not_updated(store: Store, status: FactStatus) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([sentence(1)]).facts
    put_into(made, status, id_)
    before = everything(made)
    with pytest.raises(IllegalTransition, match=f"{id_} is {status.value} and cannot be updated"):
        namespace.update(id_, importance_weight=0.5)
    assert everything(made) == before


@pytest.mark.requirement("009-2.2-1", "009-2.2-4")
def test_a_source_that_is_updated_makes_facts_stale_and_active_again(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    ids = namespace.ingest([document("a", sentence(1), sentence(2))]).facts
    namespace.ingest([document("a", sentence(1), sentence(3))])
    assert status_of(made, *ids) == [A, S]
    namespace.mark_stale(ids[:1])
    namespace.ingest([document("a", sentence(1), sentence(2))])
    assert status_of(made, *ids) == [A, A]


def test_content_that_is_given_again_makes_a_fact_current(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    ids = namespace.add([sentence(n) for n in range(4)]).facts
    namespace.mark_stale(ids[:3])
    namespace.archive(ids[2:])
    assert namespace.update(ids[0], importance_weight=0.9).status is S
    assert namespace.update(ids[0], content=sentence(0)).status is A
    assert namespace.update(ids[1], content=sentence(7)).status is A
    again = namespace.update(ids[2], content=sentence(2))
    assert (again.status, again.archived_at) == (A, None)
    assert namespace.update(ids[3], content=sentence(3)).archived_at is None
    assert seen(namespace) == set(ids)


def test_content_given_after_the_ttl_ran_out_stays_stale_unless_the_ttl_is_longer(
    store: Store,
) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([Fact(content=sentence(1), ttl="P1D")]).facts
    made.clock.moment += timedelta(days=3)  # type: ignore[attr-defined]
    namespace.maintain()
    assert status_of(made, id_) == [S]
    assert namespace.update(id_, content=sentence(2)).status is S
    assert namespace.update(id_, content=sentence(3), ttl="P9D").status is A
    assert namespace.maintain().stale == 0


def test_an_update_stands_on_what_another_writer_did_meanwhile(store: Store) -> None:
    made = fabric(store)
    other = made.bind(ACME)

    class Slow(Counted):
        def embed_passages(self, texts: Any) -> Any:
            if not self.texts and ids:
                self.texts.append("once")
                other.update(ids[0], metadata={"by": "other"})
                if withdraw:
                    other.forget(facts=[ids[0]])
            return super().embed_passages(texts)

    ids: list[str] = []
    withdraw = False
    slow = fabric(store, embedder=Slow()).bind(ACME)
    ids += other.add([sentence(1)]).facts
    fact = slow.update(ids[0], content=sentence(2))
    assert (fact.content, fact.metadata) == (sentence(2), {"by": "other"})
    withdraw = True
    slow = fabric(store, embedder=Slow()).bind(ACME)
    with pytest.raises(IllegalTransition, match="DELETED"):
        slow.update(ids[0], content=sentence(3))
    assert stored(made, ids[0])[0].content == sentence(2)


def test_the_source_keeps_its_documents_hash_and_facts_by_hand_hash_anew(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    report = namespace.ingest([document("a", sentence(1), sentence(2))])
    before = source_of(made, report.sources[0])
    namespace.update(report.facts[0], content=sentence(3))
    assert source_of(made, report.sources[0]) == before
    added = namespace.add([sentence(4), sentence(5)])
    first, _ = added.facts
    was = source_of(made, added.sources[0])
    namespace.update(first, content=sentence(6))
    now = source_of(made, added.sources[0])
    assert was is not None
    assert now is not None
    assert now.document_hash != was.document_hash
    same = fabric().bind(ACME)
    same.add([sentence(6), sentence(5)])
    assert {source.document_hash for source in same.sources()} == {now.document_hash}
    assert now.fact_count == 2


# --- forgetting ------------------------------------------------------------------------


@pytest.mark.requirement("009-2.2-2", "009-2.2-9", "003-17.2-2", "009-3.3-2")
def test_a_forgotten_source_is_gone_at_once_with_all_of_its_facts(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    report = namespace.ingest([document("a", *map(sentence, range(4)))])
    (kept,) = namespace.ingest([document("b", sentence(1))]).facts
    namespace.mark_stale(report.facts[1:2])
    namespace.quarantine(report.facts[2:3])
    namespace.archive(report.facts[3:])
    seen(namespace)
    done = namespace.forget(source=report.sources[0])
    assert set(done.facts) == set(report.facts)
    assert seen(namespace) == {kept}
    assert namespace.facts(report.facts) == []
    for id_ in report.facts:
        with pytest.raises(StoreError):
            namespace.vectors([id_])
    assert set(status_of(made, *report.facts)) == {D}
    source = source_of(made, report.sources[0])
    assert source is not None
    assert (source.status, source.fact_count) == (SourceStatus.REMOVED, 0)
    told = [event for event in events(made) if event.event_type is EventType.FACT_DELETED]
    assert [(event.data["source"], event.data["count"]) for event in told] == [
        (report.sources[0], 4)
    ]
    before = everything(made)
    assert namespace.forget(source=report.sources[0]).facts == ()
    assert everything(made) == before


def test_a_forgotten_document_comes_back_when_it_is_ingested_again(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    first = namespace.ingest([document("a", sentence(1), sentence(2))], labels=["x"])
    namespace.forget(source=first.sources[0])
    again = namespace.ingest([document("a", sentence(1), sentence(3))])
    assert len(again.facts) == 2
    assert again.facts[0] == first.facts[0]
    assert seen(namespace) == set(again.facts)
    texts = {fact.content for fact in namespace.facts(again.facts)}
    assert texts == {sentence(1), sentence(3)}
    source = source_of(made, first.sources[0])
    assert source is not None
    # What protected it protects it again.
    assert (source.status, source.fact_count, source.labels) == (SourceStatus.ACTIVE, 2, ("x",))
    assert {fact.labels for fact in stored(made)} == {("x",)}
    assert {fact.content for fact in stored(made) if fact.status is D} == {sentence(2)}
    assert events(made)


def test_a_forgotten_passage_stays_forgotten_while_its_document_is_edited(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    first = namespace.ingest([document("a", sentence(1), sentence(2), sentence(3))])
    namespace.forget(facts=first.facts[:1])
    namespace.quarantine(first.facts[1:2])
    namespace.ingest([document("a", sentence(1), sentence(2), sentence(4))])
    assert status_of(made, *first.facts) == [D, Q, S]


def test_a_source_by_hand_shows_itself_to_who_may_see_what_it_brings(store: Store) -> None:
    made = fabric(store)
    every, low = made.bind(ACME), made.bind(ACME, Labelled())
    (removed,) = every.ingest([document("plan", sentence(1), labels=("secret",))]).sources
    every.forget(source=removed)
    low.add([Fact(content=sentence(2), source_id=removed)])
    every.add([Fact(content=sentence(3), source_id="notes", labels=("secret",))])
    assert low.sources() == []
    assert {one.labels for one in every.sources()} == {("secret",)}
    # Who adds what everybody may see to facts by hand shows that they are there.
    low.add([Fact(content=sentence(4), source_id="notes")])
    assert [one.source_id for one in low.sources()] == ["notes"]


def test_facts_are_added_anew_when_what_their_vectors_came_from_went_meanwhile(
    store: Store,
) -> None:
    class Erasing(HashEmbedder):
        meanwhile: Any = None

        def embed_passages(self, texts: Any) -> Any:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            return super().embed_passages(texts)

    embedder = Erasing()
    namespace = fabric(store, embedder=embedder).bind(ACME)
    (id_,) = namespace.add([sentence(1)]).facts
    namespace.forget(facts=[id_])
    embedder.meanwhile = lambda: erase_all(namespace)
    report = namespace.add([sentence(1), sentence(2)])
    assert report.facts[0] == id_ and seen(namespace) == set(report.facts)


# --- archive and quarantine ------------------------------------------------------------


@pytest.mark.requirement("009-8.2-3")
def test_an_archived_fact_is_out_of_every_read_until_restored(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    one, other = namespace.add([sentence(1), sentence(2)]).facts
    namespace.mark_stale([one])
    (before,), hashed = namespace.facts([one]), namespace.state_hash()
    report = namespace.archive([one])
    assert seen(namespace) == {other}
    assert report.state_hash == namespace.state_hash() == formula(made) != hashed
    with pytest.raises(IllegalTransition, match="archived already"):
        namespace.archive([one])
    with pytest.raises(IllegalTransition, match=f"fact {other} is not archived"):
        namespace.restore([other])
    made.clock.moment += timedelta(days=1)  # type: ignore[attr-defined]
    namespace.restore([one])
    (after,) = namespace.facts([one])
    assert after == before.changed(modified_at=NOON + timedelta(days=1))
    assert seen(namespace) == {one, other}
    assert namespace.state_hash() == hashed


@pytest.mark.requirement("009-2.2-3", "009-2.2-10", "009-8.4-2", "009-8.4-3", "009-8.4-4")
def test_a_quarantined_fact_is_out_and_the_operator_told_until_it_is_lifted(store: Store) -> None:
    told: list[Notice] = []
    made = fabric(store, notify=told.append)
    namespace = made.bind(ACME)
    a = namespace.ingest([document("a", sentence(1), sentence(2))])
    b = namespace.ingest([document("b", sentence(3))])
    hashed = namespace.state_hash()
    namespace.quarantine([*a.facts, *b.facts], reason="number changed in three answers")
    assert seen(namespace) == set()
    assert status_of(made, *a.facts, *b.facts) == [Q, Q, Q]
    assert {notice.source_id: set(notice.facts) for notice in told if notice.kind == "quarantined"} == {
        a.sources[0]: set(a.facts),
        b.sources[0]: set(b.facts),
    }  # fmt: skip
    assert {(n.namespace, n.reason) for n in told if n.kind == "quarantined"} == {
        ("acme", "number changed in three answers")
    }
    journalled = [e for e in events(made) if e.event_type is EventType.FACT_QUARANTINED]
    assert {event.data["source"] for event in journalled} == {*a.sources, *b.sources}
    assert all("three answers" not in event.model_dump_json() for event in events(made))
    namespace.lift([*a.facts, *b.facts])
    assert status_of(made, *a.facts, *b.facts) == [A, A, A]
    assert seen(namespace) == {*a.facts, *b.facts}
    assert namespace.state_hash() == hashed


def test_lifting_brings_back_what_had_been_archived_before(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([sentence(1)]).facts
    namespace.archive([id_])
    namespace.quarantine([id_])
    with pytest.raises(IllegalTransition, match="QUARANTINED and cannot be restored"):
        namespace.restore([id_])
    namespace.lift([id_])
    assert seen(namespace) == {id_}


@pytest.mark.requirement("009-8.4-3")
def test_without_anybody_to_tell_the_log_names_the_source_and_no_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    namespace = fabric().bind(ACME)
    report = namespace.ingest([document("secret-name", sentence(1))])
    with caplog.at_level(logging.WARNING, logger="crp_integrations.fabric"):
        namespace.quarantine(report.facts, reason="says that value1 is wrong")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("crp_integrations.fabric", "WARNING")
    assert report.sources[0] in record.getMessage()
    assert report.facts[0] in record.getMessage()
    assert "value1" not in record.getMessage()
    assert "secret-name" not in record.getMessage()


# --- what is given again --------------------------------------------------------------


def test_adding_what_is_stale_or_archived_brings_it_back_and_says_so(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    texts = [sentence(number) for number in range(4)]
    live, stale, archived, hidden = namespace.add(texts).facts
    namespace.mark_stale([stale])
    namespace.archive([archived])
    namespace.quarantine([hidden])
    made.clock.moment += timedelta(hours=1)  # type: ignore[attr-defined]
    report = namespace.add([*texts, sentence(9)])
    assert report.returned == (stale, archived)
    assert report.unchanged == (live, hidden)
    assert len(report.facts) == 1
    assert seen(namespace) == {live, stale, archived, *report.facts}
    assert status_of(made, live, stale, archived, hidden) == [A, A, A, Q]
    (back,) = stored(made, archived)
    assert back.archived_at is None
    assert back.modified_at == made.clock.now()
    assert namespace.state_hash() == report.state_hash == formula(made)
    told = [one for one in events(made) if one.event_type is EventType.FACT_INGESTED][-1]
    assert told.data["active_again"] == sorted([stale, archived])
    before = everything(made)
    assert namespace.add(texts).unchanged == (live, stale, archived, hidden)
    assert everything(made) == before


def test_what_has_outlived_its_time_stays_stale_when_it_is_added_again(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    fact = Fact(content=sentence(1), ttl="P1D")
    (id_,) = namespace.add([fact]).facts
    namespace.archive([id_])
    made.clock.moment += timedelta(days=2)  # type: ignore[attr-defined]
    namespace.maintain()
    report = namespace.add([fact])
    assert (report.returned, report.unchanged) == ((id_,), ())
    (found,) = namespace.facts([id_])
    assert found.status is S
    assert namespace.add([fact]).unchanged == (id_,)
