"""Search engines: nearest-neighbour graphs by hnswlib, word search by tantivy in memory.

hnswlib believes whatever a file says. So the caller checks a file's hash, and `load` reads its
header and compares it with what is wanted before hnswlib sees it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.language.words import stems_of
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    import tantivy

LIBRARY = "hnswlib"
# The head of a saved index: offset of layer 0, room, elements, bytes of an element, offsets of its
# label and vector, top layer, entry point, connections above layer 0, in it, and as set.
_HEAD = struct.Struct("<QQQQQQiIQQQ")
_LABEL_BYTES = 8
# What hnswlib says when it found fewer rows than it was asked for.
_TOO_FEW = "Cannot return the results"


class HnswGraph:
    """A built graph; searches may run side by side."""

    def __init__(self, index: Any, version: str) -> None:
        self._index = index
        self._version = version

    def search(self, vector: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
        """Rows near a unit vector, at most k, nearest first; none when fewer are within reach."""
        count = min(k, self._index.get_current_count())
        if count <= 0:
            return np.zeros(0, dtype=np.int64)
        try:
            # hnswlib looks at as many candidates as `ef` says, or as are asked for if that is more.
            labels, _ = self._index.knn_query(vector, k=count, num_threads=1)
        except RuntimeError as error:
            if _TOO_FEW in str(error):
                return np.zeros(0, dtype=np.int64)
            raise _wrapped("could not search", error, self._version) from error
        rows: npt.NDArray[np.int64] = labels[0].astype(np.int64)
        return rows

    def save(self, path: str) -> None:
        """Write the graph to a file."""
        try:
            self._index.save_index(path)
            # hnswlib says nothing about a folder that is not there or a disk without room.
            length, wanted = Path(path).stat().st_size, self._index.index_file_size()
        except (RuntimeError, OSError) as error:
            raise _wrapped("could not write a graph", error, self._version) from error
        if length != wanted:
            raise _graph_failed(
                f"{LIBRARY} wrote {length} bytes of a graph, wanted {wanted}", self._version
            )


class HnswEngine:
    """Builds and loads graphs with hnswlib.

    Spec: CRP-SPEC-009 §3.2
    """

    def __init__(self) -> None:
        try:
            import hnswlib
        except ImportError as error:
            raise MissingExtra("hnsw", "a nearest-neighbour graph") from error
        self._library = hnswlib
        self._version = version(LIBRARY)

    @property
    def name(self) -> str:
        """Library and version."""
        return f"{LIBRARY}/{self._version}"

    def build(self, block: FloatRows, settings: VectorGraphSettings) -> HnswGraph:
        """Build a graph over unit rows, shape (n, dimensions), in their order.

        One thread adds one row after the other: two would build another graph each time.
        """
        if block.ndim != 2 or not block.size:
            raise _graph_failed(
                f"rows have shape {block.shape}, wanted (n, dimensions) of at least one row",
                self._version,
            )
        # hnswlib takes what is not a number, and then finds nothing near it.
        if not np.isfinite(block).all():
            raise _graph_failed("a row holds a value that is not finite", self._version)
        try:
            index = self._library.Index(space=settings.metric, dim=block.shape[1])
            index.init_index(
                max_elements=len(block),
                M=settings.m,
                ef_construction=settings.ef_construction,
                random_seed=settings.seed,
            )
            index.add_items(block, np.arange(len(block)), num_threads=1)
            index.set_ef(settings.ef_search)
        except RuntimeError as error:
            raise _wrapped("could not build a graph", error, self._version) from error
        return HnswGraph(index, self._version)

    def load(self, path: str, block: FloatRows, settings: VectorGraphSettings) -> HnswGraph:
        """Read a graph that was saved for exactly these rows; its hash was checked before."""
        self._check_head(path, block, settings)
        try:
            index = self._library.Index(space=settings.metric, dim=block.shape[1])
            index.load_index(path)
            index.set_ef(settings.ef_search)
        except RuntimeError as error:
            raise _wrapped("could not read a graph", error, self._version) from error
        return HnswGraph(index, self._version)

    def _check_head(self, path: str, block: FloatRows, settings: VectorGraphSettings) -> None:
        rows, dimensions = block.shape
        try:
            with Path(path).open("rb") as file:
                head = file.read(_HEAD.size)
                length = file.seek(0, 2)
        except OSError as error:
            raise _wrapped("could not read a graph", error, self._version) from error
        if len(head) < _HEAD.size:
            raise _graph_failed(
                f"a graph's file has {len(head)} bytes, wanted at least {_HEAD.size}", self._version
            )
        _, room, count, element, label, vector, _, entry, upper, lower, m = _HEAD.unpack(head)
        seen = (room, count, label - vector, m, upper, lower, element - label, entry < count)
        fits = (rows, rows, 4 * dimensions, settings.m, settings.m, 2 * settings.m)
        if seen != (*fits, _LABEL_BYTES, True) or length < rows * element:
            raise _graph_failed(
                f"a graph's file holds {count} rows of {(label - vector) // 4} dimensions and "
                f"{m} connections, wanted {rows}, {dimensions} and {settings.m}",
                self._version,
            )


def available() -> HnswEngine | None:
    """The engine, or None where hnswlib is not installed."""
    try:
        return HnswEngine()
    except MissingExtra:
        return None


def _wrapped(what: str, error: Exception, version: str) -> EngineError:
    return _graph_failed(f"{LIBRARY} {what}: {error}", version)


def _graph_failed(what: str, version: str) -> EngineError:
    return EngineError(what, engine=LIBRARY, version=version)


# Bytes that a writer may hold; the library wants 15 million at least.
_BUILD_HEAP = 128_000_000
_CHANGE_HEAP = 15_000_000
# Equal texts get sums that differ in the last bits, by the order in which words were met.
_DIGITS = 4
# What the library raises: for arguments, for its own errors, for a thread that was lost.
_FAILURES = (ValueError, OSError, RuntimeError)


def lexical_for(name: str) -> TantivyLexical | None:
    """The engine of the word search by the setting's name; None for `fts5`, the store's own."""
    return None if name == "fts5" else TantivyLexical()


class TantivyLexical:
    """Builds word indexes with tantivy.

    Attributes:
        name: library and version.
    """

    def __init__(self) -> None:
        try:
            import tantivy
        except ModuleNotFoundError as error:
            raise MissingExtra("lexical", "the word search tantivy") from error
        self.name = f"tantivy {version('tantivy')}"
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        schema.add_text_field("text", tokenizer_name="stems", index_option="position")
        self._schema = schema.build()

    def build(self, texts: Iterable[tuple[str, str]]) -> TantivyIndex:
        """Index texts by id."""
        import tantivy

        # The stems are joined with blanks, and cut there again.
        blanks = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        try:
            index = tantivy.Index(self._schema)
            index.register_tokenizer("stems", blanks)
        except _FAILURES as error:
            raise _word_index_failed(self.name, "an index could not be made") from error
        empty = TantivyIndex(self.name, self._schema, index, threading.Lock())
        return empty.written((), texts, _BUILD_HEAP)


class TantivyIndex:
    """The words of one state; a later state has a view of its own over the same index."""

    def __init__(
        self, name: str, schema: tantivy.Schema, index: tantivy.Index, lock: threading.Lock
    ) -> None:
        self._name = name
        self._schema = schema
        self._index = index
        self._lock = lock
        self._searcher = index.searcher()

    def search(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best texts that hold any of the terms: id and BM25 score above 0, ties by id.

        A term of several words is a phrase.
        """
        query = self._query(terms)
        if query is None or k <= 0:
            return []
        wanted = k + 1
        try:
            while True:
                results = self._searcher.search(query, wanted, count=False).hits
                hits = [(round(float(score), _DIGITS), place) for score, place in results]
                # Ids decide among texts with the k-th score, so all of those must be read.
                if len(hits) < wanted or hits[-1][0] < hits[k - 1][0]:
                    break
                wanted *= 4
            least = hits[min(k, len(hits)) - 1][0] if hits else 0.0
            named = [
                (str(self._searcher.doc(place)["id"][0]), score)
                for score, place in hits
                if score >= least
            ]
        except _FAILURES as error:
            raise _word_index_failed(
                self._name, f"a search for {len(terms)} terms failed"
            ) from error
        return sorted(named, key=lambda hit: (-hit[1], hit[0]))[:k]

    def changed(self, removed: Sequence[str], added: Iterable[tuple[str, str]]) -> TantivyIndex:
        """The index of a later state; this one goes on answering for its own."""
        return self.written(removed, added, _CHANGE_HEAP)

    def written(
        self, removed: Sequence[str], added: Iterable[tuple[str, str]], heap: int
    ) -> TantivyIndex:
        """What `changed` and the engine's `build` do."""
        import tantivy

        with self._lock:
            try:
                writer = self._index.writer(heap, 1)
                if removed:
                    writer.delete_documents_by_query(
                        tantivy.Query.term_set_query(self._schema, "id", list(removed))
                    )
                for id_, text in added:
                    document = tantivy.Document()
                    document.add_text("id", id_)
                    document.add_text("text", " ".join(stems_of(text)))
                    writer.add_document(document)
                writer.commit()
                writer.wait_merging_threads()
                self._index.reload()
            except _FAILURES as error:
                raise _word_index_failed(self._name, "texts could not be indexed") from error
            return TantivyIndex(self._name, self._schema, self._index, self._lock)

    def _query(self, terms: Sequence[str]) -> tantivy.Query | None:
        import tantivy

        parts = []
        for words in dict.fromkeys(stems_of(term) for term in terms):
            if len(words) == 1:
                parts.append(tantivy.Query.term_query(self._schema, "text", words[0]))
            elif words:
                parts.append(tantivy.Query.phrase_query(self._schema, "text", list(words)))
        if not parts:
            return None
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])


def _word_index_failed(name: str, what: str) -> EngineError:
    return EngineError(f"{name}: {what}", engine="tantivy", version=name.rpartition(" ")[2])
