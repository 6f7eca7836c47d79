"""The graph of windows under networkx: the same faults as the relay's own check finds."""

from __future__ import annotations

import networkx
import pytest
from hypothesis import example, given, settings

from crp_integrations.errors import StoreDamaged
from crp_integrations.session import window_graph
from crp_integrations.session.records import WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.vocabulary import Pattern, TransferType
from tests.session import graph_faults, networkx_graph
from tests.session.graph_faults import GraphFaultKind
from tests.session.window_nodes import DIAMOND, fan, graphs, merge, node, sound_graphs

SETTINGS = WindowGraphSettings(nodes=6, fan_out=2)


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
    assert kind in networkx_graph.faults(windows, WindowGraphSettings())
    with pytest.raises(StoreDamaged, match=kind.value):
        networkx_graph.check(windows, WindowGraphSettings())


@pytest.mark.requirement("CARD-6")
@settings(max_examples=100)
@given(graphs())
@example([node("a", 1, "b"), node("b", 1, "a")])
@example([node("a", 1), node("a", 1, "a")])
@example([fan("a", 1, "a"), node("b", 2, "a", "b", pattern=Pattern.FAN_OUT)])
@example([fan("a", 1, "z"), fan("b", 2, "z")])
def test_both_checks_find_the_same_faults(windows: list[WindowNode]) -> None:
    own = {fault.kind for fault in graph_faults.find_faults(windows, SETTINGS)}
    assert networkx_graph.faults(windows, SETTINGS) == own


@pytest.mark.requirement("CARD-6")
@given(sound_graphs(most=9))
def test_both_checks_pass_what_is_sound(windows: list[WindowNode]) -> None:
    large = WindowGraphSettings()
    networkx_graph.check(windows, large)
    assert not graph_faults.find_faults(windows, large)
    assert {
        one.kind for one in graph_faults.find_faults(windows, SETTINGS)
    } == networkx_graph.faults(windows, SETTINGS)


def test_order_is_a_topological_one() -> None:
    ordered = [one.window_id for one in window_graph.sort_windows(DIAMOND)]
    made = networkx_graph.as_networkx(DIAMOND)
    assert ordered in list(networkx.all_topological_sorts(made))
    assert {one.window_id for one in window_graph.ancestors(DIAMOND, ["d"])} == {
        *networkx.ancestors(made, "d"),
        "d",
    }


def test_an_edge_says_what_went_over_it() -> None:
    made = networkx_graph.as_networkx(
        [
            node("a", 1),
            node(
                "b", 2, "a", transfer=TransferType.SUMMARY, tokens_transferred=7, summary_hash="h"
            ),
        ]
    )
    assert made.edges["a", "b"] == {
        "transfer": "SUMMARY",
        "tokens_transferred": 7,
        "summary_hash": "h",
    }
    assert made.nodes["a"]["number"] == 1


def test_no_windows_have_no_faults() -> None:
    assert networkx_graph.faults([], SETTINGS) == frozenset()
