"""The nearest-neighbour graph of a large namespace, and its file.

The graph only proposes rows, whose exact scores decide, and its file only saves building it again.
A doubtful file is deleted: the search is then exact, and the next writer rebuilds the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from pydantic import Field, JsonValue, ValidationError

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import (
    Cache,
    CachedFile,
    FactsFacet,
    GraphEngine,
    GraphIndex,
    LogMark,
    Transaction,
)
from crp_integrations.fabric.search.vector_index import GraphBase, IndexGraph, VectorIndex, checksum
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.records import Record

# Name of the cached file.
GRAPH_FILE = "graph"
# A loaded graph is tested with this many rows' own vectors, and must find at least so many of them.
_GRAPH_PROBES = 8
_MIN_PROBES_FOUND = 6

_log = logging.getLogger(__name__)


class GraphFile(Record):
    """The description of a cached graph; all of it must match before the file is opened.

    Attributes:
        sequence, token: mark of the state with which the graph was built.
        ids, checksums: ids and checksums of the graph's rows, in order.
    """

    SCHEMA = "graph-file/1"

    sequence: int = Field(ge=0)
    token: str
    embedder: str
    engine: str
    dimensions: int = Field(ge=1)
    m: int
    ef_construction: int
    metric: str
    seed: int
    ids: tuple[str, ...]
    checksums: tuple[int, ...]

    @property
    def mark(self) -> LogMark:
        """Mark of the state with which the graph was built."""
        return LogMark(self.sequence, self.token)


class NeighbourGraphs:
    """Builds, saves and loads the graphs of one namespace.

    Args:
        engine: the graph library.
        cache: stores the graph's file; None keeps graphs in memory only.
    """

    def __init__(
        self, engine: GraphEngine, cache: Cache | None, settings: VectorGraphSettings
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._settings = settings

    @property
    def keeps(self) -> bool:
        """Whether graphs are saved to a file."""
        return self._cache is not None

    def wanted(self, facts: int) -> bool:
        """Whether a namespace of this size needs a graph.

        Spec: CRP-SPEC-009 §3.1
        """
        return facts > self._settings.exact_up_to

    def due(self, index: VectorIndex) -> bool:
        """Whether a graph must be built: there is none, or too much has changed since.

        Spec: CRP-SPEC-009 §3.3
        """
        if not self.wanted(len(index)):
            return False
        return index.graph is None or index.worn > self._settings.rebuild_share

    def build(self, index: VectorIndex) -> VectorIndex:
        """Return the same facts, sorted by id, with a graph over all of them.

        Spec: CRP-SPEC-009 §3.2, §3.3
        """
        merged = index.merged()
        built = self._engine.build(merged.base, self._settings)
        return merged.with_graph(self._graph(built))

    def save(self, index: VectorIndex, mark: LogMark, embedder: str) -> bool:
        """Save a graph that was just built, for other processes."""
        if self._cache is None or index.graph is None:
            return False
        checksums = [checksum(row) for row in index.base]
        about = GraphFile(
            sequence=mark.sequence,
            token=mark.token,
            embedder=embedder,
            dimensions=index.dimensions,
            ids=index.base_ids,
            checksums=tuple(checksums),
            engine=self._engine.name,
            m=self._settings.m,
            ef_construction=self._settings.ef_construction,
            metric=self._settings.metric,
            seed=self._settings.seed,
        ).model_dump(mode="json")
        built_with = dict(zip(index.base_ids, checksums, strict=True))

        def still_valid(transaction: Transaction) -> bool:
            changed = transaction.facts.changes(mark)
            if changed is None:
                return False
            ours = [id_ for id_ in changed if id_ in built_with]
            if len(transaction.facts.get(ours)) < len(ours):
                return False
            rows = transaction.facts.vectors(ours)
            return all(
                checksum(row) == built_with[id_] for id_, row in zip(ours, rows, strict=True)
            )

        return self._cache.save(GRAPH_FILE, about, index.graph.index.save, still_valid)

    def load(self, facts: FactsFacet) -> VectorIndex | None:
        """Load the saved graph and the rows a transaction sees; None without a usable graph."""
        cached = None if self._cache is None else self._cache.load(GRAPH_FILE)
        about = None if cached is None else self._fitting(facts, cached)
        changed = None if about is None else facts.changes(about.mark)
        if cached is None or about is None or changed is None:
            return None
        base = GraphBase(about.ids, about.checksums, about.dimensions)
        index = VectorIndex.over(facts, base, changed)
        if index is None:
            self._drop("it does not fit its namespace", cached.path)
            return None
        try:
            built = self._engine.load(cached.path, index.base, self._settings)
            finds_rows = _finds_own_rows(built, index)
        except EngineError as error:
            self._drop(str(error), cached.path)
            return None
        if not finds_rows:
            self._drop("it does not find its own rows", cached.path)
            return None
        return index.with_graph(self._graph(built))

    def is_kept(self, facts: FactsFacet) -> bool:
        """Whether the saved file matches and the log still covers its state; it is not loaded."""
        cached = None if self._cache is None else self._cache.load(GRAPH_FILE)
        about = None if cached is None else self._fitting(facts, cached)
        return about is not None and facts.changes(about.mark) is not None

    def _graph(self, built: GraphIndex) -> IndexGraph:
        return IndexGraph(built, self._settings.ef_search, self._settings.ef_beyond)

    def _fitting(self, facts: FactsFacet, cached: CachedFile) -> GraphFile | None:
        """The description of the saved graph, if it matches the engine and the settings."""
        about = _graph_file(cached.about)
        if about is None:
            self._drop("it has a description of another form", cached.path)
            return None
        wanted = self._settings
        fits = (
            about.engine == self._engine.name
            and about.embedder == facts.setting(EMBEDDER_SETTING)
            and (about.m, about.ef_construction) == (wanted.m, wanted.ef_construction)
            and (about.metric, about.seed) == (wanted.metric, wanted.seed)
        )
        return about if fits else None

    def _drop(self, why: str, path: str) -> None:
        if self._cache is None:
            return
        now = self._cache.load(GRAPH_FILE)
        if now is None or now.path == path:
            # Still the same file: no other process has replaced it meanwhile.
            _log.warning("the saved graph is deleted: %s", why)
            self._cache.drop(GRAPH_FILE)


def _graph_file(about: Mapping[str, JsonValue]) -> GraphFile | None:
    try:
        read = GraphFile.model_validate(about)
    except ValidationError:
        return None
    return read if len(read.ids) == len(read.checksums) == len(set(read.ids)) else None


def _finds_own_rows(built: GraphIndex, index: VectorIndex) -> bool:
    """Whether a graph finds sample rows of the index by their own vectors."""
    alive = np.flatnonzero(index.alive[: len(index.base_ids)])
    if not alive.size:
        return False
    probes = alive[np.linspace(0, alive.size - 1, min(_GRAPH_PROBES, alive.size)).astype(np.intp)]
    hits = 0
    for place in probes.tolist():
        near = built.search(index.base[place], 1)
        # Two rows may have the same vector, so vectors are compared, not positions.
        hits += bool(near.size) and np.array_equal(index.base[near[0]], index.base[place])
    return hits >= min(_MIN_PROBES_FOUND, len(probes))
