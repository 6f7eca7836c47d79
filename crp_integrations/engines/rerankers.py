"""Adapters of other libraries' rerankers to `Reranker`, and the reranker that an argument names.

An object of LangChain or LlamaIndex is recognised by its methods, without importing its library;
LiteLLM is imported at the first question.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Final, Literal, cast, get_args

import numpy as np

from crp_integrations.engines.embeddings import LITELLM, ONNX, is_folder, named_model
from crp_integrations.engines.litellm_versions import library
from crp_integrations.engines.onnx import OnnxCrossEncoder, fitting, labels_of, probability
from crp_integrations.envelope.ports import Reranker
from crp_integrations.errors import ConfigError, CRPError, EngineError
from crp_integrations.ports import Embedder
from crp_integrations.validation import seen
from crp_integrations.vectors import cosine

SENTENCES: Final = "sentence-transformers"
Scale = Literal["given", "logistic", "rank"]
# The texts that the object kept, in its order: position of the text, and its score if there is one.
Kept = Sequence[tuple[int, float | None]]


class WrappedReranker:
    """A `Reranker` that calls a function which keeps and scores texts.

    Objects of the frameworks may not be thread-safe, so they are called one at a time.

    Args:
        library: the object's library, for messages.
        identity: a name for everything that determines the scores; every envelope records it.
        keep: a function from the query and the texts to the texts that the object keeps.
        scale: how its scores are read. `given`: as numbers from 0 to `best`. `logistic`: as raw
            outputs of a model, any number. `rank`: ignored, only the order counts; this also
            holds for an object without scores.
        best: the score that means 1, for `given`.
    """

    def __init__(
        self,
        library: str,
        identity: str,
        keep: Callable[[str, list[str]], Kept],
        scale: Scale,
        best: float,
    ) -> None:
        if scale not in get_args(Scale):
            wanted = ", ".join(get_args(Scale))
            raise ConfigError(f"scale {scale!r:.40} is not one of {wanted}")
        number = isinstance(best, Real)
        if not (number and best > 0.0 and math.isfinite(best)):
            raise ConfigError(f"best is {best!r:.40}, wanted the score that means 1, above 0")
        if not identity:
            raise ConfigError("a reranker's identity is empty, wanted a name for its model")
        self._library = library
        self._identity = identity
        self._keep = keep
        self._scale = scale
        self._best = best
        self._turn = threading.Lock()

    @property
    def identity(self) -> str:
        """The name given by the caller; change it when the model or its scores change."""
        return self._identity

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text fits the query, in [0, 1]; 0 for texts that the object dropped."""
        if not texts:
            return []
        try:
            with self._turn:
                ranking = list(self._keep(query, list(texts)))
        except CRPError:
            raise
        except Exception as error:  # any class of any library, or of the service behind it
            raise EngineError.of(f"the reranker {self._identity}", error, self._library) from error
        return self._spread(ranking, len(texts))

    def _spread(self, ranking: Kept, count: int) -> list[float]:
        """Scores by position; a text that came back in pieces gets the best of their scores."""
        unscored = sum(score is None for _, score in ranking)
        if 0 < unscored < len(ranking):
            raise self._error("gave scores to only some of the texts")
        by_rank = self._scale == "rank" or unscored > 0
        ranks = max(count, len(ranking))
        spread = [0.0] * count
        for rank, (place, score) in enumerate(ranking):
            if not 0 <= place < count:
                raise self._error("returned a text that it was not given")
            value = 1.0 - rank / ranks if by_rank or score is None else self._scaled(float(score))
            spread[place] = max(spread[place], value)
        return spread

    def _scaled(self, score: float) -> float:
        if not math.isfinite(score):
            raise self._error(f"gave the score {score}, wanted a finite number")
        if self._scale == "logistic":
            # The exponent is never positive, so the power cannot overflow.
            power = math.exp(-abs(score))
            return 1.0 / (1.0 + power) if score >= 0.0 else power / (1.0 + power)
        if not 0.0 <= score <= self._best:
            raise self._error(
                f"gave the score {score}, wanted 0 to {self._best}; say with best= which score "
                'means 1, or choose scale="logistic" for raw outputs'
            )
        return score / self._best

    def _error(self, what: str) -> EngineError:
        return EngineError(f"the reranker {self._identity} {what}", engine=self._library)


