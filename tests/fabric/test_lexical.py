"""A word index in memory: what changed is read, what is gone is gone, the guard decides as ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from crp_integrations.errors import EngineError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ports import LexicalEngine, LexicalIndex, Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.subjects import Subject
from crp_integrations.language.stems import stems_of
from tests.fabric.bm25 import TextIndex
from tests.fabric.keeping import ACME, Labelled, fabric, sentence, store

__all__ = ["store"]

FROM_THE_FIRST = FabricSettings(lexical_from=0)


class Held:
    """The memory store's scores over a dictionary of texts, and a log of what was read."""

    def __init__(self, texts: dict[str, str], log: list[tuple[str, tuple[str, ...]]]) -> None:
        self.texts = texts
        self.log = log

    def search(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        return TextIndex({id_: stems_of(text) for id_, text in self.texts.items()}).search(terms, k)

    def changed(self, removed: Sequence[str], added: Iterable[tuple[str, str]]) -> LexicalIndex:
        new = dict(added)
        self.log.append(("changed", tuple(sorted(new))))
        kept = {id_: text for id_, text in self.texts.items() if id_ not in set(removed)}
        return Held(kept | new, self.log)


class Logged:
    """An engine that tells what it was asked for."""

    name = "logged"

    def __init__(self) -> None:
        self.log: list[tuple[str, tuple[str, ...]]] = []

    def build(self, texts: Iterable[tuple[str, str]]) -> LexicalIndex:
        held = dict(texts)
        self.log.append(("built", tuple(sorted(held))))
        return Held(held, self.log)


@pytest.fixture(params=["logged", "tantivy"])
def engine(request: pytest.FixtureRequest) -> LexicalEngine:
    if request.param == "logged":
        return Logged()
    pytest.importorskip("tantivy")
    from crp_integrations.engines.tantivy import TantivyLexical

    return TantivyLexical()


def made_of(store: Store, engine: LexicalEngine, **parts: object) -> Fabric:
    return fabric(store, **{"settings": FROM_THE_FIRST, "lexical": engine, **parts})


def found(made: Fabric, query: str, k: int = 50, where: Where | None = None) -> list[str]:
    return [hit.fact_id for hit in made.bind(ACME).search_text(query, k, where)]


def test_it_finds_what_the_store_finds(store: Store, engine: LexicalEngine) -> None:
    made = made_of(store, engine)
    made.bind(ACME).add([sentence(number) for number in range(30)])
    plain = fabric(store)
    for query in ("value7", "passage units", 'value3" OR "value4', "value3 AND (", "nothing of it"):
        assert set(found(made, query)) == set(found(plain, query))
    assert len(found(made, "passage", 4)) == 4


@pytest.mark.requirement("009-2.2-9", "009-2.2-10", "009-3.3-1", "009-3.3-2", "009-8.3-2")
def test_new_facts_come_and_gone_ones_go_at_once(store: Store, engine: LexicalEngine) -> None:
    made = made_of(store, engine)
    namespace = made.bind(ACME)
    ids = namespace.add([sentence(number) for number in range(12)]).facts
    assert set(found(made, "passage")) == set(ids)
    new = namespace.add([sentence("new")]).facts[0]
    assert found(made, "new") == [new]
    namespace.forget(facts=[ids[0]])
    namespace.quarantine([ids[1]])
    namespace.archive([ids[2]])
    namespace.update(ids[3], content="Other words stand here now, ten of them or a few more.")
    assert set(found(made, "passage")) == {new, *ids[4:]}
    assert ids[3] in found(made, "other words")
    namespace.lift([ids[1]])
    namespace.restore([ids[2]])
    assert set(found(made, "passage")) == {new, ids[1], ids[2], *ids[4:]}
    namespace.erase("user")
    assert found(made, "passage") == []


def test_another_fabric_over_the_same_store_is_seen(store: Store, engine: LexicalEngine) -> None:
    made, other = made_of(store, engine), fabric(store)
    made.bind(ACME).add([sentence(1)])
    assert len(found(made, "passage")) == 1
    added = other.bind(ACME).add([sentence(2)]).facts[0]
    assert added in found(made, "passage")


def test_only_what_changed_is_read_again(store: Store) -> None:
    engine = Logged()
    made = made_of(store, engine)
    namespace = made.bind(ACME)
    ids = namespace.add([sentence(number) for number in range(40)]).facts
    found(made, "passage")
    found(made, "units")
    assert engine.log == [("built", tuple(sorted(ids)))]
    new = namespace.add([sentence("new")]).facts[0]
    namespace.forget(facts=[ids[0]])
    found(made, "passage")
    assert engine.log[1:] == [("changed", (new,))]


def test_it_is_built_anew_once_much_of_it_changed(store: Store) -> None:
    engine = Logged()
    made = made_of(store, engine)
    ids = made.bind(ACME).add([sentence(number) for number in range(20)]).facts
    found(made, "passage")
    made.bind(ACME).forget(facts=ids[:5])
    assert set(found(made, "passage")) == set(ids[5:])
    assert engine.log[1:] == [("built", tuple(sorted(ids[5:])))]


def test_an_earlier_reader_sees_its_own_state(store: Store) -> None:
    made = made_of(store, Logged())
    namespace = made.bind(ACME)
    first = namespace.add([sentence(1)]).facts[0]
    words = made.words("acme", 1)
    assert words is not None
    with store.begin("acme", write=False) as earlier:
        second = namespace.add([sentence(2)]).facts[0]
        assert set(found(made, "passage")) == {first, second}
        assert [id_ for id_, _ in words.search(earlier.facts, ["passage"], 9)] == [first]


def test_a_small_namespace_is_left_to_the_store(store: Store) -> None:
    engine = Logged()
    made = made_of(store, engine, settings=FabricSettings(lexical_from=3))
    made.bind(ACME).add([sentence(1), sentence(2)])
    assert len(found(made, "passage")) == 2
    assert engine.log == []
    made.bind(ACME).add([sentence(3)])
    assert len(found(made, "passage")) == 3
    assert [what for what, _ in engine.log] == ["built"]


def test_the_guard_and_the_filter_decide_as_ever(store: Store, engine: LexicalEngine) -> None:
    made = made_of(store, engine)
    secret = [Fact(content=sentence(n), labels=("secret",)) for n in range(6)]
    public = [Fact(content=sentence(n), metadata={"n": n}) for n in range(6, 12)]
    kept = made.bind(Subject(tenant="acme", roles=("secret",)), Labelled())
    ids = kept.add([*secret, *public]).facts
    reader = made.bind(ACME, Labelled())
    hits = [hit.fact_id for hit in reader.search_text("passage", 4)]
    assert len(hits) == 4
    assert set(hits) <= set(ids[6:])
    meant = reader.search_text("passage", 9, Where(metadata={"n": 7}))
    assert [hit.fact_id for hit in meant] == [ids[7]]


def test_after_a_failure_it_is_built_from_nothing(store: Store) -> None:
    engine = Logged()
    made = made_of(store, engine)
    made.bind(ACME).add([sentence(number) for number in range(20)])
    found(made, "passage")

    def fails(self: Held, removed: Sequence[str], added: object) -> LexicalIndex:
        raise EngineError("broken", engine="logged")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Held, "changed", fails)
        made.bind(ACME).add([sentence("new")])
        with pytest.raises(EngineError):
            found(made, "passage")
    assert len(found(made, "passage")) == 21
    assert [what for what, _ in engine.log] == ["built", "built"]


def test_regions_have_the_same_engine() -> None:
    from crp_integrations.stores.memory import MemoryStore

    engine = Logged()
    made = made_of(MemoryStore(), engine, regions={"eu": MemoryStore()})
    inside = made.bind(ACME, residency="eu")
    inside.add([sentence(1)])
    assert len(inside.search_text("passage", 5)) == 1
    assert [what for what, _ in engine.log] == ["built"]
