"""Erasing a source: nothing of it stays but the proof, and a kill anywhere can be finished."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.audit.records import Event
from crp_integrations.errors import RequestError, StoreBusy, StoreError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import to_bytes
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus
from tests.doubles import PARAGRAPHS
from tests.fabric.lifecycle_fixtures import (
    ACME,
    document,
    events,
    everything,
    fabric,
    formula,
    seen,
    sentence,
    setting,
    source_of,
    store,
    stored,
)

__all__ = ["store"]


# Words and numbers of one source; a text index keeps words in small letters and cut into terms.
MARKS = (
    "Quorvax", "quorvax", "zyphlo", "Zyphlo", "Jolmerric", "jolmerric",
    "Brindlewock", "Tarnyx", "Wexcombe", "hidden-place",
)  # fmt: skip
MARKED = [
    f"Quorvax {n} stays under lock with code Zyphlo{n} until noon of day {n}." for n in range(8)
]


class KilledError(BaseException):
    """The process ends here."""


class Failing:
    """A store that stops at one place, or says that a reader holds an old state."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.kill = ""
        self.reader = False
        self.busy = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def cache(self, namespace: str) -> Any:
        if self.kill == "cache":
            raise KilledError
        return self._store.cache(namespace)

    def scrub(self, namespace: str) -> bool:
        if self.kill == "scrub":
            raise KilledError
        if self.busy:
            raise StoreBusy("another process is writing")
        return False if self.reader else self._store.scrub(namespace)

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[Any]:
        with self._store.begin(namespace, write=write) as transaction:
            yield transaction
            if write and self.kill == "commit":
                raise KilledError


def filled(store: Store, **parts: Any) -> tuple[Fabric, str, tuple[str, ...], str]:
    """A fabric with a source in every status beside another one; source, ids, the other's fact."""
    made = fabric(store, notify=lambda notice: None, **parts)
    namespace = made.bind(ACME)
    report = namespace.ingest([document("gone", *map(sentence, range(6)))])
    (kept,) = namespace.ingest([document("kept", sentence(0))]).facts
    ids = report.facts
    namespace.mark_stale(ids[1:2])
    namespace.quarantine(ids[2:3])
    namespace.archive(ids[3:4])
    namespace.forget(facts=ids[4:5])
    return made, report.sources[0], ids, kept


@pytest.mark.requirement(
    "009-2.2-2", "009-8.3-1", "009-8.3-2", "009-8.3-4", "009-8.3-5", "003-17.2-1"
)
def test_every_fact_of_the_source_goes_and_a_sealed_event_stays(store: Store) -> None:
    made, source, ids, kept = filled(store)
    namespace = made.bind(ACME)
    seen(namespace)
    before, told = namespace.state_hash(), len(events(made))
    proof = namespace.erase(source)
    assert set(proof.facts) == set(ids)
    assert proof.scrubbed
    assert seen(namespace) == {kept}
    assert [fact.fact_id for fact in stored(made)] == [kept]
    assert (proof.state_before, proof.state_after) == (before, namespace.state_hash())
    assert namespace.state_hash() == formula(made) != before
    deleted, changed = events(made)[told:]
    assert deleted.event_type is EventType.FACT_DELETED
    assert (deleted.seq, deleted.hmac) == (proof.event_seq, proof.event_hmac)
    assert deleted.data == {
        "source": source,
        "facts": sorted(ids),
        "count": 6,
        "cause": "erasure",
    }
    assert changed.event_type is EventType.CKF_ETAG_CHANGED
    assert changed.data["cause"] == "erasure"
    tombstone = source_of(made, source)
    assert tombstone is not None
    assert (tombstone.title, tombstone.uri, tombstone.metadata) == ("", "", {})
    assert (tombstone.document_hash, tombstone.fact_count) == (sha256(""), 0)
    assert tombstone.status is SourceStatus.REMOVED


def test_erasing_twice_finds_nothing_left_and_erasing_the_unknown_is_an_error(
    store: Store,
) -> None:
    made, source, _, _ = filled(store)
    namespace = made.bind(ACME)
    namespace.erase(source)
    before = everything(made)
    again = namespace.erase(source)
    assert (again.facts, again.event_seq, again.scrubbed) == ((), 0, True)
    assert again.state_before == again.state_after
    with pytest.raises(RequestError, match="source 'nobody' is not in namespace 'acme'"):
        namespace.erase("nobody")
    assert everything(made) == before


