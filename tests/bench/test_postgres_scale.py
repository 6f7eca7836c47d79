"""The bench of a growing fabric runs, on both stores, and its table has a line for each."""

from __future__ import annotations

from tests.bench import postgres_scale
from tests.postgres import postgres_address  # noqa: F401 - a fixture


def test_both_stores_are_measured(postgres_address):  # noqa: F811
    reports = list(postgres_scale.run([80], 16, 1, postgres_address, ["postgres", "sqlite"]))
    assert [(one["store"], one["facts"]) for one in reports] == [("postgres", 80), ("sqlite", 80)]
    assert all(one["recall"] == 1.0 for one in reports)
    assert all(
        one["ask through gateways 32"]["p95"] >= one["ask through gateways 32"]["p50"] > 0
        for one in reports
    )
    assert len(postgres_scale.table(reports).splitlines()) == 4
