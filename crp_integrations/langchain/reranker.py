"""A LangChain document compressor as the reranker of a relay, of `pack` or of `CRPRetriever`."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.documents import BaseDocumentCompressor, Document

from crp_integrations.adapters.rerankers import Kept, Scale, WrappedReranker, check_kind

# A number without meaning to anybody else; compressors copy a document's metadata.
_PLACE = "place"
# Where compressors of the LangChain packages note what they computed.
_COSINE = "query_similarity_score"
_SCORES = ("relevance_score", _COSINE, "score")


class LangChainReranker(WrappedReranker):
    """Any `BaseDocumentCompressor`: what it drops scores 0, what it keeps has its score.

    The score is read from the metadata of the documents it gives back, else from their `state`
    (as of an `EmbeddingsFilter`), else from their order.

    Args:
        compressor: the object.
        identity: a name for what decides the scores, such as model and version.
        scale: how scores are read: `given`, `logistic` or `rank`.
        best: the score that means 1, for `given`.
        score_key: name of the score; None for the usual ones.

    Raises:
        ConfigError: an argument has no use, such as a text in the compressor's place.
    """

    def __init__(
        self,
        compressor: BaseDocumentCompressor,
        identity: str,
        *,
        scale: Scale = "given",
        best: float = 1.0,
        score_key: str | None = None,
    ) -> None:
        check_kind("compressor", compressor, BaseDocumentCompressor)
        self._compressor = compressor
        self._keys = _SCORES if score_key is None else (score_key,)
        super().__init__("langchain", identity, self._kept, scale, best)

    def _kept(self, query: str, texts: list[str]) -> Kept:
        documents = [
            Document(id=str(place), page_content=text, metadata={_PLACE: place})
            for place, text in enumerate(texts)
        ]
        first = {text: place for place, text in reversed(list(enumerate(texts)))}
        found: Sequence[Document] = self._compressor.compress_documents(documents, query)
        return [
            (
                document.metadata.get(_PLACE, first.get(document.page_content, -1)),
                self._of(document),
            )
            for document in found
        ]

    def _of(self, document: Document) -> float | None:
        state = getattr(document, "state", None)
        for said in (document.metadata, state if isinstance(state, dict) else {}):
            for key in self._keys:
                if said.get(key) is not None:
                    score = float(said[key])
                    # A cosine below 0 counts as 0, as everywhere; rounding can bring it above 1.
                    return min(1.0, max(0.0, score)) if key == _COSINE else score
        return None
