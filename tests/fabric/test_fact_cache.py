"""Facts kept ready for the next question: of one state alone, bounded, gone after an erasure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import FactBrief, LogMark
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.search.fact_cache import FactCache
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.language import memo
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter, erase_all

ACME = Subject(tenant="acme", name="ada")
TEXTS = [f"note {n} says that the pump of hall {n} runs on its own line" for n in range(6)]
FIRST, NEXT = (LogMark(4, "a"), 4), (LogMark(5, "b"), 5)


def brief(number: int, text: str = "a text") -> FactBrief:
    return FactBrief.of(Fact(fact_id=f"fact-{number}", content=text))


class Watched:
    """A store whose reads of facts are counted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.read: list[str] = []
        self.begun: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def begin(self, namespace: str, *, write: bool = True) -> Iterator[Any]:
        self.begun.append(write)
        with self._store.begin(namespace, write=write) as transaction:
            inner, read = transaction.facts.briefs, self.read

            def briefs(ids: Sequence[str]) -> list[FactBrief]:
                read.extend(ids)
                found: list[FactBrief] = inner(ids)
                return found

            transaction.facts.briefs = briefs
            yield transaction


def fabric(store: Any, **settings: Any) -> Fabric:
    return Fabric(
        store,
        HashEmbedder(),
        WordCounter(),
        FixedClock(),
        FixedKeyRing(b"k" * 32),
        settings=FabricSettings(**settings),
    )


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    made = Watched(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb"))
    yield made
    made.close()


def filled(store: Watched) -> tuple[Namespace, list[str]]:
    namespace = fabric(store).bind(ACME)
    return namespace, sorted(namespace.add(TEXTS).facts)


def contents(namespace: Namespace, ids: Sequence[str]) -> list[str]:
    return [one.content for one in namespace.briefs(ids)]


def test_a_fact_is_read_once_while_nothing_changes(store: Watched) -> None:
    namespace, ids = filled(store)
    again = [ids[1], ids[0], "unknown", *ids]
    first = namespace.briefs(again)
    assert first == [FactBrief.of(fact) for fact in namespace.facts(again)]
    store.read.clear()
    assert namespace.briefs(again) == first
    assert store.read == ["unknown"]


def test_another_fabric_s_write_is_seen_by_the_next_read(store: Watched) -> None:
    namespace, ids = filled(store)
    assert len(contents(namespace, ids)) == len(TEXTS)
    other = fabric(store).bind(ACME)
    changed = other.facts([ids[0]])[0].changed(importance_weight=0.9, source_location="p. 9")
    with other.begin(True) as transaction:
        # No change that the log tells of, only the generation.
        mark = transaction.facts.mark()
        transaction.facts.replace([changed])
        assert transaction.facts.mark() == mark
    now = namespace.briefs(ids)
    assert (now[0].importance_weight, now[0].source_location) == (0.9, "p. 9")
    other.forget(facts=[ids[1]])
    other.quarantine([ids[2]], reason="a test")
    gone = {ids[1], ids[2]}
    assert {one.fact_id for one in namespace.briefs(ids)} == set(ids) - gone


def test_what_the_guard_denies_is_not_given_out_of_what_another_subject_read() -> None:
    class Careful:
        name = "careful"

        def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
            allowed = subject.name == "ada" or "secret" not in labels
            return Decision(allowed=allowed, guard=self.name, reason="a test")

    made = fabric(MemoryStore())
    ada = made.bind(ACME, Careful())  # type: ignore[arg-type]
    ids = list(ada.add([Fact(content=TEXTS[0], labels=("secret",)), Fact(content=TEXTS[1])]).facts)
    assert contents(ada, ids) == TEXTS[:2]
    bob = made.bind(Subject(tenant="acme", name="bob"), Careful())  # type: ignore[arg-type]
    assert contents(bob, ids) == TEXTS[1:2]
    assert bob.token_counts("k", ids, lambda texts: [1] * len(texts)).keys() == {ids[1]}
    # Another tenant has none of them, though the ids are the same.
    assert contents(made.bind(Subject(tenant="other", name="ada")), ids) == []


def test_nothing_of_an_erased_source_stays_in_memory(store: Watched) -> None:
    namespace, ids = filled(store)
    namespace.briefs(ids)
    cache = namespace._region.fact_cache
    assert cache._bytes() > 0
    erase_all(namespace)
    assert (cache._bytes(), dict(cache._namespaces)) == (0, {})
    assert namespace.briefs(ids) == []


def test_a_reader_that_began_before_an_erasure_puts_nothing() -> None:
    cache = FactCache()
    begun = cache.begun()
    memo.forget()
    cache.put("acme", FIRST, [brief(1)], begun)
    assert cache.briefs("acme", FIRST, ["fact-1"]) == {}
    cache.put("acme", FIRST, [brief(1)], cache.begun())
    assert cache.briefs("acme", FIRST, ["fact-1"]).keys() == {"fact-1"}


def test_facts_of_another_state_are_not_returned() -> None:
    cache = FactCache()
    cache.put("acme", FIRST, [brief(1)], cache.begun())
    cache.put_tokens("acme", FIRST, "k", {"fact-1": 7, "fact-2": 8})
    assert cache.tokens("acme", FIRST, "k", ["fact-1", "fact-2"]) == {"fact-1": 7}
    for state in (NEXT, (FIRST[0], 5), (LogMark(4, "b"), 4)):
        assert cache.briefs("acme", state, ["fact-1"]) == {}
        assert cache.tokens("acme", state, "k", ["fact-1"]) == {}
    cache.put("acme", NEXT, [brief(2)], cache.begun())
    assert cache.briefs("acme", FIRST, ["fact-1"]) == {}
    assert cache.briefs("acme", NEXT, ["fact-1", "fact-2"]).keys() == {"fact-2"}


def test_the_namespace_that_was_read_longest_ago_is_dropped_first() -> None:
    cache = FactCache(5_000)
    for name in ("first", "second"):
        cache.put(name, FIRST, [brief(number) for number in range(2)], cache.begun())
    cache.put("third", FIRST, [brief(9, "x" * 2_000)], cache.begun())
    assert cache.briefs("first", FIRST, ["fact-0"]) == {}
    assert cache.briefs("third", FIRST, ["fact-9"])
    assert cache._bytes() <= 5_000
    # A namespace that does not fit by itself is not kept.
    cache.put("fourth", FIRST, [brief(9, "x" * 9_000)], cache.begun())
    assert cache._bytes() == 0


def test_all_reads_of_a_moment_see_one_state(store: Watched) -> None:
    namespace, ids = filled(store)
    vector = HashEmbedder().embed_query(TEXTS[0])
    with namespace.moment() as view:
        state = view.state_hash()
        with namespace.begin(True) as transaction:
            transaction.facts.set_status([ids[0]], FactStatus.QUARANTINED, NOON)
        assert view.state_hash() == state != namespace.state_hash()
        assert len(view.briefs(ids)) == len(view.facts(ids)) == view.size() == len(TEXTS)
        assert {hit.fact_id for hit in view.nearest(vector, 9)} == set(ids)
        assert len(view.vectors(ids)) == len(ids)
        assert view.generation() < namespace.generation()
    assert ids[0] not in {hit.fact_id for hit in namespace.nearest(vector, 9)}
    assert contents(namespace, ids[:1]) == []


def test_counts_of_a_moment_are_stored_when_it_has_ended(store: Watched) -> None:
    namespace, ids = filled(store)
    asked: list[int] = []

    def count(texts: list[str]) -> list[int]:
        asked.append(len(texts))
        return [len(text) for text in texts]

    with namespace.moment() as view:
        found = view.token_counts("k", ids, count)
    with namespace.begin(False) as transaction:
        assert dict(transaction.facts.token_counts("k", ids)) == found
    for _ in range(2):
        assert namespace.token_counts("k", ids, count) == found
    assert asked == [len(ids)]


def test_counts_of_a_moment_that_failed_are_not_stored(store: Watched) -> None:
    namespace, ids = filled(store)

    def failing() -> None:
        with namespace.moment() as view:
            view.token_counts("other", ids, lambda texts: [1] * len(texts))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    with namespace.begin(False) as transaction:
        assert not transaction.facts.token_counts("other", ids)


def test_a_warm_question_is_one_transaction_that_reads_no_fact(store: Watched) -> None:
    namespace, _ = filled(store)
    asked = {"counter": WordCounter(), "settings": EnvelopeSettings()}
    cold = gather(namespace, TEXTS[0], **asked)  # type: ignore[arg-type]
    store.read.clear()
    store.begun.clear()
    assert gather(namespace, TEXTS[0], **asked) == cold  # type: ignore[arg-type]
    assert (store.read, store.begun) == ([], [False])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE facts SET content = content || '!'",
        "UPDATE facts SET content_hash = 'sha256:0'",
        "UPDATE facts SET importance_weight = 7.0",
        "UPDATE facts SET labels = '{'",
        "UPDATE facts SET labels = '[1]'",
        "UPDATE facts SET ingested_at = 'yesterday'",
        "UPDATE facts SET ingested_at = '2026-01-01T00:00:00'",
        "UPDATE facts SET schema = 'fact/9'",
        "UPDATE facts SET content = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_row_that_is_no_fact_any_more_is_damage(tmp_path: Path, statement: str) -> None:
    with closing(SqliteStore(tmp_path / "kb")) as store:
        ids = sorted(fabric(store).bind(ACME).add(TEXTS).facts)
    (database,) = tmp_path.rglob("fabric.sqlite")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        connection.commit()
    with closing(SqliteStore(tmp_path / "kb")) as store:
        with store.begin("acme", write=False) as transaction, pytest.raises(StoreDamaged) as caught:
            transaction.facts.briefs(ids)
        assert "pump" not in str(caught.value)
