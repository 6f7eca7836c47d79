"""Leiden by graspologic-native: MIT, compiled, in the default install."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import graspologic_native

from crp_integrations.engines.leiden.network import LeidenEngine, Network

LIBRARY = "graspologic-native"
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
)


class GraspologicLeiden(LeidenEngine):
    """Modularity with a resolution, by graspologic-native."""

    def __init__(self) -> None:
        super().__init__(LIBRARY, version(LIBRARY), _FAILURES)

    def _solve(
        self, network: Network, *, resolution: float, iterations: int, seed: int
    ) -> list[int]:
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
        _, found = _library.leiden(
            edges,
            starting_communities=known,
            resolution=resolution,
            iterations=iterations,
            seed=seed,
        )
        return [found[name] for name in names]
