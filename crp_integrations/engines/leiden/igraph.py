"""Leiden by igraph: the fastest of the three, GPL, an extra."""

from __future__ import annotations

import random
import threading
from types import ModuleType

from crp_integrations.engines.leiden.network import LeidenEngine, Network
from crp_integrations.errors import MissingExtra

# igraph draws from one generator of the process, so one partition at a time may set it.
_ONE_AT_A_TIME = threading.Lock()


class IgraphLeiden(LeidenEngine):
    """Modularity with a resolution, by igraph's own Leiden.

    Raises:
        MissingExtra: igraph is not installed.
    """

    def __init__(self) -> None:
        try:
            import igraph
        except ModuleNotFoundError as error:
            raise MissingExtra("communities", "the engine igraph") from error
        self._igraph: ModuleType = igraph
        failures = (igraph.InternalError, RuntimeError)
        super().__init__("igraph", str(igraph.__version__), failures)

    def _solve(
        self, network: Network, *, resolution: float, iterations: int, seed: int
    ) -> list[int]:
        edges = zip(network.sources.tolist(), network.targets.tolist(), strict=True)
        start = network.initial
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
        return list(found.membership)
