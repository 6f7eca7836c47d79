"""LlamaIndex's `SimpleVectorStore`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery

from crp_integrations.vectors import FloatRows


class LlamaIndexSimple:
    """Exact search over lists of floats; the texts are not kept."""

    name = f"LlamaIndex SimpleVectorStore {version('llama-index-core')}"
    # How many nodes a retriever over it gives where nothing is said.
    default_k = DEFAULT_SIMILARITY_TOP_K

    def __init__(self, ids: Sequence[str], texts: Sequence[str], rows: FloatRows) -> None:
        self._store = SimpleVectorStore()
        self._store.add(
            [
                TextNode(id_=id_, text=text, embedding=row)
                for id_, text, row in zip(ids, texts, rows.tolist(), strict=True)
            ]
        )

    def search(self, vector: FloatRows, k: int) -> list[tuple[str, float]]:
        """Ids and cosines of the k nearest."""
        query = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=k)
        found = self._store.query(query)
        return list(zip(found.ids or [], found.similarities or [], strict=True))
