"""What a decision costs, the guard's share of `assemble`, and leaks between tenants: none.

python -m tests.bench.guard --queries 10000 --json OUT
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from crp_integrations.engines.guards import guard_of
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.fabric.namespace_reader import AccessFilter
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.access import access
from crp_integrations.guard.decisions import AllowAll, PolicyGuard, Subject
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Settings
from tests.bench.canaries import QUERIES, TENANTS, Canaries
from tests.bench.measure import has_one_thread, in_one_thread, loop_ms

UNCACHED_MOST_US: Final = 150.0
CACHED_MOST_US: Final = 2.0
SHARE_MOST: Final = 0.10
DECISIONS: Final = 2_000
LABELS: Final = (
    ("class:public",),
    ("class:internal", "tenant:acme"),
    ("class:internal", "pii:low", "tenant:acme"),
    ("class:secret",),
)
READER: Final = ("reader",)
OPERATOR: Final = ("operator",)
# Who asks for what. Dear are operators who read personal data, beside a label that is granted to
# nobody by name too, and whoever has several roles of which none is granted what is asked for.
CLASSES: Final = (
    *(("+".join(labels), READER, labels) for labels in LABELS),
    ("operator+pii", OPERATOR, ("class:internal", "pii:high", "tenant:acme")),
    ("operator+own", OPERATOR, ("class:internal", "pii:high", "project:pumps", "tenant:acme")),
    ("roles+denied", ("auditor", "reader"), ("class:secret", "pii:high", "tenant:acme")),
)
# What is told of the dearest class.
WORST: Final = ("uncached_us", "known_class_us", "cached_us")
QUESTION: Final = "Which pump of station {n} was repaired, and who answers for it?"


def decisions(count: int = DECISIONS) -> dict[str, Any]:
    """CPU microseconds of one decision about a class of things, new and known.

    A class is told by its labels as a reader asks for them, or by its name. Of a new class the
    engine is asked: each is of a tenant that nobody decided about before. A known class has
    another subject than the one that it was decided for; a known decision is one that was made
    before. The quickest twentieth (`p05`) is what other work on the machine added least to.
    """
    engine, bundle = RegoEngine(most_kept=0), access()
    by_labels = {
        name: _decided(PolicyGuard(engine, bundle, most_kept=2 * count + 2), roles, labels, count)
        for name, roles, labels in CLASSES
    }
    return {
        "decisions": count,
        "bundle": bundle.name,
        "engine": engine.identity,
        "by_labels": by_labels,
        **{name: max(one[name] for one in by_labels.values()) for name in WORST},
    }


def _decided(
    guard: PolicyGuard, roles: tuple[str, ...], labels: tuple[str, ...], count: int
) -> dict[str, float]:
    def decide(subject: Subject, labels: tuple[str, ...], times: int = 1) -> None:
        for _ in range(times):
            guard.decide(subject, "read", labels)

    first = Subject(tenant="acme", name="user", roles=roles)
    decide(first, labels)
    new, others = [], []
    # By turns, so that both have the machine as it is.
    for number in range(count):
        tenant = f"acme{number}"
        own = tuple(label.replace("tenant:acme", f"tenant:{tenant}") for label in labels)
        of_class = Subject(tenant=tenant, name="user", roles=roles)
        new.append(_timed_us(partial(decide, of_class, own)))
        other = Subject(tenant="acme", name=f"user{number}", roles=roles)
        others.append(_timed_us(partial(decide, other, labels)))
    # One known decision is shorter than the clock's step, so a thousand are timed at once.
    known = [_timed_us(partial(decide, first, labels, 1_000)) / 1_000 for _ in range(21)]
    twentieths = quantiles(new, n=20)
    return {
        "uncached_us": round(median(new), 1),
        "uncached_p05_us": round(twentieths[0], 1),
        "uncached_p95_us": round(twentieths[-1], 1),
        "known_class_us": round(median(others), 1),
        "cached_us": round(median(known), 3),
    }


def share(facts: int, questions: int) -> dict[str, Any]:
    """The guard's share of the CPU time of `assemble`, the embedding of the question included.

    The guard is everything behind the gate that reads pass: decisions, looking them up, leaving
    out. No class of labels asks for redaction here; recognisers cost what `python -m tests.bench.pii` says.
    """
    guard = guard_of(GuardSettings(policy=True))
    settings = Settings.model_validate({"key": "c0" * 32})
    subject = Subject(tenant="acme", name="anna", roles=("writer",))
    relay = Relay.open(None, subject=subject, guard=guard, settings=settings)
    relay.fabric.add(
        [
            Fact(
                content=f"Pump {number} of station {number % 50} was repaired in week "
                f"{number % 52} by crew {number % 7}, and its keys went back to the office of "
                f"district {number}.",
                labels=LABELS[number % 2],
            )
            for number in range(facts)
        ]
    )
    gate = _clocked_gate()
    relay.assemble(QUESTION.format(n=0))
    whole, inside = [], []
    for number in range(questions):
        gate.clear()
        whole.append(_timed_us(partial(relay.assemble, QUESTION.format(n=number))))
        inside.append(sum(gate))
    relay.close()
    return {
        "facts": facts,
        "questions": questions,
        "assemble_us": round(median(whole), 1),
        "guard_us": round(median(inside), 1),
        "share": round(sum(inside) / sum(whole), 4),
    }


def _clocked_gate() -> list[float]:
    """Puts every method of the gate that reads call under a clock; gives microseconds by call."""
    taken: list[float] = []
    depth = [0]

    def clocked(method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            depth[0] += 1
            began = time.process_time()
            try:
                return method(*given)
            finally:
                depth[0] -= 1
                # A method within another is in the other's time.
                if not depth[0]:
                    taken.append((time.process_time() - began) * 1e6)

        return timed

    for name in ("decision", "may_read", "briefs", "facts", "passing"):
        setattr(AccessFilter, name, clocked(getattr(AccessFilter, name)))
    return taken


def _timed_us(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1e6


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
