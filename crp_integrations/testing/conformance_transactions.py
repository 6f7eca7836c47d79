"""Guarantees of every store on transactions, namespaces and maintenance.

The tests use three functions: `fill_facets` writes something into every facet, `read_attempts`
lists every way to read it, and `write_attempts` every way to change it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import LogMark, Store, Transaction
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.ports.store import fault_counts_of, jobs_of
from crp_integrations.fabric.records import Edge, Where
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    NOON,
    OTHER,
    fact,
    fill,
    prior,
    receipt,
    receipts_in,
    report,
    rows,
    seal,
    session,
    source,
    window,
)
from crp_integrations.vocabulary import EventType, FactStatus

SECRET = "zqwalrus"
EVERY = Where(statuses=tuple(FactStatus))
BATCH = "a batch"
WRITERS = 4
BATCHES = 10
# Reads that may be empty, since the feature is optional or `fill_facets` writes nothing for it.
OPTIONAL = {"near", "faults", "jobs", "unprepared", "changes"}
Attempt = Callable[[Transaction], Any]


def fill_facets(transaction: Transaction, namespace: str) -> list[str]:
    """Write something into every facet; returns the ids of the facts."""
    made = [
        fact(f"{SECRET} {number} of {namespace}", namespace=namespace, source_id="doc")
        for number in range(3)
    ]
    ids = [item.fact_id for item in made]
    facts, sessions = transaction.facts, sessions_of(transaction)
    facts.add(made, rows(made))
    facts.add_source(source(f"{SECRET}.md"))
    facts.set_setting("embedder", SECRET)
    facts.save_token_counts("words", dict.fromkeys(ids, 7))
    facts.add_edges([Edge(source_fact=ids[0], target_fact=ids[1], kind="x")])
    facts.set_communities({ids[0]: SECRET})
    facts.prepare("e", [item.content_hash for item in made], rows(made))
    transaction.journal.seal(seal("s", 1))
    draft = EventDraft(EventType.FACT_INGESTED, {"source": SECRET})
    append_events(transaction.journal, KEY, [draft], "2026")
    sessions.keep(session("s"))
    sessions.add_window(
        window(1, continuation_id="c1"),
        prior=prior(1, ids[0], answer=SECRET),
        report=report(ids[0]),
    )
    receipts_in(transaction).add(receipt(1, ids[0]), {ids[0]: "doc"})
    return ids


def fill_namespace(store: Store, namespace: str) -> list[str]:
    """Write something into every facet of a namespace, and a job; returns the ids of its facts."""
    with store.begin(namespace) as transaction:
        ids = fill_facets(transaction, namespace)
    jobs = jobs_of(store)
    if jobs is not None:
        jobs.put(namespace, BATCH, ["job"])
    return ids


def read_attempts(ids: Sequence[str]) -> dict[str, Attempt]:
    """Every way to read what `fill_facets` wrote."""
    vector = rows([fact(SECRET)])[0]

    def near(transaction: Transaction) -> list[str]:
        searching = vector_search_of(transaction.facts)
        if searching is None:
            return []
        return [id_ for id_ in searching.nearest(vector, 9, among=ids)[0] if id_ in ids]

    def due(transaction: Transaction) -> list[str]:
        counts = fault_counts_of(transaction)
        return [] if counts is None else list(counts.due(0, 0.0))

    return {
        "get": lambda tx: tx.facts.get(ids),
        "briefs": lambda tx: tx.facts.briefs(ids),
        "texts": lambda tx: tx.facts.texts(ids),
        "retrievable": lambda tx: tx.facts.retrievable(ids),
        "all": lambda tx: tx.facts.retrievable(),
        "state": lambda tx: list(tx.facts.state()),
        "outline": lambda tx: list(tx.facts.outline()),
        "find": lambda tx: tx.facts.find(EVERY),
        "by source": lambda tx: tx.facts.of_source("doc"),
        "passages": lambda tx: tx.facts.passages("doc"),
        "words": lambda tx: tx.facts.search_text([SECRET], 9),
        "near": near,
        "counts": lambda tx: tx.facts.token_counts("words", ids),
        "edges": lambda tx: tx.facts.edges(ids),
        "prepared": lambda tx: tx.facts.prepared_ids("e"),
        "unprepared": lambda tx: tx.facts.unprepared("f", 9),
        "changes": lambda tx: tx.facts.changes(LogMark(0, "")),
        "sources": lambda tx: list(tx.facts.sources()),
        "setting": lambda tx: tx.facts.setting("embedder"),
        "events": lambda tx: list(tx.journal.events()),
        "tip": lambda tx: tx.journal.tip(),
        "last seal": lambda tx: tx.journal.last_seal("s"),
        "seals": lambda tx: tx.journal.seals("s") + list(tx.journal.all_seals()),
        "session": lambda tx: sessions_of(tx).session("s"),
        "sessions": lambda tx: list(sessions_of(tx).session_ids()),
        "idle": lambda tx: sessions_of(tx).idle(NOON.replace(year=2030)),
        "windows": lambda tx: sessions_of(tx).windows("s"),
        "continued": lambda tx: sessions_of(tx).continued("c1"),
        "priors": lambda tx: sessions_of(tx).priors(["w-s-1"]),
        "report": lambda tx: sessions_of(tx).report("w-s-1"),
        "receipts": lambda tx: receipts_in(tx).ids(),
        "receipt": lambda tx: receipts_in(tx).of_window("w-s-1"),
        "faults": due,
    }


def write_attempts(ids: Sequence[str], writer: str = OTHER) -> dict[str, Attempt]:
    """Every way to change facts by their ids, and other writes that a namespace may attempt."""
    changed = [fact("overwritten", fact_id=id_, namespace=writer) for id_ in ids]
    mine = [fact("x", namespace=NAMESPACE)]
    return {
        "status": lambda tx: tx.facts.set_status(ids, FactStatus.DELETED, NOON),
        "touch": lambda tx: tx.facts.touch(ids, NOON),
        "replace": lambda tx: tx.facts.replace(changed, rows(changed)),
        "remove": lambda tx: tx.facts.remove(ids),
        "archive": lambda tx: tx.facts.set_archived(ids, NOON),
        "communities": lambda tx: tx.facts.set_communities(dict.fromkeys(ids, "mine")),
        "counts": lambda tx: tx.facts.save_token_counts("words", dict.fromkeys(ids, 1)),
        "edges": lambda tx: tx.facts.add_edges(
            [Edge(source_fact=ids[0], target_fact=ids[2], kind="y")]
        ),
        "prepare": lambda tx: tx.facts.prepare("e", [mine[0].content_hash], rows(mine)),
        "use": lambda tx: tx.facts.use_prepared("e"),
        "prepared": lambda tx: tx.facts.clear_prepared(),
        "log": lambda tx: tx.facts.trim_changes(0),
        "setting": lambda tx: tx.facts.remove_setting("embedder"),
        "settings": lambda tx: tx.facts.set_setting("embedder", "mine"),
        "source": lambda tx: tx.facts.add_source(source("mine.md")),
        "seal": lambda tx: tx.journal.seal(seal("s", 9)),
        "events": lambda tx: tx.journal.append([]),
        "session": lambda tx: sessions_of(tx).keep(session("s", safety_budget=0.1)),
        "window": lambda tx: sessions_of(tx).add_window(window(2)),
        "withdraw": lambda tx: sessions_of(tx).withdraw(ids, NOON, source_id="doc"),
        "forget": lambda tx: sessions_of(tx).forget("s"),
        "foreign": lambda tx: tx.facts.add(mine, rows(mine)),
    }


def facets(transaction: Transaction, ids: Sequence[str]) -> dict[str, Any]:
    """The results of every way to read in a transaction."""
    seen = {name: look(transaction) for name, look in read_attempts(ids).items()}
    seen["vectors"] = transaction.facts.vectors(ids).tolist()
    return seen


def snapshot(store: Store, namespace: str, ids: Sequence[str]) -> dict[str, Any]:
    """The results of every way to read in a namespace, and its jobs."""
    with store.begin(namespace, write=False) as transaction:
        seen = facets(transaction, ids)
    jobs = jobs_of(store)
    seen["jobs"] = None if jobs is None else jobs.results(namespace, BATCH)
    return seen


def change_and_raise(store: Store, change: Attempt, error: BaseException) -> None:
    """Make a change and raise in the same transaction."""
    with store.begin(NAMESPACE) as transaction:
        change(transaction)
        raise error


class TransactionsConformance:
    """Transactions are atomic, isolated, and limited to one namespace."""

    def test_a_block_that_raises_leaves_nothing(self, store: Store) -> None:
        for error in (ValueError("stop"), StoreError("stop"), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                change_and_raise(store, lambda tx: fill_facets(tx, NAMESPACE), error)
            with store.begin(NAMESPACE, write=False) as transaction:
                assert transaction.facts.generation() == 0
                assert transaction.facts.retrievable() == []
                assert transaction.journal.tip() is None
        ids = fill_namespace(store, NAMESPACE)
        before = snapshot(store, NAMESPACE, ids)
        for name, change in write_attempts(ids, NAMESPACE).items():
            with pytest.raises((ValueError, StoreError)):
                change_and_raise(store, change, ValueError("stop"))
            assert snapshot(store, NAMESPACE, ids) == before, name

    def test_a_reader_keeps_the_state_it_began_with(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        with store.begin(NAMESPACE, write=False) as reader:
            before = facets(reader, ids)
            fill(store, f"a second {SECRET}")
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.set_status(ids, FactStatus.DELETED, NOON)
                assert facets(transaction, ids) != before
            assert facets(reader, ids) == before
        with store.begin(NAMESPACE, write=False) as reader:
            assert len(reader.facts.retrievable()) == 1

    def test_a_reader_cannot_write(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        with store.begin(NAMESPACE, write=False) as reader:
            for attempt in write_attempts(ids, NAMESPACE).values():
                with pytest.raises(StoreError, match="reading"):
                    attempt(reader)

    def test_a_transaction_ends_with_its_block(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        with store.begin(NAMESPACE) as ended:
            pass
        reads, writes = read_attempts(ids), write_attempts(ids, NAMESPACE)
        for name in ("get", "retrievable", "words", "tip", "session", "windows", "receipts"):
            with pytest.raises(StoreError, match="ended"):
                reads[name](ended)
        for attempt in writes.values():
            with pytest.raises(StoreError, match="ended"):
                attempt(ended)

    def test_no_way_of_reading_shows_another_namespace(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        with store.begin(OTHER) as transaction:
            transaction.facts.set_setting("mine", "yes")
        own = snapshot(store, NAMESPACE, ids)
        # In its own namespace each way to read returns something.
        assert {name for name, shown in own.items() if not shown} <= OPTIONAL
        with store.begin(OTHER, write=False) as transaction:
            for name, look in read_attempts(ids).items():
                assert not look(transaction), name
            with pytest.raises(StoreError):
                transaction.facts.vectors(ids)
        jobs = jobs_of(store)
        if jobs is not None:
            assert jobs.results(OTHER, BATCH) == {}
            with jobs.claim(OTHER, BATCH) as claim:
                assert claim is None

    def test_no_way_of_writing_changes_another_namespace(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        before = snapshot(store, NAMESPACE, ids)
        with store.begin(OTHER) as transaction:
            transaction.facts.set_setting("mine", "yes")
        for name, attempt in write_attempts(ids).items():
            with suppress(StoreError), store.begin(OTHER) as transaction:
                attempt(transaction)
            assert snapshot(store, NAMESPACE, ids) == before, name
        for upkeep in (store.scrub, store.compact):
            upkeep(OTHER)
        jobs = jobs_of(store)
        if jobs is not None:
            assert jobs.forget(OTHER, BATCH) == 0
        assert snapshot(store, NAMESPACE, ids) == before
        assert store.check(NAMESPACE) == store.check(OTHER) == []

    @pytest.mark.parametrize("name", ["a", "A", "a/b", "../a", "a\u0000", "ä", "a ", "n" * 300])
    def test_any_name_makes_a_namespace_of_its_own(self, store: Store, name: str) -> None:
        with store.begin(name) as transaction:
            transaction.facts.set_setting("name", name)
        with store.begin(name, write=False) as transaction:
            assert transaction.facts.setting("name") == name
        for other in ("b", name + "x", name.swapcase()):
            if other != name:
                with store.begin(other, write=False) as transaction:
                    assert transaction.facts.setting("name") is None

    @pytest.mark.parametrize("name", ["", "\ud800"])
    def test_a_name_that_is_none_is_refused(self, store: Store, name: str) -> None:
        for write in (True, False):
            with pytest.raises(StoreError), store.begin(name, write=write):
                raise AssertionError("a transaction was begun")

    def test_threads_lose_nothing(self, store: Store) -> None:
        odd: list[int] = []
        done = threading.Event()

        def write(writer: int) -> None:
            for batch in range(BATCHES):
                fill(store, f"writer {writer} batch {batch} left", f"{writer} {batch} right")

        def read() -> None:
            while not done.is_set():
                with store.begin(NAMESPACE, write=False) as reader:
                    count = len(reader.facts.retrievable())
                    if count % 2 or count != 2 * reader.facts.generation():
                        odd.append(count)

        writers = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in [*writers, *readers]:
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
        with store.begin(NAMESPACE, write=False) as reader:
            assert len(reader.facts.retrievable()) == 2 * WRITERS * BATCHES
        assert odd == []

    def test_a_closed_store_refuses(self, store: Store) -> None:
        fill(store, "first")
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"), store.begin(NAMESPACE, write=False):
            raise AssertionError("a transaction was begun")
        for verb in (store.cache, store.scrub, store.compact, store.files):
            with pytest.raises(StoreError, match="closed"):
                verb(NAMESPACE)
        with pytest.raises(StoreError, match="closed"):
            store.namespaces()


class UpkeepConformance:
    """Listing namespaces, scrubbing, compacting and checking."""

    def test_namespaces_that_were_written_are_listed(self, store: Store) -> None:
        assert store.namespaces() == []
        with store.begin("only-read", write=False) as transaction:
            transaction.facts.generation()
        fill(store, "a")
        with store.begin(OTHER) as transaction:
            transaction.facts.set_setting("a", "b")
        assert store.namespaces() == sorted([NAMESPACE, OTHER])
        assert store.name

    def test_a_sound_store_has_nothing_wrong(self, store: Store) -> None:
        assert store.check(NAMESPACE) == []
        ids = fill(store, "a", "b", "c")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[:1])
            transaction.facts.set_archived(ids[1:2], None)
        assert store.check(NAMESPACE) == store.check("never-written") == []

    def test_scrubbing_and_compacting_change_nothing_that_is_stored(self, store: Store) -> None:
        ids = fill(store, *(f"fact number {n}" for n in range(50)))
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[::2])
        left = sorted(ids[1::2])
        for upkeep in (store.scrub, store.compact, store.scrub):
            upkeep(NAMESPACE)
            with store.begin(NAMESPACE, write=False) as transaction:
                assert [id for id, _ in transaction.facts.retrievable()] == left
                assert len(transaction.facts.search_text(["number"], 99)) == len(left)
                assert transaction.facts.vectors(left).shape == (len(left), 8)
        new = fill(store, "new")
        with store.begin(NAMESPACE, write=False) as transaction:
            assert len(transaction.facts.get([*left, *new])) == len(left) + 1
        assert store.check(NAMESPACE) == []
        assert store.scrub("never-written") is True
        store.compact("never-written")
        assert store.files("never-written") == {}
