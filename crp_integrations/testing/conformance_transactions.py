"""What the transactions of every store must do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from crp_integrations.audit.journal import EventDraft, append
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.testing.records import KEY, NAMESPACE, NOON, OTHER, fact, rows, seal, source
from crp_integrations.vocabulary import EventType, FactStatus

WRITERS = 4
BATCHES = 10


def add(store: Store, *contents: str) -> list[str]:
    """Add facts in a transaction of their own; returns their ids."""
    made = [fact(content) for content in contents]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    return [one.fact_id for one in made]


def everything(transaction: Transaction) -> tuple[object, ...]:
    """What a transaction sees, for comparing."""
    ids = [id for id, _ in transaction.facts.retrievable()]
    return (
        transaction.facts.generation(),
        transaction.facts.get(ids),
        transaction.facts.vectors(ids).tolist(),
        list(transaction.facts.sources()),
        transaction.facts.search_text(["fact"], 99),
        transaction.facts.setting("embedder"),
        transaction.facts.token_counts("words", ids),
        list(transaction.journal.events()),
        transaction.journal.seals("s"),
    )


def change_and_raise(store: Store, old: str, error: BaseException) -> None:
    """Change something in every facet, then raise; `old` is a fact that is there, or empty."""
    with store.begin(NAMESPACE) as transaction:
        before = everything(transaction)
        new = fact("new fact")
        transaction.facts.add([new], rows([new]))
        if old:
            transaction.facts.set_status([old], FactStatus.DELETED, NOON)
            transaction.facts.touch([old], NOON)
            transaction.facts.save_token_counts("words", {old: 1})
        transaction.facts.add_source(source("a.md"))
        transaction.facts.set_setting("embedder", "x")
        append(transaction.journal, KEY, [EventDraft(EventType.FACT_INGESTED, {})], "2026")
        transaction.journal.seal(seal("s", 1))
        assert everything(transaction) != before
        raise error


class TransactionsConformance:
    """All or nothing, one state throughout, one namespace only."""

    def test_a_block_that_raises_leaves_nothing(self, store: Store) -> None:
        """Of no facet, and whatever was raised."""
        (old,) = add(store, "old fact")
        with store.begin(NAMESPACE, write=False) as transaction:
            before = everything(transaction)
        for error in (ValueError("stop"), StoreError("stop"), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                change_and_raise(store, old, error)
            with store.begin(NAMESPACE, write=False) as transaction:
                assert everything(transaction) == before

    def test_a_first_block_that_raises_leaves_an_empty_namespace(self, store: Store) -> None:
        """Also what the first write of all would have made."""
        with pytest.raises(ValueError, match="stop"):
            change_and_raise(store, "", ValueError("stop"))
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.retrievable() == []
        assert add(store, "new fact") == [fact("new fact").fact_id]

    def test_a_transaction_sees_its_own_changes(self, store: Store) -> None:
        """Before anybody else does."""
        with store.begin(NAMESPACE) as transaction:
            new = fact("walrus")
            transaction.facts.add([new], rows([new]))
            assert transaction.facts.get([new.fact_id]) == [new]
            assert [id for id, _ in transaction.facts.search_text(["walrus"], 5)] == [new.fact_id]
            with store.begin(NAMESPACE, write=False) as outside:
                assert outside.facts.get([new.fact_id]) == []
                assert outside.facts.search_text(["walrus"], 5) == []

    def test_a_reader_keeps_the_state_it_began_with(self, store: Store) -> None:
        """While a writer commits beside it."""
        add(store, "first fact")
        with store.begin(NAMESPACE, write=False) as reader:
            before = everything(reader)
            add(store, "second fact")
            assert everything(reader) == before
        with store.begin(NAMESPACE, write=False) as reader:
            assert len(reader.facts.retrievable()) == 2

    def test_a_reader_cannot_write(self, store: Store) -> None:
        """Every way of writing is refused."""
        (id,) = add(store, "first")
        new = fact("new")
        with store.begin(NAMESPACE, write=False) as reader:
            attempts: tuple[Callable[[], object], ...] = (
                lambda: reader.facts.add([new], rows([new])),
                lambda: reader.facts.set_status([id], FactStatus.DELETED, NOON),
                lambda: reader.facts.touch([id], NOON),
                lambda: reader.facts.add_source(source("a.md")),
                lambda: reader.facts.set_setting("embedder", "x"),
                lambda: reader.facts.save_token_counts("words", {id: 1}),
                lambda: reader.facts.add_edges([]),
                lambda: reader.facts.replace([new]),
                lambda: reader.facts.remove([id]),
                lambda: reader.facts.set_archived([id], NOON),
                lambda: reader.facts.set_communities({id: "x"}),
                lambda: reader.facts.remove_setting("embedder"),
                lambda: reader.facts.prepare("e", [new.content_hash], rows([new])),
                lambda: reader.facts.use_prepared("e"),
                lambda: reader.facts.clear_prepared(),
                lambda: reader.facts.trim_changes(1),
                lambda: reader.journal.append([]),
                lambda: reader.journal.seal(seal("s", 1)),
            )
            for attempt in attempts:
                with pytest.raises(StoreError, match="reading"):
                    attempt()

    def test_a_transaction_ends_with_its_block(self, store: Store) -> None:
        """Kept beyond it, it refuses."""
        add(store, "first")
        with store.begin(NAMESPACE) as kept:
            events = kept.journal.events()
        attempts: tuple[Callable[[], object], ...] = (
            kept.facts.retrievable,
            kept.facts.generation,
            kept.journal.tip,
            lambda: kept.facts.set_setting("a", "b"),
            lambda: kept.journal.seal(seal("s", 1)),
        )
        for attempt in attempts:
            with pytest.raises(StoreError, match="ended"):
                attempt()
        assert list(events) == []

    def test_two_writes_of_one_thread_do_not_wait_for_each_other(self, store: Store) -> None:
        """The inner one is refused, the outer one goes on."""
        first, second = fact("first"), fact("second")
        with store.begin(NAMESPACE) as outer:
            outer.facts.add([first], rows([first]))
            with pytest.raises(StoreError), store.begin(NAMESPACE):
                raise AssertionError("a second writer was let in")
            outer.facts.add([second], rows([second]))
        with store.begin(NAMESPACE, write=False) as reader:
            assert len(reader.facts.retrievable()) == 2

    def test_namespaces_do_not_see_each_other(self, store: Store) -> None:
        """Neither facts nor journal, and writers of two do not wait for each other."""
        (id,) = add(store, "secret fact")
        with store.begin(NAMESPACE) as transaction, store.begin(OTHER) as other:
            transaction.facts.set_setting("embedder", "e")
            transaction.journal.seal(seal("s", 1))
            append(transaction.journal, KEY, [EventDraft(EventType.FACT_INGESTED, {})], "2026")
            other.facts.set_setting("embedder", "f")
        with store.begin(OTHER, write=False) as other:
            assert other.facts.setting("embedder") == "f"
            assert other.facts.get([id]) == []
            assert other.facts.search_text(["secret"], 5) == []
            assert other.journal.tip() is None
            assert other.journal.seals("s") == []
            with pytest.raises(StoreError):
                other.facts.vectors([id])

    @pytest.mark.parametrize("name", ["a", "A", "a/b", "../a", "a\u0000", "ä", "a ", "n" * 300])
    def test_any_name_makes_a_namespace_of_its_own(self, store: Store, name: str) -> None:
        """No character of a name has a meaning."""
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
        """Neither for reading nor for writing."""
        for write in (True, False):
            with pytest.raises(StoreError), store.begin(name, write=write):
                raise AssertionError("a transaction was begun")

    def test_threads_lose_nothing(self, store: Store) -> None:
        """Writers take turns; readers see whole batches only."""
        odd: list[int] = []
        done = threading.Event()

        def write(writer: int) -> None:
            for batch in range(BATCHES):
                add(store, f"writer {writer} batch {batch} left", f"{writer} {batch} right")

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
        """Closing twice does nothing."""
        add(store, "first")
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"), store.begin(NAMESPACE, write=False):
            raise AssertionError("a transaction was begun")

    def test_a_store_has_a_name(self, store: Store) -> None:
        """For people."""
        assert store.name
