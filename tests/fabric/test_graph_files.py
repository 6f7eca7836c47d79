"""The file of a graph: found again, and thrown away at the slightest doubt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.search.namespace_state import NamespaceState
from crp_integrations.fabric.search.neighbour_graph import GRAPH_FILE
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON
from tests.fabric.lifecycle_fixtures import ACME, fabric, sentence
from tests.fabric.test_namespace_state import Spy, fresh, ids, live, look, write
from tests.fabric.vector_facts import NAME, fact, numbered, put, vectors

COUNT = 150
OTHER = "other"


@pytest.fixture
def store(tmp_path: Path, spy: Spy) -> Iterator[SqliteStore]:
    """Two namespaces, each with a graph that was kept."""
    made = SqliteStore(tmp_path / "kb")
    for name, start in ((NAME, 0), (OTHER, 1_000)):
        put(made, numbered(COUNT, start), vectors(COUNT, seed=start), name)
        assert live(made, spy, name=name).settle()
    spy.built.clear()
    yield made
    made.close()


def files(store: SqliteStore, name: str = NAME) -> tuple[Path, Path]:
    """The graph's file and its manifest."""
    data = Path(store.cache(name).load(GRAPH_FILE).path)
    (sheet,) = data.parent.glob(f"{GRAPH_FILE}.json")
    return data, sheet


def cut(data: Path, sheet: Path) -> None:
    data.write_bytes(data.read_bytes()[:-100])


def flip(data: Path, sheet: Path) -> None:
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)


def zero(data: Path, sheet: Path) -> None:
    data.write_bytes(bytes(data.stat().st_size))


def empty(data: Path, sheet: Path) -> None:
    data.write_bytes(b"")


def remove(data: Path, sheet: Path) -> None:
    data.unlink()


def cut_manifest(data: Path, sheet: Path) -> None:
    sheet.write_bytes(sheet.read_bytes()[:-100])


def empty_manifest(data: Path, sheet: Path) -> None:
    sheet.write_bytes(b"")


def remove_manifest(data: Path, sheet: Path) -> None:
    sheet.unlink()


def told(change: Callable[[dict[str, Any]], None]) -> Callable[[Path, Path], None]:
    """Another description of the same file, under a manifest in which everything fits."""

    def damage(data: Path, sheet: Path) -> None:
        store = SqliteStore(data.parents[3])
        cached = store.cache(NAME).load(GRAPH_FILE)
        about, content = json.loads(json.dumps(dict(cached.about))), data.read_bytes()
        change(about)
        store.cache(NAME).save(
            GRAPH_FILE,
            about,
            lambda path: Path(path).write_bytes(content) and None,
            lambda now: True,
        )
        store.close()

    return damage


def flip_an_id(about: dict[str, Any]) -> None:
    about["ids"][7] = "0" + about["ids"][7][1:] if about["ids"][7][0] != "0" else "1"


def swap_ids(about: dict[str, Any]) -> None:
    # All are there and none changed, but the rows are those of others.
    about["ids"] = about["ids"][75:] + about["ids"][:75]


def drop_an_id(about: dict[str, Any]) -> None:
    del about["ids"][3], about["checksums"][3]


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "cut": cut,
    "flipped bit": flip,
    "zeroed": zero,
    "emptied": empty,
    "removed": remove,
    "manifest cut": cut_manifest,
    "manifest emptied": empty_manifest,
    "manifest removed": remove_manifest,
    "manifest says something else": lambda data, sheet: (
        sheet.write_text(sheet.read_text().replace('"dimensions":16', '"dimensions":8')) and None
    ),
    "other dimension": told(lambda about: about.update(dimensions=8)),
    "other id": told(flip_an_id),
    "ids in another order": told(swap_ids),
    "fewer ids": told(drop_an_id),
    "one id twice": told(lambda about: about["ids"].__setitem__(4, about["ids"][5])),
    "other history": told(lambda about: about.update(token="x")),
    "later state": told(lambda about: about.update(sequence=10**6)),
    "other embedder": told(lambda about: about.update(embedder="rows/2")),
    "other library": told(lambda about: about.update(engine="hnswlib/0")),
    "other m": told(lambda about: about.update(m=4)),
    "other metric": told(lambda about: about.update(metric="l2")),
    "a field too many": told(lambda about: about.update(more=1)),
    "a field of another kind": told(lambda about: about.update(ids="all")),
}


