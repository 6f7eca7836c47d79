"""A LlamaIndex node postprocessor as the reranker of a relay, of `pack` or of our postprocessor."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from crp_integrations.adapters.rerankers import Kept, Scale, WrappedReranker, check_kind
from crp_integrations.ports import Embedder
from crp_integrations.relay.components import check_components
from crp_integrations.vectors import cosine


class LlamaIndexReranker(WrappedReranker):
    """Any `BaseNodePostprocessor`: what it drops scores 0, what it keeps has its score.

    Args:
        postprocessor: the object.
        identity: a name for what decides the scores, such as model and version.
        scale: how scores are read: `given`, `logistic` or `rank`.
        best: the score that means 1, for `given`; 10 for an `LLMRerank`.
        embedder: gives the nodes their cosine before, for an object that looks at scores, such as
            a `SimilarityPostprocessor`; None gives them no score.

    Raises:
        ConfigError: an argument has no use, such as a text in the postprocessor's place.
    """

    def __init__(
        self,
        postprocessor: BaseNodePostprocessor,
        identity: str,
        *,
        scale: Scale = "given",
        best: float = 1.0,
        embedder: Embedder | None = None,
    ) -> None:
        check_kind("postprocessor", postprocessor, BaseNodePostprocessor)
        check_components(embedder=embedder)
        self._postprocessor = postprocessor
        self._embedder = embedder
        super().__init__("llama_index", identity, self._kept, scale, best)

    def _kept(self, query: str, texts: list[str]) -> Kept:
        nodes = [
            NodeWithScore(node=TextNode(id_=str(place), text=text), score=score)
            for place, (text, score) in enumerate(
                zip(texts, self._scores_before(query, texts), strict=True)
            )
        ]
        found = self._postprocessor.postprocess_nodes(nodes, query_bundle=QueryBundle(query))
        return [(_place(scored.node.node_id), scored.score) for scored in found]

    def _scores_before(self, query: str, texts: list[str]) -> list[float | None]:
        if self._embedder is None:
            return [None] * len(texts)
        rows = self._embedder.embed_passages(texts)
        scores = cosine(rows, self._embedder.embed_query(query))
        return [min(1.0, max(0.0, float(score))) for score in scores]


def _place(node_id: str) -> int:
    """The place of a node of ours; no place for another's."""
    return int(node_id) if node_id.isdecimal() else -1
