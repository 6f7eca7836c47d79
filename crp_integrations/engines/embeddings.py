"""Embedders of other libraries behind the port `Embedder`.

An object of LangChain or LlamaIndex is taken by what it can do, without importing its library;
LiteLLM is imported at the first text. What comes back is checked and normalised. Whether a
text's vector depends on its batch is the other library's affair: nothing here can promise it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from crp_integrations.engines.litellm_versions import library
from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.vectors import FloatRows, unit_rows


class LangChainLike(Protocol):
    """What is used of LangChain's `Embeddings`."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of passages."""
        ...

    def embed_query(self, text: str) -> list[float]:
        """Vector of a query."""
        ...


class LlamaIndexLike(Protocol):
    """What is used of LlamaIndex's `BaseEmbedding`."""

    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        """Vectors of passages."""
        ...

    def get_query_embedding(self, query: str) -> list[float]:
        """Vector of a query."""
        ...


class _Adapted:
    """The port over two functions that give lists of numbers.

    Objects of the frameworks promise nothing about threads (the tokenizers behind some of them
    refuse to be borrowed twice), so they are called one at a time unless `parallel` is true.

    Attributes:
        identity: the name given by the caller; change it when the model changes.
        thresholds: similarity thresholds by name, as given by the caller.
    """

    def __init__(
        self,
        library: str,
        passages: Callable[[list[str]], Any],
        query: Callable[[str], Any],
        identity: str,
        dimensions: int | None,
        thresholds: Mapping[str, float] | None,
        *,
        parallel: bool = False,
    ) -> None:
        if not identity:
            raise EngineError("an embedder's identity is empty, wanted a name", engine=library)
        self._library = library
        self._passages = passages
        self._query = query
        self.identity: Final = identity
        self._dimensions = dimensions
        self.thresholds: Final[Mapping[str, float]] = MappingProxyType(dict(thresholds or {}))
        self._turn: AbstractContextManager[Any] = nullcontext() if parallel else threading.Lock()

    @property
    def dimensions(self) -> int:
        """Length of a vector; embeds one word to find out when it was not given."""
        if self._dimensions is None:
            self.embed_query("dimensions")
        assert self._dimensions is not None
        return self._dimensions

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Embed passages in one call of the library."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        return self._checked(self._call(self._passages, list(texts)), len(texts))

    def embed_query(self, text: str) -> FloatRows:
        """Embed a query."""
        row: FloatRows = self._checked([self._call(self._query, text)], 1)[0]
        return row

    def _call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        try:
            with self._turn:
                return function(argument)
        except (EngineError, MissingExtra):
            raise
        except Exception as error:  # any class of any library, or of the service behind it
            raise self._failed(f"failed with {type(error).__name__}") from error

    def _checked(self, values: Any, count: int) -> FloatRows:
        try:
            # A value beyond float32 becomes infinite here and is refused below.
            with np.errstate(over="ignore"):
                raw = np.asarray(values, dtype=np.float64).astype(np.float32)
        except (TypeError, ValueError) as error:
            raise self._failed("gave no rows of numbers of one length") from error
        if raw.ndim != 2 or raw.shape[0] != count or raw.shape[1] == 0:
            raise self._failed(f"gave shape {raw.shape}, wanted ({count}, d)")
        rows: FloatRows = unit_rows(raw, dimensions=self._dimensions)
        if not rows.any(axis=1).all():
            raise self._failed("gave a row of zeros")
        self._dimensions = rows.shape[1]
        return rows

    def _failed(self, what: str) -> EngineError:
        return EngineError(f"the embedder {self.identity} {what}", engine=self._library)


class LangChainEmbedder(_Adapted):
    """An object with `embed_documents` and `embed_query`, such as LangChain's `Embeddings`.

    Args:
        embeddings: the object.
        identity: a name for model and version; stored vectors are told apart by it.
        dimensions: length of a vector, None to find out.
        thresholds: similarity thresholds by name for this model.
    """

    def __init__(
        self,
        embeddings: LangChainLike,
        identity: str,
        dimensions: int | None = None,
        *,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        passages, query = embeddings.embed_documents, embeddings.embed_query
        super().__init__("langchain", passages, query, identity, dimensions, thresholds)


class LlamaIndexEmbedder(_Adapted):
    """An object with `get_text_embedding_batch` and `get_query_embedding`, as in LlamaIndex.

    Args:
        embed_model: the object.
        identity: a name for model and version; stored vectors are told apart by it.
        dimensions: length of a vector, None to find out.
        thresholds: similarity thresholds by name for this model.
    """

    def __init__(
        self,
        embed_model: LlamaIndexLike,
        identity: str,
        dimensions: int | None = None,
        *,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        passages, query = embed_model.get_text_embedding_batch, embed_model.get_query_embedding
        super().__init__("llama_index", passages, query, identity, dimensions, thresholds)


class LiteLLMEmbedder(_Adapted):
    """A model that LiteLLM reaches.

    Args:
        model: LiteLLM's name of it, `provider/model`.
        identity: a name for model and version, `litellm/` and the model when empty.
        dimensions: length of a vector, None to find out.
        thresholds: similarity thresholds by name for this model.
        options: further arguments of `litellm.embedding`, such as `api_base` or `timeout`.
    """

    def __init__(
        self,
        model: str,
        identity: str = "",
        dimensions: int | None = None,
        *,
        thresholds: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        self._model = model
        self._options = options
        super().__init__(
            "litellm",
            self._embed,
            lambda text: self._embed([text])[0],
            identity or f"litellm/{model}",
            dimensions,
            thresholds,
            parallel=True,
        )

    def _embed(self, texts: list[str]) -> list[Any]:
        answer = library("LiteLLMEmbedder").embedding(
            model=self._model, input=texts, **self._options
        )
        # The service may answer in any order; the index is what binds a row to its text.
        rows = sorted(answer.data, key=lambda row: row["index"])
        if [row["index"] for row in rows] != list(range(len(texts))):
            raise EngineError(
                f"{self._model} gave {len(rows)} rows for {len(texts)} texts", engine="litellm"
            )
        return [row["embedding"] for row in rows]