@pytest.mark.parametrize("how", sorted(DAMAGES))
def test_every_damage_is_found_and_the_graph_built_anew(
    store: SqliteStore, spy: Spy, how: str
) -> None:
    DAMAGES[how](*files(store))
    reader = live(store, spy)
    query = vectors(1, seed=3)[0]
    index = look(store, reader).index
    assert index.graph is None
    assert index.nearest(query, 20) == fresh(store).nearest(query, 20)
    # The next writer builds it, and the next process finds it.
    writer = live(store, spy)
    assert writer.settle()
    assert spy.built == [COUNT]
    again = live(store, spy)
    index = look(store, again).index
    assert index.graph is not None
    assert index.nearest(query, 20) == fresh(store).nearest(query, 20)
    assert spy.built == [COUNT]


@pytest.mark.parametrize("whole", [False, True])
def test_a_graph_of_another_namespace_is_not_taken(
    store: SqliteStore, spy: Spy, whole: bool
) -> None:
    theirs = store.cache(OTHER).load(GRAPH_FILE)
    content = Path(theirs.path).read_bytes()
    if whole:
        # With a manifest of this namespace and all hashes right: only what is said tells.
        store.cache(NAME).save(
            GRAPH_FILE,
            theirs.about,
            lambda path: Path(path).write_bytes(content) and None,
            lambda now: True,
        )
        assert store.cache(NAME).load(GRAPH_FILE) is not None
    else:
        files(store)[0].write_bytes(content)
    assert look(store, live(store, spy)).index.graph is None
    assert live(store, spy).settle()
    hits = ids(look(store, live(store, spy)).index.nearest(vectors(1)[0], 500))
    assert set(hits) == {fact(n).fact_id for n in range(COUNT)}


def test_a_graph_of_other_rows_under_a_right_description_is_not_taken(
    store: SqliteStore, spy: Spy, tmp_path: Path
) -> None:
    """As when another process replaces the file between its check and its loading."""
    other = SqliteStore(tmp_path / "other")
    put(other, numbered(COUNT), vectors(COUNT, seed=77))
    live(other, spy).settle()
    theirs = Path(other.cache(NAME).load(GRAPH_FILE).path).read_bytes()
    other.close()
    path = tmp_path / "swapped"
    path.write_bytes(theirs)
    load = spy.engine.load
    spy.engine.load = lambda _, block, settings: load(str(path), block, settings)
    assert look(store, live(store, spy)).index.graph is None


@pytest.mark.requirement("CARD-4")
def test_another_process_finds_the_graph_and_what_came_after_it(
    store: SqliteStore, spy: Spy
) -> None:
    rows = vectors(20, seed=9)
    put(store, numbered(10, COUNT), rows[:10])
    write(store, lambda facts: facts.set_status([fact(1).fact_id], FactStatus.DELETED, NOON))
    write(store, lambda facts: facts.remove([fact(2).fact_id]))
    changed = fact(3, content="Another text of ten and more words for the third of all facts.")
    write(store, lambda facts: facts.replace([changed], rows[10:11]))
    index = look(store, live(store, spy)).index
    assert index.graph is not None
    assert (spy.built, spy.loaded) == ([], 1)
    # Ten are new, two went, one has another vector.
    assert index.worn == pytest.approx(13 / COUNT)
    assert len(index) == COUNT + 8
    for query in (*rows, *vectors(20, seed=2)):
        assert index.nearest(query, 15) == fresh(store).nearest(query, 15)
    # The graph knows the third where it was, so it stands in the tail now, and nowhere else.
    assert index.place(fact(3).fact_id) >= COUNT
    assert not index.alive[index.base_ids.index(fact(3).fact_id)]
    assert index.all_rows()[0] == fresh(store).ids
    np.testing.assert_array_equal(index.all_rows()[1], fresh(store).all_rows()[1])


def test_a_fact_that_comes_back_takes_up_its_row(store: SqliteStore, spy: Spy) -> None:
    reader = live(store, spy)
    look(store, reader)
    everyone = [fact(number).fact_id for number in range(60)]
    write(store, lambda facts: facts.set_archived(everyone, NOON))
    assert look(store, reader).index.worn == pytest.approx(60 / COUNT)
    write(store, lambda facts: facts.set_archived(everyone, None))
    for kept in (reader, live(store, spy)):
        index = look(store, kept).index
        assert (index.worn, len(index)) == (0.0, COUNT)
        assert index.nearest(vectors(COUNT)[7], 20) == fresh(store).nearest(vectors(COUNT)[7], 20)


def test_a_reader_finds_a_graph_that_is_built_while_it_runs(tmp_path: Path, spy: Spy) -> None:
    store = SqliteStore(tmp_path / "one")
    put(store, numbered(COUNT), vectors(COUNT))
    reader = live(store, spy)
    for _ in range(3):
        assert look(store, reader).index.graph is None
    assert live(store, spy).settle()
    found = [look(store, reader).index.graph is not None for _ in range(6)]
    assert found[-1]
    assert spy.built == [COUNT]
    store.close()


