"""Reclustering after a hundredth more facts, beside leidenalg on the same graph from nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.bench.fabric.store import Opened
from crp_integrations.bench.measure import cpu_ms
from crp_integrations.engines.leiden import engine_for
from crp_integrations.errors import MissingExtra
from crp_integrations.fabric.communities.similarity_graph import (
    ClusterReport,
    FactGraph,
    modularity,
)

# As the issue of the fabric and CRP-SPEC-009 §5.3 have it.
ITERATIONS, RESOLUTION, SEED = 10, 1.0, 0


def first(ours: Opened) -> dict[str, Any]:
    """Communities of a store that had none."""
    return _reclustered(ours)


def grown(ours: Opened) -> dict[str, Any]:
    """Communities after facts were added, and what leidenalg makes of the same graph."""
    report = _reclustered(ours)
    graph = ours.namespace.graph()
    report["leidenalg"] = _leidenalg(graph)
    return report


def _reclustered(ours: Opened) -> dict[str, Any]:
    ours.watch.steps.clear()
    held: list[ClusterReport] = []
    taken = cpu_ms(lambda: held.append(ours.namespace.recluster()))
    found = held[0]
    steps = {name.rpartition(".")[2]: ms for name, ms in ours.watch.steps.items()}
    return {
        "ms": taken,
        "steps_ms": steps,
        **found.model_dump(include={"facts", "searched", "edges", "communities", "warm", "engine"}),
        "modularity": found.modularity,
    }


def _leidenalg(graph: FactGraph) -> dict[str, Any]:
    try:
        engine = engine_for("leidenalg")
    except MissingExtra as error:
        return {"missing": str(error)}
    held: list[npt.NDArray[np.int64]] = []

    def partition() -> None:
        held.append(
            engine.partition(
                len(graph.ids),
                graph.left,
                graph.right,
                graph.weights,
                resolution=RESOLUTION,
                iterations=ITERATIONS,
                seed=SEED,
            )
        )

    taken = cpu_ms(partition)
    return {
        "name": engine.name,
        "ms": taken,
        "modularity": modularity(held[0], graph.left, graph.right, graph.weights, RESOLUTION),
    }
