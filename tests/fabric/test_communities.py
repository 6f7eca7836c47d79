"""Communities: who belongs together, what they are called, when they are found anew.

Two that find communities at once: one does, the other is told and writes nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.graphs import engine_for
from crp_integrations.errors import AccessDenied, ConfigError, EngineError, StoreBusy
from crp_integrations.fabric import namespace as namespaces
from crp_integrations.fabric import nearest_neighbours
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store, work_lock
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import CommunitySettings, FabricSettings, VectorGraphSettings
from crp_integrations.guard.decisions import NAMESPACE, Decision, Subject
from crp_integrations.headers import grammar
from crp_integrations.headers import names as header_names
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, FactStatus
from tests.doubles import FixedClock, HashEmbedder, WordCounter
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import SPAWN

ACME, OTHER = Subject(tenant="acme"), Subject(tenant="other")
TOPICS = {
    "wind farm": "The wind farm off the coast feeds power into the grid through cable {n}",
    "raw milk": "Raw milk of farmer {n} ripens slowly into cheese in the damp old stone cellar",
    "night train": "The night train leaves platform {n} late and crosses the mountain border",
}


class Labelled:
    """Lets a subject see what carries no label but its roles; only writers may write."""

    name = "labelled"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = labels == NAMESPACE or set(labels) <= set(subject.roles)
        if action != "read":
            allowed = allowed and "writer" in subject.roles
        return Decision(allowed=allowed, guard=self.name, reason="by its labels")


class Interrupted:
    """An engine during whose work something else happens."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._inner = engine_for("graspologic")
        self.name = self._inner.name
        self.happens = happens
        self.given: list[dict[str, Any]] = []

    def partition(self, *graph: Any, **options: Any) -> Any:
        self.given.append(options)
        self.happens()
        return self._inner.partition(*graph, **options)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    yield made
    made.close()


def fabric(store: Store | None = None, **parts: Any) -> Fabric:
    communities = parts.pop("communities", {})
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": FixedKeyRing(b"k" * 32),
        "leiden": engine_for("graspologic"),
        "settings": FabricSettings(communities=CommunitySettings(**communities)),
    }
    return Fabric(store or MemoryStore(), **{**chosen, **parts})


def texts(topic: str, count: int, first: int = 0) -> list[str]:
    return [TOPICS[topic].format(n=number) for number in range(first, first + count)]


def filled(namespace: Namespace, count: int = 6) -> dict[str, list[str]]:
    """Adds facts of every topic and tells their ids."""
    return {topic: list(namespace.add(texts(topic, count)).facts) for topic in TOPICS}


def labels(namespace: Namespace, ids: list[str]) -> list[str | None]:
    return [fact.community_label for fact in namespace.facts(ids)]


def told(namespace: Namespace) -> list[dict[str, Any]]:
    with namespace.begin(write=False) as transaction:
        return [
            event.data
            for event in transaction.journal.events()
            if event.event_type is EventType.CKF_ETAG_CHANGED and event.data["cause"] == "recluster"
        ]


# --- what is found -------------------------------------------------------------------------


