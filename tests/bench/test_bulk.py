"""A bulk load that is killed and begun again ends as one that never stopped, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import bulk
from tests.postgres import postgres_address  # noqa: F401 - a fixture


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_load_is_resumed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "kb")
    if kind == "postgres":
        place = request.getfixturevalue("postgres_address")
    whole = bulk.measure(str(tmp_path / "other"), 90, size=30, maintain=False)
    resumed = bulk.measure(place, 90, size=30, killed_at=0.5)
    assert resumed["killed_at"] == 45 and resumed["state"] == whole["state"]
    assert {"write_cpu_s", "maintain_cpu_s"} <= resumed.keys()
