"""Selection along a graph: relations, names and communities, within a label filter."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.engines.graphs import NetworkxWalker
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.ports import Link, ReachedNode
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.retriever_hits import RetrieverHits
from crp_integrations.envelope.settings import EnvelopeSettings, GraphExpansionSettings
from crp_integrations.errors import AccessDenied, FactRejected
from crp_integrations.fabric.records import Edge, Fact, Where
from crp_integrations.guard.decisions import LOCAL, Decision, LabelFilter, Subject
from crp_integrations.scores import SCALE
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import DropReason
from tests.doubles import NOON, HashEmbedder, ScriptedModel, WordCounter

WALKER = NetworkxWalker()
KEY = "ab" * 32
# A chain that no word and no name leads along: only the stored relations do.
CHAIN = (
    "The kiln was fired at dawn by the night crew of the pottery.",
    "Cobalt glaze needs a slow cooling over two full days.",
    "Barges bring the clay up the canal in early spring.",
    "Locks on the waterway close whenever ice forms on them.",
)
QUESTION = "When was the kiln fired at the pottery?"
OTHERS = tuple(
    f"At the market in hamlet {n} the pottery was sold when it rained." for n in range(40)
)


def relay_of(*facts: Fact | str, **options: Any) -> Relay:
    made = Relay.open(
        MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON, models=ScriptedModel("Dawn."),
        **options,
    )  # fmt: skip
    made.fabric.add(list(facts))
    return made


def chained(labels: dict[int, tuple[str, ...]] | None = None) -> tuple[Relay, list[str]]:
    facts = [Fact(content=text, labels=(labels or {}).get(n, ())) for n, text in enumerate(CHAIN)]
    relay = relay_of(*facts, *OTHERS)
    ids = [fact.fact_id for fact in facts]
    relay.fabric.link(
        Edge(source_fact=left, target_fact=right, kind="feeds", weight=0.9)
        for left, right in pairwise(ids)
    )
    return relay, ids


def found(relay: Relay, hops: int, labels: LabelFilter | None = None, **fields: Any) -> Any:
    """Candidates of few neighbours, so that the graph has something to bring."""
    settings = EnvelopeSettings(
        k_nearest=3,
        k_lexical=3,
        graph=GraphExpansionSettings(hops=hops, seeds=1, community_hits=0, **fields),
    )
    sightings = RetrieverHits()
    candidates = gather(
        relay.fabric,
        QUESTION,
        counter=WordCounter(),
        settings=settings,
        walker=WALKER,
        labels=labels or LabelFilter(),
        sightings=sightings,
    )
    return candidates, sightings


def among(candidates: Candidates, ids: list[str]) -> list[int]:
    held = {fact.fact_id for fact in candidates.facts}
    return [n for n, id_ in enumerate(ids) if id_ in held]


@pytest.mark.requirement("SUM-pipe-2")
@pytest.mark.requirement("CARD-5")
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_relations_are_followed_k_hops(hops: int) -> None:
    relay, ids = chained()
    candidates, sightings = found(relay, hops)
    assert among(candidates, ids) == list(range(hops + 1))
    for n in range(1, hops + 1):
        fact = next(one for one in candidates.facts if one.fact_id == ids[n])
        way = next(one for one in sightings.of(fact) if one.retriever == "graph")
        assert (way.hop, way.via) == (n, ("feeds",) * n)
        assert fact.hop > 0
    assert ("graph@1" in candidates.algorithms) is (hops > 0)


@pytest.mark.requirement("SUM-select-5")
@pytest.mark.requirement("CARD-5")
@pytest.mark.requirement("SUM-store-3")
def test_a_label_filter_is_neither_shown_nor_walked_past() -> None:
    relay, ids = chained({1: ("export:restricted",)})
    candidates, _ = found(relay, 3, LabelFilter(without=("export:restricted",)))
    shown = {fact.fact_id for fact in candidates.facts if fact.refused is None}
    assert ids[0] in shown
    assert shown.isdisjoint(ids[1:])
    assert {f.refused for f in candidates.facts if f.fact_id == ids[1]} <= {DropReason.LABEL}
    # Without the filter the same walk goes on.
    assert among(found(relay, 3)[0], ids) == [0, 1, 2, 3]


@pytest.mark.requirement("SUM-select-5")
def test_the_best_k_are_those_of_the_labels_that_are_required() -> None:
    wanted = [
        Fact(
            content=f"At the pottery in the old town the kiln number {n} was fired.",
            labels=("site:east",),
        )
        for n in range(3)
    ]
    noise = [Fact(content=f"The kiln was fired at dawn at the pottery, day {n}.") for n in range(9)]
    relay = relay_of(*wanted, *noise)
    candidates, sightings = found(relay, 1, LabelFilter(require=("site:east",)))
    kept = [fact for fact in candidates.facts if fact.refused is None]
    assert {fact.fact_id for fact in kept} == {fact.fact_id for fact in wanted}
    for fact in kept:
        names = {one.retriever for one in sightings.of(fact)}
        assert {"vector", "keyword"} <= names
        assert all(one.score <= 1.0 for one in sightings.of(fact))


@pytest.mark.requirement("SUM-store-3")
def test_what_the_guard_withholds_is_not_walked_past() -> None:
    class NoSecrets:
        name = "no-secrets"

        def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
            allowed = subject.name == LOCAL.name or "secret" not in labels
            return Decision(allowed=allowed, guard=self.name, reason="labels")

    store = MemoryStore()
    facts = [
        Fact(content=text, labels=("secret",) if n == 1 else ()) for n, text in enumerate(CHAIN)
    ]
    relay = Relay.open(store, embedder=HashEmbedder(), key=KEY, clock=NOON, guard=NoSecrets())
    relay.fabric.add(facts)
    ids = [fact.fact_id for fact in facts]
    relay.fabric.link(Edge(source_fact=a, target_fact=b, kind="feeds") for a, b in pairwise(ids))
    reader = Relay.open(
        store, embedder=HashEmbedder(), key=KEY, clock=NOON, guard=NoSecrets(),
        subject=Subject(tenant=LOCAL.tenant, name="reader"),
    )  # fmt: skip
    assert reader.fabric.edges([ids[0]]) == []
    assert {e.kind for e in reader.fabric.edges([ids[2]])} == {"feeds"}
    with pytest.raises(FactRejected, match="withheld"):
        reader.fabric.link([Edge(source_fact=ids[0], target_fact=ids[1], kind="sees")])
    stranger = Relay.open(
        store, embedder=HashEmbedder(), key=KEY, clock=NOON, subject=Subject(tenant="other")
    )
    assert stranger.fabric.edges(ids) == []


def test_linking_asks_the_guard_for_writing() -> None:
    class ReadOnly:
        name = "read-only"
        shut = False

        def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
            return Decision(allowed=not (self.shut and action == "write"), guard="r", reason="r")

    guard = ReadOnly()
    relay = relay_of(CHAIN[0], CHAIN[1], guard=guard)
    ids = relay.fabric.find_own(Where())
    guard.shut = True
    with pytest.raises(AccessDenied):
        relay.fabric.link([Edge(source_fact=ids[0], target_fact=ids[1], kind="feeds")])
    assert relay.fabric.edges(ids) == []


@pytest.mark.requirement("SUM-pipe-2")
def test_names_and_communities_link_facts_too() -> None:
    facts = (
        "The kiln was fired at dawn, said Marta Quennell of the pottery.",
        "Marta Quennell was born in Zanzibar Harbour.",
        "Zanzibar Harbour has a lighthouse with green panes.",
    )
    relay = relay_of(*facts, *OTHERS)
    candidates, sightings = found(relay, 2)
    by_text = {fact.content: fact for fact in candidates.facts}
    ways = {
        text: next(one for one in sightings.of(by_text[text]) if one.retriever == "graph")
        for text in facts[1:]
    }
    assert (ways[facts[1]].hop, set(ways[facts[1]].via)) == (1, {"entity"})
    assert ways[facts[2]].hop == 2
    settings = EnvelopeSettings(k_nearest=2, k_lexical=2)
    with relay.fabric.begin(write=True) as transaction:
        everything = sorted(id_ for id_, _ in transaction.facts.retrievable())
        transaction.facts.set_communities(dict.fromkeys(everything, "one"))
    grown = settings.model_copy(
        update={"graph": GraphExpansionSettings(hops=1, names=0, community_hits=9)}
    )
    sightings = RetrieverHits()
    more = gather(
        relay.fabric, QUESTION, counter=WordCounter(), settings=grown, walker=WALKER,
        sightings=sightings,
    )  # fmt: skip
    less = gather(relay.fabric, QUESTION, counter=WordCounter(), settings=settings)
    assert len(more.facts) > len(less.facts)
    vias = [one.via for fact in more.facts for one in sightings.of(fact) if one.via]
    assert ("community", "community") in vias


def test_an_ordinary_turn_walks_by_a_setting() -> None:
    relay, ids = chained()
    assert "graph@1" not in relay.ask(QUESTION).envelope.algorithms
    settings = {"k_nearest": 3, "k_lexical": 3, "graph": {"hops": 2, "seeds": 1}}
    walking = Relay.open(
        relay._store, embedder=HashEmbedder(), key=KEY, clock=NOON, envelope=settings,
        models=ScriptedModel("At dawn."), max_windows=1,
    )  # fmt: skip
    answer = walking.ask(QUESTION)
    assert "graph@1" in answer.envelope.algorithms
    assert {fact.fact_id for fact in answer.envelope.facts} >= set(ids[:3])


# --- the walker ------------------------------------------------------------------------------


nodes = st.sampled_from([f"n{n}" for n in range(9)])
links = st.lists(
    st.builds(
        Link,
        nodes,
        nodes,
        st.sampled_from(["a", "b"]),
        st.integers(0, SCALE),
        st.sampled_from([1, 2]),
    ).filter(lambda link: link.left != link.right),
    max_size=24,
)


@pytest.mark.requirement("CARD-5")
@hypothesis_settings(max_examples=150, deadline=None)
@given(
    links,
    st.dictionaries(nodes, st.integers(0, SCALE), max_size=3),
    st.integers(0, 4),
    st.sets(nodes, max_size=3),
)
# Of two links that differ in their length alone, the shorter, whatever their order.
@example(
    [Link("n1", "n2", "a", 0, 1), Link("n2", "n0", "a", 0, 1), Link("n2", "n0", "a", 0, 2)],
    {"n0": 0},
    1,
    set(),
)
def test_ways_are_the_shortest_and_touch_nothing_barred(
    given_links: list[Link], seeds: dict[str, int], hops: int, barred: set[str]
) -> None:
    ways = WALKER.reach(given_links, seeds, hops, barred)
    assert ways == WALKER.reach(given_links[::-1], dict(reversed(seeds.items())), hops, barred)
    assert barred.isdisjoint(ways)
    assert seeds.keys().isdisjoint(ways)
    plain = networkx.Graph()
    heaviest: dict[frozenset[str], Link] = {}
    for link in sorted(
        given_links, key=lambda one: (one.weight, -one.length, one.kind, one.left, one.right)
    ):
        heaviest[frozenset((link.left, link.right))] = link
    for link in heaviest.values():
        if barred.isdisjoint((link.left, link.right)):
            plain.add_edge(link.left, link.right, length=link.length)
    begins = [seed for seed in seeds if seed in plain]
    lengths = (
        networkx.multi_source_dijkstra_path_length(plain, begins, weight="length") if begins else {}
    )
    wanted = {n: (d + 1) // 2 for n, d in lengths.items() if n not in seeds and d <= 2 * hops}
    assert {node: way.hop for node, way in ways.items()} == wanted
    assert all(way.strength <= max(seeds.values()) for way in ways.values())


def test_of_equal_ways_the_strongest_is_told() -> None:
    both = [
        Link("s", "a", "weak", SCALE // 4, 2),
        Link("a", "t", "weak", SCALE // 4, 2),
        Link("s", "b", "strong", SCALE // 2, 2),
        Link("b", "t", "strong", SCALE // 2, 2),
    ]
    ways = WALKER.reach(both, {"s": SCALE}, 2, ())
    assert ways["t"] == ReachedNode(hop=2, strength=SCALE // 4, via=("strong", "strong"))
    assert WALKER.identity == f"networkx/{networkx.__version__}"
