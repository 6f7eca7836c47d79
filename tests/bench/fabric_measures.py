"""What is timed of our fabric: adding, ingestion, search, filters, words, communities."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations import Relay
from crp_integrations.engines.graphs import engine_for
from crp_integrations.errors import MissingExtra
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Block, Document, Fact, Where
from crp_integrations.fabric.settings import CommunitySettings, FabricSettings
from crp_integrations.fabric.similarity_graph import (
    ClusterReport,
    FactGraph,
    modularity,
)
from crp_integrations.ports import Embedder
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows, unit_rows
from tests.bench.fabric_corpus import Known, Passage
from tests.bench.measure import by_turns_ms, cpu_ms, median_ms, resident_mb

# No ingestion is to find communities by the way: that is measured by itself.
NEVER = 1_000_000_000


class Watch:
    """A tracer that adds up the processor time of each step, in milliseconds."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step."""
        before = time.process_time()
        try:
            yield
        finally:
            taken = (time.process_time() - before) * 1000
            self.steps[name] = self.steps.get(name, 0.0) + taken


class Instant:
    """Vectors out of a text's hash, for what is measured apart from embedding.

    Attributes:
        seconds: processor time spent within.
    """

    thresholds: dict[str, float] = {}

    def __init__(self, dimensions: int) -> None:
        self.identity = f"bench-instant/{dimensions}"
        self.dimensions = dimensions
        self.seconds = 0.0

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, dimensions)."""
        before = time.thread_time()
        seeds = [int(sha256(text)[7:23], 16) for text in texts]
        rows = [np.random.default_rng(s).standard_normal(self.dimensions) for s in seeds]
        block = unit_rows(np.array(rows, dtype=np.float32).reshape(len(texts), self.dimensions))
        self.seconds += time.thread_time() - before
        return block

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,)."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


@dataclass(frozen=True, slots=True)
class Opened:
    """A relay over a store, and what its steps took."""

    relay: Relay
    watch: Watch = field(default_factory=Watch)

    @property
    def namespace(self) -> Namespace:
        """The fabric's only way to read and write."""
        return self.relay.fabric


@contextmanager
def opened(folder: Path, embedder: Embedder) -> Iterator[Opened]:
    """A store opened as a user opens it, but for reclustering by itself."""
    settings = Settings(
        fabric=FabricSettings.model_validate(
            {
                "communities": CommunitySettings(recluster_after=NEVER),
                "maintain_on_open": False,
            }
        )
    )
    watch = Watch()
    with Relay.open(folder, embedder=embedder, settings=settings, tracer=watch) as relay:
        yield Opened(relay, watch)


def facts_of(passages: Sequence[Passage]) -> list[Fact]:
    """One fact a passage, with its package for a filter."""
    return [
        Fact(
            content=passage.text,
            source_location=f"{passage.path}#{passage.offset}",
            metadata={"package": passage.package},
        )
        for passage in passages
    ]


def documents_of(passages: Sequence[Passage]) -> list[Document]:
    """The passages as documents, one a file, as a loader would hand them over."""
    files: dict[str, list[Passage]] = {}
    for passage in passages:
        files.setdefault(passage.path, []).append(passage)
    found = []
    for path, parts in files.items():
        blocks, start = [], 0
        for part in parts:
            blocks.append(Block(text=part.text, start=start))
            start += len(part.text) + 2
        text = "\n\n".join(part.text for part in parts)
        found.append(
            Document(uri=path, title=path, blocks=tuple(blocks), document_hash=sha256(text))
        )
    return found


def add(into: Opened, facts: Sequence[Fact], embedder: Known) -> dict[str, float]:
    """Add facts in one batch; milliseconds a fact, without the time in the embedder."""
    inside = embedder.seconds
    taken = cpu_ms(lambda: into.namespace.add(facts))
    taken -= (embedder.seconds - inside) * 1000
    return {"facts": len(facts), "ms_per_fact": taken / len(facts)}


def ingest(folder: Path, passages: Sequence[Passage], dimensions: int) -> dict[str, float]:
    """Ingest the passages as documents into a store of their own, apart from embedding."""
    embedder = Instant(dimensions)
    documents = documents_of(passages)
    with opened(folder, embedder) as into:
        taken = cpu_ms(lambda: into.namespace.ingest(documents))
        stored = into.namespace.size()
    own = taken - embedder.seconds * 1000
    return {
        "documents": len(documents),
        "passages": len(passages),
        "facts": stored,
        "ms_per_passage": own / len(passages),
    }


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


# As the issue of the fabric and CRP-SPEC-009 §5.3 have it.
ITERATIONS, RESOLUTION, SEED = 10, 1.0, 0


def first(ours: Opened) -> dict[str, Any]:
    """Communities of a store that had none."""
    return _reclustered(ours)


def grown(ours: Opened) -> dict[str, Any]:
    """Communities after facts were added, and what leidenalg makes of the same graph."""
    report = _reclustered(ours)
    graph = ours.namespace.graph()
    report["leidenalg"] = _leidenalg(graph)
    return report


def _reclustered(ours: Opened) -> dict[str, Any]:
    ours.watch.steps.clear()
    held: list[ClusterReport] = []
    taken = cpu_ms(lambda: held.append(ours.namespace.recluster()))
    found = held[0]
    steps = {name.rpartition(".")[2]: ms for name, ms in ours.watch.steps.items()}
    return {
        "ms": taken,
        "steps_ms": steps,
        **found.model_dump(include={"facts", "searched", "edges", "communities", "warm", "engine"}),
        "modularity": found.modularity,
    }


def _leidenalg(graph: FactGraph) -> dict[str, Any]:
    try:
        engine = engine_for("leidenalg")
    except MissingExtra as error:
        return {"missing": str(error)}
    held: list[npt.NDArray[np.int64]] = []

    def partition() -> None:
        held.append(
            engine.partition(
                len(graph.ids),
                graph.left,
                graph.right,
                graph.weights,
                resolution=RESOLUTION,
                iterations=ITERATIONS,
                seed=SEED,
            )
        )

    taken = cpu_ms(partition)
    return {
        "name": engine.name,
        "ms": taken,
        "modularity": modularity(held[0], graph.left, graph.right, graph.weights, RESOLUTION),
    }
