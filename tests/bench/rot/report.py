"""The report as one HTML file: a table for each scenario, the plots within it, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from tests.bench.rot import scenarios
from tests.bench.rot.scenarios import Point

TITLES: Final = {
    "distractors": ("Distractors and budget", scenarios.distractors),
    "growing": ("Growing contexts", scenarios.growing),
    "order": ("Order of the store", scenarios.order),
    "noise": ("Injected noise", scenarios.noise),
    "prefix": ("Prefix at a follow-up question", scenarios.prefix),
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
