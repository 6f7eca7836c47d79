"""Word search by tantivy, in memory: no file is written, so an erasure leaves nothing behind.

Texts and terms are cut into the stems that SQLite's FTS5 makes, so both find the same facts. The
scores differ a little: tantivy keeps the length of a text in one byte, and counts a removed text
among those that hold a word until its segment is merged. Its query language is never used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.language.words import stems_of

if TYPE_CHECKING:
    import tantivy

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

    Raises:
        MissingExtra: tantivy is not installed.
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
            raise _failed(self.name, "an index could not be made") from error
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
                found = self._searcher.search(query, wanted, count=False).hits
                hits = [(round(float(score), _DIGITS), place) for score, place in found]
                # Of what has the k-th score the ids decide, so all of it must be there.
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
            raise _failed(self._name, f"a search for {len(terms)} terms failed") from error
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
                raise _failed(self._name, "texts could not be indexed") from error
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


def _failed(name: str, what: str) -> EngineError:
    return EngineError(f"{name}: {what}", engine="tantivy", version=name.rpartition(" ")[2])
