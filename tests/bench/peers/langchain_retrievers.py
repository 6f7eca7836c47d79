"""LangChain's retrievers: the ensemble, search by MMR, and contextual compression."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows

Embed = Callable[[str], FloatRows]
# LangChain's own defaults, given here because reports name them.
CONSTANT, LAMBDA = 60, 0.5
# Characters of a piece, as in LangChain's guide to contextual compression.
PIECE = 300


class _Known(Embeddings):
    """Hands out the vectors of the texts, which were made before, in their order."""

    def __init__(self, rows: FloatRows, embed: Embed) -> None:
        self._rows, self._embed = rows, embed

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        # Rows of numpy stand for lists of floats: the store makes an array of them anyway.
        return cast("list[list[float]]", list(self._rows[: len(texts)]))

    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = self._embed(text).tolist()
        return vector


def store(
    ids: Sequence[str], texts: Sequence[str], rows: FloatRows, embed: Embed
) -> InMemoryVectorStore:
    """Texts in LangChain's store, with vectors that were made before; an id is also metadata."""
    made = InMemoryVectorStore(_Known(rows, embed))
    given = [
        Document(page_content=text, metadata={"place": one})
        for one, text in zip(ids, texts, strict=True)
    ]
    made.add_documents(given, ids=list(ids))
    return made


class Ensemble:
    """Weighted rank fusion of BM25 (words between spaces, its default) and vector search."""

    name = f"LangChain EnsembleRetriever, langchain-core {version('langchain-core')}"

    def __init__(
        self, ids: Sequence[str], texts: Sequence[str], rows: FloatRows, embed: Embed, depth: int
    ) -> None:
        from langchain_classic.retrievers import EnsembleRetriever

        with warnings.catch_warnings():
            # The package says at import that it is not developed further; people still use it.
            warnings.simplefilter("ignore", DeprecationWarning)
            from langchain_community.retrievers import BM25Retriever

        known = [{"place": one} for one in ids]
        words = BM25Retriever.from_texts(texts, metadatas=known, ids=list(ids), k=depth)
        nearest = store(ids, texts, rows, embed).as_retriever(search_kwargs={"k": depth})
        self._retriever: Any = EnsembleRetriever(
            retrievers=[words, nearest], weights=[0.5, 0.5], c=CONSTANT
        )

    def rank(self, question: str) -> list[int]:
        """Places of the units, best first; of equal texts one."""
        return [int(document.id) for document in self._retriever.invoke(question)]


class Mmr:
    """`InMemoryVectorStore.max_marginal_relevance_search`: half of the nearest, spread out."""

    name = f"LangChain InMemoryVectorStore, MMR, langchain-core {version('langchain-core')}"

    def __init__(
        self, ids: Sequence[str], texts: Sequence[str], rows: FloatRows, embed: Embed, depth: int
    ) -> None:
        self._store = store(ids, texts, rows, embed)
        self._depth = depth

    def rank(self, question: str) -> list[int]:
        """Places of the units in the order in which they were chosen."""
        found = self._store.max_marginal_relevance_search(
            question, k=max(1, self._depth // 2), fetch_k=self._depth, lambda_mult=LAMBDA
        )
        return [int(str(document.id)) for document in found]


class _Embedding(Embeddings):
    """Embeds any text."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._embedder.embed_passages(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = self._embedder.embed_query(text).tolist()
        return vector


class Compression:
    """`ContextualCompressionRetriever` with the pipeline of LangChain's guide and no model call.

    What vector search gives is split into pieces, repeated ones are left out, and the pieces that
    are nearest to the question are kept. The guide's threshold of similarity is for another
    embedder; here the best so many pieces are kept instead.
    """

    name = f"LangChain ContextualCompressionRetriever, langchain-core {version('langchain-core')}"

    def __init__(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        rows: FloatRows,
        embedder: Embedder,
        depth: int,
        kept: int,
    ) -> None:
        from langchain_classic.retrievers import ContextualCompressionRetriever
        from langchain_classic.retrievers.document_compressors import (
            DocumentCompressorPipeline,
            EmbeddingsFilter,
        )
        from langchain_text_splitters import CharacterTextSplitter

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from langchain_community.document_transformers import EmbeddingsRedundantFilter

        source = store(ids, texts, rows, embedder.embed_query)
        # It says of each sentence that is longer than a piece that it is.
        logging.getLogger("langchain_text_splitters.base").setLevel(logging.ERROR)
        embeddings = _Embedding(embedder)
        pipeline = DocumentCompressorPipeline(
            transformers=[
                CharacterTextSplitter(chunk_size=PIECE, chunk_overlap=0, separator=". "),
                EmbeddingsRedundantFilter(embeddings=embeddings),
                EmbeddingsFilter(embeddings=embeddings, k=kept),
            ]
        )
        self._retriever: Any = ContextualCompressionRetriever(
            base_compressor=pipeline, base_retriever=source.as_retriever(search_kwargs={"k": depth})
        )

    def pieces(self, question: str) -> list[tuple[int, str]]:
        """The pieces kept, each with the place of its unit, best first."""
        found = self._retriever.invoke(question)
        return [(int(one.metadata["place"]), one.page_content) for one in found]
