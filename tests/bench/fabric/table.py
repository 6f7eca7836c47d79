"""The report of a measurement as rows for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The rows of the report: facts, what, milliseconds, times ours, recall, remark."""
    for size, measured in report["sizes"].items():
        for section, what in (("search", "query"), ("filter", "1 % filter")):
            ours = measured[section]["ours"]
            for store in measured[section].values():
                if isinstance(store, dict):
                    yield (size, *_row(what, store, ours["query_ms"]))
        for key, name in (("words", "FTS5"), ("words_tantivy", "tantivy")):
            if key in measured:
                mine, raw = measured[key]["ours"], measured[key]["fts5"]
                again = f"{mine['query_ms'] / raw['query_ms']:.2f} × raw FTS5"
                first = f"first {mine['first_ms']:.0f} ms"
                row = (f"words, {name}", f"{mine['query_ms']:.3f}", "", "", f"{again}, {first}")
                yield (size, *row)
        for key, name in (("first", "first"), ("after_growth", "after 1 % growth")):
            found = measured["reclustering"][key]
            remark = f"modularity {found['modularity']:.5f}, {found['edges']} edges"
            yield size, f"communities, {name}", f"{found['ms']:.0f}", "", "", remark
        other = measured["reclustering"]["after_growth"]["leidenalg"]
        if "ms" in other:
            mine = measured["reclustering"]["after_growth"]["ms"]
            remark = f"modularity {other['modularity']:.5f}"
            row = (other["name"], f"{other['ms']:.0f}", f"{other['ms'] / mine:.1f}", "", remark)
            yield (size, *row)
        added = measured["adding"]["ms_per_fact"]
        yield size, "adding, a fact", f"{added:.3f}", "", "", "one batch, apart from embedding"
        found = measured["opening"]
        remark = f"{found['open_s']:.2f} s by the clock, {found['memory_mb']:.0f} MB in RAM after"
        yield size, "opening and first search", f"{found['open_cpu_s'] * 1000:.0f}", "", "", remark
    taken = report["ingestion"]["ms_per_passage"]
    number = report["ingestion"]["passages"]
    yield str(number), "ingesting, a passage", f"{taken:.3f}", "", "", "apart from embedding"


def _row(what: str, store: dict[str, Any], ours: float) -> tuple[str, ...]:
    if "missing" in store:
        return what, "", "", "", store["missing"]
    remark = []
    if "first_ms" in store:
        remark.append(f"first {store['first_ms']:.0f} ms")
    if "build_ms" in store:
        remark.append(f"build {store['build_ms'] / 1000:.1f} s, {store['memory_mb']:.0f} MB")
    return (
        f"{what}, {store['name']}",
        f"{store['query_ms']:.3f}",
        f"{store['query_ms'] / ours:.1f}",
        f"{store['recall']:.4f}",
        ", ".join(remark),
    )
