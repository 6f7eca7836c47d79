"""LangChain's `InMemoryVectorStore`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib.metadata import version

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.vectors import FloatRows


class _Given(Embeddings):
    """Hands out vectors that were made before, in their order."""

    def __init__(self, rows: FloatRows) -> None:
        self._rows = rows.tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._rows[: len(texts)]
        return rows

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


class LangChainInMemory:
    """Exact search over lists of floats."""

    name = f"LangChain InMemoryVectorStore {version('langchain-core')}"
    # How many documents a retriever over it gives where nothing is said.
    default_k: int = (
        inspect.signature(InMemoryVectorStore.similarity_search).parameters["k"].default
    )

    def __init__(self, ids: Sequence[str], texts: Sequence[str], rows: FloatRows) -> None:
        self._store = InMemoryVectorStore(_Given(rows))
        documents = [Document(page_content=text) for text in texts]
        self._store.add_documents(documents, ids=list(ids))

    def search(self, vector: FloatRows, k: int) -> list[tuple[str, float]]:
        """Ids and cosines of the k nearest."""
        found = self._store.similarity_search_with_score_by_vector(vector.tolist(), k)
        return [(str(document.id), score) for document, score in found]
