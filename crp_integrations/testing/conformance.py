"""The conformance suite of stores.

class TestMine(PersistentStoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        return MyStore(tmp_path)

    def opener(self, store):
        return partial(MyStore, store.path)

Override the hooks of `StoreAccess` that your store has: the bytes that it keeps, and logins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import AccessDenied, StoreError
from crp_integrations.fabric.ports import LogMark, Store, Transaction
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.ports.store import fault_counts_of, jobs_of
from crp_integrations.fabric.records import Edge, Where
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.conformance_edits import EditsConformance
from crp_integrations.testing.conformance_equality import EqualityConformance
from crp_integrations.testing.conformance_erasure import ErasureConformance
from crp_integrations.testing.conformance_facts import FactsConformance, FaultedConformance
from crp_integrations.testing.conformance_journal import JournalConformance, ReceiptsConformance
from crp_integrations.testing.conformance_processes import (
    ConcurrencyConformance,
    CrashConformance,
    JobsConformance,
)
from crp_integrations.testing.conformance_search import SearchConformance
from crp_integrations.testing.conformance_sessions import SessionsConformance, WithdrawalConformance
from crp_integrations.testing.conformance_transactions import (
    TransactionsConformance,
    UpkeepConformance,
)
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    NOON,
    OTHER,
    StoreAccess,
    fact,
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
SHARED = "shared:law"
EVERY = Where(statuses=tuple(FactStatus))
BATCH = "a batch"
Attempt = Callable[[Transaction], Any]


def fill_namespace(store: Store, namespace: str) -> list[str]:
    """Put something into every facet of a namespace; the ids of its facts."""
    made = [
        fact(f"{SECRET} {number} of {namespace}", namespace=namespace, source_id="doc")
        for number in range(3)
    ]
    ids = [one.fact_id for one in made]
    with store.begin(namespace) as transaction:
        facts, sessions = transaction.facts, sessions_of(transaction)
        facts.add(made, rows(made))
        facts.add_source(source(f"{SECRET}.md"))
        facts.set_setting("embedder", SECRET)
        facts.save_token_counts("words", dict.fromkeys(ids, 7))
        facts.add_edges([Edge(source_fact=ids[0], target_fact=ids[1], kind="x")])
        facts.set_communities({ids[0]: SECRET})
        facts.prepare("e", [one.content_hash for one in made], rows(made))
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
    jobs = jobs_of(store)
    if jobs is not None:
        jobs.put(namespace, BATCH, ["job"])
    return ids


def read_attempts(ids: Sequence[str], vector: Any) -> dict[str, Attempt]:
    """Every way of reading, with what another namespace knows; each finds nothing."""

    def near(transaction: Transaction) -> list[str]:
        searching = vector_search_of(transaction.facts)
        if searching is None:
            return []
        return [id_ for id_ in searching.nearest(vector, 9, among=ids)[0] if id_ in ids]

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
        "faults": lambda tx: [*faults(tx, ids)],
    }


def faults(transaction: Transaction, ids: Sequence[str]) -> Iterator[str]:
    """Facts against which a finding was counted, where the store counts any."""
    faulted = fault_counts_of(transaction)
    if faulted is not None:
        yield from faulted.due(0, 0.0)


def write_attempts(ids: Sequence[str]) -> dict[str, Attempt]:
    """Every way of writing at another namespace's ids; refused, or without an effect there."""
    changed = [fact("overwritten", fact_id=id_, namespace=OTHER) for id_ in ids]
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
        "prepared": lambda tx: tx.facts.clear_prepared(),
        "log": lambda tx: tx.facts.trim_changes(0),
        "setting": lambda tx: tx.facts.remove_setting("embedder"),
        "withdraw": lambda tx: sessions_of(tx).withdraw(ids, NOON, source_id="doc"),
        "forget": lambda tx: sessions_of(tx).forget("s"),
        "foreign": lambda tx: tx.facts.add([fact("x", namespace=NAMESPACE)], rows([fact("x")])),
    }


def snapshot(store: Store, namespace: str, ids: Sequence[str]) -> dict[str, Any]:
    """What a namespace shows to itself through every way of reading."""
    vector = rows([fact(SECRET)])[0]
    with store.begin(namespace, write=False) as transaction:
        seen = {name: look(transaction) for name, look in read_attempts(ids, vector).items()}
        seen["vectors"] = transaction.facts.vectors(ids).tolist()
    jobs = jobs_of(store)
    seen["jobs"] = None if jobs is None else jobs.results(namespace, BATCH)
    return seen


def write_at(store: Store, namespace: str, name: str, blow: Attempt) -> None:
    """Try a way of writing in a namespace, and a setting, since some do nothing with these ids."""
    with store.begin(namespace) as transaction:
        blow(transaction)
        transaction.facts.set_setting(name, "mine")


@contextmanager
def opened_login(made: Store) -> Iterator[Store]:
    """A login's store for the length of a block."""
    try:
        yield made
    finally:
        made.close()


