"""The report of `tests.bench.rot` as one HTML file, with its curves as SVG by matplotlib.

The file fetches nothing. Figures hold no date and no random ids, so equal reports give equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from crp_integrations.errors import MissingExtra
from crp_integrations.evaluation.context_rot import Point, distractors
from tests.bench.rot import growing, noise, order, prefix

Curve = tuple[str, Sequence[float], Sequence[float]]
TITLES: Final = {
    "distractors": ("Distractors and budget", distractors),
    "growing": ("Growing contexts", growing),
    "order": ("Order of the store", order),
    "noise": ("Injected noise", noise),
    "prefix": ("Prefix at a follow-up question", prefix),
}
OTHERS: Final = {
    "compaction": (
        "Compaction",
        "Share of answers that still stand in their passage when half of its tokens are kept.",
    ),
    "tenants": (
        "Tenants",
        "Envelopes that hold a canary of their own tenant (own) or of another one (leaked).",
    ),
    "answered": (
        "Answers of the model",
        "Share of right answers by where the gold passage stands and by length.",
    ),
}
_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;
padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;text-align:right;
border-bottom:1px solid #8884}td:first-child,th:first-child{text-align:left}
figure{margin:1rem 0}svg{max-width:100%;height:auto;background:#fff}
:root{color-scheme:light dark}"""


def page(report: Mapping[str, Any], drawn: Mapping[str, str]) -> str:
    """The whole file.

    Args:
        report: what `run` returned.
        drawn: SVG text by title, see `plots`.
    """
    results: Mapping[str, Sequence[Point]] = report["results"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Context rot</title>",
        f'<meta http-equiv=Content-Security-Policy content="{_CSP}">',
        f"<style>{_STYLE}</style><h1>Context rot</h1>",
        _settings(report),
    ]
    for name, points in results.items():
        title, about = _about(name)
        parts += [f"<h2>{escape(title)}</h2><p>{escape(about)}</p>", _table(points)]
    if drawn:
        parts.append("<h2>Curves</h2>")
    for title, svg in drawn.items():
        # From the first tag on: an XML head has no place within HTML.
        figure = svg[svg.index("<svg") :]
        parts.append(f"<figure><figcaption>{escape(title)}</figcaption>{figure}</figure>")
    return "\n".join(parts) + "\n</html>\n"


def _about(name: str) -> tuple[str, str]:
    if name in OTHERS:
        return OTHERS[name]
    title, scenario = TITLES[name]
    return title, (scenario.__doc__ or "").split("\n\n")[0]


def _settings(report: Mapping[str, Any]) -> str:
    told = {**report["settings"], **report["versions"]}
    rows = "".join(
        f"<tr><td>{escape(str(name))}<td>{escape(str(value))}" for name, value in told.items()
    )
    return f"<details><summary>Settings and versions</summary><table>{rows}</table></details>"


def _table(points: Sequence[Point]) -> str:
    names = list(dict.fromkeys(name for point in points for name in point))
    head = "".join(f"<th>{escape(name)}" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(point.get(name)))}" for name in names)
        for point in points
    )
    return f"<table><tr>{head}{rows}</table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return "" if value is None else str(value)


def by_length(points: Sequence[Point]) -> dict[int, list[Point]]:
    """The placed contexts' points by their number of passages, for a curve each."""
    found: dict[int, list[Point]] = {}
    for point in points:
        if point["system"] == "placed":
            found.setdefault(point["passages"], []).append(point)
    return found


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
