"""What a namespace promises about reading, writing and what it keeps apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.audit import journal
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.errors import (
    AccessDenied,
    ConfigError,
    FactRejected,
    IngestError,
    StoreBusy,
    StoreError,
)
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Document, Fact
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.loaders.text import read_text
from crp_integrations.stores.keys import FileKeyRing, FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, FactStatus, SourceKind
from tests.doubles import NOON, PARAGRAPHS, FixedClock, HashEmbedder, WordCounter

KEYS = FixedKeyRing(b"k" * 32)
ACME, OTHER = Subject(tenant="acme"), Subject(tenant="other")


class Steps:
    """A tracer that keeps the names of the steps."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def step(self, name: str) -> Any:
        self.names.append(name)
        yield


class Labelled:
    """A guard that lets a subject see and write what carries no label but its roles."""

    name = "labelled"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        return Decision(
            allowed=set(labels) <= set(subject.roles), guard=self.name, reason="by its labels"
        )


@dataclass(frozen=True)
class Shown:
    """A key ring that would show its key."""

    key: bytes

    def master(self) -> bytes:
        return self.key


def fabric(store: Store | None = None, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": KEYS,
        "settings": FabricSettings(chunking=PARAGRAPHS),
    }
    return Fabric(store or MemoryStore(), **{**chosen, **parts})


def sentence(number: int) -> str:
    return f"Passage {number} says in ten words or more that value{number} is {number} units."


def document(name: str, *passages: str, **fields: Any) -> Document:
    text = "\n\n".join(passages)
    return read_text(text.encode(), uri=f"test:{name}", name=name).model_copy(update=fields)


def contents(namespace: Namespace) -> set[str]:
    hits = namespace.nearest(namespace.embedder.embed_query("passage"), 10_000)
    return {fact.content for fact in namespace.facts([hit.fact_id for hit in hits])}


@pytest.mark.requirement("009-4.3-1")
def test_a_passage_becomes_one_fact_with_all_that_is_known_of_it() -> None:
    namespace = fabric().bind(ACME)
    report = namespace.ingest([document("a", sentence(1), sentence(2))], kind=SourceKind.OFFICIAL)
    first, second = namespace.facts(report.facts)
    assert (first.content, second.content) == (sentence(1), sentence(2))
    assert first.source_location == f"0-{len(sentence(1))}"
    assert first.kind is SourceKind.OFFICIAL
    assert first.importance_weight == 0.80
    assert (first.namespace, first.ingested_at, first.status) == ("acme", NOON, FactStatus.ACTIVE)
    (source,) = namespace.sources()
    assert first.source_id == second.source_id == source.source_id
    assert (source.fact_count, source.uri) == (2, "test:a")


@pytest.mark.requirement("009-4.1-1")
def test_ingestion_runs_in_order() -> None:
    steps = Steps()
    order: list[str] = []

    class Embedding(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            order.append("embed")
            return super().embed_passages(texts)

    class Store(MemoryStore):
        def begin(self, namespace: str, *, write: bool = True) -> Any:
            if write:
                order.append("insert")
            return super().begin(namespace, write=write)

    namespace = fabric(Store(), tracer=steps, embedder=Embedding()).bind(ACME)
    namespace.ingest([document("a", sentence(1))])
    wanted = ["read", "chunk", "facts", "embed", "insert"]
    assert steps.names == [f"fabric.{name}" for name in wanted]
    assert order == ["embed", "insert"]


@settings(max_examples=20)
@given(st.permutations(range(6)), st.integers(1, 5))
def test_results_do_not_depend_on_the_order_of_ingestion(order: list[int], cut: int) -> None:
    documents = [document(f"d{n}", sentence(n), sentence(n % 3)) for n in range(6)]
    straight, shuffled = fabric().bind(ACME), fabric().bind(ACME)
    straight.ingest(documents)
    shuffled.ingest([documents[n] for n in order[:cut]])
    shuffled.ingest([documents[n] for n in order[cut:]])
    vector = straight.embedder.embed_query("value2 passage units")
    assert straight.nearest(vector, 5) == shuffled.nearest(vector, 5)
    assert straight.search_text("value2 or value4", 5) == shuffled.search_text(
        "value2 or value4", 5
    )
    assert straight.state_hash() == shuffled.state_hash()


def test_writing_changes_the_state_hash_and_reading_does_not() -> None:
    namespace = fabric().bind(ACME)
    seen = [namespace.state_hash()]
    report = namespace.ingest([document("a", sentence(1))])
    seen.append(namespace.state_hash())
    assert report.state_hash == seen[-1]
    seen.append(namespace.add([sentence(2)]).state_hash)
    assert len(set(seen)) == 3
    namespace.nearest(namespace.embedder.embed_query("x"), 3)
    namespace.search_text("passage", 3)
    namespace.facts(report.facts)
    namespace.token_counts("k", report.facts, lambda texts: [len(text) for text in texts])
    namespace.sources()
    with namespace.begin(True) as transaction:
        transaction.facts.touch(report.facts, NOON)
    assert namespace.state_hash() == seen[-1]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=12))
