"""What time makes due, by a clock that the tests move.

A time to live that is given with documents (CRP-SPEC-009 §8.1).
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.errors import AccessDenied, RequestError, StoreBusy
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.settings import FabricSettings, LifecycleSettings
from crp_integrations.guard.decisions import Decision
from crp_integrations.seals import sha256
from crp_integrations.stores.keys import FileKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import to_bytes
from crp_integrations.vocabulary import EventType, FactStatus
from tests.commands import here as here
from tests.doubles import NOON, PARAGRAPHS
from tests.fabric.lifecycle_fixtures import (
    ACME,
    Counted,
    document,
    events,
    everything,
    fabric,
    formula,
    seen,
    sentence,
    store,
    stored,
)

__all__ = ["store"]

TICK = timedelta(microseconds=1)


def at(made: Fabric, moment: Any) -> None:
    made.clock.moment = moment  # type: ignore[attr-defined]


def settings(**fields: Any) -> FabricSettings:
    return FabricSettings(lifecycle=LifecycleSettings(**fields))


@pytest.mark.requirement("009-2.2-1", "009-8.1-1", "009-8.1-2")
def test_a_ttl_ends_strictly_after_its_last_moment(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    due, later, never = namespace.add(
        [Fact(content=sentence(1), ttl="P90D"), Fact(content=sentence(2), ttl="P91D"), sentence(3)]
    ).facts
    at(made, NOON + timedelta(days=90))
    before = everything(made)
    assert namespace.maintain().stale == 0
    assert everything(made) == before
    at(made, NOON + timedelta(days=90) + TICK)
    hashed = namespace.state_hash()
    report = namespace.maintain()
    assert report.stale == 1
    assert namespace.state_hash() == formula(made) != hashed
    statuses = [fact.status for fact in stored(made, due, later, never)]
    assert statuses == [FactStatus.STALE, FactStatus.ACTIVE, FactStatus.ACTIVE]
    # It stays stored and retrievable.
    assert seen(namespace) == {due, later, never}
    last = events(made)[-1]
    assert (last.data["cause"], last.data["facts"]) == ("ttl", [due])
    assert namespace.maintain().stale == 0


@pytest.mark.requirement("009-8.1-1", "009-8.1-2")
def test_a_ttl_that_has_run_out_counts_at_the_next_read(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    due, never = namespace.add([Fact(content=sentence(1), ttl="P1D"), sentence(2)]).facts
    active, stale = (Where(statuses=(one,)) for one in (FactStatus.ACTIVE, FactStatus.STALE))
    vector = namespace.embedder.embed_query(sentence(1))

    def read() -> list[Any]:
        with namespace.moment() as view:
            one, two = [
                {fact.fact_id: fact.status.value for fact in found}
                for found in (view.facts([due, never]), view.briefs([due, never]))
            ]
        assert one == two
        exported = {one.fact_id for one in namespace.export(stale) if isinstance(one, Fact)}
        assert exported == set(namespace.find(stale))
        for where in (active, stale):
            hits = {hit.fact_id for hit in namespace.nearest(vector, 5, where)}
            words = {hit.fact_id for hit in namespace.search_text(sentence(1), 5, where)}
            assert set(namespace.find(where)) == hits == words
        return [one[due], one[never], namespace.find(stale), namespace.stats().facts]

    assert read() == ["ACTIVE", "ACTIVE", [], {"ACTIVE": 2}]
    at(made, NOON + timedelta(days=1))
    before, hashed = everything(made), namespace.state_hash()
    assert read() == ["ACTIVE", "ACTIVE", [], {"ACTIVE": 2}]
    at(made, NOON + timedelta(days=1) + TICK)
    aged = read()
    assert aged == ["STALE", "ACTIVE", [due], {"ACTIVE": 1, "STALE": 1}]
    # Reading is no change: the status is written by the upkeep, and that changes the hash.
    assert (everything(made), namespace.state_hash()) == (before, hashed)
    assert namespace.maintain().stale == 1
    assert namespace.state_hash() != hashed
    assert read() == aged


def test_a_ttl_runs_out_for_archived_facts_and_not_for_withdrawn_ones(store: Store) -> None:
    made = fabric(store, notify=lambda notice: None)
    namespace = made.bind(ACME)
    ids = namespace.add([Fact(content=sentence(n), ttl="P1D") for n in range(3)]).facts
    namespace.archive(ids[:1])
    namespace.quarantine(ids[1:2])
    namespace.forget(facts=ids[2:])
    at(made, NOON + timedelta(days=2))
    assert namespace.maintain().stale == 1
    assert [fact.status.value for fact in stored(made, *ids)] == ["STALE", "QUARANTINED", "DELETED"]
    namespace.restore(ids[:1])
    namespace.lift(ids[1:2])
    assert namespace.maintain().stale == 1
    assert {fact.status for fact in namespace.facts(ids)} == {FactStatus.STALE}


@pytest.mark.requirement("009-2.2-6", "009-3.3-3")
@pytest.mark.parametrize("days", [30.0, 0.0, 1.5])
def test_deleted_facts_leave_with_their_retention(store: Store, days: float) -> None:
    assert LifecycleSettings().retention_days == 30.0
    made = fabric(store, settings=settings(retention_days=days))
    namespace = made.bind(ACME)
    added = namespace.add([sentence(1), sentence(2)])
    gone, kept = added.facts
    namespace.forget(facts=[gone])
    hashed = namespace.state_hash()
    if days:
        at(made, NOON + timedelta(days=days) - TICK)
        assert namespace.maintain().purged == 0
        assert len(stored(made, gone)) == 1
    at(made, NOON + timedelta(days=days))
    report = namespace.maintain()
    assert (report.purged, report.scrubbed) == (1, True)
    assert stored(made, gone) == []
    assert seen(namespace) == {kept}
    assert namespace.state_hash() == hashed
    last = events(made)[-1]
    assert last.event_type is EventType.FACT_DELETED
    (source,) = added.sources
    assert last.data == {"source": source, "facts": [gone], "count": 1, "cause": "retention"}
    assert namespace.maintain().purged == 0


@pytest.mark.requirement("009-2.2-6", "009-3.3-3")
def test_the_bytes_of_deleted_facts_are_in_no_file_after_their_retention(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    made = fabric(SqliteStore(root))
    namespace = made.bind(ACME)
    gone, _ = namespace.add([sentence("Quorvax"), sentence(2)]).facts
    namespace.forget(facts=[gone])
    vector = to_bytes(made.embedder.embed_passages([sentence("Quorvax")])[0])

    def left() -> bool:
        found = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
        return any(vector in data or b"uorvax" in data for data in found)

    at(made, NOON + timedelta(days=29))
    namespace.maintain()
    assert left()
    at(made, NOON + timedelta(days=30))
    namespace.maintain()
    assert not left()


@pytest.mark.requirement("009-8.2-1", "009-8.2-2")
def test_facts_unused_for_the_period_are_archived_and_used_ones_stay(store: Store) -> None:
    assert LifecycleSettings().archive_after_days == 180.0
    made = fabric(store)
    namespace = made.bind(ACME)
    unused, used, stale, restored, updated = namespace.add([sentence(n) for n in range(5)]).facts
    at(made, NOON + timedelta(days=100))
    with namespace.begin(True) as transaction:
        transaction.facts.touch([used], made.clock.now())
    at(made, NOON + timedelta(days=1))
    namespace.mark_stale([stale])
    namespace.archive([restored])
    at(made, NOON + timedelta(days=180))
    assert namespace.maintain().archived == 0
    namespace.restore([restored])
    namespace.update(updated, content=sentence(9))
    at(made, NOON + timedelta(days=182))
    report = namespace.maintain()
    assert report.archived == 2
    assert seen(namespace) == {used, restored, updated}
    assert namespace.state_hash() == formula(made)
    assert [fact.status.value for fact in stored(made, unused, stale)] == ["ACTIVE", "STALE"]
    namespace.restore([unused])
    assert namespace.maintain().archived == 0
    at(made, NOON + timedelta(days=300))
    assert namespace.maintain().archived == 1
    assert unused in seen(namespace)


def test_the_period_of_disuse_is_a_setting_and_none_means_never(store: Store) -> None:
    made = fabric(store, settings=settings(archive_after_days=10.0))
    made.bind(ACME).add([sentence(1)])
    at(made, NOON + timedelta(days=11))
    never = fabric(store, settings=settings(archive_after_days=None), clock=made.clock)
    assert never.bind(ACME).maintain().archived == 0
    assert made.bind(ACME).maintain().archived == 1


def test_nothing_due_writes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    made = fabric(SqliteStore(root), keyring=FileKeyRing(root / "keys"))
    namespace = made.bind(ACME)
    namespace.add([Fact(content=sentence(1), ttl="P90D"), sentence(2)])
    namespace.maintain()
    before = everything(made)
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    at(made, NOON + timedelta(hours=1))
    steps: list[str] = []
    report = namespace.maintain(lambda step, done, total: steps.append(step))
    assert (report.stale, report.purged, report.archived, report.scrubbed) == (0, 0, 0, None)
    assert everything(made) == before
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    # Readers mark their place in the shared memory of the log; that file holds no content.
    assert {p for p in after if not p.name.endswith("-shm")} == {
        p for p in files if not p.name.endswith("-shm")
    }
    assert all(
        after[path] == data for path, data in files.items() if not path.name.endswith("-shm")
    )
    assert "stale" not in steps


def test_a_subject_that_may_not_write_can_look_but_not_maintain(store: Store) -> None:
    class ReadOnly:
        name = "read-only"

        def decide(self, subject: Any, action: str, labels: tuple[str, ...]) -> Decision:
            return Decision(allowed=action == "read", guard=self.name, reason="reading only")

    made = fabric(store)
    made.bind(ACME).add([Fact(content=sentence(1), ttl="P1D")])
    reader = made.bind(ACME, ReadOnly())
    at(made, NOON + timedelta(days=2))
    before = everything(made)
    with pytest.raises(AccessDenied):
        reader.maintain()
    assert everything(made) == before


def test_a_busy_store_keeps_the_steps_that_are_done(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    ids = namespace.add([Fact(content=sentence(1), ttl="P1D"), sentence(2)]).facts
    namespace.forget(facts=ids[1:])
    at(made, NOON + timedelta(days=31))
    real, writes = made.store.begin, 0

    def begin(name: str, *, write: bool = True) -> Any:
        nonlocal writes
        writes += write
        if writes > 1:
            raise StoreBusy("another process is writing")
        return real(name, write=write)

    made.store.begin = begin  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreBusy):
        namespace.maintain()
    made.store.begin = real  # type: ignore[method-assign]
    assert [fact.status.value for fact in stored(made, *ids)] == ["STALE", "DELETED"]
    assert namespace.maintain().purged == 1


@pytest.mark.requirement("009-7.2-2")
def test_sessions_that_were_idle_are_purged(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.hold("s", [sentence(1)])
    at(made, NOON + timedelta(hours=23))
    assert namespace.maintain().sessions == 0
    at(made, NOON + timedelta(hours=48))
    assert namespace.maintain().sessions == 1


def test_the_log_of_changes_is_cut_when_it_has_grown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crp_integrations.fabric import maintenance

    monkeypatch.setattr(maintenance, "KEEP_CHANGES", 4)
    monkeypatch.setattr(maintenance, "KEEP_PER_FACT", 1)
    made = fabric(store)
    namespace = made.bind(ACME)
    ids = namespace.add([sentence(n) for n in range(6)]).facts
    with made.store.begin("acme", write=False) as transaction:
        first = transaction.facts.mark()
    assert not namespace.maintain().changes_trimmed
    for number in range(8):
        namespace.update(ids[0], content=sentence(100 + number))
    with made.store.begin("acme", write=False) as transaction:
        assert transaction.facts.changes(first) is not None
    assert namespace.maintain().changes_trimmed
    with made.store.begin("acme", write=False) as transaction:
        assert transaction.facts.changes(first) is None
    assert not namespace.maintain().changes_trimmed
    assert seen(namespace) == set(ids)


def test_what_was_kept_before_a_first_reclustering_is_still_led_to(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crp_integrations.fabric import maintenance

    monkeypatch.setattr(maintenance, "KEEP_CHANGES", 1)
    made = fabric(store)
    namespace = made.bind(ACME)
    ids = namespace.add([sentence(n) for n in range(6)]).facts
    with made.store.begin("acme", write=False) as transaction:
        built = transaction.facts.mark()
    for label in ("all", "others"):
        with made.store.begin("acme") as transaction:
            transaction.facts.set_communities(dict.fromkeys(ids, label))
    namespace.add([sentence("new")])
    namespace.maintain()
    with made.store.begin("acme", write=False) as transaction:
        assert transaction.facts.changes(built) is not None


def test_vectors_that_a_killed_ingestion_left_behind_go_after_their_time(store: Store) -> None:
    class Failing(Counted):
        def embed_passages(self, texts: Any) -> Any:
            if len(self.texts) >= 32:
                raise RuntimeError("killed")
            return super().embed_passages(texts)

    def left(made: Fabric, embedder: str) -> int:
        hashes = [sha256(text) for text in passages]
        with made.store.begin("acme", write=False) as transaction:
            return len(transaction.facts.prepared(embedder, hashes))

    passages = [sentence(number) for number in range(48)]
    kept = FabricSettings(chunking=PARAGRAPHS, embed_slice=16, embed_workers=1)
    made = fabric(store, embedder=Failing(), settings=kept)
    namespace = made.bind(ACME)
    with pytest.raises(RuntimeError):
        namespace.ingest([document("big", *passages)])
    name = made.embedder.identity
    assert left(made, name) == 32
    at(made, NOON + timedelta(days=7) - TICK)
    assert not namespace.maintain().prepared_cleared
    assert left(made, name) == 32
    # Those of a change of embedder are of stored texts, and it goes on.
    fabric(store).bind(ACME).add([sentence(99)])
    with made.store.begin("acme") as transaction:
        rows = Counted().embed_passages(passages[:1])
        transaction.facts.prepare("the next embedder", [sha256(passages[0])], rows)
    at(made, NOON + timedelta(days=7))
    assert namespace.maintain().prepared_cleared
    assert (left(made, name), left(made, "the next embedder")) == (0, 1)
    before = everything(made)
    assert not namespace.maintain().prepared_cleared
    assert everything(made) == before


DAY = timedelta(days=1)


def statuses(namespace: Namespace) -> list[str]:
    namespace.maintain()
    return sorted(fact.status.value for fact in namespace.facts(namespace.find(Where())))


def times(namespace: Namespace) -> set[str | None]:
    return {fact.ttl for fact in namespace.facts(namespace.find(Where()))}


@pytest.mark.requirement("009-8.1-1")
def test_facts_of_documents_expire_when_their_time_is_over(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.ingest([document("a", sentence(1), sentence(2))], ttl="P30D")
    namespace.ingest([document("b", sentence(3))])
    assert times(namespace) == {"P30D", None}
    at(made, NOON + 30 * DAY)
    assert statuses(namespace) == ["ACTIVE", "ACTIVE", "ACTIVE"]
    at(made, NOON + 31 * DAY)
    assert statuses(namespace) == ["ACTIVE", "STALE", "STALE"]


def test_an_unchanged_document_takes_another_ttl_and_none_leaves_it(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    given = document("a", sentence(1), sentence(2))
    ids = namespace.ingest([given]).facts
    first = namespace.state_hash()
    report = namespace.ingest([given], ttl="P30D")
    assert (report.facts, report.unchanged) == ((), ())
    assert times(namespace) == {"P30D"}
    assert namespace.state_hash() == first
    assert namespace.ingest([given], ttl="P30D").unchanged == (given.uri,)
    assert namespace.ingest([given]).unchanged == (given.uri,)
    assert times(namespace) == {"P30D"}
    assert set(namespace.find(Where())) == set(ids)


def test_a_longer_ttl_brings_back_what_had_expired(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    given = document("a", sentence(1))
    (fact,) = namespace.ingest([given], ttl="P30D").facts
    at(made, NOON + 40 * DAY)
    assert statuses(namespace) == ["STALE"]
    # Said again with the same time, its time is over all the same.
    assert namespace.ingest([given], ttl="P30D").returned == ()
    assert namespace.ingest([given], ttl="P60D").returned == (fact,)
    assert statuses(namespace) == ["ACTIVE"]


def test_a_changed_document_gives_its_ttl_to_old_and_new_facts(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    namespace.ingest([document("a", sentence(1), sentence(2))], ttl="P30D")
    at(made, NOON + 10 * DAY)
    report = namespace.ingest([document("a", sentence(1), sentence(3))], ttl="P20D")
    assert len(report.facts) == 1
    found = {f.content: f for f in namespace.facts(namespace.find(Where()))}
    active = [f for f in found.values() if f.status is FactStatus.ACTIVE]
    assert {f.ttl for f in active} == {"P20D"}
    assert sorted(f.expires_at for f in active if f.expires_at) == [
        NOON + 20 * DAY,
        NOON + 30 * DAY,
    ]
    # Without one, what is new lives on and what is stored keeps its own.
    namespace.ingest([document("a", sentence(1), sentence(4))])
    assert times(namespace) == {"P20D", None}


@pytest.mark.parametrize("wrong", ["90 days", "P-1D", "P0D", "", "PT", "90", 90])
def test_what_is_no_duration_is_refused_before_anything(store: Store, wrong: Any) -> None:
    namespace = fabric(store).bind(ACME)
    with pytest.raises(RequestError, match="ttl is not usable"):
        namespace.ingest([document("a", sentence(1))], ttl=wrong)
    assert namespace.generation() == 0
