"""LangChain's redundancy filter, trimming and reordering, and its maximal marginal relevance."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from crp_integrations.vectors import FloatRows

_COMMUNITY = "langchain_community.document_transformers"


class _Given(Embeddings):
    """Hands out vectors that were made before, as the lists that the interface asks for."""

    def __init__(self, texts: Sequence[str], rows: FloatRows) -> None:
        self._row = dict(zip(texts, rows.tolist(), strict=True))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._row[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


class LangChainChain:
    """`EmbeddingsRedundantFilter`, trimming to a budget, `LongContextReorder`.

    The first and the last are those of langchain-community where it is installed; elsewhere
    the same steps are written out here, and the name says so. The trimming is that of
    `RetrievalQAWithSourcesChain`, which counts every document each time.
    """

    def __init__(self, texts: Sequence[str], rows: FloatRows, similarity: float) -> None:
        self._documents = [Document(page_content=text) for text in texts]
        embeddings = _Given(texts, rows)
        try:
            community = importlib.import_module(_COMMUNITY)
        except ImportError:
            self.name = "LangChain redundancy filter, trim, reorder (steps of 0.4.2 written out)"
            self._filter: Callable[[list[Document]], Sequence[Document]] = lambda documents: (
                _without_redundant(embeddings, documents, similarity)
            )
            self._reorder: Callable[[list[Document]], Sequence[Document]] = _reordered
        else:
            number = version("langchain-community")
            self.name = f"LangChain redundancy filter, trim, reorder (community {number})"
            redundant: Any = community.EmbeddingsRedundantFilter(
                embeddings=embeddings, similarity_threshold=similarity
            )
            self._filter = redundant.transform_documents
            self._reorder = community.LongContextReorder().transform_documents

    def run(self, count: Callable[[str], int], budget_tokens: int) -> list[str]:
        """The texts in their order, as many of the first as fit the budget."""
        kept = list(self._filter(self._documents))
        tokens = [count(document.page_content) for document in kept]
        number, total = len(kept), sum(tokens)
        while total > budget_tokens:
            number -= 1
            total -= tokens[number]
        return [document.page_content for document in self._reorder(kept[:number])]


class LangChainMMR:
    """`maximal_marginal_relevance` of langchain-core, as its vector stores call it."""

    name = f"LangChain maximal_marginal_relevance (core {version('langchain-core')})"

    def __init__(self, vector: FloatRows, rows: FloatRows) -> None:
        self._vector = np.array(vector, dtype=np.float32)
        self._rows = rows.tolist()

    def run(self, k: int) -> list[int]:
        """Positions of the k picked."""
        return maximal_marginal_relevance(self._vector, self._rows, k=k)


def _without_redundant(
    embeddings: Embeddings, documents: list[Document], similarity: float
) -> list[Document]:
    rows = embeddings.embed_documents([document.page_content for document in documents])
    left, right = np.array(rows), np.array(rows)
    lengths = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.dot(left, right.T) / lengths
    cosines[np.isnan(cosines) | np.isinf(cosines)] = 0.0
    lower = np.tril(cosines, k=-1)
    redundant = np.where(lower > similarity)
    pairs = np.column_stack(redundant)[np.argsort(lower[redundant])[::-1]]
    kept = set(range(len(rows)))
    for first, second in pairs:
        if first in kept and second in kept:
            kept.remove(second)
    return [documents[place] for place in sorted(kept)]


def _reordered(documents: list[Document]) -> list[Document]:
    found: list[Document] = []
    for place, document in enumerate(reversed(documents)):
        if place % 2 == 1:
            found.append(document)
        else:
            found.insert(0, document)
    return found
