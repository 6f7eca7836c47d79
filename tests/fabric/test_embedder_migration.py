"""A change of embedding model: nothing lost, nothing mixed, resumed, and seen in the hash."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.audit import journal
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.engines.graphs import engine_for
from crp_integrations.errors import AccessDenied, ConfigError
from crp_integrations.fabric.embedder_migration import NEXT_SETTING
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, FactStatus
from tests.doubles import NOON, HashEmbedder, erase_all
from tests.fabric.embedders import ACME, KEYS, Letters, fabric, index_of, sentence
from tests.postgres import postgres_address  # noqa: F401 - a fixture

EVERY = Where(statuses=tuple(FactStatus))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store
    if request.param == "memory":
        opened = MemoryStore()
    elif request.param == "sqlite":
        opened = SqliteStore(tmp_path / "kb")
    else:
        # With an index of the vectors, which is of the old ones until it is built anew.
        opened = PostgresStore(request.getfixturevalue("postgres_address"), index_from=10)
    yield opened
    opened.close()


def filled(store: Store, count: int = 40) -> tuple[str, ...]:
    namespace = fabric(store).bind(ACME)
    ids = namespace.add([sentence(n) for n in range(count)]).facts
    with store.begin("acme") as transaction:
        transaction.facts.set_status([ids[0]], FactStatus.STALE, NOON)
        transaction.facts.set_status([ids[1]], FactStatus.QUARANTINED, NOON)
        transaction.facts.set_status([ids[2]], FactStatus.DELETED, NOON)
        transaction.facts.set_archived([ids[3]], NOON)
    return ids


@pytest.mark.requirement("009-3.4-1", "009-3.4-2", "009-3.4-4")
def test_every_fact_gets_a_vector_of_the_new_model_and_the_hash_changes(store: Store) -> None:
    ids = filled(store)
    old = fabric(store)
    before = old.bind(ACME).state_hash()
    told: list[tuple[str, int, int]] = []
    report = old.bind(ACME).reembed(
        Letters(), progress=lambda step, done, total: told.append((step, done, total))
    )
    assert (report.before, report.embedder) == (HashEmbedder.identity, Letters.identity)
    assert (report.facts, report.embedded, report.state_before) == (40, 40, before)
    new = fabric(store, Letters()).bind(ACME)
    assert new.state_hash() == report.state_hash != before
    with store.begin("acme", write=False) as transaction:
        facts = transaction.facts
        wanted = Letters().embed_passages([fact.content for fact in facts.get(ids)])
        # Withdrawn and archived facts too, or lifting and restoring them would mix two models.
        assert facts.vectors(ids).tobytes() == wanted.tobytes()
        assert facts.prepared_ids(Letters.identity) == []
        assert facts.setting(NEXT_SETTING) is None
        (*_, event) = transaction.journal.events()
        assert journal.verify_journal(transaction.journal.events(), journal_key(KEYS, "acme")) > 1
    assert event.event_type is EventType.CKF_ETAG_CHANGED
    assert (event.data["before"], event.data["after"]) == (before, report.state_hash)
    assert event.data["cause"] == "embedder"
    # The search is one of the new vectors: its best hit is the text itself.
    query = Letters().embed_query(sentence(17))
    (best,) = new.nearest(query, 1)
    assert best.fact_id == ids[17]
    assert best.score == pytest.approx(1.0)
    assert new.vectors([ids[17]]).shape == (1, 32)
    done = [one for _, one, _ in told]
    assert done == sorted(done)
    assert told[-1] == ("embed", 40, 40)


def test_a_fabric_of_the_old_model_is_refused_after_the_switch(store: Store) -> None:
    filled(store)
    old = fabric(store)
    namespace = old.bind(ACME)
    namespace.nearest(HashEmbedder().embed_query("x"), 1)
    namespace.reembed(Letters())
    with pytest.raises(ConfigError, match=r"letters/32.*hash-embedder/256"):
        namespace.nearest(HashEmbedder().embed_query("x"), 1)
    with pytest.raises(ConfigError):
        namespace.add([sentence(99)])
    with pytest.raises(ConfigError):
        old.bind(ACME)
    assert fabric(store, Letters()).bind(ACME).add([sentence(99)]).facts


@pytest.mark.requirement("009-3.4-3")
def test_old_and_new_model_both_read_during_the_move(store: Store) -> None:
    ids = filled(store)
    old, new = fabric(store), fabric(store, Letters())
    served = old.bind(ACME)
    seen: list[tuple[int, int]] = []

    class Watched(Letters):
        def embed_passages(self, texts: Any) -> Any:
            # The old one answers as ever.
            (best,) = served.nearest(HashEmbedder().embed_query(sentence(20)), 1)
            assert best.fact_id == ids[20]
            coming = new.bind(ACME)
            hits = coming.nearest(Letters().embed_query(sentence(20)), 100)
            assert all(hit.fact_id in ids for hit in hits)
            assert len(coming.facts([hit.fact_id for hit in hits])) == len(hits)
            assert len(coming.search_text("passage", 100)) == len(hits)
            if hits:
                assert coming.vectors([hits[0].fact_id]).shape == (1, 32)
                assert coming.state_hash() != served.state_hash()
            seen.append((served.size(), len(hits)))
            with pytest.raises(ConfigError, match="being moved"):
                coming.add([sentence(100)])
            return super().embed_passages(texts)

    served.reembed(Watched())
    assert {size for size, _ in seen} == {37}
    found = [hits for _, hits in seen]
    assert found[0] == 0
    assert 0 < found[-1] < 37
    assert new.bind(ACME).size() == 37


def test_what_others_write_meanwhile_is_not_lost(store: Store) -> None:
    filled(store)
    other = fabric(store).bind(ACME)
    added: list[str] = []

    class Overtaken(Letters):
        def embed_passages(self, texts: Any) -> Any:
            # Every slice, the last one too, finds another fact in the store afterwards.
            if len(added) < 30:
                added.extend(other.add([sentence(1000 + len(added))]).facts)
            return super().embed_passages(texts)

    embedder = Overtaken()
    report = fabric(store).bind(ACME).reembed(embedder)
    assert len(added) >= 13
    assert report.facts == 40 + len(added)
    new = fabric(store, Letters()).bind(ACME)
    hits = new.nearest(Letters().embed_query("x"), 1000)
    assert set(added) <= {hit.fact_id for hit in hits}
    with store.begin("acme", write=False) as transaction:
        every = transaction.facts.get(transaction.facts.find(EVERY))
        rows = transaction.facts.vectors([fact.fact_id for fact in every])
    assert rows.tobytes() == Letters().embed_passages([fact.content for fact in every]).tobytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_after_a_kill_the_move_goes_on_where_it_was(tmp_path: Path) -> None:
    class Dying(Letters):
        def embed_passages(self, texts: Any) -> Any:
            if len(self.texts) >= 24:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed_passages(texts)

    child = os.fork()
    if child == 0:
        filled(forked := SqliteStore(tmp_path / "kb"))
        fabric(forked).bind(ACME).reembed(Dying())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with closing(SqliteStore(tmp_path / "kb")) as opened:
        old = fabric(opened).bind(ACME)
        assert old.size() == 37
        resuming = Letters()
        # From a fabric of the new model, since the old one may be gone by now.
        report = fabric(opened, resuming).reembed("acme", resuming)
        assert len(resuming.texts) == report.embedded == 16
        assert fabric(opened, Letters()).bind(ACME).size() == 37


def interrupted(opened: Store, after: int, meanwhile: Any = None) -> None:
    """Begin a move that fails after so many texts, one slice after something else happened."""

    class Failing(Letters):
        def embed_passages(self, texts: Any) -> Any:
            if len(self.texts) >= after:
                raise RuntimeError("no more")
            if meanwhile and len(self.texts) >= after - 8:
                meanwhile()
            return super().embed_passages(texts)

    with pytest.raises(RuntimeError):
        fabric(opened).bind(ACME).reembed(Failing())


def prepared(opened: Store, hashes: list[str]) -> int:
    with opened.begin("acme", write=False) as transaction:
        return len(transaction.facts.prepared(Letters.identity, hashes))


@pytest.mark.requirement("009-8.3-3")
def test_what_is_erased_during_a_move_leaves_no_vector_behind(store: Store) -> None:
    ids = filled(store)
    namespace = fabric(store).bind(ACME)
    hashes = [fact.content_hash for fact in namespace.facts(ids)]
    interrupted(store, 16, lambda: erase_all(namespace))
    assert prepared(store, hashes) == 0
    with store.begin("acme", write=False) as transaction:
        assert transaction.facts.setting(EMBEDDER_SETTING) == HashEmbedder.identity


@pytest.mark.requirement("009-8.3-3")
def test_what_was_updated_and_erased_during_a_move_leaves_no_vector_behind(store: Store) -> None:
    ids = filled(store)
    namespace = fabric(store).bind(ACME)
    facts = namespace.facts(ids)
    hashes = [fact.content_hash for fact in facts]
    interrupted(store, 16)
    assert prepared(store, hashes) > 0
    for number, fact in enumerate(facts):
        namespace.update(fact.fact_id, content=sentence(500 + number))
    erase_all(namespace)
    assert prepared(store, hashes) == 0


def test_a_move_under_another_key_is_refused_before_anything_is_written(store: Store) -> None:
    filled(store)
    new = fabric(store, Letters(), keyring=FixedKeyRing(b"z" * 32))
    with pytest.raises(ConfigError, match="another key"):
        new.reembed("acme", new.embedder)
    with store.begin("acme", write=False) as transaction:
        journal.verify_journal(list(transaction.journal.events()), journal_key(KEYS, "acme"))
        assert transaction.facts.setting(NEXT_SETTING) is None


def test_a_fabric_of_the_new_model_may_be_maintained_during_the_move(store: Store) -> None:
    filled(store, 60)
    interrupted(store, 24)
    coming = fabric(store, Letters(), leiden=engine_for("graspologic")).bind(ACME)
    assert coming.size() > 0
    assert not coming.maintain().reclustered
    # With the one in use they are due all the same.
    assert fabric(store, leiden=engine_for("graspologic")).bind(ACME).maintain().reclustered


def test_a_second_move_elsewhere_stops_the_first_and_forgets_its_vectors() -> None:
    class Third(Letters):
        identity = "third/32"

    opened = MemoryStore()
    filled(opened)

    class Overtaken(Letters):
        def embed_passages(self, texts: Any) -> Any:
            if not self.texts:
                with opened.begin("acme") as transaction:
                    transaction.facts.set_setting(NEXT_SETTING, Third.identity)
            return super().embed_passages(texts)

    with pytest.raises(ConfigError, match="being moved to embedder 'third/32'"):
        fabric(opened).bind(ACME).reembed(Overtaken())
    with opened.begin("acme", write=False) as transaction:
        assert transaction.facts.setting(EMBEDDER_SETTING) == HashEmbedder.identity
    assert fabric(opened).bind(ACME).reembed(Third()).embedder == "third/32"


def test_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    opened = SqliteStore(tmp_path / "kb")
    empty = fabric(opened).bind(ACME).reembed(Letters())
    assert (empty.facts, empty.embedded) == (0, 0)
    assert not (tmp_path / "kb").exists()
    filled(opened)
    generation = fabric(opened).bind(ACME).generation()
    same = fabric(opened).bind(ACME).reembed(HashEmbedder())
    assert same.state_hash == same.state_before
    assert fabric(opened).bind(ACME).generation() == generation
    opened.close()


def test_the_guard_decides_who_moves() -> None:
    class Readers:
        name = "readers"

        def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
            return Decision(allowed=action == "read", guard=self.name, reason="readers only")

    opened = MemoryStore()
    filled(opened)
    with pytest.raises(AccessDenied):
        fabric(opened).bind(ACME, Readers()).reembed(Letters())


@pytest.mark.requirement("009-3.4-2")
def test_the_graph_is_built_of_the_new_vectors(tmp_path: Path) -> None:
    pytest.importorskip("hnswlib")
    from crp_integrations.engines.hnsw import HnswEngine

    chosen = FabricSettings(embed_slice=32, graph=VectorGraphSettings(exact_up_to=10))
    with closing(SqliteStore(tmp_path / "kb")) as opened:
        ids = (
            fabric(opened, graphs=HnswEngine(), settings=chosen)
            .bind(ACME)
            .add([sentence(n) for n in range(60)])
            .facts
        )
        fabric(opened, graphs=HnswEngine(), settings=chosen).bind(ACME).reembed(Letters())
        built = 0

        class Counting(HnswEngine):
            def build(self, *given: Any) -> Any:
                nonlocal built
                built += 1
                return super().build(*given)

        new = fabric(opened, Letters(), graphs=Counting(), settings=chosen)
        hits = new.bind(ACME).nearest(Letters().embed_query(sentence(30)), 5)
        assert hits[0].fact_id == ids[30]
        # It was built at the switch and is read from its file.
        assert index_of(new).graph is not None
        assert built == 0
