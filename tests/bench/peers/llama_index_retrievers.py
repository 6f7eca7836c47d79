"""LlamaIndex's `VectorIndexRetriever`, and `QueryFusionRetriever` over it and its BM25."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import NodeWithScore, TextNode
from pydantic import PrivateAttr

from crp_integrations.vectors import FloatRows

Embed = Callable[[str], FloatRows]


class _Known(BaseEmbedding):
    """Embeds questions; the nodes bring their vectors along."""

    _embed: Embed = PrivateAttr()

    def __init__(self, embed: Embed) -> None:
        super().__init__(model_name="known")
        self._embed = embed

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._embed(query).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_query_embedding(text)


class Retriever:
    """Any retriever of theirs over nodes whose ids are places."""

    def __init__(self, name: str, retriever: Any) -> None:
        self.name = f"LlamaIndex {name}, llama-index-core {version('llama-index-core')}"
        self._retriever = retriever

    def rank(self, question: str) -> list[int]:
        """Places of the units, best first."""
        return [int(one.node.node_id) for one in self.nodes(question)]

    def nodes(self, question: str) -> list[NodeWithScore]:
        """What is found, best first."""
        found: list[NodeWithScore] = self._retriever.retrieve(question)
        return found


def vector(
    ids: Sequence[str], texts: Sequence[str], rows: FloatRows, embed: Embed, depth: int
) -> Retriever:
    """The retriever of a `VectorStoreIndex` in memory."""
    return Retriever("VectorIndexRetriever", _vector(_nodes(ids, texts, rows), embed, depth))


def fusion(
    ids: Sequence[str], texts: Sequence[str], rows: FloatRows, embed: Embed, depth: int
) -> Retriever:
    """Reciprocal rank fusion of the vector retriever and `BM25Retriever`, one query, no model."""
    from llama_index.retrievers.bm25 import BM25Retriever

    nodes = _nodes(ids, texts, rows)
    words = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=min(depth, len(nodes)))
    fused = QueryFusionRetriever(
        [_vector(nodes, embed, depth), words],
        # One query asks no model; the mock stands where a model must be named.
        llm=MockLLM(),
        mode=FUSION_MODES.RECIPROCAL_RANK,
        similarity_top_k=depth,
        num_queries=1,
        use_async=False,
    )
    return Retriever("QueryFusionRetriever", fused)


def _nodes(ids: Sequence[str], texts: Sequence[str], rows: FloatRows) -> list[TextNode]:
    return [
        TextNode(id_=one, text=text, embedding=row)
        for one, text, row in zip(ids, texts, rows.tolist(), strict=True)
    ]


def _vector(nodes: list[TextNode], embed: Embed, depth: int) -> Any:
    index = VectorStoreIndex(nodes, embed_model=_Known(embed))
    return index.as_retriever(similarity_top_k=depth)
