"""The two Leiden engines keep one contract, on one graph."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.graphs import LeidenEngine, engine_for, numbered
from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import CommunityEngine
from crp_integrations.fabric.similarity_graph import modularity

NEEDS = {"graspologic": (), "leidenalg": ("leidenalg", "igraph")}
Graph = tuple[np.ndarray, np.ndarray, np.ndarray]
USUAL: dict[str, Any] = {"resolution": 1.0, "iterations": 10, "seed": 0}


@pytest.fixture(params=sorted(NEEDS))
def engine(request: pytest.FixtureRequest) -> CommunityEngine:
    return made(request.param)


def made(name: Any) -> CommunityEngine:
    for library in NEEDS[name]:
        pytest.importorskip(library)
    return engine_for(name)


def cliques(groups: int = 6, size: int = 7) -> Graph:
    """Dense groups in a ring, one weak edge from each to the next."""
    left, right, weights = [], [], []
    for group in range(groups):
        first = group * size
        for i in range(size):
            for j in range(i + 1, size):
                left.append(first + i)
                right.append(first + j)
                weights.append(0.9)
        left.append(first)
        right.append((first + size) % (groups * size))
        weights.append(0.45)
    return np.array(left), np.array(right), np.array(weights)


def planted(nodes: int = 1500, communities: int = 25, seed: int = 1) -> Graph:
    """A random graph with groups that overlap a little."""
    random = np.random.default_rng(seed)
    group = random.integers(0, communities, nodes)
    members = [np.flatnonzero(group == number) for number in range(communities)]
    left = np.repeat(np.arange(nodes), 10)
    near = np.array([random.choice(members[group[node]]) for node in left])
    right = np.where(random.random(len(left)) < 0.8, near, random.integers(0, nodes, len(left)))
    low, high = np.minimum(left, right), np.maximum(left, right)
    keys = np.unique((low * nodes + high)[low != high])
    return keys // nodes, keys % nodes, np.round(0.43 + 0.5 * random.random(len(keys)), 6)


@pytest.mark.requirement("CARD-8", "CARD-9")
def test_both_find_the_same_structure() -> None:
    left, right, weights = planted()
    quality = {}
    for name in sorted(NEEDS):
        found = made(name).partition(1500, left, right, weights, **USUAL)
        quality[name] = modularity(found, left, right, weights)
    assert min(quality.values()) > 0.6
    assert max(quality.values()) - min(quality.values()) < 0.005


@pytest.mark.requirement("CARD-8", "CARD-9")
def test_leidenalg_works_on_a_graph_of_igraph(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made("leidenalg")
    igraph, leidenalg = (importlib.import_module(name) for name in ("igraph", "leidenalg"))
    given_: list[tuple[Any, dict[str, Any]]] = []
    find = leidenalg.find_partition

    def watched(graph: Any, *args: Any, **options: Any) -> Any:
        given_.append((graph, options))
        return find(graph, *args, **options)

    monkeypatch.setattr(leidenalg, "find_partition", watched)
    left, right, weights = cliques()
    engine.partition(42, left, right, weights, **{**USUAL, "seed": 11})
    ((graph, options),) = given_
    assert isinstance(graph, igraph.Graph) and graph.ecount() == len(left)
    assert options["seed"] == 11 and options["n_iterations"] == 10
    assert engine.name == f"leidenalg {leidenalg.__version__} on igraph {igraph.__version__}"


@pytest.mark.requirement("009-5.3-1")
def test_more_resolution_gives_more_communities(engine: CommunityEngine) -> None:
    left, right, weights = planted()
    found = [
        engine.partition(1500, left, right, weights, **{**USUAL, "resolution": resolution})
        for resolution in (0.05, 1.0, 20.0)
    ]
    few, usual, many = (len(set(membership.tolist())) for membership in found)
    assert few < usual < many


@pytest.mark.requirement("009-5.3-4")
def test_equal_graphs_give_equal_communities_in_any_order(engine: CommunityEngine) -> None:
    left, right, weights = planted(600)
    first = engine.partition(600, left, right, weights, **USUAL)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(left))
        turned = engine.partition(600, right[order], left[order], weights[order], **USUAL)
        assert np.array_equal(first, turned)


def test_two_processes_agree(engine: CommunityEngine) -> None:
    left, right, weights = cliques()
    name = type(engine).__name__.removesuffix("Leiden").lower()
    script = f"""