def test_other_tenants_facts_never_come_back(writes: list[tuple[bool, int]]) -> None:
    made = fabric()
    sides = {True: made.bind(ACME), False: made.bind(OTHER)}
    wanted: dict[bool, set[str]] = {True: set(), False: set()}
    ids: dict[bool, list[str]] = {True: [], False: []}
    for side, number in writes:
        text = f"{'acme' if side else 'other'} {sentence(number)}"
        ids[side] += sides[side].add([text]).facts
        wanted[side].add(text)
    for side, namespace in sides.items():
        assert contents(namespace) == wanted[side]
        assert namespace.size() == len(wanted[side])
        found = namespace.search_text("acme other passage", 100)
        assert {hit.fact_id for hit in found} == set(ids[side])
        assert namespace.facts(ids[not side]) == []
        assert namespace.token_counts("k", ids[not side], lambda t: [1] * len(t)) == {}
        if ids[not side]:
            with pytest.raises(StoreError):
                namespace.vectors(ids[not side])


@pytest.mark.parametrize("status", [FactStatus.DELETED, FactStatus.QUARANTINED])
def test_withdrawn_facts_come_out_of_no_method(status: FactStatus) -> None:
    namespace = fabric().bind(ACME)
    gone, kept = namespace.add([sentence(1), sentence(2)]).facts
    before = namespace.state_hash()
    with namespace.begin(True) as transaction:
        transaction.facts.set_status([gone], status, NOON)
    assert contents(namespace) == {sentence(2)}
    assert [hit.fact_id for hit in namespace.search_text("passage", 9)] == [kept]
    assert namespace.facts([gone]) == []
    assert namespace.token_counts("k", [gone], lambda t: [1] * len(t)) == {}
    assert namespace.size() == 1
    with pytest.raises(StoreError):
        namespace.vectors([gone])
    assert namespace.state_hash() != before


def test_the_guard_decides_on_labels_everywhere() -> None:
    made = fabric()
    boss = made.bind(Subject(tenant="acme", roles=("secret",)), Labelled())
    clerk = made.bind(ACME, Labelled())
    secret = boss.ingest([document("s", *map(sentence, range(8)))], labels=["secret"]).facts
    open_ = boss.ingest([document("o", sentence(20))]).facts
    assert boss.size() == 9
    assert clerk.size() == 1
    assert contents(clerk) == {sentence(20)}
    # The clerk's only fact is found although the secret ones rank before it.
    query = " ".join(f"value{n}" for n in range(8)) + " passage"
    assert [hit.fact_id for hit in clerk.search_text(query, 1)] == list(open_)
    assert clerk.facts([*secret, *open_]) == boss.facts(open_)
    assert [source.uri for source in clerk.sources()] == ["test:o"]
    assert clerk.token_counts("k", [*secret], lambda t: [1] * len(t)) == {}
    with pytest.raises(StoreError):
        clerk.vectors(secret[:1])
    with pytest.raises(AccessDenied):
        clerk.ingest([document("x", sentence(3))], labels=["secret"])
    with pytest.raises(AccessDenied):
        clerk.add([Fact(content=sentence(4), labels=("secret",))])
    assert clerk.guard_name == "labelled"


@pytest.mark.parametrize("tenant", ["", "  "])
def test_a_missing_tenant_is_denied(tenant: str) -> None:
    with pytest.raises(AccessDenied, match="names no tenant"):
        fabric().bind(Subject(tenant=tenant))


