"""LangChain's `EnsembleRetriever` over its BM25 and vector retrievers, and its search by MMR."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.vectors import FloatRows

Embed = Callable[[str], FloatRows]
# LangChain's own defaults, given here because reports name them.
CONSTANT, LAMBDA = 60, 0.5


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


def _store(
    ids: Sequence[str], texts: Sequence[str], rows: FloatRows, embed: Embed
) -> InMemoryVectorStore:
    store = InMemoryVectorStore(_Known(rows, embed))
    store.add_documents([Document(page_content=text) for text in texts], ids=list(ids))
    return store


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
        nearest = _store(ids, texts, rows, embed).as_retriever(search_kwargs={"k": depth})
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
        self._store = _store(ids, texts, rows, embed)
        self._depth = depth

    def rank(self, question: str) -> list[int]:
        """Places of the units in the order in which they were chosen."""
        found = self._store.max_marginal_relevance_search(
            question, k=max(1, self._depth // 2), fetch_k=self._depth, lambda_mult=LAMBDA
        )
        return [int(str(document.id)) for document in found]
