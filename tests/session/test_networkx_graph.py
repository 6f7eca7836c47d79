"""The graph of windows under networkx: what breaks it and what is sound."""

from __future__ import annotations

import networkx
import pytest
from hypothesis import given

from crp_integrations.session import window_graph
from crp_integrations.session.records import WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.vocabulary import TransferType
from tests.session import graph_faults
from tests.session.graph_faults import GraphFaultKind
from tests.session.window_nodes import DIAMOND, merge, node, sound_graphs


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


def test_order_is_a_topological_one() -> None:
    ordered = [one.window_id for one in window_graph.sort_windows(DIAMOND)]
    made = graph_faults.as_networkx(DIAMOND)
    assert ordered in list(networkx.all_topological_sorts(made))
    assert {one.window_id for one in window_graph.ancestors(DIAMOND, ["d"])} == {
        *networkx.ancestors(made, "d"),
        "d",
    }


def test_an_edge_says_what_went_over_it() -> None:
    made = graph_faults.as_networkx(
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
