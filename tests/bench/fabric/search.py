"""Vector and word search: ours by turns with the peers, on the same queries."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.records import Where
from crp_integrations.vectors import FloatRows
from tests.bench.fabric.store import Opened
from tests.bench.measure import by_turns_ms, cpu_ms, median_ms, resident_mb

K = 50
# Cosines of float32 rows are known to about this much.
FLOAT32 = 5e-7
Found = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Data:
    """What all stores hold, and what they are asked.

    Attributes:
        rows: unit rows of the facts, shape (facts, dimensions).
        members: places of the facts that the filter means.
        asked: unit rows that are searched for, of texts that no store holds.
        terms: words that are searched for.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    rows: FloatRows
    package: str
    members: frozenset[int]
    asked: FloatRows
    terms: Sequence[Sequence[str]]


def truth(rows: FloatRows, asked: FloatRows) -> npt.NDArray[np.float64]:
    """Cosines in float64, shape (queries, facts)."""
    cosines: npt.NDArray[np.float64] = asked.astype(np.float64) @ rows.astype(np.float64).T
    return cosines


def recall(
    found: Sequence[Found], exact: npt.NDArray[np.float64], place: dict[str, int], k: int = K
) -> float:
    """Mean share of the k best that were found; scores that float32 cannot tell apart are equal."""
    shares = []
    for hits, scores in zip(found, exact, strict=True):
        wanted = min(k, int(np.isfinite(scores).sum()))
        least = np.partition(scores, -wanted)[-wanted] - FLOAT32
        right = {id_ for id_, _ in hits if scores[place[id_]] >= least}
        shares.append(min(1.0, len(right) / wanted))
    return float(np.mean(shares))


def vector_search(ours: Opened, data: Data) -> dict[str, Any]:
    """Every store asked for the k nearest; times in milliseconds of processor time."""
    exact = truth(data.rows, data.asked)
    place = {id_: number for number, id_ in enumerate(data.ids)}
    asked, namespace = list(data.asked), ours.namespace
    mine: list[float] = []

    def search(vector: FloatRows) -> Found:
        return [(hit.fact_id, hit.score) for hit in namespace.nearest(vector, K)]

    def measured(store: Any) -> dict[str, Any]:
        own, taken = by_turns_ms(asked, search, lambda vector: store.search(vector, K))
        mine.extend(own)
        found = [store.search(vector, K) for vector in asked[: len(taken)]]
        return {
            "query_ms": statistics.median(taken),
            "queries": len(taken),
            "recall": recall(found, exact[: len(taken)], place),
        }

    beside = {key: _beside(make, measured) for key, make in _peers(data).items()}
    if not mine:
        mine.append(median_ms(asked, search)[0])
    return {
        "ours": {
            "name": "crp-integrations",
            "query_ms": statistics.median(mine),
            "queries": len(asked),
            "recall": recall([search(vector) for vector in asked], exact, place),
        },
        **beside,
    }


def filtered_search(ours: Opened, data: Data) -> dict[str, Any]:
    """The k nearest among about one fact in a hundred."""
    exact = truth(data.rows, data.asked)
    outside = np.ones(len(data.ids), dtype=np.bool_)
    outside[sorted(data.members)] = False
    exact[:, outside] = -np.inf
    place = {id_: number for number, id_ in enumerate(data.ids)}
    asked, namespace = list(data.asked), ours.namespace
    where = Where(metadata={"package": data.package})

    def search(vector: FloatRows) -> Found:
        return [(hit.fact_id, hit.score) for hit in namespace.nearest(vector, K, where)]

    first = cpu_ms(lambda: search(asked[0]))
    mine: list[float] = []

    def by_callback(store: Any) -> dict[str, Any]:
        def passed(vector: FloatRows) -> Found:
            try:
                return store.search(vector, K, data.members.__contains__)  # type: ignore[no-any-return]
            except RuntimeError:
                # It raises when it did not come across enough that pass.
                return []

        own, taken = by_turns_ms(asked, search, passed)
        mine.extend(own)
        hits = [passed(vector) for vector in asked[: len(taken)]]
        return {
            "query_ms": statistics.median(taken),
            "queries": len(taken),
            "recall": recall(hits, exact[: len(taken)], place),
            "unanswered": sum(not one for one in hits),
        }

    beside = _beside(_peers(data)["hnswlib"], by_callback)
    if not mine:
        mine.append(median_ms(asked, search)[0])
    return {
        "meant": len(data.members),
        "ours": {
            "name": "crp-integrations",
            "first_ms": first,
            "query_ms": statistics.median(mine),
            "queries": len(asked),
            "recall": recall([search(vector) for vector in asked], exact, place),
        },
        "hnswlib": beside,
    }


def word_search(ours: Opened, data: Data) -> dict[str, Any]:
    """Texts that hold any of 3 to 6 words, beside FTS5 by itself."""
    from tests.bench.lexical import overlap
    from tests.bench.peers.fts5 import RawFts5

    asked = [" ".join(terms) for terms in data.terms]
    namespace = ours.namespace

    def search(query: str) -> list[tuple[str, float]]:
        return [(hit.fact_id, hit.score) for hit in namespace.search_text(query, K)]

    first = cpu_ms(lambda: search(asked[0]))
    taken, queries = median_ms(asked, search)
    raw = RawFts5(data.ids, data.texts)
    beside, others = median_ms(data.terms, lambda terms: raw.search(terms, K))
    found = [search(query) for query in asked]
    return {
        "ours": {"first_ms": first, "query_ms": taken, "queries": queries},
        "fts5": {"name": RawFts5.name, "query_ms": beside, "queries": others},
        "overlap_10": overlap(found, [raw.search(terms, K) for terms in data.terms], 10),
    }


def _beside(make: Callable[[], Any], measure: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """What a peer took to be built and to answer; says so when it is not installed."""
    memory = resident_mb()
    made: list[Any] = []
    try:
        build = cpu_ms(lambda: made.append(make()))
    except ModuleNotFoundError as error:
        return {"missing": str(error)}
    store = made.pop()
    report = {
        "name": store.name,
        "build_ms": build,
        "memory_mb": resident_mb() - memory,
        **measure(store),
    }
    del store
    gc.collect()
    return report


def _peers(data: Data) -> dict[str, Callable[[], Any]]:
    def langchain() -> Any:
        from tests.bench.peers.langchain import LangChainInMemory

        return LangChainInMemory(data.ids, data.texts, data.rows)

    def llama_index() -> Any:
        from tests.bench.peers.llama_index import LlamaIndexSimple

        return LlamaIndexSimple(data.ids, data.texts, data.rows)

    def raw() -> Any:
        from tests.bench.peers.hnswlib import RawHnswlib

        return RawHnswlib(data.ids, data.rows)

    return {"hnswlib": raw, "langchain": langchain, "llama_index": llama_index}
