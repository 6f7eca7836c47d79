"""What the tests of a graph's files share."""

from __future__ import annotations

import pytest

from tests.fabric.test_namespace_state import Spy


@pytest.fixture
def spy() -> Spy:
    """The engine of graphs, counting what it is asked for."""
    pytest.importorskip("hnswlib")
    from crp_integrations.engines.hnsw import HnswEngine

    return Spy(HnswEngine())
