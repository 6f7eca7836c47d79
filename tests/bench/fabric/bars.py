"""What issue and specification ask of the fabric, each beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bar:
    """One demand.

    Attributes:
        wanted: in words, with its number.
        measured: the figures, in words.
        met: None where something needed is missing, such as a peer that is not installed.
    """

    name: str
    wanted: str
    measured: str
    met: bool | None


def bars(sizes: dict[str, Any], ingestion: dict[str, Any]) -> list[dict[str, Any]]:
    """The demands that the measured sizes speak about; others are left out."""
    found = [_ingestion(ingestion)] if ingestion else []
    for size, measured in sizes.items():
        found += [_tried(make, size, measured) for make in DEMANDS.get(size, ())]
    return [asdict(bar) for bar in found]


def _tried(make: Callable[[str, dict[str, Any]], Bar], size: str, measured: dict[str, Any]) -> Bar:
    try:
        return make(size, measured)
    except KeyError as missing:
        return Bar(make.__name__.strip("_"), "", f"{size}: nothing measured for {missing}", None)


def _beside_langchain(size: str, measured: dict[str, Any]) -> Bar:
    ours, other = measured["search"]["ours"], measured["search"]["langchain"]
    ratio = other["query_ms"] / ours["query_ms"]
    return Bar(
        f"query at {size}",
        "at least 100 times LangChain's in-memory store, recall 1.0",
        f"{ratio:.0f} times, recall {ours['recall']:.4f}",
        ratio >= 100 and ours["recall"] >= 1.0,
    )


def _beside_hnswlib(size: str, measured: dict[str, Any]) -> Bar:
    ours, other = measured["search"]["ours"], measured["search"]["hnswlib"]
    ratio = ours["query_ms"] / other["query_ms"]
    return Bar(
        f"query at {size}",
        "at most twice raw hnswlib, recall at least .98",
        f"{ratio:.2f} times, recall {ours['recall']:.4f} (hnswlib {other['recall']:.4f})",
        ratio <= 2.0 and ours["recall"] >= 0.98,
    )


def _filter(size: str, measured: dict[str, Any]) -> Bar:
    ours, other = measured["filter"]["ours"], measured["filter"]["hnswlib"]
    ratio = other["query_ms"] / ours["query_ms"]
    return Bar(
        f"1 % filter at {size}",
        "at least 100 times hnswlib's Python filter, recall 1.0",
        f"{ratio:.0f} times, recall {ours['recall']:.4f} (hnswlib {other['recall']:.4f})",
        ratio >= 100 and ours["recall"] >= 1.0,
    )


def _reclustering(size: str, measured: dict[str, Any]) -> Bar:
    ours = measured["reclustering"]["after_growth"]
    other = ours["leidenalg"]
    ratio = other["ms"] / ours["ms"]
    lost = other["modularity"] - ours["modularity"]
    return Bar(
        f"reclustering at {size}",
        "at least 10 times leidenalg (10 iterations) from scratch, modularity within .001",
        f"{ratio:.1f} times, modularity {ours['modularity']:.5f} ({-lost:+.5f})",
        ratio >= 10 and lost <= 0.001,
    )


def _opening(size: str, measured: dict[str, Any]) -> Bar:
    seconds = measured["opening"]["open_s"]
    each = measured["opening"]["each_s"]
    said = f"{seconds:.2f} s, median of {len(each)} processes ({min(each):.2f} to {max(each):.2f})"
    return Bar(f"opening {size}", "under 2 s", said, seconds < 2.0)


def _ingestion(measured: dict[str, Any]) -> Bar:
    taken = measured["ms_per_passage"]
    wanted = "under 3 ms a passage, apart from embedding"
    return Bar("ingestion", wanted, f"{taken:.2f} ms", taken < 3.0)


def _adding(size: str, measured: dict[str, Any]) -> Bar:
    taken = measured["adding"]["ms_per_fact"]
    wanted = "under 3 ms a fact in one batch, apart from embedding"
    return Bar(f"adding {size}", wanted, f"{taken:.2f} ms", taken < 3.0)


# By the number of facts that each demand speaks of.
DEMANDS: dict[str, tuple[Callable[[str, dict[str, Any]], Bar], ...]] = {
    "10000": (_beside_langchain,),
    "100000": (_beside_hnswlib, _filter, _reclustering, _adding, _opening),
}