class LiteLLMReranker(WrappedReranker):
    """A model called through LiteLLM's `rerank`.

    Args:
        model: LiteLLM's name of it, `provider/model`.
        identity: a name for model and version, `litellm/` and the model when empty.
        options: further arguments of `litellm.rerank`, such as `api_base` or `timeout`.
    """

    def __init__(
        self,
        model: str,
        identity: str = "",
        **options: Any,
    ) -> None:
        self._model = model
        self._options = options
        super().__init__("litellm", identity or f"litellm/{model}", self._scores, "given", 1.0)

    def _scores(self, query: str, texts: list[str]) -> Kept:
        answer = library("LiteLLMReranker").rerank(
            model=self._model, query=query, documents=texts, top_n=len(texts), **self._options
        )
        return [
            (int(result["index"]), float(result["relevance_score"])) for result in answer.results
        ]


# The base class of a framework's rerankers, and the class of the documents passed to them.
_COMPRESSOR: Final = (
    ("langchain_core.documents", "BaseDocumentCompressor"),
    ("langchain_core.documents", "Document"),
)
_POSTPROCESSOR: Final = (
    ("llama_index.core.postprocessor.types", "BaseNodePostprocessor"),
    ("llama_index.core.schema", "NodeWithScore"),
)


def _class_of(name: str, source: object, kind: tuple[tuple[str, str], tuple[str, str]]) -> Any:
    """The class of the documents that an object takes, from modules that it has imported."""
    base, handed = (getattr(sys.modules.get(module), word, None) for module, word in kind)
    if base is None or not isinstance(source, base):
        raise ConfigError(f"{name} is {seen(source, hidden=False)}; give an object, a {kind[0][1]}")
    return handed


# Metadata key of a document's position; compressors copy a document's metadata.
_PLACE = "place"
# Metadata keys in which compressors of the LangChain packages store scores.
_COSINE = "query_similarity_score"
_SCORES = ("relevance_score", _COSINE, "score")


class LangChainReranker(WrappedReranker):
    """Any `BaseDocumentCompressor`: texts it drops score 0, texts it keeps have its score.

    The score is read from the metadata of the documents it returns, else from their `state`
    (as with an `EmbeddingsFilter`), else from their order.

    Args:
        compressor: the object.
        identity: a name for everything that determines the scores, such as model and version.
        scale, best: as in `WrappedReranker`.
        score_key: metadata key of the score; None for the usual ones.
    """

    def __init__(
        self,
        compressor: Any,
        identity: str,
        *,
        scale: Scale = "given",
        best: float = 1.0,
        score_key: str | None = None,
    ) -> None:
        self._document = _class_of("compressor", compressor, _COMPRESSOR)
        self._compressor = compressor
        self._keys = _SCORES if score_key is None else (score_key,)
        super().__init__("langchain", identity, self._scores, scale, best)

    def _scores(self, query: str, texts: list[str]) -> Kept:
        documents = [
            self._document(id=str(place), page_content=text, metadata={_PLACE: place})
            for place, text in enumerate(texts)
        ]
        first = {text: place for place, text in reversed(list(enumerate(texts)))}
        ranked: Sequence[Any] = self._compressor.compress_documents(documents, query)
        return [
            (
                document.metadata.get(_PLACE, first.get(document.page_content, -1)),
                self._of(document),
            )
            for document in ranked
        ]

    def _of(self, document: Any) -> float | None:
        state = getattr(document, "state", None)
        for fields in (document.metadata, state if isinstance(state, dict) else {}):
            for key in self._keys:
                if fields.get(key) is not None:
                    score = float(fields[key])
                    # A cosine below 0 counts as 0, as everywhere; rounding can make it exceed 1.
                    return min(1.0, max(0.0, score)) if key == _COSINE else score
        return None


class LlamaIndexReranker(WrappedReranker):
    """Any `BaseNodePostprocessor`: texts it drops score 0, texts it keeps have its score.

    Args:
        postprocessor: the object.
        identity: a name for everything that determines the scores, such as model and version.
        scale, best: as in `WrappedReranker`; the best score of an `LLMRerank` is 10.
        embedder: gives nodes their cosine as score beforehand, for an object that reads scores,
            such as a `SimilarityPostprocessor`; None gives them no score.
    """

    def __init__(
        self,
        postprocessor: Any,
        identity: str,
        *,
        scale: Scale = "given",
        best: float = 1.0,
        embedder: Embedder | None = None,
    ) -> None:
        self._node = _class_of("postprocessor", postprocessor, _POSTPROCESSOR)
        if embedder is not None and not hasattr(embedder, "embed_passages"):
            raise ConfigError(f"embedder is {seen(embedder, hidden=False)}; give an Embedder")
        self._postprocessor = postprocessor
        self._embedder = embedder
        super().__init__("llama_index", identity, self._scores, scale, best)

    def _scores(self, query: str, texts: list[str]) -> Kept:
        schema: Any = sys.modules["llama_index.core.schema"]
        nodes = [
            self._node(node=schema.TextNode(id_=str(place), text=text), score=score)
            for place, (text, score) in enumerate(
                zip(texts, self._scores_before(query, texts), strict=True)
            )
        ]
        ranked = self._postprocessor.postprocess_nodes(
            nodes, query_bundle=schema.QueryBundle(query)
        )
        return [(_place(scored.node.node_id), scored.score) for scored in ranked]

    def _scores_before(self, query: str, texts: list[str]) -> list[float | None]:
        if self._embedder is None:
            return [None] * len(texts)
        rows = self._embedder.embed_passages(texts)
        scores = cosine(rows, self._embedder.embed_query(query))
        return [min(1.0, max(0.0, float(score))) for score in scores]


