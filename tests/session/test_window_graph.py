"""The graph of windows: what is wrong with it is found, and what is sound is not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.audit.records import WindowSeal
from crp_integrations.errors import LimitReached, StoreDamaged, UnknownContinuation
from crp_integrations.seals import sha256
from crp_integrations.session import window_graph
from crp_integrations.session.records import WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.vocabulary import Pattern
from tests.session import graph_faults
from tests.session.graph_faults import GraphFaultKind
from tests.session.window_nodes import DIAMOND, merge, node, sound_graphs

SETTINGS = WindowGraphSettings()


def test_a_sound_graph_has_no_faults() -> None:
    assert not graph_faults.find_faults(DIAMOND, SETTINGS)
    assert not graph_faults.find_faults((), SETTINGS)


@given(sound_graphs())
def test_what_grows_where_there_is_room_is_sound(windows: list[WindowNode]) -> None:
    grown: list[WindowNode] = []
    for one in windows:
        window_graph.check_limits(grown, one.parents, SETTINGS)
        grown.append(one)
    assert not graph_faults.find_faults(grown, SETTINGS)


@given(sound_graphs(), st.randoms(use_true_random=False))
def test_the_order_of_windows_does_not_matter(windows: list[WindowNode], chance) -> None:
    mixed = list(windows)
    chance.shuffle(mixed)
    last = windows[-1].window_id
    assert graph_faults.find_faults(mixed, SETTINGS) == graph_faults.find_faults(windows, SETTINGS)
    assert window_graph.sort_windows(mixed) == window_graph.sort_windows(windows)
    assert window_graph.lineage(mixed, last) == window_graph.lineage(windows, last)
    assert window_graph.root_of(mixed) == window_graph.root_of(windows) == "w00"


@given(sound_graphs())
def test_a_lineage_is_a_path_of_edges_from_the_root(windows: list[WindowNode]) -> None:
    known = {one.window_id: one for one in windows}
    for one in windows:
        path = window_graph.lineage(windows, one.window_id)
        assert (path[0], path[-1]) == ("w00", one.window_id)
        for earlier, later in pairwise(path):
            assert earlier in known[later].parents


@given(sound_graphs())
def test_order_puts_each_window_after_those_that_it_follows(windows: list[WindowNode]) -> None:
    placed = {one.window_id: place for place, one in enumerate(window_graph.sort_windows(windows))}
    assert len(placed) == len(windows)
    assert all(placed[p] < placed[one.window_id] for one in windows for p in one.parents)


def test_a_window_for_which_there_is_no_room_is_refused() -> None:
    def place(*parents: str, **limits: int) -> None:
        window_graph.check_limits(DIAMOND, parents, WindowGraphSettings(**limits))

    with pytest.raises(LimitReached, match="6 windows, at most 6"):
        place("e", nodes=6)
    with pytest.raises(LimitReached, match="window 'root' is continued by 3 windows, at most 3"):
        place("root", fan_out=3)
    place("root", fan_out=4)
    place("a", fan_out=2)
    # What brings several together is no branch of any of them.
    place("root", "e", fan_out=3)


def test_what_was_not_delivered_takes_no_room() -> None:
    failed = [node(f"f{place}", 2, "root", outcome="failed") for place in range(9)]
    windows = (node("root", 1), *failed, node("a", 2, "root"))
    window_graph.check_limits(windows, ["root"], WindowGraphSettings(fan_out=2))
    assert not graph_faults.find_faults(windows, WindowGraphSettings(fan_out=1))
    with pytest.raises(LimitReached):
        window_graph.check_limits(windows, ["root"], WindowGraphSettings(fan_out=1))


def test_the_last_window_is_one_that_was_not_refused() -> None:
    root, refused = node("a", 1), node("b", 2, "a", outcome="refused")
    assert window_graph.last_windows(()) == ()
    assert window_graph.last_windows((root, refused)) == (root,)
    assert window_graph.last_windows(
        (root, refused, failed := node("c", 2, "a", outcome="failed"))
    ) == (failed,)
    begun = node("a", 1, outcome="refused")
    assert window_graph.last_windows((begun, refused)) == (begun,)


def test_how_a_window_hangs_in_the_graph() -> None:
    assert window_graph.pattern_of(DIAMOND, ()) is Pattern.LINEAR
    assert window_graph.pattern_of(DIAMOND, ["e"]) is Pattern.LINEAR
    assert window_graph.pattern_of(DIAMOND, ["a"]) is Pattern.BRANCH
    assert window_graph.pattern_of(DIAMOND, ["a"], fanned=True) is Pattern.FAN_OUT
    assert window_graph.pattern_of(DIAMOND, ["b", "c"]) is Pattern.FAN_IN
    refused = (*DIAMOND, node("f", 5, "e", outcome="refused"))
    assert window_graph.pattern_of(refused, ["e"]) is Pattern.LINEAR


def test_ancestors_and_lineage_of_a_diamond() -> None:
    assert [one.window_id for one in window_graph.ancestors(DIAMOND, ["d"])] == ["root", "a", "d"]
    assert window_graph.lineage(DIAMOND, "e") == ("root", "a", "d", "e")
    with pytest.raises(UnknownContinuation):
        window_graph.lineage(DIAMOND, "z")
    with pytest.raises(StoreDamaged, match="missing"):
        window_graph.lineage(DIAMOND[1:], "e")
    with pytest.raises(StoreDamaged, match="cycle"):
        window_graph.lineage([node("a", 1, "b"), node("b", 1, "a")], "a")


def seals(windows: tuple[WindowNode, ...]) -> list[WindowSeal]:
    known = {one.window_id: one for one in windows}
    return [
        WindowSeal(
            session_id=one.session_id,
            window_id=one.window_id,
            window_number=one.window_number,
            timestamp=one.timestamp,
            response_hash="",
            report_hash="",
            parent_hmac="|".join(sorted(known[parent].hmac for parent in one.parents)),
            hmac=one.hmac,
        )
        for one in windows
    ]


def test_edges_and_seals_agree_or_the_window_is_named() -> None:
    made = seals(DIAMOND)
    assert graph_faults.find_unchained(DIAMOND, made) == []
    assert graph_faults.find_unchained(DIAMOND, made[:-1]) == ["e"]
    made[4] = made[4].changed(parent_hmac=made[2].hmac)
    made[1] = made[1].changed(hmac=sha256("other"))
    assert graph_faults.find_unchained(DIAMOND, made) == ["a", "d"]


@pytest.mark.requirement("CARD-6")
@pytest.mark.parametrize(
    ("kind", "windows"),
    [
        (GraphFaultKind.CYCLE, [node("a", 1), merge("b", 2, "a", "c"), node("c", 2, "b")]),
        (GraphFaultKind.ROOTS, [node("a", 1), node("b", 1), merge("c", 2, "a", "b")]),
        (GraphFaultKind.APART, [node("a", 1), node("b", 1), node("c", 2, "b")]),
    ],
)
def test_networkx_finds_what_breaks_a_graph(
    kind: GraphFaultKind, windows: list[WindowNode]
) -> None:
    assert kind in graph_faults.find_faults(windows, WindowGraphSettings())


@pytest.mark.requirement("CARD-6")
@given(sound_graphs(most=9))
def test_what_is_sound_has_no_faults(windows: list[WindowNode]) -> None:
    assert not graph_faults.find_faults(windows, WindowGraphSettings())
