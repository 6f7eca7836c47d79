"""The file of the rows under a graph: mapped instead of read, and only while it fits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search.neighbour_graph import ROWS_FILE, rows_digest
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import to_bytes
from tests.fabric.lifecycle_fixtures import ACME, fabric, sentence
from tests.fabric.test_namespace_state import Spy, fresh, live, look, write
from tests.fabric.vector_facts import NAME, fact, numbered, put, vectors

COUNT = 150


@pytest.fixture
def store(tmp_path: Path, spy: Spy) -> Iterator[SqliteStore]:
    """A namespace with a graph that was kept, and its rows."""
    made = SqliteStore(tmp_path / "kb")
    put(made, numbered(COUNT), vectors(COUNT))
    assert live(made, spy).settle()
    yield made
    made.close()


def opened(store: SqliteStore, spy: Spy) -> VectorIndex:
    """What another process has."""
    index = look(store, live(store, spy)).index
    assert index.graph is not None
    return index


def is_mapped(index: VectorIndex) -> bool:
    return not index.base.flags.writeable


def as_stored(store: SqliteStore, index: VectorIndex) -> None:
    for query in vectors(10, seed=5):
        assert index.nearest(query, 20) == fresh(store).nearest(query, 20)
    assert index.all_rows()[0] == fresh(store).ids
    np.testing.assert_array_equal(index.all_rows()[1], fresh(store).all_rows()[1])


def rewritten(store: SqliteStore, content: bytes, **about: Any) -> None:
    """Another file under a manifest in which everything fits."""
    cached = store.cache(NAME).load(ROWS_FILE)
    said = {**cached.about, **about}
    store.cache(NAME).save(
        ROWS_FILE, said, lambda path: Path(path).write_bytes(content) and None, lambda now: True
    )


def test_another_process_maps_the_rows_and_asks_the_store_for_none(
    store: SqliteStore, spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crp_integrations.stores.relational.fact_queries import FactVectors

    read: list[int] = []
    vectors_of = FactVectors.vectors

    def counted(self: Any, ids: Any, **more: Any) -> Any:
        read.append(len(ids))
        return vectors_of(self, ids, **more)

    monkeypatch.setattr(FactVectors, "vectors", counted)
    index = opened(store, spy)
    assert is_mapped(index)
    assert sum(read) == 0
    monkeypatch.undo()
    as_stored(store, index)


def test_what_changed_since_is_read_out_of_the_store(store: SqliteStore, spy: Spy) -> None:
    rows = vectors(20, seed=9)
    put(store, numbered(10, COUNT), rows[:10])
    write(store, lambda facts: facts.remove([fact(2).fact_id]))
    changed = fact(3, content="Another text of ten and more words for the third of all facts.")
    write(store, lambda facts: facts.replace([changed], rows[10:11]))
    index = opened(store, spy)
    assert is_mapped(index)
    assert index.worn == pytest.approx(12 / COUNT)
    as_stored(store, index)
    # The old vector again: its row is the one that the file and the graph have.
    write(store, lambda facts: facts.replace([fact(3)], vectors(COUNT)[3:4]))
    again = opened(store, spy)
    assert is_mapped(again)
    assert again.place(fact(3).fact_id) == again.base_ids.index(fact(3).fact_id)
    as_stored(store, again)


@pytest.mark.parametrize(
    "how", ["cut", "flipped bit", "removed", "other rows", "of another graph", "not so many"]
)
def test_a_file_that_does_not_fit_is_not_mapped(store: SqliteStore, spy: Spy, how: str) -> None:
    path = Path(store.cache(NAME).load(ROWS_FILE).path)
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[:-4])
    elif how == "flipped bit":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "removed":
        path.unlink()
    elif how == "other rows":
        rewritten(store, vectors(COUNT, seed=77).tobytes())
    elif how == "of another graph":
        rewritten(store, content, rows_of=rows_digest([fact(1).fact_id], [7]))
    else:
        rewritten(store, content[:-4])
    index = opened(store, spy)
    assert not is_mapped(index)
    as_stored(store, index)


def test_what_is_mapped_stays_when_the_file_goes(store: SqliteStore, spy: Spy) -> None:
    index = opened(store, spy)
    store.cache(NAME).drop()
    assert is_mapped(index)
    as_stored(store, index)


def test_the_file_of_an_erased_vector_goes(tmp_path: Path, spy: Spy) -> None:
    settings = FabricSettings(graph=VectorGraphSettings(exact_up_to=50))
    made = fabric(SqliteStore(tmp_path / "kb"), graphs=spy, settings=settings)
    namespace = made.bind(ACME)
    gone = [Fact(content=sentence(number), source_id="gone") for number in range(20)]
    namespace.add([*gone, *(sentence(number) for number in range(20, 100))])
    with made.store.begin("acme", write=False) as transaction:
        erased = transaction.facts.find(Where(sources=("gone",)))
        vector = to_bytes(transaction.facts.vectors(erased)[0])
    files = list(tmp_path.rglob(f"{ROWS_FILE}.*.bin"))
    assert len(files) == 1
    assert vector in files[0].read_bytes()
    namespace.erase("gone")
    left = list(tmp_path.rglob(f"{ROWS_FILE}.*.bin"))
    # The graph of what is left was built, with rows of its own.
    assert len(left) == 1
    assert not any(vector in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    made.store.close()


def test_rows_without_their_graph_are_not_used(store: SqliteStore, spy: Spy) -> None:
    store.cache(NAME).drop("graph")
    assert store.cache(NAME).load(ROWS_FILE) is not None
    index = look(store, live(store, spy)).index
    assert index.graph is None
    assert not is_mapped(index)
    as_stored(store, index)