def test_another_embedder_is_refused_with_both_names() -> None:
    class Another(HashEmbedder):
        identity = "another/1"

    store = MemoryStore()
    early = fabric(store, embedder=Another()).bind(ACME)
    fabric(store).bind(ACME).add([sentence(1)])
    with pytest.raises(ConfigError, match=r"hash-embedder/256.*another/1"):
        fabric(store, embedder=Another()).bind(ACME)
    # One bound before the first write finds out as well.
    with pytest.raises(ConfigError):
        early.nearest(early.embedder.embed_query("x"), 1)
    with pytest.raises(ConfigError):
        early.add([sentence(2)])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_document_leaves_the_store_as_it_was(place: int) -> None:
    made = fabric()
    namespace = made.bind(ACME)
    namespace.ingest([document("old", sentence(1))])
    before = (namespace.state_hash(), namespace.generation(), events(made))
    batch = [document("a", sentence(2)), document("b", sentence(3))]
    batch.insert(place, document("a", sentence(4)))
    with pytest.raises(IngestError, match="test:a is given twice"):
        namespace.ingest(batch)
    assert (namespace.state_hash(), namespace.generation(), events(made)) == before


def blank(name: str) -> Document:
    return document(name, "x").model_copy(update={"blocks": ()})


@pytest.mark.parametrize("place", [0, 1, 2])
def test_too_little_text_is_skipped_and_named_beside_documents_that_give_facts(place: int) -> None:
    namespace = fabric().bind(ACME)
    batch = [document("a", sentence(2)), document("b", sentence(3))]
    batch[place:place] = [document("short", "too short"), blank("blank")]
    report = namespace.ingest(batch)
    assert report.skipped == ("test:short", "test:blank")
    assert (len(report.sources), len(report.facts)) == (2, 2)
    assert {source.uri for source in namespace.sources()} == {"test:a", "test:b"}
    assert contents(namespace) == {sentence(2), sentence(3)}
    assert report.state_hash == namespace.state_hash()


def test_facts_of_a_document_that_has_too_little_text_now_become_stale() -> None:
    namespace = fabric().bind(ACME)
    batch = [document("a", sentence(1)), document("b", sentence(2))]
    ids = namespace.ingest(batch).facts

    def states() -> list[FactStatus]:
        return [fact.status for fact in namespace.facts(ids)]

    short = document("a", "Moved away.")
    report = namespace.ingest([short, batch[1]])
    assert (report.skipped, report.facts) == (("test:a",), ())
    assert states() == [FactStatus.STALE, FactStatus.ACTIVE]
    assert namespace.ingest([short, batch[1]]).unchanged == ("test:a", "test:b")
    namespace.ingest([batch[0]])
    assert states() == [FactStatus.ACTIVE, FactStatus.ACTIVE]


def test_a_batch_with_too_little_text_everywhere_is_refused_by_path() -> None:
    made = fabric()
    namespace = made.bind(ACME)
    namespace.ingest([document("old", sentence(1))])
    before = (namespace.state_hash(), namespace.generation(), events(made))
    short = document("s", "too short", uri="file:///docs/a%20b.md")
    with pytest.raises(IngestError, match=r"^/docs/a b\.md has 2 tokens, and a fact needs"):
        namespace.ingest([short])
    with pytest.raises(IngestError, match=r"test:blank contains no text.*first of 2"):
        namespace.ingest([blank("blank"), short])
    with pytest.raises(IngestError, match="test:old contains no text"):
        namespace.ingest([blank("old")])
    assert (namespace.state_hash(), namespace.generation(), events(made)) == before


def test_what_fails_before_the_first_write_makes_neither_store_nor_key(tmp_path: Path) -> None:
    def bad() -> Iterator[Document]:
        yield document("good", sentence(1))
        raise IngestError("the second one is no text")

    root = tmp_path / "kb"
    made = fabric(SqliteStore(root), keyring=FileKeyRing(root / "keys")).bind()
    with pytest.raises(IngestError, match="no text"):
        made.ingest(bad())
    with pytest.raises(IngestError, match="tokens"):
        made.ingest([document("short", "Two words.")])
    with pytest.raises(FactRejected):
        made.add(["too short"])
    assert made.ingest([]).facts == ()
    assert list(tmp_path.iterdir()) == []