class PairReranker(WrappedReranker):
    """Any `BaseCrossEncoder` of LangChain: an object with `score(pairs)`; see `WrappedReranker`."""

    def __init__(
        self, model: Any, identity: str, *, scale: Scale = "given", best: float = 1.0
    ) -> None:
        self._model = model
        super().__init__("langchain", identity, self._scores, scale, best)

    def _scores(self, query: str, texts: list[str]) -> Kept:
        return list(enumerate(map(float, self._model.score([(query, text) for text in texts]))))


class SentenceTransformersReranker(WrappedReranker):
    """A `CrossEncoder` of sentence-transformers; the library cuts a text that is too long.

    The library's last step differs between models, so raw outputs are requested; pairs are run one
    at a time, since a batch changes the last bits of a score.

    Args:
        model: the object.
        identity: a name for model and version.
    """

    def __init__(self, model: Any, identity: str) -> None:
        inner = getattr(model, "config", None) or getattr(
            getattr(model, "model", None), "config", None
        )
        labels = labels_of({"id2label": getattr(inner, "id2label", None)}, SENTENCES)
        # A language model used for scoring has one output, whatever labels its config names.
        self._outputs = getattr(model, "num_labels", None) or len(labels) or 1
        if len(labels) != self._outputs:
            labels = tuple(f"label_{place}" for place in range(self._outputs))
        self._fitting = fitting(labels, None)
        self._model = model
        super().__init__(SENTENCES, identity, self._scores, "given", 1.0)

    def _scores(self, query: str, texts: list[str]) -> Kept:
        outputs = self._model.predict(
            [(query, text) for text in texts],
            batch_size=1, show_progress_bar=False, convert_to_numpy=True,
            activation_fn=lambda logits: logits,
        )  # fmt: skip
        rows = np.asarray(outputs, dtype=np.float64).reshape(len(texts), self._outputs)
        return [(place, probability(row, self._fitting)) for place, row in enumerate(rows)]


def _place(node_id: str) -> int:
    """The position of a node created here; -1 for another node."""
    return int(node_id) if node_id.isdecimal() else -1


def reranker_of(source: object) -> Reranker:
    """Make the reranker that an argument specifies.

    Args:
        source: an object with the port's members; `litellm:PROVIDER/MODEL`; `onnx:FOLDER`, or the
            folder itself; a LangChain compressor or cross-encoder, a LlamaIndex postprocessor,
            or a `CrossEncoder` of sentence-transformers.
    """
    if isinstance(source, str) and source.startswith(LITELLM):
        return LiteLLMReranker(source.removeprefix(LITELLM))
    if is_folder(source):
        return OnnxCrossEncoder(str(source).removeprefix(ONNX))
    if not isinstance(source, str | type):
        if hasattr(source, "scores"):
            return cast("Reranker", source)
        if hasattr(source, "compress_documents"):
            return LangChainReranker(source, named_model("langchain", source))
        if hasattr(source, "postprocess_nodes"):
            return LlamaIndexReranker(source, named_model("llama_index", source))
        if hasattr(source, "predict"):
            return SentenceTransformersReranker(source, named_model(SENTENCES, source))
        if hasattr(source, "score"):
            return PairReranker(source, named_model("langchain", source))
    raise ConfigError(
        f"reranker is {seen(source, hidden=False)}; give a Reranker, a compressor or "
        "cross-encoder of LangChain, a postprocessor of LlamaIndex, a CrossEncoder, a folder, or a "
        "text such as 'litellm:cohere/rerank-english-v3.0' or 'onnx:FOLDER'"
    )
