"""The memory tiers 0 to 3: their order, what each gives, and that none gives what is forbidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.envelope.retriever_hits import (
    ACTIVE,
    COLD,
    HOT,
    WARM,
    ActiveFacts,
    ask_early_tiers,
    count_tier_hits,
    deepest_tier,
    tier_hits,
)
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.fabric.session_memory import FactUse, RecentUse
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import Subject
from crp_integrations.headers import names
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import FactStatus, QualityTier
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import SETTINGS, NoSecrets, candidates, fact, open_fabric

MINE, YOURS = "crp_sess_0000000000000001", "crp_sess_0000000000000002"
UNTIL_FULL = SETTINGS.model_copy(update={"cascade": "until_full"})
WIND = "The wind farm off the coast feeds power into the grid through one long cable"
MILK = "Raw milk of one farmer ripens slowly into cheese in the damp stone cellar"
QUESTION = WIND


def wind(count: int, source: str = "wind") -> list[Fact]:
    """Facts that all are far above the floor, none as near as another."""
    return [
        Fact(content=f"{WIND} {'more ' * n}", source_id=source, source_location=f"{n:02d}")
        for n in range(count)
    ]


def filled(*facts: Fact) -> Namespace:
    namespace = open_fabric().bind()
    namespace.add(list(facts))
    return namespace


def used(namespace: Namespace, facts: Sequence[Fact], session: str = MINE) -> None:
    namespace.shelve(session, [FactUse(f.fact_id, f.source_id, f.community_label) for f in facts])


def ask(view: FabricView, k: int, settings: Any = UNTIL_FULL, **given: Any) -> Any:
    return ask_early_tiers(view, view.embedder.embed_query(QUESTION), k, settings, **given)


def handed(*texts: str, **fields: Any) -> ActiveFacts:
    facts = tuple(Fact(content=text, source_id="window", **fields) for text in texts)
    return ActiveFacts(facts, HashEmbedder().embed_passages(list(texts)))


class Watched(FabricView):
    """A view that notes which searches are made."""

    def __init__(self, view: FabricView) -> None:
        self.__dict__.update(view.__dict__)
        self.searches: list[str] = []

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        self.searches.append("by id")
        return super().facts(ids)

    def nearest(self, vector: FloatRows, k: int, where: Where | None = None) -> list[Hit]:
        self.searches.append("everywhere" if where is None else "in subgraphs")
        return super().nearest(vector, k, where)


@pytest.mark.requirement("003-5.2-9", "003-5.2-10")
def test_the_tiers_are_asked_in_their_order_until_there_is_enough() -> None:
    facts = wind(8)
    namespace = filled(*facts)
    used(namespace, facts[:1])
    active = handed(f"{WIND} indeed")

    def asked(k: int) -> tuple[int, list[str]]:
        watched = Watched(namespace.view(MINE))
        return ask(watched, k, active=active).tier, watched.searches

    # Tier 0 is at hand and reads nothing; 1 reads by id; 2 searches in what was used lately.
    assert asked(1) == (ACTIVE, [])
    assert asked(2) == (HOT, ["by id"])
    assert asked(3) == (WARM, ["by id", "in subgraphs"])
    # Nothing of the early tiers is enough: now the whole fabric, which gather searches.
    assert asked(20) == (COLD, ["by id", "in subgraphs"])


@pytest.mark.requirement("003-5.2-10")
def test_each_tier_gives_what_it_is_named_for() -> None:
    hot, warm, cold = wind(1, "s1"), wind(2, "s2"), wind(2, "s3")
    namespace = filled(*hot, *warm, *cold)
    # The other session's fact makes its source warm; only the own session's is hot.
    used(namespace, hot)
    used(namespace, warm[:1], YOURS)
    active = handed(f"{WIND} indeed")
    early = ask(namespace.view(MINE), 50, active=active)
    given = {hit.fact_id for hit in early.hits}
    assert given == {active.facts[0].fact_id} | {f.fact_id for f in (*hot, *warm)}
    assert early.cold
    scores = [hit.score for hit in early.hits]
    assert scores == sorted(scores, reverse=True)


def test_facts_that_a_session_holds_in_memory_are_hot() -> None:
    namespace = filled(Fact(content=MILK))
    (held,) = namespace.hold(MINE, [f"{WIND} says Ada in confidence"]).facts
    early = ask(namespace.view(MINE), 1)
    assert ([hit.fact_id for hit in early.hits], early.tier) == ([held], HOT)
    assert tier_hits([fact(held), fact("x")], namespace.view(MINE)) == (0, 1, 0, 1)
    assert ask(namespace.view(YOURS), 1).hits == ()


def test_by_default_the_whole_fabric_is_always_searched_and_nothing_else() -> None:
    facts = wind(8)
    namespace = filled(*facts)
    used(namespace, facts)
    watched = Watched(namespace.view(MINE))
    early = ask(watched, 1, SETTINGS, active=handed(WIND))
    assert (early.hits, early.cold, watched.searches) == ((), True, [])


def test_what_is_below_the_floor_fills_nothing() -> None:
    far = Fact(content=f"{MILK} by the wind")
    namespace = filled(far)
    used(namespace, [far])
    assert ask(namespace.view(MINE), 1).cold

    class Calibrated(HashEmbedder):
        thresholds = {"relevance_floor": 0.05}

    lower = open_fabric(Calibrated()).bind()
    lower.add([far])
    used(lower, [far])
    # The embedder's own floor counts where its card names one.
    assert ask(lower.view(MINE), 1).tier == HOT


def test_at_most_k_come_best_first_ties_by_id() -> None:
    same = [Fact(content=WIND, source_location=str(n)) for n in range(5)]
    namespace = filled(*same)
    used(namespace, same)
    early = ask(namespace.view(MINE), 3)
    assert [hit.fact_id for hit in early.hits] == sorted(f.fact_id for f in same)[:3]


@pytest.mark.parametrize("how", ["forget", "quarantine", "erase"])
def test_what_may_not_be_read_any_more_comes_from_no_tier(how: str) -> None:
    gone, stays = wind(1, "gone"), wind(1, "stays")
    namespace = filled(*gone, *stays)
    used(namespace, [*gone, *stays])
    (id_,) = (f.fact_id for f in gone)
    if how == "forget":
        namespace.forget(facts=[id_])
    elif how == "quarantine":
        namespace.quarantine([id_], "wrong")
    else:
        namespace.erase("gone")
    early = ask(namespace.view(MINE), 50)
    assert id_ not in {hit.fact_id for hit in early.hits}
    # An erasure clears the shelves altogether.
    assert bool(early.hits) == (how != "erase")


def test_shelves_show_a_subject_nothing_that_the_guard_withholds() -> None:
    made = open_fabric()
    ann = made.bind(Subject(tenant="acme", name="ann"), NoSecrets())
    bob = made.bind(Subject(tenant="acme", name="bob"), NoSecrets())
    secret = Fact(content=WIND, source_id="s", labels=("secret",))
    ann.add([secret])
    used(ann, [secret])
    used(bob, [secret])
    assert [hit.fact_id for hit in ask(ann.view(MINE), 1).hits] == [secret.fact_id]
    assert ask(bob.view(MINE), 1).hits == ()


@pytest.mark.parametrize("status", [FactStatus.DELETED, FactStatus.QUARANTINED])
def test_an_active_fact_that_may_not_be_shown_is_left_out(status: FactStatus) -> None:
    assert ask(filled(*wind(1)).view(MINE), 1, active=handed(WIND, status=status)).cold


@pytest.mark.requirement("003-5.2-11")
def test_the_largest_tier_asked_for_any_need_is_recorded() -> None:
    facts = wind(3)
    namespace = filled(*facts, Fact(content=MILK))
    used(namespace, facts[:2])
    view = namespace.view(MINE)
    hot, warm = ask(view, 2), ask(view, 3)
    cold = ask_early_tiers(view, view.embedder.embed_query(MILK), 1, UNTIL_FULL)
    active = ask(view, 1, active=handed(WIND))
    assert [one.tier for one in (active, hot, warm, cold)] == [0, 1, 2, 3]
    assert deepest_tier(view, [active]) == 0
    assert deepest_tier(view, [active, hot]) == 1
    assert deepest_tier(view, [warm, active]) == 2
    assert deepest_tier(view, [hot, cold, warm]) == 3
    assert deepest_tier(view, []) == 3


def test_a_candidate_counts_in_the_first_tier_that_has_it() -> None:
    namespace = filled(*wind(1))
    given = [
        fact("own"), fact("hot", community="wind"), fact("warm", community="wind"), fact("cold"),
        fact("other", community="milk"),
    ]  # fmt: skip
    view = FabricView(
        namespace._own,
        embedder=namespace.embedder,
        shelf=RecentUse(frozenset({"hot", "own"}), frozenset({"wind"}), frozenset({"elsewhere"})),
    )
    assert tier_hits(given, view, active={"own"}) == (1, 1, 1, 2)
    assert tier_hits(given, namespace) == (0, 0, 0, 5)
    before = candidates(*given[1:])
    after = count_tier_hits(candidates(*given), view, before)
    assert after.tier_hits == (1, 1, 1, 2)
    assert count_tier_hits(before, view, before).tier_hits == (0, 1, 1, 2)


@given(
    shelf=st.builds(
        RecentUse,
        st.frozensets(st.sampled_from("abcdef")),
        st.frozensets(st.sampled_from(["w", "m"])),
        st.frozensets(st.just("source")),
    ),
    facts=st.lists(st.sampled_from("abcdef"), unique=True),
    active=st.frozensets(st.sampled_from("abcdef")),
)
def test_the_tiers_add_up_to_the_candidates(
    shelf: RecentUse, facts: list[str], active: frozenset[str]
) -> None:
    view = FabricView(EMPTY_NAMESPACE._own, embedder=HashEmbedder(), shelf=shelf)
    given = [fact(name, community="w" if name < "c" else None) for name in facts]
    assert sum(tier_hits(given, view, active=active)) == len(facts)


EMPTY_NAMESPACE = open_fabric().bind()


def relay(*texts: str, **options: Any) -> Relay:
    opened = Relay.open(
        MemoryStore(), embedder=HashEmbedder(), key="ab" * 32, clock=NOON, **options
    )
    opened.add(list(texts))
    return opened


TOPICS = ("wind", "milk", "tiers", "walnuts")


@pytest.mark.requirement("003-5.2-13")
def test_a_complex_question_reports_some_hundred_candidates() -> None:
    opened = relay(
        *(
            f"Note {n} says what the {topic} were like on day {n}"
            for topic in TOPICS
            for n in range(99)
        )
    )
    answer = opened.ask(
        "What were they like?", sub_queries=[f"What were the {t} like?" for t in TOPICS]
    )
    envelope = answer.envelope
    count = len(envelope.facts) + len(envelope.dropped)
    assert 100 <= count <= 500
    assert answer.headers[names.CKF_HITS] == str(count)
    assert envelope.tier_hits == (0, 0, 0, count)
    assert envelope.total_facts_available == count


@pytest.mark.requirement("003-5.2-10", "003-5.2-11")
def test_a_relay_counts_hits_by_tier() -> None:
    opened = relay(*(f"{WIND} and {n}" for n in range(4)), *(f"{MILK} and {n}" for n in range(4)))
    first = opened.ask(WIND, session_id=MINE, k=2).envelope
    assert first.tier_hits == (0, 0, 0, 8)
    second = opened.ask(WIND, session_id=MINE, k=2).envelope
    # All texts are of one source, so what this session did not show is warm.
    assert second.tier_hits == (0, 2, 6, 0)
    assert opened.ask(WIND, session_id=YOURS, k=2).envelope.tier_hits == (0, 0, 8, 0)
    assert second.memory_tier_hit == 3
    assert (second.etag, second.text) == (first.etag, first.text)


def test_an_earlier_windows_summary_is_of_tier_0_and_no_hit_of_the_fabric() -> None:
    opened = relay(*(f"{WIND} and {n}" for n in range(4)))
    prior = EarlierWindow(
        window_number=1, etag="", facts_seen=(), summary=MILK, quality_tier=QualityTier.A
    )
    answer = opened.ask(WIND, prior=(prior,))
    assert answer.envelope.tier_hits == (1, 0, 0, 4)
    assert answer.headers[names.CKF_HITS] == "4"


def test_until_full_reads_no_further_than_what_was_used_lately_fills() -> None:
    near = [f"{WIND} and {n}" for n in range(4)]
    opened = relay(*near, envelope={"cascade": "until_full", "k_nearest": 2, "k_lexical": 0})
    first = opened.ask(WIND, session_id=MINE, k=2).envelope
    # Nothing was used before, so everything is searched.
    assert (first.memory_tier_hit, first.tier_hits) == (3, (0, 0, 0, 2))
    assert "cascade@1" in first.algorithms
    nearer = f"{WIND}, as was asked"
    opened.add([nearer])
    second = opened.ask(WIND, session_id=MINE, k=2).envelope
    # The two facts of the first window fill what is wanted, and nothing further is read.
    assert (second.memory_tier_hit, second.tier_hits) == (1, (0, 2, 0, 0))
    assert {one.fact_id for one in second.facts} == {one.fact_id for one in first.facts}
    # This is what the setting says that it can miss.
    whole = opened.ask(nearer, session_id=MINE, k=1, sub_queries=[nearer, MILK]).envelope
    assert whole.memory_tier_hit == 3
    assert whole.facts[0].content == nearer
