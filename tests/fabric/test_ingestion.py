"""What an ingestion promises: whole or nothing, again the same, resumed, bounded, side by side.

Many ids in little room are the tuple of them to whoever reads them.
"""

from __future__ import annotations

import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import AccessDenied, IngestError, StoreBusy
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ingest import fact_preparation, ingestion, ingestion_plan
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import (
    Block,
    Document,
    Fact,
    Notice,
    StreamedDocument,
    Where,
    source_id,
)
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.loaders import documents as load_module
from crp_integrations.loaders import files as find_module
from crp_integrations.loaders.documents import load_path
from crp_integrations.loaders.text import read_text
from crp_integrations.seals import sha256
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, FactStatus, SourceKind, SourceStatus
from tests.doubles import NOON, PARAGRAPHS, FixedClock, HashEmbedder, WordCounter

KEYS = FixedKeyRing(b"k" * 32)
ACME = Subject(tenant="acme")
EVERY = Where(statuses=tuple(FactStatus))


class Counted(HashEmbedder):
    """Keeps the texts that it embedded, and can fail after some of them."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.texts: list[str] = []
        self.fail_after = fail_after

    def embed_passages(self, texts: Any) -> Any:
        if self.fail_after is not None and len(self.texts) >= self.fail_after:
            raise RuntimeError("out of memory")
        self.texts += texts
        return super().embed_passages(texts)


def fabric(store: Store | None = None, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": KEYS,
        "settings": FabricSettings(chunking=PARAGRAPHS, embed_slice=16, embed_workers=1),
    }
    return Fabric(store or MemoryStore(), **{**chosen, **parts})


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    yield opened
    opened.close()


def sentence(number: int) -> str:
    return f"Passage {number} says in ten words or more that value{number} is {number} units."


def document(name: str, *passages: str, **fields: Any) -> Document:
    text = "\n\n".join(passages)
    return read_text(text.encode(), uri=f"test:{name}", name=name).model_copy(update=fields)


def streamed(one: Document, blocks: Callable[[], Iterator[Block]] | None = None) -> Any:
    return StreamedDocument(
        uri=one.uri,
        title=one.title,
        document_hash=one.document_hash,
        blocks=blocks or (lambda: iter(one.blocks)),
        kind=one.kind,
        labels=one.labels,
        metadata=one.metadata,
    )


def stored(made: Fabric) -> dict[str, Fact]:
    with made.store.begin("acme", write=False) as transaction:
        facts = transaction.facts
        return {fact.fact_id: fact for fact in facts.get(facts.find(EVERY))}


def events(made: Fabric) -> list[Any]:
    with made.store.begin("acme", write=False) as transaction:
        return list(transaction.journal.events())


# --- again the same, and the same however it is read ------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.sampled_from(["never", "standalone", "always"]),
)
def test_ingesting_twice_is_ingesting_once(first: list[int], second: list[int], way: Any) -> None:
    chosen = FabricSettings(chunking=PARAGRAPHS, embed_slice=4, embed_workers=1)
    chosen = chosen.model_copy(
        update={"chunking": chosen.chunking.model_copy(update={"decompose": way})}
    )
    made = fabric(settings=chosen)
    namespace = made.bind(ACME)
    namespace.ingest([document("a", *map(sentence, first))])
    one = namespace.ingest([document("a", *map(sentence, second))])
    before = stored(made)
    again = namespace.ingest([document("a", *map(sentence, second))])
    assert (again.facts, again.stale, again.returned) == ((), (), ())
    assert again.state_hash == one.state_hash == namespace.state_hash()
    assert stored(made) == before


@pytest.mark.requirement("009-2.1-1", "009-2.1-2")
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 700), min_size=1, max_size=30),
    st.sampled_from(["default", "literal"]),
)
def test_stored_facts_of_documents_have_10_to_2048_tokens(words: list[int], preset: Any) -> None:
    text = "\n\n".join(
        " ".join(f"w{n}x{m}" + ("." if m % 9 == 8 else "") for m in range(count))
        for n, count in enumerate(words)
    )
    made = fabric(settings=FabricSettings.preset(preset))
    if WordCounter().count(text) < 10:
        with pytest.raises(IngestError, match="a fact needs at least 10"):
            made.bind(ACME).ingest([document("a", text)])
        return
    made.bind(ACME).ingest([document("a", text)])
    counts = [WordCounter().count(fact.content) for fact in stored(made).values()]
    assert 10 <= min(counts) <= max(counts) <= 2048


def test_a_streamed_document_gives_the_same_facts_as_one_in_memory(store: Store) -> None:
    whole = document("a", *(f"{sentence(n)} {sentence(n + 1)}" for n in range(100)))
    in_memory = fabric()
    report = in_memory.bind(ACME).ingest([whole])
    from_stream = fabric(store)
    assert from_stream.bind(ACME).ingest([streamed(whole)]).facts == report.facts
    assert stored(from_stream) == stored(in_memory)


def test_a_document_that_changes_while_it_is_read_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the document were longer: it is cut again.
    monkeypatch.setattr(ingestion_plan, "_HELD_CHARACTERS", 1_000_000)
    other = document("b", *map(sentence, range(41)))
    made = fabric(store)
    big = "x" * 5_000_000
    padded = document("b", f"{sentence(1)} {big}", *map(sentence, range(40)))
    readings = iter([padded, other, other])
    with pytest.raises(IngestError, match="test:b changed while it was read"):
        made.bind(ACME).ingest([streamed(padded, lambda: iter(next(readings).blocks))])
    assert stored(made) == {}
    assert events(made) == []


# --- sources ----------------------------------------------------------------------------------


@pytest.mark.requirement("009-4.5-1", "009-4.5-3")
def test_every_document_has_an_entry_that_says_what_is_stored(store: Store) -> None:
    made = fabric(store)
    batch = [document(f"d{n}", *map(sentence, range(n * 10, n * 10 + n + 1))) for n in range(4)]
    made.bind(ACME).ingest(batch)
    entries = {source.uri: source for source in made.bind(ACME).sources()}
    facts = list(stored(made).values())
    for one in batch:
        entry = entries[one.uri]
        own = [fact for fact in facts if fact.source_id == entry.source_id]
        assert entry.source_id == source_id(one.uri)
        assert (entry.title, entry.ingested_at) == (one.title, NOON)
        assert entry.status is SourceStatus.ACTIVE
        text = "\n\n".join(block.text for block in one.blocks)
        assert entry.document_hash == sha256(text)
        assert entry.fact_count == len(own) == len(one.blocks)


@pytest.mark.requirement("009-4.5-2", "009-4.5-4", "009-4.5-5", "009-4.5-6", "009-2.2-4")
def test_an_update_keeps_what_is_said_and_marks_what_is_not(store: Store) -> None:
    made = fabric(store)
    told: list[Notice] = []
    made.notify = lambda notice: told.append(notice)
    namespace = made.bind(ACME)
    first = namespace.ingest([document("a", *map(sentence, range(4)))])
    assert told == []
    made.clock.moment += timedelta(days=1)  # type: ignore[attr-defined]
    second = namespace.ingest([document("a", sentence(9), sentence(1), sentence(2))])
    facts = stored(made)
    by_text = {fact.content: fact for fact in facts.values()}
    assert len(facts) == 5  # the old version is still there
    assert {number: by_text[sentence(number)].status.value for number in (0, 1, 2, 3, 9)} == {
        0: "STALE", 1: "ACTIVE", 2: "ACTIVE", 3: "STALE", 9: "ACTIVE",
    }  # fmt: skip
    new = by_text[sentence(9)]
    assert second.facts == (new.fact_id,)
    assert new.source_id == by_text[sentence(1)].source_id
    assert new.content_hash not in {fact.content_hash for fact in facts.values() if fact is not new}
    assert by_text[sentence(1)].fact_id in first.facts
    assert set(second.stale) == {by_text[sentence(n)].fact_id for n in (0, 3)}
    (entry,) = namespace.sources()
    assert (entry.status, entry.fact_count) == (SourceStatus.UPDATED, 3)
    (notice,) = told
    assert (notice.kind, notice.source_id, notice.namespace) == (
        "source-changed",
        entry.source_id,
        "acme",
    )
    assert (notice.facts, notice.stale, notice.returned) == (second.facts, second.stale, ())
    event = [e for e in events(made) if e.event_type is EventType.FACT_INGESTED][-1]
    assert tuple(event.data["facts"]) == second.facts
    assert tuple(event.data["stale"]) == second.stale
    third = namespace.ingest([document("a", *map(sentence, range(4)))])
    assert set(third.returned) == set(second.stale)
    assert told[-1].returned == third.returned
    assert stored(made)[third.returned[0]].status is FactStatus.ACTIVE


def test_a_notice_comes_after_the_commit_and_ingestion_stands_when_nobody_listens() -> None:
    made = fabric()
    seen: list[int] = []
    made.notify = lambda notice: seen.append(len(stored(made)))
    namespace = made.bind(ACME)
    namespace.ingest([document("a", sentence(1))])
    namespace.ingest([document("a", sentence(1), sentence(2))])
    assert seen == [2]


@pytest.mark.requirement("009-3.3-4")
def test_a_changed_passage_is_embedded_and_found_by_what_it_says_now(store: Store) -> None:
    embedder = Counted()
    namespace = fabric(store, embedder=embedder).bind(ACME)
    namespace.ingest([document("a", sentence(1), sentence(2))])
    namespace.ingest([document("a", sentence(1), sentence(77))])
    assert embedder.texts == [sentence(1), sentence(2), sentence(77)]
    (best,) = namespace.nearest(HashEmbedder().embed_query(sentence(77)), 1)
    assert namespace.facts([best.fact_id])[0].content == sentence(77)
    assert best.score == pytest.approx(1.0)


def test_a_stale_fact_whose_time_is_over_stays_stale() -> None:
    made = fabric()
    namespace = made.bind(ACME)
    (kept,) = namespace.ingest([document("a", sentence(1))]).facts
    with made.store.begin("acme") as transaction:
        (fact,) = transaction.facts.get([kept])
        transaction.facts.replace([fact.changed(ttl="P1D", status=FactStatus.STALE)])
    made.clock.moment += timedelta(days=2)  # type: ignore[attr-defined]
    assert namespace.ingest([document("a", sentence(1), sentence(2))]).returned == ()
    assert stored(made)[kept].status is FactStatus.STALE


def test_a_removed_source_that_is_given_again_comes_back_whole(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    one = document("a", *map(sentence, range(20)))
    first = namespace.ingest([one], kind=SourceKind.OFFICIAL, labels=["x"])
    with made.store.begin("acme") as transaction:
        facts = transaction.facts
        facts.set_status(first.facts, FactStatus.DELETED, NOON)
        (entry,) = facts.sources()
        facts.add_source(entry.changed(status=SourceStatus.REMOVED, fact_count=0))
    assert namespace.size() == 0
    again = namespace.ingest([one])
    assert again.facts == first.facts
    assert namespace.size() == 20
    (entry,) = namespace.sources()
    assert (entry.status, entry.fact_count) == (SourceStatus.ACTIVE, 20)
    assert {(f.labels, f.kind, f.status) for f in stored(made).values()} == {
        (("x",), SourceKind.OFFICIAL, FactStatus.ACTIVE)
    }
    assert again.state_hash == first.state_hash


# --- other kind, other labels -----------------------------------------------------------------


class Labelled:
    """A guard that lets a subject see and write what carries no label but its roles."""

    name = "labelled"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        return Decision(
            allowed=set(labels) <= set(subject.roles), guard=self.name, reason="by its labels"
        )


def test_another_kind_and_other_labels_reach_every_fact_of_the_source(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    one = document("a", *map(sentence, range(5)))
    namespace.ingest([one], kind=SourceKind.WEB, labels=["x"])
    changed = document("a", *map(sentence, range(1, 6)))
    namespace.ingest([changed], kind=SourceKind.WEB)
    before = namespace.state_hash()
    report = namespace.ingest([changed], kind=SourceKind.OFFICIAL, labels=["secret"])
    assert (report.facts, report.unchanged) == ((), ())
    facts = stored(made).values()
    # The stale one too, or its text would stay open to those who may not see the rest.
    assert {fact.labels for fact in facts} == {("secret",)}
    assert {fact.status for fact in facts} == {FactStatus.ACTIVE, FactStatus.STALE}
    assert {(fact.kind, fact.importance_weight) for fact in facts} == {(SourceKind.OFFICIAL, 0.80)}
    assert namespace.state_hash() == before
    clerk = made.bind(ACME, Labelled())
    assert (clerk.size(), clerk.sources()) == (0, [])


@pytest.mark.parametrize("roles", [("old",), ("new",), ()])
def test_who_changes_labels_may_write_under_the_old_and_the_new_ones(roles: Any) -> None:
    made = fabric()
    made.bind(ACME).ingest([document("a", sentence(1))], labels=["old"])
    before = stored(made)
    with pytest.raises(AccessDenied):
        made.bind(Subject(tenant="acme", roles=roles), Labelled()).ingest(
            [document("a", sentence(1), sentence(2))], labels=["new"]
        )
    assert stored(made) == before
    boss = made.bind(Subject(tenant="acme", roles=("old", "new")), Labelled())
    boss.ingest([document("a", sentence(1))], labels=["new"])
    assert {fact.labels for fact in stored(made).values()} == {("new",)}


# --- whole or nothing, and resumed ------------------------------------------------------------


def test_a_failure_keeps_the_vectors_and_nothing_else(store: Store) -> None:
    batch = [document(f"d{n}", *map(sentence, range(n * 20, n * 20 + 20))) for n in range(5)]
    made = fabric(store, embedder=Counted(fail_after=48))
    with pytest.raises(RuntimeError):
        made.bind(ACME).ingest(batch)
    assert (stored(made), events(made), made.bind(ACME).sources()) == ({}, [], [])
    resuming = Counted()
    again = fabric(store, embedder=resuming)
    told: list[tuple[str, int, int]] = []
    report = again.bind(ACME).ingest(
        batch, progress=lambda step, done, total: told.append((step, done, total))
    )
    assert len(resuming.texts) == 52
    assert len(report.facts) == again.bind(ACME).size() == 100
    # What was there already counts as done at once.
    embedding = [done for step, done, _ in told if step == "embed"]
    assert embedding[:2] == [0, 48]
    with store.begin("acme", write=False) as transaction:
        hashes = [fact.content_hash for fact in stored(again).values()]
        assert transaction.facts.prepared(HashEmbedder.identity, hashes) == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
@pytest.mark.parametrize("slices", [1, 3, 6])
def test_after_a_kill_only_the_rest_is_embedded(tmp_path: Path, slices: int) -> None:
    batch = [document(f"d{n}", *map(sentence, range(n * 20, n * 20 + 20))) for n in range(5)]

    class Dying(Counted):
        def embed_passages(self, texts: Any) -> Any:
            if len(self.texts) >= 16 * slices:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed_passages(texts)

    child = os.fork()
    if child == 0:
        fabric(SqliteStore(tmp_path / "kb"), embedder=Dying()).bind(ACME).ingest(batch)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with closing(SqliteStore(tmp_path / "kb")) as opened:
        made = fabric(opened, embedder=(resuming := Counted()))
        assert (stored(made), events(made)) == ({}, [])
        made.bind(ACME).ingest(batch)
        assert len(resuming.texts) == 100 - 16 * slices
        assert len(stored(made)) == 100


def test_two_ingestions_of_the_same_texts_do_not_lose_each_others_vectors() -> None:
    opened = MemoryStore()
    passages = [*map(sentence, range(40))]
    other = fabric(opened)

    class Overtaken(Counted):
        def embed_passages(self, texts: Any) -> Any:
            if len(self.texts) == 32:
                # Another document of the same texts is stored now and clears what it prepared.
                other.bind(ACME).ingest([document("b", *passages)])
            return super().embed_passages(texts)

    slower = fabric(opened, embedder=Overtaken())
    report = slower.bind(ACME).ingest([document("a", *passages)])
    assert len(report.facts) == 40
    assert slower.bind(ACME).size() == 80


def test_readers_see_nothing_before_the_commit(tmp_path: Path) -> None:
    opened = SqliteStore(tmp_path / "kb")
    reader = fabric(opened).bind(ACME)
    seen: list[tuple[int, str]] = []
    before = reader.state_hash()

    class Looking(Counted):
        def embed_passages(self, texts: Any) -> Any:
            seen.append((reader.size(), reader.state_hash()))
            assert reader.search_text("passage", 3) == []
            return super().embed_passages(texts)

    fabric(opened, embedder=Looking()).bind(ACME).ingest([document("a", *map(sentence, range(64)))])
    assert seen == [(0, before)] * 4
    assert reader.size() == 64
    opened.close()


# --- progress, threads, memory ----------------------------------------------------------------


def test_progress_never_goes_back_and_ends_whole(store: Store) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    batch = [document(f"d{n}", *map(sentence, range(n, n + 25))) for n in range(6)]
    fabric(store).bind(ACME).ingest(
        batch, progress=lambda step, done, total: told.setdefault(step, []).append((done, total))
    )
    assert list(told) == ["read", "chunk", "embed", "store"]
    for step, steps in told.items():
        done = [one for one, _ in steps]
        assert done == sorted(done)
        assert len({total for _, total in steps}) == 1
        if step != "read":
            assert done[-1] == steps[-1][1]
    assert told["store"][-1] == (150, 150)


def test_a_failing_worker_ends_the_ingestion_with_its_own_error() -> None:
    made = fabric(
        embedder=Counted(fail_after=32),
        settings=FabricSettings(chunking=PARAGRAPHS, embed_slice=16, embed_workers=2),
    )
    with pytest.raises(RuntimeError, match="out of memory"):
        made.bind(ACME).ingest([document("a", *map(sentence, range(96)))])
    assert stored(made) == {}


def test_the_memory_of_an_ingestion_does_not_hold_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 5 MB; with its texts or its facts held, the peak is several times as high."""

    class Cheap(HashEmbedder):
        dimensions = 8
        identity = "cheap/8"

        def embed_passages(self, texts: Any) -> Any:
            rows = np.ones((len(texts), 8), dtype=np.float32)
            rows[:, 0] = [len(text) for text in texts]
            return rows

    class Lengths(WordCounter):
        def count(self, text: str) -> int:
            return len(text) // 5

    # As if the file were longer.
    monkeypatch.setattr(load_module, "MAX_IN_MEMORY", 1 << 18)
    monkeypatch.setattr(find_module, "_PIECE", 1 << 16)
    monkeypatch.setattr(ingestion_plan, "_HELD_CHARACTERS", 100_000)
    monkeypatch.setattr(fact_preparation, "_STEP", 64)
    monkeypatch.setattr(ingestion, "_STEP", 64)
    path = tmp_path / "long.txt"
    line = "word " * 399
    with path.open("w") as out:
        for number in range(2_600):
            out.write(f"Paragraph {number} has {line}end.\n\n")
    size = path.stat().st_size
    assert size > 5_000_000
    with closing(SqliteStore(tmp_path / "kb")) as opened:
        made = fabric(opened, embedder=Cheap(), counter=Lengths())
        namespace = made.bind(ACME)
        tracemalloc.start()
        try:
            report = namespace.ingest(load_path(path))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(report.facts) >= 2_600
    assert peak < size / 2


