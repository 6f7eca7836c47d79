"""Leiden by leidenalg over an igraph graph: the authors' own code, GPL, an extra."""

from __future__ import annotations

from types import ModuleType

from crp_integrations.engines.leiden.network import Floats, Integers, Network, partitioned
from crp_integrations.errors import EngineError, MissingExtra


class LeidenalgLeiden:
    """Modularity with a resolution (`RBConfigurationVertexPartition`), by leidenalg.

    Attributes:
        name: libraries and versions.

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
        self._failures = (
            igraph.InternalError,
            OverflowError,
            RuntimeError,
            TypeError,
            ValueError,
        )
        self._version = str(leidenalg.__version__)
        self.name = f"leidenalg {self._version} on igraph {igraph.__version__}"

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
                found = self._leidenalg.find_partition(
                    self._igraph.Graph(n=network.nodes, edges=edges),
                    self._leidenalg.RBConfigurationVertexPartition,
                    initial_membership=None if start is None else start.tolist(),
                    weights=network.weights.tolist(),
                    n_iterations=iterations,
                    seed=seed,
                    resolution_parameter=resolution,
                )
            except self._failures as error:
                raise EngineError(
                    f"{self.name} could not partition {network.nodes} nodes: {error}",
                    engine="leidenalg",
                    version=self._version,
                ) from error
            return list(found.membership)

        return partitioned(nodes, sources, targets, weights, initial, solve)
