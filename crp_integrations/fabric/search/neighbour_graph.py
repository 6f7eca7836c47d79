"""The nearest-neighbour graph of a large namespace, its file, and the file of the rows under it.

The graph is only a shortcut to rows whose exact scores decide, and its files only save building it.
Whatever is in doubt is thrown away: the search is then exact, and the next writer builds the graph
anew.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field, JsonValue, ValidationError

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import (
    Cache,
    CachedFile,
    CacheEntry,
    FactsFacet,
    GraphEngine,
    GraphIndex,
    LogMark,
    Transaction,
)
from crp_integrations.fabric.search.vector_index import (
    Block,
    GraphBase,
    IndexGraph,
    VectorIndex,
    checksum,
)
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING
from crp_integrations.records import Record
from crp_integrations.seals import sha256_hex
from crp_integrations.vectors import FloatRows

# Name of the cached file.
ROWS_FILE = "rows"
_STORED = np.dtype("<f4")
# Rows of a mapped file that are compared with their checksums.
_ROW_PROBES = 8
# A mapped file cannot be removed on this system, and what was erased has to go from the disk.
_CANNOT_REMOVE = sys.platform == "win32"


class RowsFile(Record):
    """What is said of a file of rows.

    Attributes:
        rows_of: what `rows_of` says of the graph that they are under.
    """

    SCHEMA = "rows-file/1"

    rows_of: str


def rows_digest(ids: Sequence[str], checksums: Sequence[int]) -> str:
    """SHA-256 of which rows a graph is over: their ids and checksums, in order."""
    return sha256_hex("\n".join([*ids, "", *map(str, checksums)]))


def save_rows(
    cache: Cache,
    ids: Sequence[str],
    checksums: Sequence[int],
    block: FloatRows,
    still_valid: Callable[[Transaction], bool],
) -> bool:
    """Keep the rows of a graph, shape (n, dimensions), little-endian float32."""
    about = RowsFile(rows_of=rows_digest(ids, checksums)).model_dump(mode="json")

    def write(path: str) -> None:
        block.astype(_STORED, copy=False).tofile(path)

    return cache.save(ROWS_FILE, about, write, still_valid)


def find_rows(cache: Cache, ids: Sequence[str], checksums: Sequence[int]) -> Block | None:
    """A function that maps the file of exactly these rows; the file is checked meanwhile."""
    entry = cache.find(ROWS_FILE)
    if entry is None or not _rows_fit(entry, ids, checksums):
        return None
    file = entry

    def rows() -> FloatRows | None:
        whole = file.whole()
        block = None if whole is None else _mapped(whole, len(ids))
        return block if block is not None and _rows_match(block, checksums) else None

    return rows


def _rows_fit(found: CacheEntry, ids: Sequence[str], checksums: Sequence[int]) -> bool:
    try:
        about = RowsFile.model_validate(found.about)
    except ValidationError:
        return False
    return about.rows_of == rows_digest(ids, checksums)


def _mapped(cached: CachedFile, rows: int) -> FloatRows | None:
    """The rows of a whole file, not to be written into."""
    try:
        if _CANNOT_REMOVE:
            flat = np.fromfile(cached.path, dtype=_STORED)
        else:
            flat = np.asarray(np.memmap(cached.path, dtype=_STORED, mode="r"))
    except (OSError, ValueError):
        # Another process has put a newer one in its place, or dropped it.
        return None
    if not flat.size or flat.size % rows:
        return None
    block: FloatRows = flat.reshape(rows, -1).astype(np.float32, copy=False)
    block.flags.writeable = False
    return block


def _rows_match(block: FloatRows, checksums: Sequence[int]) -> bool:
    """Whether a few rows are what their checksums say."""
    last = len(checksums) - 1
    places = np.linspace(0, last, min(_ROW_PROBES, len(checksums))).astype(np.intp).tolist()
    return all(checksum(block[place]) == checksums[place] for place in places)


# Name of the cached file.
GRAPH_FILE = "graph"
# Rows that a loaded graph is asked for by their own vectors, and how many of them it must find.
_GRAPH_PROBES = 8
_FOUND = 6

_log = logging.getLogger(__name__)


class GraphFile(Record):
    """What is said of a cached graph; all of it must fit before the file is opened.

    Attributes:
        sequence, token: mark of a state whose rows these are.
        ids, checksums: of its rows, in order.
        strays: ids for which that state has another row, or none, or one that the file lacks.
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
    strays: tuple[str, ...] = ()

    @property
    def mark(self) -> LogMark:
        """Of the state that the file says."""
        return LogMark(self.sequence, self.token)

    def changed_since(self, facts: FactsFacet) -> list[str] | None:
        """Ids whose rows may be others now; None when the log does not lead here from its state."""
        changed = facts.changes(self.mark)
        return None if changed is None else sorted({*changed, *self.strays})


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """A graph's file, as far as a writer must know it.

    Attributes:
        mark: of the state that it says.
        room: changes since then up to which it need not be built anew, whatever they are.
    """

    mark: LogMark
    room: int

    def enough(self, facts: FactsFacet) -> bool:
        """Whether no more than that has changed."""
        changed = facts.changes(self.mark)
        return changed is not None and len(changed) <= self.room