def test_another_key_is_refused_when_a_namespace_is_bound(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    first = fabric(store)
    first.bind(ACME).ingest([document("a", sentence(1))])
    other = fabric(store, keyring=Shown(b"o" * 32))
    with pytest.raises(ConfigError, match=r"'acme' in sqlite:.* was sealed .* that of Shown;"):
        other.bind(ACME)
    keys = tmp_path / "other keys"
    with pytest.raises(ConfigError, match=r"that of .*other keys;"):
        fabric(store, keyring=FileKeyRing(keys)).bind(ACME)
    # What nobody has written yet was not sealed with any key.
    assert other.bind(OTHER).add([sentence(2)]).facts
    assert first.bind(ACME).size() == 1


def test_an_embedder_that_fails_leaves_the_store_as_it_was() -> None:
    class Failing(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            if len(texts) < 64:
                raise RuntimeError("out of memory")
            return super().embed_passages(texts)

    made = fabric(embedder=Failing())
    namespace = made.bind(ACME)
    with pytest.raises(RuntimeError):
        namespace.ingest([document("a", *map(sentence, range(100)))])
    assert (namespace.size(), namespace.sources(), events(made)) == (0, [], [])


def test_kind_and_labels_of_a_source_stay_until_others_are_given() -> None:
    namespace = fabric().bind(ACME)
    namespace.ingest([document("a", sentence(1))], kind=SourceKind.OFFICIAL, labels=["x"])
    namespace.ingest([document("a", sentence(1), sentence(2))])
    assert {fact.labels for fact in all_facts(namespace)} == {("x",)}
    assert {fact.kind for fact in all_facts(namespace)} == {SourceKind.OFFICIAL}


def all_facts(namespace: Namespace) -> list[Fact]:
    hits = namespace.nearest(namespace.embedder.embed_query("passage"), 10_000)
    return namespace.facts([hit.fact_id for hit in hits])


def test_the_callers_kind_stands_above_the_documents_own() -> None:
    namespace = fabric().bind(ACME)
    own = document("a", sentence(1), kind=SourceKind.RESEARCH, labels=("own",))
    namespace.ingest([own], labels=["given"])
    namespace.ingest([document("b", sentence(2), kind=SourceKind.RESEARCH)], kind=SourceKind.WEB)
    kinds = {fact.content: (fact.kind, fact.labels) for fact in all_facts(namespace)}
    assert kinds[sentence(1)] == (SourceKind.RESEARCH, ("given", "own"))
    assert kinds[sentence(2)] == (SourceKind.WEB, ())


def test_added_facts_are_kept_as_they_are_and_only_once() -> None:
    namespace = fabric().bind(ACME)
    own = Fact(content=sentence(1), source_id="notes", importance_weight=0.33)
    report = namespace.add([own, sentence(2), sentence(2)])
    assert len(report.facts) == 2
    assert namespace.facts([own.fact_id])[0].importance_weight == 0.33
    assert sorted(source.source_id for source in namespace.sources()) == sorted(report.sources)
    assert "notes" in report.sources
    again = namespace.add([own, sentence(2)])
    assert again.facts == ()
    assert set(again.unchanged) == set(report.facts)
    assert again.state_hash == report.state_hash


@pytest.mark.requirement("009-8.3-1")
def test_each_call_has_its_own_source_and_a_name_has_one() -> None:
    namespace = fabric().bind(ACME)
    first = namespace.add([sentence(1), sentence(2)])
    second = namespace.add([Fact(content=sentence(3)), sentence(1)])
    named = [namespace.add([Fact(content=sentence(n), source_id="notes")]) for n in (4, 5)]
    assert second.unchanged == first.facts[:1]
    assert len({*first.sources, *second.sources}) == 2
    assert named[0].sources == named[1].sources == ("notes",)
    (fact,) = namespace.facts(first.facts[:1])
    assert set(namespace.erase(fact.source_id).facts) == set(first.facts)
    left = {fact.content for fact in all_facts(namespace)}
    assert left == {sentence(3), sentence(4), sentence(5)}
    # What was erased can be added again.
    assert namespace.add([sentence(1), sentence(2)]).facts == first.facts


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("two words", "has 2 tokens"),
        ("word " * 2049, "has 2049 tokens"),
        ("", "not usable"),
        (Fact(content=sentence(1), namespace="other"), "of namespace 'other'"),
        (Fact(content=sentence(1), status=FactStatus.QUARANTINED), "QUARANTINED"),
    ],
)
def test_unusable_facts_are_rejected_whole_batch(fact: Fact | str, message: str) -> None:
    namespace = fabric().bind(ACME)
    with pytest.raises(FactRejected, match=message):
        namespace.add([sentence(5), fact])
    assert namespace.size() == 0