def test_a_reader_takes_the_newer_graph_when_its_own_is_worn(store: SqliteStore, spy: Spy) -> None:
    reader = live(store, spy)
    assert look(store, reader).index.graph is not None
    put(store, numbered(60, COUNT), vectors(60, seed=4))
    assert look(store, reader).index.worn > 0.2
    assert live(store, spy).settle()
    for _ in range(5):
        index = look(store, reader).index
    assert index.worn == 0.0
    assert spy.built == [COUNT + 60]


def test_maintenance_makes_a_lost_file_anew(store: SqliteStore, spy: Spy) -> None:
    writer = live(store, spy)
    look(store, writer)
    store.cache(NAME).drop()
    assert not writer.settle()
    assert writer.settle(thorough=True)
    assert not writer.settle(thorough=True)
    assert store.cache(NAME).load(GRAPH_FILE) is not None
    # Also in a process that has read nothing, and once it has seen the file whole.
    other = live(store, spy)
    assert not other.settle()
    flip(*files(store))
    assert other.settle(thorough=True)


class Meanwhile(Spy):
    """An engine during whose work something happens."""

    def __init__(self, spy: Spy, happens: Callable[[], None]) -> None:
        super().__init__(spy.engine)
        self.happens = happens

    def build(self, block: Any, settings: VectorGraphSettings) -> Any:
        built = super().build(block, settings)
        self.happens()
        return built


@pytest.mark.parametrize("what", ["removed", "changed", "put again"])
def test_no_file_is_published_with_a_vector_that_went_meanwhile(
    tmp_path: Path, spy: Spy, what: str
) -> None:
    store = SqliteStore(tmp_path / "one")
    put(store, numbered(COUNT), vectors(COUNT))

    def happens() -> None:
        rows = vectors(1, seed=30)
        if what == "changed":
            write(
                store,
                lambda facts: facts.replace(
                    [fact(7, content="Other words, ten of them, stand in this fact now.")], rows
                ),
            )
            return
        write(store, lambda facts: facts.remove([fact(7).fact_id]))
        if what == "put again":
            put(store, [fact(7)], rows)

    writer = NamespaceState(
        lambda: store.begin(NAME, write=False),
        store.cache(NAME),
        VectorGraphSettings(exact_up_to=50),
        Meanwhile(spy, happens),
    )
    assert writer.settle()
    assert store.cache(NAME).load(GRAPH_FILE) is None
    index = look(store, writer).index
    assert index.graph is not None
    query = vectors(1, seed=2)[0]
    assert index.nearest(query, COUNT) == fresh(store).nearest(query, COUNT)
    store.close()


def test_what_is_written_while_a_graph_is_built_is_found(tmp_path: Path, spy: Spy) -> None:
    store = SqliteStore(tmp_path / "one")
    put(store, numbered(COUNT), vectors(COUNT))
    rows = vectors(5, seed=3)
    seen: list[int] = []

    def happens() -> None:
        put(store, numbered(5, COUNT), rows)
        # Readers go on meanwhile, and a second writer does not wait.
        seen.append(len(look(store, writer).index))
        assert not writer.settle()

    writer = NamespaceState(
        lambda: store.begin(NAME, write=False),
        store.cache(NAME),
        VectorGraphSettings(exact_up_to=50),
        Meanwhile(spy, happens),
    )
    assert writer.settle()
    index = look(store, writer).index
    assert (seen, len(index)) == ([COUNT + 5], COUNT + 5)
    assert index.graph is not None
    assert index.nearest(rows[0], 1)[0].fact_id == fact(COUNT).fact_id
    assert look(store, live(store, spy)).index.graph is not None
    store.close()


def test_an_erasure_leaves_the_next_process_a_graph(tmp_path: Path, spy: Spy) -> None:
    settings = FabricSettings(graph=VectorGraphSettings(exact_up_to=50))
    made = fabric(SqliteStore(tmp_path / "kb"), graphs=spy, settings=settings)
    namespace = made.bind(ACME)
    gone = [Fact(content=sentence(number), source_id="gone") for number in range(20)]
    others = namespace.add([*gone, *(sentence(number) for number in range(20, 100))]).sources[1]
    cache = made.store.cache("acme")
    assert cache is not None
    assert cache.load(GRAPH_FILE) is not None
    namespace.erase("gone")
    kept = cache.load(GRAPH_FILE)
    assert kept is not None
    assert len(kept.about["ids"]) == 80  # type: ignore[arg-type]
    # Without one it is left to the next write or to maintenance.
    namespace.erase(others, graph=False)
    assert cache.load(GRAPH_FILE) is None
    made.store.close()
