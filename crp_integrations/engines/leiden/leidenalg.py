"""Leiden by leidenalg over an igraph graph: the authors' own code, GPL, an extra."""

from __future__ import annotations

from types import ModuleType

from crp_integrations.engines.leiden.network import LeidenEngine, Network
from crp_integrations.errors import MissingExtra


class LeidenalgLeiden(LeidenEngine):
    """Modularity with a resolution (`RBConfigurationVertexPartition`), by leidenalg.

    Raises:
        MissingExtra: leidenalg or igraph is not installed.
    """

    def __init__(self) -> None:
        try:
            import igraph
            import leidenalg
        except ModuleNotFoundError as error:
            raise MissingExtra("communities", "the engine leidenalg") from error
        self._igraph: ModuleType = igraph
        self._leidenalg: ModuleType = leidenalg
        version = str(leidenalg.__version__)
        super().__init__(
            "leidenalg",
            version,
            (igraph.InternalError, RuntimeError),
            name=f"leidenalg {version} on igraph {igraph.__version__}",
        )

    def _solve(
        self, network: Network, *, resolution: float, iterations: int, seed: int
    ) -> list[int]:
        edges = zip(network.sources.tolist(), network.targets.tolist(), strict=True)
        start = network.initial
        found = self._leidenalg.find_partition(
            self._igraph.Graph(n=network.nodes, edges=edges),
            self._leidenalg.RBConfigurationVertexPartition,
            initial_membership=None if start is None else start.tolist(),
            weights=network.weights.tolist(),
            n_iterations=iterations,
            seed=seed,
            resolution_parameter=resolution,
        )
        return list(found.membership)