class IsolationConformance(StoreAccess):
    """No id, name or word of one namespace opens anything of it to another."""

    def test_no_way_of_reading_shows_another_namespace(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        with store.begin(OTHER) as transaction:
            transaction.facts.set_setting("mine", "yes")
        own = snapshot(store, NAMESPACE, ids)
        # Each way does show something to whom it belongs; not every store counts or searches.
        silent = {name for name, found in own.items() if not found}
        assert silent <= {"near", "faults", "jobs", "unprepared", "changes"}
        vector = rows([fact(SECRET)])[0]
        with store.begin(OTHER, write=False) as transaction:
            for name, look in read_attempts(ids, vector).items():
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
        for name, blow in write_attempts(ids).items():
            with suppress(StoreError), store.begin(OTHER) as transaction:
                blow(transaction)
            assert snapshot(store, NAMESPACE, ids) == before, name
        for upkeep in (store.scrub, store.compact):
            upkeep(OTHER)
        jobs = jobs_of(store)
        if jobs is not None:
            assert jobs.forget(OTHER, BATCH) == 0
        assert snapshot(store, NAMESPACE, ids) == before
        assert store.check(NAMESPACE) == store.check(OTHER) == []

    def test_a_login_has_the_whole_of_its_own(self, store: Store) -> None:
        ids = fill_namespace(store, OTHER)
        fill_namespace(store, SHARED)
        with opened_login(self.login(store, OTHER, reads=[SHARED])) as own:
            assert own.namespaces() == sorted([OTHER, SHARED])
            assert snapshot(own, OTHER, ids) == snapshot(store, OTHER, ids)
            new = fact("one more", namespace=OTHER)
            with own.begin(OTHER) as transaction:
                transaction.facts.add([new], rows([new]))
                transaction.facts.remove(ids[:1])
            assert own.scrub(OTHER) is True
            own.compact(OTHER)
            assert own.check(OTHER) == []
            with own.begin(SHARED, write=False) as transaction:
                assert len(transaction.facts.search_text([SECRET], 9)) == 3
            for name, blow in write_attempts(ids).items():
                with pytest.raises((AccessDenied, StoreError)):
                    write_at(own, SHARED, name, blow)

    def test_a_login_reaches_no_other_namespace(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        fill_namespace(store, OTHER)
        before = snapshot(store, NAMESPACE, ids)
        vector = rows([fact(SECRET)])[0]
        with opened_login(self.login(store, OTHER)) as own:
            assert own.namespaces() == [OTHER]
            tries = {**read_attempts(ids, vector), **write_attempts(ids)}
            for name, attempt in tries.items():
                for write in (False, True):
                    with pytest.raises(AccessDenied), own.begin(NAMESPACE, write=write) as tx:
                        raise AssertionError(f"{name} was let in: {attempt(tx)}")
            verbs: tuple[Callable[[str], object], ...] = (own.scrub, own.compact, own.check)
            for verb in verbs:
                with pytest.raises(AccessDenied):
                    verb(NAMESPACE)
            assert own.files(NAMESPACE) == {}
            jobs = jobs_of(own)
            if jobs is not None:
                for asked in (
                    lambda: jobs.results(NAMESPACE, BATCH),
                    lambda: jobs.forget(NAMESPACE, BATCH),
                    lambda: jobs.put(NAMESPACE, BATCH, ["mine"]),
                    lambda: jobs.claim(NAMESPACE, BATCH).__enter__(),
                ):
                    with pytest.raises(AccessDenied):
                        asked()
        assert snapshot(store, NAMESPACE, ids) == before
        assert store.check(NAMESPACE) == []


class StoreConformance(
    FactsConformance,
    EditsConformance,
    SearchConformance,
    JournalConformance,
    SessionsConformance,
    WithdrawalConformance,
    ReceiptsConformance,
    FaultedConformance,
    JobsConformance,
    TransactionsConformance,
    UpkeepConformance,
    EqualityConformance,
    IsolationConformance,
    ErasureConformance,
    CrashConformance,
    ConcurrencyConformance,
):
    """Every promise of a store. Override the fixture `store`, and the hooks that your store has."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store, a new one for each test."""
        raise NotImplementedError("override the fixture `store` with one that makes your store")

    @pytest.fixture(autouse=True)
    def _closed_afterwards(self, store: Store) -> Iterator[None]:
        yield
        store.close()


class PersistentStoreConformance(StoreConformance):
    """Also the promises of a store that outlives its process. Override `opener` as well."""

    def opener(self, store: Store) -> Callable[[], Store]:
        """What opens the same place in another process; picklable, such as a `partial`."""
        raise NotImplementedError("override `opener` with one that opens the same place again")

    def reopen(self, store: Store) -> Store:
        """Another store object over the same place; the first one may be open or closed."""
        return self.opener(store)()

    def test_what_was_committed_is_there_after_closing(self, store: Store) -> None:
        """Nothing acknowledged is lost."""
        kept = fact("the tier falls when a critical fact is dropped", metadata={"page": [1, None]})
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([kept], rows([kept]))
            transaction.facts.add_source(source("a.md"))
            transaction.facts.set_setting("embedder", "e/1")
            transaction.facts.save_token_counts("words", {kept.fact_id: 9})
            transaction.journal.seal(seal("s", 1))
            generation = transaction.facts.generation()
        store.close()
        again = self.reopen(store)
        with again.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([kept.fact_id]) == [kept]
            assert (transaction.facts.vectors([kept.fact_id]) == rows([kept])).all()
            assert [s.uri for s in transaction.facts.sources()] == ["a.md"]
            assert transaction.facts.setting("embedder") == "e/1"
            assert transaction.facts.token_counts("words", [kept.fact_id]) == {kept.fact_id: 9}
            assert transaction.facts.search_text(["critical"], 5)[0][0] == kept.fact_id
            assert transaction.journal.seals("s") == [seal("s", 1)]
            assert transaction.facts.generation() == generation
        again.close()

    def test_two_open_stores_see_each_other(self, store: Store) -> None:
        """What one commits, the other one reads in its next transaction."""
        other = self.reopen(store)
        first, second = fact("first"), fact("second")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([first], rows([first]))
        with other.begin(NAMESPACE) as transaction:
            assert transaction.facts.get([first.fact_id]) == [first]
            transaction.facts.add([second], rows([second]))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([second.fact_id]) == [second]
            assert transaction.facts.generation() == 2
        other.close()
