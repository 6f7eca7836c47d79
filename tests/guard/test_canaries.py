"""Twenty tenants and their canaries; `python -m tests.bench.guard` asks 10,000 queries, here are fewer."""

from __future__ import annotations

import pytest

from crp_integrations.guard.decisions import AllowAll
from tests.bench.canaries import TENANTS, Canaries

QUERIES = 1_000
WAYS = ["count", "edge", "filter", "id", "question", "vector", "vector of an id", "word"]


@pytest.mark.requirement("SUM-fail-2")
@pytest.mark.requirement("SUM-privacy-1")
def test_no_canary_of_another_tenant_comes_out_of_any_way_of_asking() -> None:
    found = Canaries(seed=1).run(QUERIES)
    assert TENANTS == 20
    assert sorted(found.asked) == WAYS
    assert sum(found.asked.values()) == QUERIES
    assert found.leaks.total() == 0, found.as_json()
    # The ways do find what is one's own.
    assert found.own > QUERIES / 10


@pytest.mark.requirement("SUM-fail-2")
def test_with_the_guard_removed_every_way_leaks() -> None:
    found = Canaries(AllowAll(), seed=1).run(QUERIES // 3)
    assert sorted(way for way, leaks in found.leaks.items() if leaks) == WAYS
