"""`python -m tests.bench.guard --queries 10000 --json OUT`: decisions and canaries."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from crp_integrations.guard.decisions import AllowAll
from tests.bench.guard import QUERIES, TENANTS
from tests.bench.guard.canaries import Canaries
from tests.bench.guard.speed import (
    CACHED_MOST_US,
    DECISIONS,
    SHARE_MOST,
    UNCACHED_MOST_US,
    decisions,
    share,
)
from tests.bench.measure import has_one_thread, in_one_thread, loop_ms

MODULE = "tests.bench.guard"


def main(arguments: list[str] | None = None) -> None:
    """Measure as the arguments say; status 1 where something of another tenant came out."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="of each class")
    parser.add_argument("--facts", type=int, default=2_000, help="of the store to assemble from")
    parser.add_argument("--questions", type=int, default=60, help="that are assembled for")
    parser.add_argument("--queries", type=int, default=QUERIES, help="random ones; 0 for none")
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    report: dict[str, Any] = {"loop_ms": {"before": round(loop_ms(), 3)}}
    report["decisions"] = decisions(given.decisions)
    report["loop_ms"]["after decisions"] = round(loop_ms(), 3)
    report["assemble"] = share(given.facts, given.questions)
    report["loop_ms"]["after assemble"] = round(loop_ms(), 3)
    if given.queries:
        made = {"tenants": given.tenants, "seed": given.seed}
        report["canaries"] = Canaries(**made).run(given.queries).as_json()
        # A tenth is enough to show that they would be found.
        open_door = Canaries(AllowAll(), **made).run(given.queries // 10)
        report["without_guard"] = open_door.as_json()
    report["bars"] = _bars(report)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"{'':8} the loop that hours compare by: {report['loop_ms']} ms")
    print(f"{'':8} new subject of a known class: {report['decisions']['known_class_us']} us")
    for bar in report["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':8} {bar['name']}: {bar['measured']}")
    if not all(bar["met"] for bar in report["bars"] if bar["name"].startswith("leaks")):
        sys.exit(1)


def _bars(report: dict[str, Any]) -> list[dict[str, Any]]:
    made, whole = report["decisions"], report["assemble"]
    bars = [
        _bar(
            f"new decision, at most {UNCACHED_MOST_US:g} us", made["uncached_us"], UNCACHED_MOST_US
        ),
        _bar(f"known decision, at most {CACHED_MOST_US:g} us", made["cached_us"], CACHED_MOST_US),
        _bar(f"share of assemble, at most {SHARE_MOST:g}", whole["share"], SHARE_MOST),
    ]
    if "canaries" in report:
        bars.append(_bar("leaks of canaries, none", report["canaries"]["leaks"], 0))
        shown = report["without_guard"]["leaks"]
        bars.append({"name": "leaks without the guard, some", "measured": shown, "met": shown > 0})
    return bars


def _bar(name: str, measured: float, most: float) -> dict[str, Any]:
    return {"name": name, "measured": measured, "met": measured <= most}


if __name__ == "__main__":
    main()
