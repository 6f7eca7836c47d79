"""What every store must do beyond its transactions: derived files, scrubbing, checking."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Cache, Store, Transaction
from crp_integrations.testing.records import NAMESPACE, OTHER, fill


def anyway(transaction: Transaction) -> bool:
    """Let everything be published."""
    return True


def kept(store: Store) -> Cache:
    """The store's derived files; a store without them has nothing to show here."""
    cache = store.cache(NAMESPACE)
    if cache is None:
        pytest.skip("this store keeps no files")
    return cache


def save(cache: Cache, content: bytes, name: str = "graph", **about: object) -> bool:
    """Save a derived file."""
    return cache.save(name, about, lambda path: _write(path, content), anyway)  # type: ignore[arg-type]


def _write(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)


class UpkeepConformance:
    """Names of namespaces, derived files, scrubbing, compacting and checking."""

    def test_namespaces_that_were_written_are_listed(self, store: Store) -> None:
        """By name; reading makes none."""
        assert store.namespaces() == []
        with store.begin("only-read", write=False) as transaction:
            transaction.facts.generation()
        fill(store, "a")
        with store.begin(OTHER) as transaction:
            transaction.facts.set_setting("a", "b")
        assert store.namespaces() == sorted([NAMESPACE, OTHER])

    def test_a_sound_store_has_nothing_wrong(self, store: Store) -> None:
        """Also one that nobody wrote, and one whose facts went."""
        assert store.check(NAMESPACE) == []
        ids = fill(store, "a", "b", "c")
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[:1])
            transaction.facts.set_archived(ids[1:2], None)
        assert store.check(NAMESPACE) == []
        assert store.scrub(NAMESPACE) is True
        store.compact(NAMESPACE)
        assert store.check(NAMESPACE) == []
        assert store.check("never-written") == []

    def test_scrubbing_and_compacting_change_nothing_that_is_stored(self, store: Store) -> None:
        """Whatever is done to the files."""
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
        assert store.scrub("never-written") is True
        store.compact("never-written")
        assert store.files("never-written") == {}

    def test_files_are_counted(self, store: Store) -> None:
        """Names within the namespace, bytes of each; other namespaces are not in it."""
        fill(store, "a")
        before = dict(store.files(NAMESPACE))
        cache = store.cache(NAMESPACE)
        if cache is not None:
            save(cache, bytes(5_000))
            assert sum(store.files(NAMESPACE).values()) >= sum(before.values()) + 5_000
            # What is derived lies beside something that it was made of.
            assert before
        assert all(size >= 0 for size in before.values())

    def test_a_derived_file_comes_back_as_it_was_saved(self, store: Store) -> None:
        """With what was said of it; the last one saved stands."""
        cache = kept(store)
        fill(store, "a")
        assert cache.load("graph") is None
        for content in (b"first", b"second", b"second"):
            assert save(cache, content, ids=["x", 1], note=None)
            found = cache.load("graph")
            assert found is not None
            assert Path(found.path).read_bytes() == content
            assert found.about == {"ids": ["x", 1], "note": None}
        assert cache.load("other") is None
        other = store.cache(OTHER)
        assert other is not None
        assert other.load("graph") is None

    def test_a_derived_file_is_published_only_while_it_is_valid(self, store: Store) -> None:
        """Asked in a writing transaction; a refused one leaves what was there."""
        cache = kept(store)
        (id,) = fill(store, "a")
        assert save(cache, b"old")
        asked = []

        def refused(transaction: Transaction) -> bool:
            asked.append(transaction.facts.retrievable())
            transaction.facts.set_setting("writing", "yes")
            return False

        assert not cache.save("graph", {}, lambda path: _write(path, b"new"), refused)
        assert asked == [[(id, ())]]
        found = cache.load("graph")
        assert found is not None
        assert Path(found.path).read_bytes() == b"old"

    def test_what_fails_while_writing_leaves_what_was_there(self, store: Store) -> None:
        """And no file under a temporary name."""
        cache = kept(store)
        fill(store, "a")
        assert save(cache, b"old")
        names = set(store.files(NAMESPACE))

        def fails(path: str) -> None:
            _write(path, b"half")
            raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            cache.save("graph", {}, fails, anyway)
        assert set(store.files(NAMESPACE)) == names
        assert cache.load("graph") is not None

    def test_derived_files_are_dropped(self, store: Store) -> None:
        """One or all; one that is being written is not published afterwards."""
        cache = kept(store)
        fill(store, "a")
        assert save(cache, b"a", "one")
        assert save(cache, b"b", "two")
        cache.drop("one")
        assert cache.load("one") is None
        assert cache.load("two") is not None

        def dropped(path: str) -> None:
            _write(path, b"late")
            cache.drop()

        assert not cache.save("one", {}, dropped, anyway)
        assert cache.load("one") is None
        assert cache.load("two") is None
        cache.drop()

    @pytest.mark.parametrize("name", ["", "../a", "a/b", "a.b", "A", "a" * 65, "a\0"])
    def test_a_name_that_is_no_name_is_refused(self, store: Store, name: str) -> None:
        """It would be a path."""
        cache = kept(store)
        for attempt in (
            lambda: cache.load(name),
            lambda: save(cache, b"x", name),
            lambda: cache.drop(name),
        ):
            with pytest.raises(StoreError, match="cache name"):
                attempt()

    def test_threads_save_and_load_beside_each_other(self, store: Store) -> None:
        """What is loaded was saved as a whole."""
        cache = kept(store)
        fill(store, "a")
        odd: list[object] = []

        def work(number: int) -> None:
            for turn in range(8):
                try:
                    save(cache, bytes([number]) * 10_000, turn=turn)
                    found = cache.load("graph")
                    content = None if found is None else Path(found.path).read_bytes()
                except FileNotFoundError:
                    # Replaced between loading and reading, as the port says it may be.
                    continue
                if content is not None and (len(content) != 10_000 or len(set(content)) != 1):
                    odd.append(content[:9])

        workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert odd == []
        assert cache.load("graph") is not None

    def test_a_closed_store_refuses_upkeep(self, store: Store) -> None:
        """As it refuses transactions."""
        fill(store, "a")
        store.close()
        for attempt in (
            store.namespaces,
            lambda: store.cache(NAMESPACE),
            lambda: store.scrub(NAMESPACE),
            lambda: store.compact(NAMESPACE),
            lambda: store.files(NAMESPACE),
        ):
            with pytest.raises(StoreError, match="closed"):
                attempt()
