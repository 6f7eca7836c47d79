"""What a decision costs, and the guard's share of a whole `assemble` with its query's embedding."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median, quantiles
from typing import Any, Final

from crp_integrations.engines.guards import guard_of
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.fabric.gate import Gate
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.access import access
from crp_integrations.guard.decisions import Subject
from crp_integrations.guard.policy_guard import PolicyGuard
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Settings

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
    out. No class of labels asks for redaction here; recognisers cost what `crp bench pii` says.
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
        setattr(Gate, name, clocked(getattr(Gate, name)))
    return taken


def _timed_us(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1e6