def test_an_erased_document_can_be_ingested_again(store: Store) -> None:
    made, source, ids, kept = filled(store)
    namespace = made.bind(ACME)
    namespace.erase(source)
    again = namespace.ingest([document("gone", sentence(1), sentence(9))])
    assert again.sources == (source,)
    assert len(again.facts) == 2
    assert seen(namespace) == {*again.facts, kept}
    entry = source_of(made, source)
    assert entry is not None
    assert (entry.status, entry.uri, entry.fact_count) == (SourceStatus.ACTIVE, "test:gone", 2)
    assert namespace.add([Fact(content=sentence(20), source_id="notes")]).facts
    namespace.erase("notes")
    (back,) = namespace.add([Fact(content=sentence(20), source_id="notes")]).facts
    assert back in seen(namespace)
    assert ids


def test_what_was_forgotten_is_erased_before_its_retention_ends(store: Store) -> None:
    made, source, ids, kept = filled(store)
    namespace = made.bind(ACME)
    namespace.forget(source=source)
    assert set(namespace.erase(source).facts) == set(ids)
    assert [fact.fact_id for fact in stored(made)] == [kept]


def test_labels_made_of_erased_words_go_too(store: Store) -> None:
    made, source, ids, kept = filled(store)
    namespace = made.bind(ACME)
    near, far, aside = namespace.ingest(
        [document("other", *(f"Herons wade {n} miles of cold water every single day." for n in range(3)))]
    ).facts  # fmt: skip
    with made.store.begin("acme") as transaction:
        facts = transaction.facts
        # Named when a fact of the source was in it; by now none of them is.
        facts.set_communities({near: "Value3 units", far: "herons", aside: "value3 of old"})
        facts.set_communities({ids[0]: "together", kept: "together"})
        facts.set_setting("communities", "3")
        facts.set_setting("reclustered_at", "2026-05-25T12:00:00Z")
    namespace.archive([aside])
    namespace.erase(source)
    labels = [fact.community_label for fact in stored(made, kept, near, far, aside)]
    assert labels == [None, None, "herons", None]
    assert setting(made, "reclustered_at") is None
    assert setting(made, "epoch") == "1"


def test_a_name_is_not_given_with_the_words_of_a_fact_erased_meanwhile(store: Store) -> None:
    class Whole:
        """Everything is one community."""

        name = "whole"

        def partition(self, nodes: int, *given: Any, **named: Any) -> Any:
            return np.zeros(nodes, dtype=np.int64)

    class Meanwhile:
        """Erases a source when the names are found and not yet written."""

        @contextmanager
        def step(self, name: str) -> Iterator[None]:
            if name == "fabric.recluster.write":
                namespace.erase(source)
            yield

    made = fabric(store, leiden=Whole(), tracer=Meanwhile())
    namespace = made.bind(ACME)
    (source,) = namespace.ingest([document("gone", *MARKED)]).sources
    namespace.ingest([document("kept", *map(sentence, range(3)))])
    namespace.recluster()
    assert {fact.community_label for fact in stored(made)} == {None}
    assert setting(made, "reclustered_at") is None


def test_vectors_prepared_for_texts_that_were_never_stored_go_too(store: Store) -> None:
    made, source, _, _ = filled(store)
    name, hashes = made.embedder.identity, [sha256("a text of an interrupted ingestion")]
    rows = made.embedder.embed_passages(["a text of an interrupted ingestion"])
    with made.store.begin("acme") as transaction:
        transaction.facts.prepare(name, hashes, rows)
        transaction.facts.prepare("the next embedder", hashes, rows[:, :8])
    made.bind(ACME).erase(source)
    with made.store.begin("acme", write=False) as transaction:
        assert transaction.facts.prepared(name, hashes) == {}
        # A change of embedder goes on: its vectors are those of stored texts.
        assert list(transaction.facts.prepared("the next embedder", hashes)) == hashes


def test_what_a_session_holds_of_the_source_goes_too(store: Store) -> None:
    made, _, _, _ = filled(store)
    namespace = made.bind(ACME)
    namespace.add([Fact(content=sentence(40), source_id="notes")])
    namespace.hold("s", [Fact(content=sentence(41), source_id="notes"), sentence(42)])
    namespace.erase("notes")
    held = namespace.view("s")
    found = held.nearest(namespace.embedder.embed_query("passage"), 99)
    assert {sentence(41), sentence(42)} & {
        fact.content for fact in held.facts([hit.fact_id for hit in found])
    } == {sentence(42)}


