"""A fabric's embedder as LangChain's `Embeddings`."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from crp_integrations.adapters.arguments import check_embedder
from crp_integrations.ports import Embedder


class FabricEmbeddings(Embeddings):
    """The embedder whose vectors a fabric stores, for chains that embed for themselves.

    Args:
        embedder: a fabric's; `namespace.embedder`.

    Raises:
        RequestError: it is no embedder.
    """

    def __init__(self, embedder: Embedder) -> None:
        check_embedder(embedder)
        self.embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Unit vectors of passages."""
        rows: list[list[float]] = self.embedder.embed_passages(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a query."""
        row: list[float] = self.embedder.embed_query(text).tolist()
        return row
