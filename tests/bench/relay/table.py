"""The rows of a report, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

ROWS: Final[tuple[tuple[str, Callable[[dict[str, Any]], float]], ...]] = (
    ("bare LiteLLM call", lambda level: level["bare"]["cpu_ms"]),
    ("the same through the relay", lambda level: level["relay"]["cpu_ms"]),
    ("overhead", lambda level: level["overhead_cpu_ms"]),
    ("of it embedding", lambda level: level["embedding_cpu_ms"]),
    ("of it verification", lambda level: level["verification_cpu_ms"]),
    ("of it apart from both", lambda level: level["apart_from_both_cpu_ms"]),
    ("a fixed loop of plain Python", lambda level: level["loop_cpu_ms"]),
    ("wall time, bare", lambda level: level["bare"]["wall_ms"]),
    ("wall time, relay", lambda level: level["relay"]["wall_ms"]),
)


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of a report: a name, then milliseconds of processor time a call by calls at a time."""
    levels = list(report["levels"].values())
    for name, read in ROWS:
        yield name, *(f"{read(level):.2f}" for level in levels)
    for name in levels[0]["steps"]:
        yield f"- {name}", *(f"{level['steps'].get(name, 0.0):.2f}" for level in levels)
