"""Leiden by graspologic-native: MIT, compiled, in the default install."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import graspologic_native

from crp_integrations.engines.leiden.network import Floats, Integers, Network, partitioned
from crp_integrations.errors import EngineError

# Its type stubs leave out exceptions and defaults that the library has.
_library: Any = graspologic_native
_FAILURES = (
    _library.ClusterIndexingError,
    _library.EmptyNetworkError,
    _library.InternalNetworkIndexingError,
    _library.InvalidCommunityMappingError,
    _library.ParameterRangeError,
    _library.QueueError,
    _library.UnsafeInducementError,
    OverflowError,
    TypeError,
    ValueError,
)


class GraspologicLeiden:
    """Modularity with a resolution, by graspologic-native.

    Attributes:
        name: library and version.
    """

    def __init__(self) -> None:
        self._version = version("graspologic-native")
        self.name = f"graspologic-native {self._version}"

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
            # The library knows nodes by strings only.
            names = [str(node) for node in range(network.nodes)]
            edges = list(
                zip(
                    map(names.__getitem__, network.sources.tolist()),
                    map(names.__getitem__, network.targets.tolist()),
                    network.weights.tolist(),
                    strict=True,
                )
            )
            start = network.initial
            known = None if start is None else dict(zip(names, start.tolist(), strict=True))
            try:
                _, found = _library.leiden(
                    edges,
                    starting_communities=known,
                    resolution=resolution,
                    iterations=iterations,
                    seed=seed,
                )
            except _FAILURES as error:
                raise EngineError(
                    f"{self.name} could not partition {network.nodes} nodes: {error}",
                    engine="graspologic-native",
                    version=self._version,
                ) from error
            return [found[name] for name in names]

        return partitioned(nodes, sources, targets, weights, initial, solve)