def test_a_busy_store_is_told_and_keeps_what_was_prepared(tmp_path: Path) -> None:
    class Busy(MemoryStore):
        writes = 0

        def begin(self, namespace: str, *, write: bool = True) -> Any:
            self.writes += write
            if write and self.writes == 3:
                raise StoreBusy("another process is writing")
            return super().begin(namespace, write=write)

    opened = Busy()
    one = document("a", *map(sentence, range(64)))
    with pytest.raises(StoreBusy):
        fabric(opened).bind(ACME).ingest([one])
    resuming = Counted()
    fabric(opened, embedder=resuming).bind(ACME).ingest([one])
    assert len(resuming.texts) == 32


@pytest.mark.requirement("009-2-8", "009-4.5-6")
def test_facts_have_the_metadata_of_their_document(store: Store) -> None:
    clock = FixedClock()
    namespace = Fabric(store, HashEmbedder(), WordCounter(), clock, FixedKeyRing(bytes(32))).bind(
        Subject(tenant="acme")
    )
    said = "the paper about the harbour was written by one author in the spring of that year"

    def paper(author: str, digest: str) -> Document:
        return Document(
            uri="m.md",
            title="m",
            blocks=(Block(text=said, start=0),),
            document_hash="sha256:" + digest * 64,
            metadata={"author": author, "year": 2024},
        )

    (made,) = namespace.ingest([paper("Bo", "1")]).facts
    assert namespace.find(Where(metadata={"author": "Bo", "year": 2024})) == [made]
    namespace.update(made, metadata={"author": "Bo", "year": 2024, "checked": True})
    assert namespace.ingest([paper("Ann", "2")]).facts == ()
    (fact,) = namespace.facts([made])
    assert fact.metadata == {"author": "Ann", "year": 2024, "checked": True}
    assert namespace.find(Where(metadata={"author": "Bo"})) == []