def test_a_tenant_goes_with_what_its_sessions_hold(store: Store) -> None:
    namespace = filled(store)[0].bind(ACME)
    namespace.hold("s", [sentence(42)])
    kept: list[Event] = []
    assert namespace.erase_everything(kept.extend)
    assert kept[-1].data["cause"] == "erasure"
    view = namespace.view("s")
    assert not view.nearest(namespace.embedder.embed_query("passage"), 99)


def test_a_tenant_that_is_written_meanwhile_is_not_erased(store: Store) -> None:
    namespace = filled(store)[0].bind(ACME)

    def keep(events: Iterable[Event]) -> None:
        assert list(events)
        namespace.add([sentence(43)])

    before = namespace.size()
    with pytest.raises(StoreBusy, match="try again"):
        namespace.erase_everything(keep)
    assert namespace.size() == before + 1


def test_a_store_that_cannot_drop_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = filled(MemoryStore())[0].bind(ACME)
    monkeypatch.delattr(MemoryStore, "drop")
    calls: list[object] = []
    with pytest.raises(StoreError, match="cannot erase a whole namespace"):
        namespace.erase_everything(calls.append)
    assert not calls


# --- bytes -----------------------------------------------------------------------------


def files_with(root: Path, wanted: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """Which of the byte strings stand in which file under a folder."""
    return {
        (path.name, name)
        for path in root.rglob("*")
        if path.is_file()
        for name, needle in wanted.items()
        if needle in path.read_bytes()
    }


def erased_bytes(root: Path, **parts: Any) -> tuple[set[str], set[str], set[str]]:
    """Marks in the files before and after an erasure, and names of the files before."""
    made = fabric(SqliteStore(root), **parts)
    namespace = made.bind(ACME)
    namespace.ingest(
        [
            document("hidden-place", *MARKED, title="Brindlewock", metadata={"who": "Tarnyx"}),
            document("open", *map(sentence, range(40))),
        ]
    )
    (source,) = [s.source_id for s in namespace.sources() if s.title == "Brindlewock"]
    mine = [fact.fact_id for fact in stored(made) if fact.source_id == source]
    namespace.archive(mine[:1])
    namespace.forget(facts=mine[1:2])
    namespace.update(mine[2], metadata={"note": "Wexcombe"})
    namespace.update(mine[3], content=MARKED[3].replace("Quorvax", "Jolmerric"))
    namespace.search_text("Quorvax", 5)
    labels: set[str] = set()
    if made.leiden is not None:
        namespace.recluster()
        made.namespace_state("acme").settle(thorough=True)
        labels = {fact.community_label or "" for fact in stored(made, *mine)} - {
            "",
            "Passage words",
        }
        assert any(word in MARKED[0] for label in labels for word in label.split())
    vectors = made.embedder.embed_passages(MARKED)
    wanted = {
        **{f"vector {n}": to_bytes(row) for n, row in enumerate(vectors)},
        **{word: word.encode() for word in (*MARKS, *labels)},
    }
    files = {path.name for path in root.rglob("*") if path.is_file()}
    before = {name for _, name in files_with(root, wanted)}
    assert namespace.erase(source).scrubbed
    after = {name for _, name in files_with(root, wanted)}
    assert len(seen(namespace)) == 40
    namespace.maintain()
    # Not by what is made anew from what is left, either.
    return before, after | {name for _, name in files_with(root, wanted)}, files


@pytest.mark.requirement("009-8.3-3", "009-8.3-5", "003-17.2-1")
def test_no_byte_of_an_erased_source_is_in_any_file(tmp_path: Path) -> None:
    before, after, _ = erased_bytes(tmp_path / "kb")
    assert {"Quorvax", "Jolmerric", "Brindlewock", "Tarnyx", "hidden-place", "vector 0"} <= before
    assert after == set()


@pytest.mark.requirement("009-8.3-3", "003-17.2-1")
def test_no_byte_is_in_the_files_of_graph_and_communities_either(tmp_path: Path) -> None:
    pytest.importorskip("hnswlib")
    pytest.importorskip("graspologic_native")
    from crp_integrations.engines.graphs import GraspologicLeiden
    from crp_integrations.engines.hnsw import HnswEngine

    before, after, files = erased_bytes(
        tmp_path / "kb",
        graphs=HnswEngine(),
        leiden=GraspologicLeiden(),
        settings=FabricSettings(chunking=PARAGRAPHS, graph=VectorGraphSettings(exact_up_to=0)),
    )
    plain = {"fabric.sqlite", "fabric.sqlite-wal", "fabric.sqlite-shm"}
    assert len({name for name in files if name not in plain}) >= 2
    assert {"Quorvax", "vector 0"} <= before
    assert after == set()


@pytest.mark.requirement("009-8.3-3")
def test_a_reader_holds_the_scrubbing_up_and_maintain_finishes_it(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    made = fabric(SqliteStore(root, busy_seconds=0.1))
    namespace = made.bind(ACME)
    report = namespace.ingest([document("gone", sentence("Quorvax"))])
    namespace.ingest([document("kept", sentence(1))])
    (database,) = root.rglob("*.sqlite")
    reader = sqlite3.connect(database)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM facts").fetchone()
    proof = namespace.erase(report.sources[0])
    assert not proof.scrubbed
    assert {fact.content for fact in stored(made)} == {sentence(1)}
    assert namespace.maintain().scrubbed is False
    reader.close()
    assert namespace.maintain().scrubbed is True
    assert files_with(root, {"Quorvax": b"Quorvax", "quorvax": b"quorvax"}) == set()
    assert namespace.maintain().scrubbed is None


# --- kills -----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cache", "commit"])
def test_a_kill_before_the_commit_leaves_everything(store: Store, place: str) -> None:
    failing = Failing(store)
    made, source, _, _ = filled(failing)
    before = everything(made)
    failing.kill = place
    with pytest.raises(KilledError):
        made.bind(ACME).erase(source)
    failing.kill = ""
    assert everything(made) == before
    assert setting(made, "scrub") is None
    assert made.bind(ACME).erase(source).scrubbed


@pytest.mark.requirement("009-8.3-3")
@pytest.mark.parametrize("finish", ["maintain", "erase"])
def test_a_kill_after_the_commit_is_finished_by_who_comes_next(tmp_path: Path, finish: str) -> None:
    root = tmp_path / "kb"
    failing = Failing(SqliteStore(root))
    made = fabric(failing)
    namespace = made.bind(ACME)
    report = namespace.ingest([document("gone", sentence("Quorvax"))])
    failing.kill = "scrub"
    with pytest.raises(KilledError):
        namespace.erase(report.sources[0])
    # The next process.
    again = fabric(SqliteStore(root))
    namespace = again.bind(ACME)
    assert seen(namespace) == set()
    assert setting(again, "scrub") is not None
    deleted = [event for event in events(again) if event.event_type is EventType.FACT_DELETED]
    assert len(deleted) == 1
    if finish == "maintain":
        assert namespace.maintain().scrubbed is True
    else:
        assert namespace.erase(report.sources[0]).scrubbed
    assert setting(again, "scrub") is None
    assert files_with(root, {"Quorvax": b"Quorvax", "quorvax": b"quorvax"}) == set()


def test_a_store_that_is_busy_while_scrubbing_leaves_it_noted(store: Store) -> None:
    failing = Failing(store)
    made, source, _, kept = filled(failing)
    failing.busy = True
    assert not made.bind(ACME).erase(source).scrubbed
    assert made.bind(ACME).maintain().scrubbed is False
    failing.busy = False
    assert made.bind(ACME).maintain().scrubbed is True
    assert [fact.fact_id for fact in stored(made)] == [kept]


def test_a_removal_during_the_scrubbing_stays_noted(store: Store) -> None:
    class Late(Failing):
        after = ""

        def scrub(self, namespace: str) -> bool:
            done = super().scrub(namespace)
            if self.after:
                other, self.after = self.after, ""
                self.reader = True
                made.bind(ACME).erase(other)
                self.reader = False
            return done

    late = Late(store)
    made, source, _, _ = filled(late)
    namespace = made.bind(ACME)
    late.after = namespace.ingest([document("late", sentence(50))]).sources[0]
    namespace.erase(source)
    assert setting(made, "scrub") is not None
    assert namespace.maintain().scrubbed is True
    assert setting(made, "scrub") is None


def test_deleted_is_where_an_erasure_starts_from_too(store: Store) -> None:
    made, source, ids, _ = filled(store)
    assert {fact.status for fact in stored(made, *ids)} == set(FactStatus)
    assert set(made.bind(ACME).erase(source).facts) == set(ids)
