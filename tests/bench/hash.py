"""The state hash after one change, kept incrementally and by the formula, in CPU time.

The formula is the three lines of 009 §6.1 over fact nodes with UUIDv5 ids, in the order of their
ingestion. What `state_hash` takes over items that a store hands over ready and sorted is told too.
Each round changes one fact at a random place.

    python -m tests.bench.hash --facts 1000000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from uuid import NAMESPACE_OID, uuid5

from crp_integrations.fabric.state_hash import Item, StateHash, state_hash
from crp_integrations.vocabulary import FactStatus

ROUNDS = 51
FORMULAS = 3


@dataclass(frozen=True, slots=True)
class HashResult:
    """What was measured; times are CPU milliseconds.

    Attributes:
        formula_ms: the printed formula over all facts, median of three.
        items_ms: the formula over ready, sorted items, median of three.
        build_ms: the incremental value from nothing, once for each process.
        change_ms, change_median_ms, change_max_ms: after one change at a random place.
        ratio, ratio_items: `formula_ms` and `items_ms` over `change_ms`, the mean.
        bit_equal: whether the two gave the same digest, first and after all changes.
    """

    facts: int
    rounds: int
    formula_ms: float
    items_ms: float
    build_ms: float
    change_ms: float
    change_median_ms: float
    change_max_ms: float
    ratio: float
    ratio_items: float
    bit_equal: bool


@dataclass(frozen=True, slots=True)
class _Node:
    """What the formula reads of a fact."""

    fact_id: str
    content_hash: str
    status: FactStatus = FactStatus.ACTIVE

    @property
    def item(self) -> Item:
        return self.fact_id, self.content_hash, self.status.value


def measure(facts: int, *, rounds: int = ROUNDS, seed: int = 0) -> HashResult:
    """Measure a state of so many facts.

    Args:
        facts: how many, at least 1.
        rounds: how many changes.
        seed: of ids, contents and places.
    """
    chance = random.Random(seed)
    nodes = [_Node(str(uuid5(NAMESPACE_OID, str(n))), _content(chance)) for n in range(facts)]
    wanted, formula = _timed(lambda: printed(nodes))
    items = sorted(node.item for node in nodes)
    _, over_items = _timed(lambda: state_hash(items))
    start = time.process_time()
    kept = StateHash(items)
    built = _since(start)
    equal = kept.digest == wanted
    changes = []
    for _ in range(rounds):
        place = chance.randrange(facts)
        nodes[place] = _Node(nodes[place].fact_id, _content(chance))
        start = time.process_time()
        kept = kept.changed([], [nodes[place].item], None)
        changes.append(_since(start))
    change = mean(changes)
    return HashResult(
        facts=facts,
        rounds=rounds,
        formula_ms=round(formula, 3),
        items_ms=round(over_items, 3),
        build_ms=round(built, 3),
        change_ms=round(change, 3),
        change_median_ms=round(median(changes), 3),
        change_max_ms=round(max(changes), 3),
        ratio=round(formula / max(change, 1e-6), 1),
        ratio_items=round(over_items / max(change, 1e-6), 1),
        bit_equal=equal and kept.digest == printed(nodes),
    )


def printed(nodes: Iterable[_Node]) -> str:
    """The formula as it is printed.

    Spec: CRP-SPEC-009 §6.1
    """
    components = sorted(
        f.fact_id + ":" + f.content_hash + ":" + f.status
        for f in nodes
        if f.status in (FactStatus.ACTIVE, FactStatus.STALE)
    )
    return "sha256:" + hashlib.sha256("|".join(components).encode()).hexdigest()


def _timed(make: Callable[[], str]) -> tuple[str, float]:
    """The digest and the median of the times."""
    times = []
    for _ in range(FORMULAS):
        start = time.process_time()
        digest = make()
        times.append(_since(start))
    return digest, median(times)


def _content(chance: random.Random) -> str:
    return "sha256:" + hashlib.sha256(chance.randbytes(16)).hexdigest()


def _since(start: float) -> float:
    return (time.process_time() - start) * 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the arguments say and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, default=None, help="file for the result")
    given = parser.parse_args(arguments)
    result = asdict(measure(given.facts))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, value in result.items():
        print(f"{name:18} {value}")


if __name__ == "__main__":
    main()
