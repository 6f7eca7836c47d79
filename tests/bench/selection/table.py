"""A report as rows for people and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HEADLINE = "evidence_recall"
MACRO = "macro"
_NONE = "–"


def headings(report: dict[str, Any]) -> tuple[str, ...]:
    """System, the sets with the budget of their numbers, macro mean, and how sure `crp` is."""
    usual = report["settings"]["usual_budgets"]
    sets = (f"{name} @{budget:,}" for name, budget in usual.items())
    return ("system", *sets, MACRO, "crp minus it, 95 %")


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Evidence recall in per cent at each set's usual budget, one row a system, in order.

    The macro mean is over the sets; it is left out for a system that did not run on all.
    """
    usual = report["settings"]["usual_budgets"]
    for system, sets in report["results"].items():
        cells = (
            _percent(sets.get(name, {}).get(f"{HEADLINE}@{budget}"))
            for name, budget in usual.items()
        )
        mean = report["macro"].get(system, {}).get(HEADLINE)
        yield (system, *cells, _percent(mean), _sure(report, system))
    for system, why in report["settings"]["peers"]["missing"].items():
        yield (system, *(_NONE for _ in usual), _NONE, why)


def below(report: dict[str, Any]) -> list[str]:
    """Where `crp` is surely below a peer: the whole interval at the usual budget under zero."""
    usual = report["settings"]["usual_budgets"]
    return [
        f"{name}: {rows[name][f'{HEADLINE}@{budget}']['difference']:+.3f} against {system}"
        for system, rows in report["intervals"].items()
        for name, budget in usual.items()
        if name in rows and rows[name][f"{HEADLINE}@{budget}"]["high"] < 0.0
    ]


def markdown(report: dict[str, Any]) -> str:
    """The table in Markdown."""
    head = headings(report)
    side = ("---", *("---:" for _ in head[1:]))
    rows = (head, side, *table(report))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f}"


def _sure(report: dict[str, Any], system: str) -> str:
    row = report["intervals"].get(system, {}).get(MACRO, {}).get(HEADLINE)
    if row is None:
        return ""
    return f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
