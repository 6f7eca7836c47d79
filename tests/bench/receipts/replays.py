"""Packs written here and replayed elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import crp_integrations
from crp_integrations.receipt.records import write
from tests.bench.receipts.packs import pack

AGAIN: Final = "tests.bench.receipts.again"
SEEDS: Final = (0, 1, 4_294_967_295)


def run(
    packs: int,
    *,
    pythons: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
    first: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Make receipts of random packs, and have them verified and replayed in other processes.

    Args:
        packs: how many.
        pythons: interpreters that have the package's dependencies; this one goes without saying.
        seeds: hash seeds; each interpreter after the first one takes one of them.
        first: number of the first pack.

    Returns:
        What each process found, and whether all of it is equal.
    """
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "receipts"
        with path.open("wb") as file:
            for number in range(first, first + packs):
                file.write(write(pack(number)))
        say(f"{packs} receipts, {path.stat().st_size:,} bytes")
        plans = [(sys.executable, seed) for seed in seeds[:2]]
        plans += [(python, seeds[-1]) for python in pythons]
        for python, seed in plans:
            runs.append(_elsewhere(python, seed, path))
            say(json.dumps(runs[-1]))
    return {
        "packs": packs,
        "runs": runs,
        "met": all(one["equal"] == one["receipts"] == packs for one in runs),
    }


def _elsewhere(python: str, seed: int, path: Path) -> dict[str, Any]:
    root = str(Path(crp_integrations.__file__).parents[1])
    done = subprocess.run(
        [python, "-m", AGAIN, str(path)],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{python} could not replay: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