class NeighbourGraphs:
    """Builds, saves and loads the graphs of one namespace.

    Args:
        engine: the library behind it.
        cache: where its file lies; None keeps graphs in memory only.
    """

    def __init__(
        self, engine: GraphEngine, cache: Cache | None, settings: VectorGraphSettings
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._settings = settings
        # The state that the file says, as far as this process knows.
        self._says: LogMark | None = None

    @property
    def keeps(self) -> bool:
        """Whether graphs outlive the process."""
        return self._cache is not None

    def wanted(self, facts: int) -> bool:
        """Whether a namespace of this size has a graph.

        Spec: CRP-SPEC-009 §3.1
        """
        return facts > self._settings.exact_up_to

    def due(self, index: VectorIndex) -> bool:
        """Whether a graph is to be built: there is none, or too much has changed since.

        Spec: CRP-SPEC-009 §3.3
        """
        if not self.wanted(len(index)):
            return False
        return index.graph is None or index.worn > self._settings.rebuild_share

    def build(self, index: VectorIndex) -> VectorIndex:
        """The same facts with a graph over all of them, in the order of their ids.

        Spec: CRP-SPEC-009 §3.2, §3.3
        """
        merged = index.merged()
        built = self._engine.build(merged.base, self._settings)
        return merged.with_graph(self._graph(built))

    def save(self, index: VectorIndex, mark: LogMark, embedder: str) -> bool:
        """Keep a graph that was just built, for the next process."""
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

        saved = self._cache.save(GRAPH_FILE, about, index.graph.index.save, still_valid)
        if saved:
            save_rows(self._cache, index.base_ids, checksums, index.base, still_valid)
        self._says = mark if saved else None
        return saved

    def behind(self, index: VectorIndex, mark: LogMark) -> bool:
        """Whether the file says a state since which more was logged than a graph may lack."""
        if self._says is None or index.graph is None:
            return False
        return mark.sequence - self._says.sequence > self._settings.rebuild_share * len(
            index.base_ids
        )

    def restate(self, index: VectorIndex, mark: LogMark) -> bool:
        """Note in the file that it fits a later state, so that the next process compares less."""
        known, self._says = self._says, None

        def say(said: Mapping[str, JsonValue]) -> Mapping[str, JsonValue] | None:
            about = _graph_file(said)
            if about is None or about.mark != known or about.ids != index.base_ids:
                return None
            ours = np.flatnonzero(index.alive[: len(about.ids)]).tolist()
            if any(checksum(index.base[place]) != about.checksums[place] for place in ours):
                return None
            fields = {"sequence": mark.sequence, "token": mark.token, "strays": index.strays()}
            return about.changed(**fields).model_dump(mode="json")

        if self._cache is None or known is None or not self._cache.restate(GRAPH_FILE, say):
            return False
        self._says = mark
        return True

    def load(self, facts: FactsFacet) -> VectorIndex | None:
        """What a transaction sees, around the graph that was kept; None without a usable one."""
        # The file's bytes are hashed while the labels are read.
        file = None if self._cache is None else self._cache.find(GRAPH_FILE)
        about = None if file is None else self._fitting(facts, file.about)
        changed = None if about is None else about.changed_since(facts)
        if self._cache is None or file is None or about is None or changed is None:
            return None
        rows = find_rows(self._cache, about.ids, about.checksums)
        base = GraphBase(about.ids, about.checksums, about.dimensions)
        index = VectorIndex.over(facts, base, changed, rows)
        whole = file.whole()
        if whole is None:
            return None
        path = whole.path
        if index is None:
            self._drop("it does not fit its namespace", path)
            return None
        try:
            built = self._engine.load(path, index.base, self._settings)
            finds_rows = _finds_own_rows(built, index)
        except EngineError as error:
            self._drop(str(error), path)
            return None
        if not finds_rows:
            self._drop("it does not find its own rows", path)
            return None
        self._says = about.mark
        return index.with_graph(self._graph(built))

    def kept(self, facts: FactsFacet) -> SavedGraph | None:
        """A whole file whose state the log leads from; it is not loaded."""
        cached = None if self._cache is None else self._cache.load(GRAPH_FILE)
        about = None if cached is None else self._fitting(facts, cached.about)
        if about is None:
            return None
        room = int(self._settings.rebuild_share * len(about.ids)) - len(about.strays)
        saved = SavedGraph(about.mark, room)
        return None if facts.changes(saved.mark) is None else saved

    def _graph(self, built: GraphIndex) -> IndexGraph:
        return IndexGraph(built, self._settings.ef_search, self._settings.ef_beyond)

    def _fitting(self, facts: FactsFacet, said: Mapping[str, JsonValue]) -> GraphFile | None:
        """The description of the kept graph, if the graph fits the engine and the settings."""
        about = _graph_file(said)
        if about is None:
            cached = None if self._cache is None else self._cache.load(GRAPH_FILE)
            if cached is not None and cached.about == said:
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
            # Another process put no other file in its place meanwhile.
            _log.warning("the kept graph is thrown away: %s", why)
            self._cache.drop(GRAPH_FILE)


def _graph_file(about: Mapping[str, JsonValue]) -> GraphFile | None:
    try:
        read = GraphFile.model_validate(about)
    except ValidationError:
        return None
    return read if len(read.ids) == len(read.checksums) == len(set(read.ids)) else None


def _finds_own_rows(built: GraphIndex, index: VectorIndex) -> bool:
    """Whether a graph finds rows of the index by their own vectors."""
    alive = np.flatnonzero(index.alive[: len(index.base_ids)])
    if not alive.size:
        return False
    probes = alive[np.linspace(0, alive.size - 1, min(_GRAPH_PROBES, alive.size)).astype(np.intp)]
    hits = 0
    for place in probes.tolist():
        near = built.search(index.base[place], 1)
        # Two rows may have the same vector, so vectors are compared, not places.
        hits += bool(near.size) and np.array_equal(index.base[near[0]], index.base[place])
    return hits >= min(_FOUND, len(probes))
