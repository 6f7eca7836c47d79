"""The curves of a report as SVG, by matplotlib.

Figures hold no date and no random ids, so equal reports give equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.errors import MissingExtra
from tests.bench.rot.answered import by_length
from tests.bench.rot.scenarios import Point

Curve = tuple[str, Sequence[float], Sequence[float]]


def plots(results: Mapping[str, Sequence[Point]]) -> dict[str, str]:
    """SVG text by title, for the scenarios that have a curve.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawn = {}
    for budget in sorted({point["budget"] for point in results.get("distractors", ())}):
        points = [point for point in results["distractors"] if point["budget"] == budget]
        title = f"Answer in {budget:,} tokens, by passages in the store"
        drawn[title] = _drawn(_curves(points, "passages", "answer"), "passages", "answer", log=True)
    growing = results.get("growing", ())
    if growing:
        drawn["Answer by size of the context"] = _drawn(
            _curves(growing, "tokens", "answer"), "tokens of the context", "answer", log=True
        )
        drawn["Where the gold passage begins, by size of the context"] = _drawn(
            _curves(growing, "tokens", "place"), "tokens of the context", "0 head, 1 end", log=True
        )
    lengths = by_length(results.get("answered", ()))
    if lengths:
        curves = [
            (
                f"{length} passages",
                [point["depth"] for point in points],
                [point["right"] for point in points],
            )
            for length, points in lengths.items()
        ]
        drawn["Right answers by where the passage stands"] = _drawn(curves, "depth", "right")
    return drawn


def _curves(points: Sequence[Point], x: str, y: str) -> list[Curve]:
    names = dict.fromkeys(point["system"] for point in points)
    curves: list[Curve] = []
    for name in names:
        own = sorted((p[x], p[y]) for p in points if p["system"] == name and y in p)
        curves.append((name, [at for at, _ in own], [value for _, value in own]))
    return curves


def _drawn(curves: Sequence[Curve], x: str, y: str, *, log: bool = False) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("bench", "drawing curves") from error
    with mpl.rc_context({"svg.hashsalt": "crp", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.0, 3.2), layout="constrained")
        axes = figure.subplots()
        for name, at, values in curves:
            axes.plot(at, values, marker="o", label=name)
        if log:
            axes.set_xscale("log")
        axes.set(xlabel=x, ylabel=y, ylim=(-0.02, 1.02))
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        written = io.StringIO()
        settings: dict[str, Any] = {"Date": None, "Creator": None}
        figure.savefig(written, format="svg", metadata=settings)
    return written.getvalue()
