"""A fabric's embedder as LlamaIndex's embedding model."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from crp_integrations.adapters.arguments import check_embedder
from crp_integrations.llama_index.given import check_fields
from crp_integrations.ports import Embedder


class FabricEmbedding(BaseEmbedding):
    """The embedder whose vectors a fabric stores: the `embed_model` of an index over it.

    Args:
        embedder: a fabric's; `namespace.embedder`.

    Raises:
        RequestError: it is no embedder, or there is no such field.
    """

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **fields: Any) -> None:
        check_embedder(embedder)
        given = check_fields(type(self), fields)
        super().__init__(**{"model_name": embedder.identity, **given})
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "FabricEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = self._embedder.embed_query(query).tolist()
        return row

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._embedder.embed_passages(texts).tolist()
        return rows

    async def _aget_query_embedding(self, query: str) -> list[float]:
        # Embedding is computing, not waiting: it runs beside the event loop, not on it.
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)
