"""5,000 random packs, each made twice: by two processes of different hash seeds, from input in
different orders. The bytes are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.laws.packs import OFFERED, USED, digests, pack

ROOT = Path(__file__).parents[2]
SEEDS = ("0", "1", "17", "4242", "4294967295")
BLOCK = 1_000
# A block that every process makes too; it lies behind the others.
SHARED = (1_000, 20)


def run(place: int) -> dict[str, str]:
    """Digests by block of the process at a place: its own block, the next one, the shared one."""
    blocks = [(place, BLOCK), ((place + 1) % len(SEEDS), BLOCK), SHARED]
    words = [str(number) for block in blocks for number in block]
    done = subprocess.run(
        [sys.executable, "-m", "tests.laws.packs", str(place), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": SEEDS[place], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.requirement("003-4-2", "003-4-3", "003-7.5-3")
def test_five_thousand_packs_have_the_same_bytes_in_every_process() -> None:
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = list(pool.map(run, range(len(SEEDS))))
    for place, own in enumerate(made):
        # Block n was made by process n and by the one before it.
        assert own[str(place)] == made[place - 1][str(place)], f"block {place}"
    assert len({own[str(SHARED[0])] for own in made}) == 1
    assert len({own[str(place)] for place, own in enumerate(made)}) == len(SEEDS)
    # This process, with a hash seed of its own, agrees as well.
    assert list(digests(99, [SHARED])) == [f"{SHARED[0]} {made[0][str(SHARED[0])]}"]


def test_the_packs_are_worth_comparing() -> None:
    """What could depend on an order occurs in them."""
    seen: Counter[str] = Counter()
    algorithms: set[str] = set()
    for number in range(400):
        envelope = pack(number, 0)
        seen.update({f"dropped for {drop.reason.value}" for drop in envelope.dropped})
        seen["conflict"] += bool(envelope.conflicts)
        seen["promoted"] += bool(envelope.promoted)
        seen["several"] += envelope.total_facts_included > 2
        seen["several communities"] += len(envelope.ckf_communities) > 1
        algorithms.update(envelope.algorithms)
    for what in ("budget", "duplicate", "k"):
        assert seen[f"dropped for {what}"] > 15, seen
    for what in ("conflict", "promoted", "several", "several communities"):
        assert seen[what] > 15, seen
    # Each choice of the settings is among them.
    assert len(USED) == 2 * sum(len(values) for values in OFFERED.values())
    for name in ("sandwich@", "sandwich_rank@"):
        assert any(algorithm.startswith(name) for algorithm in algorithms)