import json, sys
import numpy as np
from crp_integrations.engines.graphs import engine_for
left, right, weights = (np.array(part) for part in json.loads(sys.stdin.read()))
found = engine_for({name!r}).partition(
    42, left, right, weights, resolution=1.0, iterations=10, seed=3
)
print(json.dumps(found.tolist()))
"""
    given_ = json.dumps([left.tolist(), right.tolist(), weights.tolist()])
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            input=given_,
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
            env={"PATH": "", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    here = engine.partition(42, left, right, weights, **{**USUAL, "seed": 3})
    assert [json.loads(answer) for answer in answers] == [here.tolist()]


def test_cliques_are_communities_and_lonely_nodes_stay_alone(engine: CommunityEngine) -> None:
    left, right, weights = cliques()
    # Nodes 42 to 44 have no edge, and one of them was counted to a clique before.
    before = np.array([node // 7 for node in range(42)] + [0, 6, 6])
    for initial in (None, before):
        found = engine.partition(45, left, right, weights, **USUAL, initial=initial)
        assert found.tolist() == [node // 7 for node in range(42)] + [6, 7, 8]


@pytest.mark.parametrize(
    ("left", "right", "weights", "initial"),
    [
        ([0], [3], [0.5], None),
        ([1], [1], [0.5], None),
        ([0, 1], [1, 0], [0.5, 0.5], None),
        ([0], [1], [0.0], None),
        ([0], [1], [float("nan")], None),
        ([0], [1], [0.5, 0.5], None),
        ([0], [1], [0.5], [0, 0]),
    ],
)
def test_what_is_no_graph_is_refused(
    left: list[int], right: list[int], weights: list[float], initial: list[int] | None
) -> None:
    with pytest.raises(EngineError):
        engine_for("graspologic").partition(
            3,
            np.array(left),
            np.array(right),
            np.array(weights),
            **USUAL,
            initial=None if initial is None else np.array(initial),
        )


def test_the_librarys_error_becomes_ours(engine: CommunityEngine) -> None:
    left, right, weights = cliques()
    with pytest.raises(EngineError) as caught:
        engine.partition(42, left, right, weights, **{**USUAL, "resolution": "high"})
    assert caught.value.engine and caught.value.version and caught.value.__cause__ is not None


@settings(max_examples=40)
@given(st.lists(st.integers(-5, 5), max_size=30))
def test_numbers_have_no_gaps_and_follow_first_appearance(membership: list[int]) -> None:
    found = numbered(np.array(membership, dtype=np.int64)).tolist()
    assert len(found) == len(membership)
    seen: list[int] = []
    for number in found:
        if number not in seen:
            seen.append(number)
    assert seen == list(range(len(seen)))
    pairs = set(zip(membership, found, strict=True))
    assert len(pairs) == len(set(membership)) == len(set(found))


class _Forgetful(LeidenEngine):
    def _solve(self, network: Any, *, resolution: float, iterations: int, seed: int) -> list[int]:
        return [0]


def test_an_answer_for_other_nodes_is_refused() -> None:
    one, engine = np.array([0]), _Forgetful("library", "1", ())
    with pytest.raises(EngineError, match="placed 1 of 2"):
        engine.partition(
            2, one, np.array([1]), np.array([0.5]), resolution=1.0, iterations=1, seed=0
        )


def test_without_its_extra_an_engine_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("leidenalg", "igraph"):
        monkeypatch.setitem(sys.modules, library, None)
    importlib.import_module("crp_integrations.engines.graphs")
    with pytest.raises(ImportError, match=r"pip install 'crp-integrations\[leidenalg\]'"):
        engine_for("leidenalg")
