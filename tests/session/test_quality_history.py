"""What a session was like: its tiers, whether they fall, and which facts a window has seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.envelope.continuation import EARLIER, deferred_ids, evolve, seen_hashes
from crp_integrations.envelope.records import EarlierWindow, SeenFact
from crp_integrations.errors import RequestError, UnknownContinuation
from crp_integrations.seals import sha256
from crp_integrations.session import window_graph
from crp_integrations.vocabulary import QualityTier
from tests.envelope.builders import SETTINGS, LetterCounter, candidates
from tests.session.window_nodes import DIAMOND, chain

S, A, B, C, D = QualityTier


def prior(window_id: str, number: int, *shown: str, left: tuple[str, ...] = ()) -> EarlierWindow:
    return EarlierWindow(
        window_number=number,
        etag=sha256("e"),
        facts_seen=tuple(SeenFact(fact_id=one, content_hash=sha256(one)) for one in shown),
        deferred=left,
        window_id=window_id,
        quality_tier=A,
    )


def test_a_sessions_tiers_one_for_each_window_with_an_envelope() -> None:
    assert window_graph.quality_tiers(chain(A, A, B)) == (A, A, B)
    assert window_graph.quality_tiers(chain(A, None, B)) == (A, B)


@pytest.mark.requirement("003-14.3-2")
@pytest.mark.parametrize("falls", [(A, B, C), (S, A, B, C), (A, A, B, C), (B, C, D), (D, S, A, D)])
def test_falling_tiers_recommend_to_aggregate(falls: tuple[QualityTier, ...]) -> None:
    found = window_graph.find_degradation(falls, SETTINGS)
    assert found == {
        "warning": "quality falls from window to window; the domain may lack depth",
        "recommended": "dispatch_hierarchical",
        "tiers": [tier.value for tier in falls[-3:]],
    }


@pytest.mark.parametrize("holds", [(), (A,), (A, B), (A, A, B), (A, B, B), (C, B, A), (A, B, C, C)])
def test_tiers_that_hold_recommend_nothing(holds: tuple[QualityTier, ...]) -> None:
    assert window_graph.find_degradation(holds, SETTINGS) == {}


@given(st.lists(st.sampled_from(QualityTier), max_size=8))
def test_only_three_falls_in_a_row_count(tiers: list[QualityTier]) -> None:
    last = [tier.place for tier in tiers[-3:]]
    falls = len(last) == 3 and last[0] < last[1] < last[2]
    assert bool(window_graph.find_degradation(tiers, SETTINGS)) is falls


def test_a_window_has_seen_what_those_before_it_were_shown() -> None:
    assert window_graph.seen_windows(DIAMOND, ["d"]) == ("root", "a", "d")
    assert window_graph.seen_windows(DIAMOND, ["b"]) == ("root", "b")
    assert window_graph.seen_windows(DIAMOND, ["e"]) == ("root", "a", "b", "c", "d", "e")
    assert window_graph.seen_windows(DIAMOND, []) == ()
    with pytest.raises(UnknownContinuation):
        window_graph.seen_windows(DIAMOND, ["z"])


def test_a_fan_in_has_seen_the_facts_of_every_branch() -> None:
    kept = {
        "root": prior("root", 1, "f1", left=("f2", "f3", "f4")),
        "b": prior("b", 2, "f2"),
        "c": prior("c", 2, "f3", left=("f5",)),
    }
    told = {"c": kept["c"].changed(summary="So it is.")}
    windows = {**kept, **told}
    found = [windows[id_] for id_ in window_graph.seen_windows(DIAMOND, ["b", "c"])]
    assert [one.window_id for one in found] == ["root", "b", "c"]
    assert set(seen_hashes(found)) == {"f1", "f2", "f3"}
    assert deferred_ids(found) == ("f4", "f5")
    made = evolve(candidates(), found, counter=LetterCounter(), settings=SETTINGS)
    assert [one.content for one in made.facts] == [EARLIER + "So it is."]


def test_siblings_with_one_summary_give_one_fact() -> None:
    same = [prior(id_, 2).changed(summary="Same.") for id_ in "bc"]
    made = evolve(candidates(), same, counter=LetterCounter(), settings=SETTINGS)
    assert [one.content for one in made.facts] == [EARLIER + "Same."]


def test_a_window_that_is_there_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="told apart by their window_id"):
        seen_hashes([prior("b", 2), prior("b", 2)])