@pytest.mark.requirement("009-5.4-1", "009-5.5-3", "009-5.1-1")
def test_facts_of_a_topic_are_a_community_named_by_it(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    ids = filled(namespace)
    lonely = namespace.add(["Nobody else writes about umbrellas for penguins in this whole set"])
    report = namespace.recluster()
    found = {topic: set(labels(namespace, held)) for topic, held in ids.items()}
    assert all(len(names) == 1 for names in found.values())
    assert {topic: str(*names).lower() for topic, names in found.items()} == {
        "wind farm": "wind farm",
        "raw milk": "raw milk",
        "night train": "night train",
    }
    assert labels(namespace, list(lonely.facts)) == [None]
    assert (report.facts, report.communities, report.unclustered) == (19, 3, 1)
    assert report.relabelled == 18 and report.edges == 45 and report.modularity > 0.6
    assert report.engine.startswith("graspologic-native ")
    listed = namespace.communities()
    assert [community.size for community in listed] == [6, 6, 6]
    assert [community.label for community in listed] == sorted(str(*n) for n in found.values())
    assert all(len(community.facts) == 5 for community in listed)
    assert report.state_hash == namespace.state_hash()


@pytest.mark.requirement("009-5.4-1")
def test_a_label_is_of_the_five_most_important_facts() -> None:
    namespace = fabric(communities={"resolution": 0.01}).bind(ACME)
    plain = texts("wind farm", 12)
    heavy = [f"Harbour permit: {text}, harbour permit" for text in texts("wind farm", 5, first=50)]
    namespace.add([Fact(content=text, importance_weight=0.1) for text in plain])
    ids = namespace.add([Fact(content=text, importance_weight=0.9) for text in heavy]).facts
    namespace.recluster()
    (community,) = namespace.communities()
    assert set(community.facts) == set(ids) and community.size == 17
    # It stands in none of the twelve.
    assert community.label.lower() == "harbour permit"


@pytest.mark.requirement("009-5.2-2", "009-5.3-2", "009-5.3-1", "009-5.2-3")
def test_the_numbers_are_those_of_the_specification() -> None:
    chosen, literal = CommunitySettings(), FabricSettings.preset("literal").communities
    for found in (chosen, literal):
        assert (found.neighbours, found.resolution, found.iterations) == (20, 1.0, 10)
        assert (found.min_size, found.label_facts, found.recluster_after) == (3, 5, 50)
        assert found.recluster_days == 7
    assert literal.similarity == 0.60 and chosen.similarity is None
    assert literal.recluster_share == 0.0


def test_a_bulk_load_finds_communities_once_at_its_end(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    with namespace.loading():
        for first in (0, 60):
            namespace.add(texts("raw milk", 60, first))
            assert not namespace.communities()
    assert namespace.communities()


def test_above_the_bound_only_maintenance_finds_communities(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "INLINE_UP_TO", 100)
    namespace = fabric(store).bind(ACME)
    namespace.add(texts("raw milk", 60))
    assert namespace.communities()
    with store.begin("acme", write=False) as transaction:
        before = transaction.facts.setting("reclusterings")
    namespace.add(texts("raw milk", 60, 60))
    with namespace.loading():
        namespace.add(texts("raw milk", 60, 120))
    with store.begin("acme", write=False) as transaction:
        assert transaction.facts.setting("reclusterings") == before
    assert namespace.maintain().reclustered


class Calibrated(HashEmbedder):
    thresholds = {"neighbour": 0.9}


@pytest.mark.requirement("009-5.2-3")
def test_the_threshold_is_the_cards_unless_it_is_set() -> None:
    counted = {}
    for name, parts in {
        "none": {},
        "card": {"embedder": Calibrated()},
        "set": {"embedder": Calibrated(), "communities": {"similarity": 0.6}},
    }.items():
        namespace = fabric(**parts).bind(ACME)
        namespace.add(texts("wind farm", 4))
        namespace.add([f"{text} of many words of its own" for text in texts("wind farm", 4, 20)])
        weights = namespace.graph().weights
        counted[name] = (len(weights), float(weights.min()))
    assert counted["none"] == counted["set"] and counted["none"][1] >= 0.6
    assert counted["card"][0] < counted["none"][0] and counted["card"][1] >= 0.9


@pytest.mark.requirement("009-5.2-1")
def test_a_fact_is_linked_with_its_nearest_only() -> None:
    namespace = fabric(communities={"neighbours": 2}).bind(ACME)
    namespace.add(texts("wind farm", 9))
    graph = namespace.graph()
    listed = [graph.ids[place] for place in (*graph.left, *graph.right)]
    vectors = dict(zip(graph.ids, namespace.vectors(graph.ids), strict=True))
    pairs = {(graph.ids[i], graph.ids[j]) for i, j in zip(graph.left, graph.right, strict=True)}
    wanted = set()
    for fact_id in graph.ids:
        near = namespace.nearest(vectors[fact_id], 9)
        ranked = sorted(
            (
                -round(
                    float(vectors[hit.fact_id].astype(float) @ vectors[fact_id].astype(float)), 6
                ),
                hit.fact_id,
            )
            for hit in near
            if hit.fact_id != fact_id
        )
        wanted |= {tuple(sorted((fact_id, other))) for _, other in ranked[:2]}
    assert pairs == wanted and set(listed) == set(graph.ids)


@pytest.mark.requirement("009-5.3-3")
def test_what_is_too_small_is_dissolved(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    large = list(namespace.add(texts("wind farm", 4)).facts)
    small = list(namespace.add(texts("raw milk", 2)).facts)
    report = namespace.recluster()
    assert labels(namespace, small) == [None, None] and None not in labels(namespace, large)
    assert (report.communities, report.dissolved, report.unclustered) == (1, 1, 2)
    # A community that shrank below the least size is dissolved as well.
    namespace.forget(facts=large[:2])
    report = namespace.recluster()
    assert (report.communities, report.relabelled) == (0, 2) and namespace.communities() == []


def test_fewer_facts_than_a_community_needs_change_nothing(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    assert namespace.recluster().state_hash == namespace.state_hash()
    namespace.add(texts("wind farm", 2))
    before = namespace.state_hash()
    report = namespace.recluster()
    assert report.state_hash == before == namespace.state_hash()
    assert (report.facts, report.unclustered, report.engine) == (2, 2, "") and told(namespace) == []


@pytest.mark.requirement("009-9.1-3")
def test_tenants_have_communities_of_their_own(store: Store) -> None:
    whole = fabric(store)
    ours, theirs = whole.bind(ACME), whole.bind(OTHER)
    ours.add(texts("wind farm", 2))
    theirs.add([*texts("wind farm", 4, first=10), *texts("raw milk", 4)])
    before = ours.state_hash()
    report = theirs.recluster()
    assert report.facts == 8 and report.communities == 2
    assert ours.state_hash() == before and ours.communities() == []
    # Two of ours stay two, although theirs are near.
    ours.add(texts("raw milk", 1))
    assert ours.recluster().communities == 0
    assert len(ours.graph().ids) == 3


# --- what it changes -----------------------------------------------------------------------


@pytest.mark.requirement("009-5.5-4", "009-6.2-3")
def test_a_reclustering_changes_the_state_hash(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    filled(namespace)
    seen = [namespace.state_hash()]
    for _ in range(3):
        report = namespace.recluster()
        assert report.state_hash == namespace.state_hash() not in seen
        seen.append(report.state_hash)
    events = told(namespace)
    assert [(event["before"], event["after"]) for event in events] == [*pairwise(seen)]
    assert [event["changed"] for event in events] == [18, 0, 0]
    assert {event["communities"] for event in events} == {3}


def test_names_stay_while_communities_grow(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    ids = filled(namespace)
    namespace.recluster()
    before = {topic: labels(namespace, held)[0] for topic, held in ids.items()}
    more = {topic: list(namespace.add(texts(topic, 1, 70)).facts) for topic in TOPICS}
    report = namespace.recluster()
    assert report.warm and report.relabelled == 3
    for topic, name in before.items():
        assert labels(namespace, [*ids[topic], *more[topic]]) == [name] * 7


def test_two_communities_of_one_topic_get_two_names() -> None:
    apart = ["zebra quagga okapi {n}", "lathe chisel anvil {n}"]
    shared = "harbour permit harbour permit"
    namespace = fabric(communities={"similarity": 0.8}).bind(ACME)
    for words in apart:
        namespace.add([f"{shared} {words.format(n=n)} {words.format(n=n)} is so" for n in range(4)])
    namespace.recluster()
    found = [community.label for community in namespace.communities()]
    assert len(found) == 2 == len({grammar.slug(label) for label in found})


def test_without_an_engine_it_is_refused_and_nothing_runs_by_itself(store: Store) -> None:
    namespace = fabric(store, leiden=None).bind(ACME)
    for topic in TOPICS:
        namespace.add(texts(topic, 20))
    assert namespace.communities() == [] and told(namespace) == []
    with pytest.raises(ConfigError, match="engine"):
        namespace.recluster()
    assert not namespace.maintain().reclustered


# --- when ----------------------------------------------------------------------------------


@pytest.mark.requirement("009-5.5-1")
def test_fifty_new_facts_bring_a_reclustering(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    namespace.add(texts("wind farm", 49))
    assert told(namespace) == [] and namespace.communities() == []
    # The fiftieth since the last time, whichever batch brings it.
    report = namespace.add(texts("raw milk", 1))
    assert len(told(namespace)) == 1 and namespace.communities()
    assert report.state_hash == namespace.state_hash()
    namespace.add(texts("night train", 49))
    assert len(told(namespace)) == 1
    namespace.add(texts("night train", 50, first=100))
    assert len(told(namespace)) == 2
    # What is there already is not new.
    namespace.add(texts("night train", 50, first=100))
    assert len(told(namespace)) == 2


@pytest.mark.requirement("009-5.5-2")
def test_maintenance_reclusters_every_week(store: Store) -> None:
    clock = FixedClock()
    namespace = fabric(store, clock=clock).bind(ACME)
    filled(namespace)
    assert not namespace.maintain().reclustered
    clock.moment += timedelta(days=7, seconds=1)
    assert namespace.maintain().reclustered and len(namespace.communities()) == 3
    assert not namespace.maintain().reclustered
    clock.moment += timedelta(days=6, hours=23)
    assert not namespace.maintain().reclustered
    clock.moment += timedelta(hours=1)
    assert namespace.maintain().reclustered and len(told(namespace)) == 2


def test_labels_that_an_erasure_took_away_are_found_anew(store: Store) -> None:
    namespace = fabric(store).bind(ACME)
    filled(namespace)
    gone = namespace.add([Fact(content=texts("wind farm", 1, 90)[0], source_id="letter")])
    namespace.recluster()
    namespace.erase("letter")
    assert len(namespace.communities()) == 2 and gone.facts
    assert namespace.maintain().reclustered
    assert len(namespace.communities()) == 3


def test_an_engine_that_fails_loses_no_fact(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise EngineError("no memory left")

    engine = Interrupted(fail)
    namespace = fabric(leiden=engine).bind(ACME)
    report = namespace.add(texts("wind farm", 50))
    assert len(report.facts) == 50 and namespace.size() == 50
    assert report.state_hash == namespace.state_hash()
    assert "no memory left" in caplog.text
    engine.happens = lambda: None
    # The next batch, however small, finds it still due.
    namespace.add(texts("raw milk", 1))
    assert namespace.communities() and len(told(namespace)) == 1


# --- while others work -----------------------------------------------------------------------


def test_what_changes_meanwhile_is_respected(store: Store) -> None:
    engine = Interrupted(lambda: None)
    namespace = fabric(store, leiden=engine).bind(ACME)
    ids = filled(namespace)
    late: list[str] = []

    def meanwhile() -> None:
        engine.happens = lambda: None
        namespace.forget(facts=ids["wind farm"][:1])
        namespace.quarantine(ids["raw milk"][:4])
        late.extend(namespace.add(texts("night train", 1, first=80)).facts)

    engine.happens = meanwhile
    report = namespace.recluster()
    assert labels(namespace, ids["wind farm"][1:]).count(None) == 0
    # Two were left of one community, which is too few; what came late waits.
    assert labels(namespace, ids["raw milk"]) == [None, None]
    assert labels(namespace, late) == [None]
    assert (report.communities, report.unclustered) == (2, 3)
    sizes = Counter(fact.community_label for fact in namespace.facts(namespace.graph().ids))
    assert sorted(size for name, size in sizes.items() if name) == [5, 6]


def test_another_embedder_meanwhile_makes_the_work_void(store: Store) -> None:
    engine = Interrupted(lambda: None)
    namespace = fabric(store, leiden=engine).bind(ACME)
    filled(namespace)

    def meanwhile() -> None:
        with namespace.begin(write=True) as transaction:
            transaction.facts.set_setting("embedder", "another")

    engine.happens = meanwhile
    with pytest.raises(ConfigError, match="another"):
        namespace.recluster()
    with namespace.begin(write=False) as transaction:
        assert all(fact.community is None for fact in transaction.facts.outline())


def test_two_reclusterings_at_once_leave_one_set_of_names(store: Store) -> None:
    engine = Interrupted(lambda: None)
    namespace = fabric(store, leiden=engine).bind(ACME)
    filled(namespace)

    def meanwhile() -> None:
        engine.happens = lambda: None
        namespace.recluster()

    engine.happens = meanwhile
    with pytest.raises(StoreBusy, match="at the same time"):
        namespace.recluster()
    assert len(told(namespace)) == 1 and len(namespace.communities()) == 3
    assert namespace.recluster().relabelled == 0


def test_a_warm_start_partitions_what_changed_and_a_fresh_one_everything() -> None:
    engine = Interrupted(lambda: None)
    namespace = fabric(leiden=engine).bind(ACME)
    filled(namespace)
    assert not namespace.recluster().warm
    report = namespace.recluster()
    assert report.warm and report.searched == 0
    afresh = namespace.recluster(afresh=True)
    assert not afresh.warm and afresh.searched == afresh.facts
    first, warm, again = engine.given
    assert [given["iterations"] for given in engine.given] == [10, 10, 10]
    assert first["initial"] is None is again["initial"]
    # Nothing may move, so each community is two nodes and the edge between them.
    assert warm["initial"].tolist() == [0, 0, 1, 1, 2, 2]
    namespace.add(texts("wind farm", 2, first=100))
    report = namespace.recluster()
    assert (report.searched, report.communities) == (2, 3)
    assert 2 < len(engine.given[-1]["initial"]) < report.facts


# --- who may see it ------------------------------------------------------------------------


def test_what_a_subject_may_not_read_is_in_neither_view() -> None:
    guard, whole = Labelled(), fabric()
    writer = whole.bind(Subject(tenant="acme", roles=("hr", "writer")), guard)
    reader = whole.bind(Subject(tenant="acme", roles=()), guard)
    open_ids = writer.add(texts("wind farm", 4)).facts
    closed = [Fact(content=text, labels=("hr",)) for text in texts("wind farm", 3, first=50)]
    closed += [Fact(content=text, labels=("hr",)) for text in texts("raw milk", 4)]
    writer.add(closed)
    with pytest.raises(AccessDenied):
        reader.recluster()
    assert writer.recluster().facts == 11
    assert [community.size for community in writer.communities()] == [7, 4]
    (seen,) = reader.communities()
    assert seen.size == 4 and set(seen.facts) == set(open_ids)
    graph = reader.graph()
    assert set(graph.ids) == set(open_ids) and len(graph.left) == 6
    assert set(graph.left) | set(graph.right) == set(range(4))
    assert len(writer.graph().ids) == 11


def test_a_name_comes_from_the_facts_with_the_fewest_access_labels() -> None:
    coarse = fabric(communities={"resolution": 0.01})
    writer = coarse.bind(Subject(tenant="acme", roles=("hr", "writer")), Labelled())
    secret = [
        Fact(
            content=f"Secret takeover: {text}, secret takeover",
            labels=("hr",),
            importance_weight=1.0,
        )
        for text in texts("wind farm", 6)
    ]
    writer.add([*secret, *texts("wind farm", 3, first=40)])
    writer.recluster()
    (community,) = writer.communities()
    assert community.label == "wind farm" and community.size == 9


# --- what is kept --------------------------------------------------------------------------


def test_a_kept_file_is_as_good_as_none_when_it_is_not_what_it_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    namespace = fabric(store).bind(ACME)
    filled(namespace)
    namespace.recluster()
    cache = store.cache("acme")
    assert cache is not None
    kept = cache.load("similarity")
    assert kept is not None
    path = Path(kept.path)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", bytes(len(whole))):
        path.write_bytes(damaged)
        assert namespace.recluster().searched == 18
        path = Path(cache.load("similarity").path)  # type: ignore[union-attr]
    path.write_bytes(whole[:-1])
    assert store.check("acme")
    namespace.maintain()
    assert store.check("acme") == []
    namespace.recluster()
    # A file that is whole, and says something else than its description.
    for about in (
        {"facts": 17},
        {"facts": "many"},
        {"neighbours": 900},
        {"schema": "similarity-file/2"},
    ):
        good = cache.load("similarity")
        assert good is not None
        content = Path(good.path).read_bytes()
        cache.save(
            "similarity",
            {**good.about, **about},
            lambda place, content=content: Path(place).write_bytes(content) and None,  # type: ignore[misc]
            lambda transaction: True,
        )
        assert namespace.recluster().searched == 18
    assert namespace.recluster().searched == 0


@pytest.mark.parametrize("when", ["read", "neighbours", "leiden"])
def test_an_erasure_leaves_no_file_with_its_facts(tmp_path: Path, when: str) -> None:
    class Erasing:
        @contextmanager
        def step(self, name: str) -> Iterator[None]:
            yield
            # Before the file is written, before it would be published, and after that.
            if name == f"fabric.recluster.{when}" and armed:
                armed.clear()
                namespace.erase("letter")

    armed = [True]
    store = SqliteStore(tmp_path / "kb")
    namespace = fabric(store, tracer=Erasing()).bind(ACME)
    filled(namespace)
    letter = Fact(content=texts("wind farm", 1, 90)[0], source_id="letter")
    (gone,) = namespace.add([letter]).facts
    namespace.recluster()
    assert not armed
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(gone.encode() in path.read_bytes() for path in files if "similar" in path.name)
    # What is kept from the next time on does not hold it either.
    namespace.recluster()
    kept = [path for path in tmp_path.rglob("*similar*") if path.is_file()]
    assert kept and not any(gone.encode() in path.read_bytes() for path in kept)


def test_above_the_exact_size_nearly_the_same_edges_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearest_neighbours, "_CELL_ROWS", 4)
    monkeypatch.setattr(nearest_neighbours, "_CELLS", 3)
    base = FabricSettings()
    found = {}
    for size in (20_000, 0):
        namespace = fabric(
            settings=base.model_copy(update={"graph": VectorGraphSettings(exact_up_to=size)})
        ).bind(ACME)
        for topic in TOPICS:
            namespace.add(texts(topic, 16))
        assert namespace.recluster(afresh=True).searched == 48
        graph = namespace.graph()
        found[size] = set(zip(graph.left.tolist(), graph.right.tolist(), strict=True))
    assert len(found[20_000] & found[0]) >= 0.95 * len(found[20_000]) > 0
    assert len(found[0]) <= len(found[20_000]) * 1.05


# --- laws ----------------------------------------------------------------------------------

SENTENCES = [
    f"{topic} {TOPICS[topic].format(n=number % 7)} part {number}"
    for number in range(24)
    for topic in TOPICS
]
ODD = [
    "…—… ‘’ “” · • ° § ¶ † ‡",
    "一二三 四五六 七八九 十百千 万亿兆 甲乙丙 丁戊己",
    "1 2 3 4 5 6 7 8 9 10",
]


@pytest.mark.requirement("009-5.3-4", "009-5.3-3")
@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([*SENTENCES, *ODD]), min_size=1, max_size=40, unique=True),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_equal_content_has_equal_communities(
    listed: list[str], least: int, shuffler: random.Random
) -> None:
    def run(order: list[list[str]]) -> dict[str, str | None]:
        namespace = fabric(communities={"min_size": least, "similarity": 0.5}).bind(ACME)
        for batch in order:
            namespace.add([Fact(content=f"{text} and so on it goes here") for text in batch])
            namespace.recluster()
        namespace.recluster(afresh=True)
        facts = namespace.facts(list(namespace.graph().ids))
        assert len(facts) == len(listed)
        return {fact.fact_id: fact.community_label for fact in facts}

    found = run([listed])
    turned = list(listed)
    shuffler.shuffle(turned)
    cut = shuffler.randrange(len(turned) + 1)
    assert run([batch for batch in (turned[:cut], turned[cut:]) if batch]) == found
    sizes = Counter(label for label in found.values() if label is not None)
    assert all(size >= least for size in sizes.values())
    slugs = [grammar.slug(label) for label in sizes]
    assert len(set(slugs)) == len(slugs) or "" in slugs
    for label, slug in zip(sizes, slugs, strict=True):
        assert label.isprintable() and len(label) <= 64 and label.strip() == label != ""
        assert slug == "" or grammar.check_value(header_names.CKF_COMMUNITY, slug) == slug


@settings(max_examples=15)
@given(st.data())
def test_growth_and_loss_keep_communities_large_enough(data: st.DataObject) -> None:
    namespace = fabric().bind(ACME)
    alive: list[str] = []
    left = list(SENTENCES)
    for _ in range(data.draw(st.integers(1, 4))):
        batch = [left.pop() for _ in range(min(len(left), data.draw(st.integers(0, 15))))]
        if batch:
            alive += namespace.add(batch).facts
        if alive and data.draw(st.booleans()):
            gone = data.draw(st.lists(st.sampled_from(alive), unique=True, max_size=6))
            if gone:
                namespace.forget(facts=gone)
            alive = [fact_id for fact_id in alive if fact_id not in gone]
        namespace.recluster()
        facts = namespace.facts(alive)
        assert all(fact.status is FactStatus.ACTIVE for fact in facts)
        sizes = Counter(f.community_label for f in facts if f.community_label is not None)
        assert all(size >= 3 for size in sizes.values())
        assert {c.label: c.size for c in namespace.communities()} == sizes
        graph = namespace.graph()
        assert graph.ids == tuple(sorted(alive))
        assert np.all(graph.left < graph.right) and np.all(graph.weights >= 0.6)


def test_an_erasure_meanwhile_is_no_other_reclustering(store: Store) -> None:
    other = fabric(store).bind(ACME)
    held = filled(other)
    engine = Interrupted(lambda: other.forget(facts=held["raw milk"][:1]))
    assert fabric(store, leiden=engine).bind(ACME).recluster().communities == 3


def test_of_two_processes_one_finds_the_communities(postgres_address: str) -> None:  # noqa: F811
    with_lock = PostgresStore(postgres_address)
    namespace = fabric(with_lock).bind(ACME)
    filled(namespace)
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=recluster_slowly, args=(postgres_address, theirs))
    process.start()
    assert ours.recv() == "computing"
    with pytest.raises(StoreBusy, match="being found"):
        namespace.recluster()
    assert told(namespace) == []
    ours.send("go on")
    assert ours.recv() == 3
    process.join()
    # The lock went with who had it.
    assert namespace.recluster().communities == 3
    with_lock.close()


def test_a_lock_goes_with_a_process_that_is_killed(postgres_address: str) -> None:  # noqa: F811
    with_lock = PostgresStore(postgres_address)
    namespace = fabric(with_lock).bind(ACME)
    filled(namespace)
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=recluster_slowly, args=(postgres_address, theirs))
    process.start()
    assert ours.recv() == "computing"
    with work_lock(with_lock, "acme", "recluster") as free:
        assert not free
    with work_lock(with_lock, "other", "recluster") as free:
        assert free
    process.kill()
    process.join()
    while True:
        # The server notices that the connection is gone.
        with work_lock(with_lock, "acme", "recluster") as free:
            if free:
                break
    assert namespace.recluster().communities == 3
    with_lock.close()


@pytest.mark.parametrize("database", [False, True])
def test_a_process_killed_in_the_middle_leaves_the_communities_as_they_were(
    request: pytest.FixtureRequest, tmp_path: Path, database: bool
) -> None:
    place = request.getfixturevalue("postgres_address") if database else str(tmp_path)
    store: Any = PostgresStore(place) if database else SqliteStore(place)
    namespace = fabric(store).bind(ACME)
    filled(namespace)
    namespace.recluster()
    namespace.add(texts("raw milk", 6, first=20))
    before, state = namespace.communities(), namespace.state_hash()
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=recluster_slowly, args=(place, theirs))
    process.start()
    assert ours.recv() == "computing"
    process.kill()
    process.join()
    assert (namespace.communities(), namespace.state_hash()) == (before, state)
    assert not namespace.doctor().findings
    store.close()


def recluster_slowly(address: str, wire: Connection) -> None:
    def happens() -> None:
        wire.send("computing")
        wire.recv()

    kept = PostgresStore(address) if "://" in address else SqliteStore(address)
    engine = Interrupted(happens)
    wire.send(fabric(kept, leiden=engine).bind(ACME).recluster().communities)
    kept.close()
