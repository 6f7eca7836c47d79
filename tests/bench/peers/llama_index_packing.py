"""LlamaIndex's maximal marginal relevance, and its postprocessors one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.postprocessor import LongContextReorder, SimilarityPostprocessor
from llama_index.core.schema import NodeWithScore, TextNode

from crp_integrations.vectors import FloatRows

_VERSION = version("llama-index-core")


class LlamaIndexMMR:
    """`get_top_k_mmr_embeddings`, as its simple vector store calls it."""

    name = f"LlamaIndex get_top_k_mmr_embeddings ({_VERSION})"

    def __init__(self, vector: FloatRows, rows: FloatRows) -> None:
        self._vector = vector.tolist()
        self._rows = rows.tolist()

    def run(self, k: int) -> list[int]:
        """Positions of the k picked."""
        _, places = get_top_k_mmr_embeddings(self._vector, self._rows, similarity_top_k=k)
        return list(places)


class LlamaIndexPostprocessors:
    """`SimilarityPostprocessor`, trimming to a budget, `LongContextReorder`; no deduplication."""

    name = f"LlamaIndex postprocessors and trim, no deduplication ({_VERSION})"

    def __init__(self, texts: Sequence[str], scores: Sequence[float]) -> None:
        self._nodes = [
            NodeWithScore(node=TextNode(text=text), score=score)
            for text, score in zip(texts, scores, strict=True)
        ]
        self._cut = SimilarityPostprocessor(similarity_cutoff=0.0)
        self._reorder = LongContextReorder()

    def run(self, count: Callable[[str], int], budget_tokens: int) -> list[str]:
        """The texts in their order, as many of the first as fit the budget."""
        kept: list[NodeWithScore] = []
        for node in self._cut.postprocess_nodes(self._nodes):
            budget_tokens -= count(node.get_content())
            if budget_tokens < 0:
                break
            kept.append(node)
        return [node.get_content() for node in self._reorder.postprocess_nodes(kept)]