def test_a_busy_store_does_not_fail_a_count() -> None:
    class Busy(MemoryStore):
        locked = False

        def begin(self, namespace: str, *, write: bool = True) -> Any:
            if write and self.locked:
                raise StoreBusy("another process is writing")
            return super().begin(namespace, write=write)

    store = Busy()
    namespace = fabric(store).bind(ACME)
    ids = namespace.add([sentence(1)]).facts
    store.locked = True
    assert namespace.token_counts("k", ids, lambda t: [7] * len(t)) == {ids[0]: 7}


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_raw_queries_of_strangers_are_safe(query: str) -> None:
    namespace = SHARED
    hits = namespace.search_text(query, 3)
    assert len(hits) <= 3
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.fact_id))


SHARED = fabric().bind(ACME)
SHARED.add([sentence(number) for number in range(5)])


def events(made: Fabric) -> list[Any]:
    with made.store.begin("acme", write=False) as transaction:
        return list(transaction.journal.events())


def test_the_journal_tells_of_ids_and_hashes_and_verifies() -> None:
    made = fabric()
    namespace = made.bind(ACME)
    report = namespace.ingest([document("secret-name", sentence(1)), document("b", sentence(2))])
    told = events(made)
    assert [event.event_type for event in told] == [
        EventType.FACT_INGESTED,
        EventType.FACT_INGESTED,
        EventType.CKF_ETAG_CHANGED,
    ]
    assert [*told[0].data["facts"], *told[1].data["facts"]] == list(report.facts)
    assert told[2].data["after"] == report.state_hash
    assert journal.verify_journal(told, journal_key(KEYS, "acme")) == 3
    for event in told:
        text = event.model_dump_json()
        assert "Passage" not in text
        assert "secret-name" not in text


def test_one_uri_with_two_contents_is_refused_and_with_one_counts_once() -> None:
    namespace = fabric().bind(ACME)
    with pytest.raises(IngestError, match="twice"):
        namespace.ingest([document("a", sentence(1)), document("a", sentence(2))])
    assert len(namespace.ingest([document("a", sentence(1))] * 2).facts) == 1


def test_readers_and_writers_in_threads_see_whole_batches() -> None:
    made = fabric()
    wrong: list[str] = []
    done = threading.Event()

    def read_() -> None:
        namespace = made.bind(ACME)
        vector = namespace.embedder.embed_query("passage units")
        while not done.is_set():
            hits = namespace.nearest(vector, 1000)
            if len(hits) % 5:
                wrong.append(f"{len(hits)} facts seen")
            if len(namespace.facts([hit.fact_id for hit in hits])) != len(hits):
                wrong.append("a fact that was found is not there")

    readers = [threading.Thread(target=read_) for _ in range(3)]
    for reader in readers:
        reader.start()
    writer = made.bind(ACME)
    for number in range(12):
        writer.ingest([document(f"d{number}", *(sentence(number * 5 + n) for n in range(5)))])
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert writer.size() == 60
    assert np.isfinite(
        writer.vectors([hit.fact_id for hit in writer.search_text("passage", 5)])
    ).all()


def test_writers_of_one_batch_at_the_same_time_store_it_once() -> None:
    made = fabric()
    batch = [document(f"d{n}", sentence(n), sentence(n + 10)) for n in range(4)]
    reports: list[Any] = []

    def write() -> None:
        reports.append(made.bind(ACME).ingest(batch))

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(len(report.facts) for report in reports) == [0, 0, 8]
    assert made.bind(ACME).size() == 8
    assert journal.verify_journal(events(made), journal_key(KEYS, "acme")) == 5


def test_labels_given_by_a_faster_writer_are_not_undone() -> None:
    store = MemoryStore()
    faster = fabric(store).bind(ACME)

    class Overtaken(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            faster.ingest([document("a", sentence(1))], labels=["secret"])
            return super().embed_passages(texts)

    slower = fabric(store, embedder=Overtaken()).bind(ACME)
    slower.ingest([document("a", sentence(1), sentence(2))])
    assert {fact.labels for fact in all_facts(slower)} == {("secret",)}
    assert slower.size() == 2


def test_a_source_that_never_stands_still_is_given_up() -> None:
    store = MemoryStore()
    other = fabric(store).bind(ACME)

    class Racing(HashEmbedder):
        rounds = 0

        def embed_passages(self, texts: Any) -> Any:
            self.rounds += 1
            other.ingest([document("a", sentence(100 + self.rounds))])
            return super().embed_passages(texts)

    racing = Racing()
    with pytest.raises(StoreBusy, match="nothing was written"):
        fabric(store, embedder=racing).bind(ACME).ingest([document("a", sentence(1))])
    assert racing.rounds == 3
    assert sentence(1) not in contents(other)
