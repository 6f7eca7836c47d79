"""Leiden by igraph: the fastest of the three, GPL, an extra."""

from __future__ import annotations

import random
import threading
from types import ModuleType

from crp_integrations.engines.leiden.network import Floats, Integers, Network, partitioned
from crp_integrations.errors import EngineError, MissingExtra

# igraph draws from one generator of the process, so one partition at a time may set it.
_ONE_AT_A_TIME = threading.Lock()


class IgraphLeiden:
    """Modularity with a resolution, by igraph's own Leiden.

    Attributes:
        name: library and version.

    Raises:
        MissingExtra: igraph is not installed.
    """

    def __init__(self) -> None:
        try:
            import igraph
        except ModuleNotFoundError as error:
            raise MissingExtra("communities", "the engine igraph") from error
        self._igraph: ModuleType = igraph
        self._failures = (
            igraph.InternalError,
            OverflowError,
            RuntimeError,
            TypeError,
            ValueError,
        )
        self._version = str(igraph.__version__)
        self.name = f"igraph {self._version}"

    def partition(
        self,
        nodes: int,
        sources: Integers,
        targets: Integers,
        weights: Floats,
        *,
        resolution: float,
        iterations: int,
        seed: int,
        initial: Integers | None = None,
    ) -> Integers:
        """The community of each node, as the port says.

        Spec: CRP-SPEC-009 §5.3

        Raises:
            EngineError: the arrays are no graph, or the library failed.
        """

        def solve(network: Network) -> list[int]:
            edges = zip(network.sources.tolist(), network.targets.tolist(), strict=True)
            start = network.initial
            try:
                graph = self._igraph.Graph(n=network.nodes, edges=edges)
                with _ONE_AT_A_TIME:
                    self._igraph.set_random_number_generator(random.Random(seed))  # noqa: S311
                    try:
                        found = graph.community_leiden(
                            objective_function="modularity",
                            weights=network.weights.tolist(),
                            resolution=resolution,
                            initial_membership=None if start is None else start.tolist(),
                            n_iterations=iterations,
                        )
                    finally:
                        self._igraph.set_random_number_generator(random)
            except self._failures as error:
                raise EngineError(
                    f"{self.name} could not partition {network.nodes} nodes: {error}",
                    engine="igraph",
                    version=self._version,
                ) from error
            return list(found.membership)

        return partitioned(nodes, sources, targets, weights, initial, solve)
