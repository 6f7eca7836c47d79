"""Adapters of other libraries' embedders to `Embedder`, and the embedder that an argument names.

An object of LangChain or LlamaIndex is recognised by its methods, without importing its library;
LiteLLM is imported at the first text. Results are checked and normalised. Whether a text's
vector depends on its batch is up to the other library and cannot be guaranteed here.
"""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import tokenizers

from crp_integrations import seals, weights
from crp_integrations.engines.litellm_versions import library
from crp_integrations.engines.onnx import (
    WINDOWS,
    OnnxEmbedder,
    average_windows,
    failed,
    file_sha256,
    find_model_file,
    opened,
    tokenizer_of,
)
from crp_integrations.errors import ConfigError, EngineError, MissingExtra
from crp_integrations.ports import Embedder
from crp_integrations.validation import seen
from crp_integrations.vectors import FloatRows, unit_rows


class _AdaptedEmbedder:
    """An `Embedder` that calls two functions which return lists of numbers.

    Objects of the frameworks may not be thread-safe (the tokenizers of some fail when used twice
    at once), so they are called one at a time unless `parallel` is true.

    Attributes:
        identity: the name given by the caller; change it when the model changes.
        thresholds: empty, as thresholds are calibrated for the built-in model alone.
    """

    def __init__(
        self,
        library: str,
        passages: Callable[[list[str]], Any],
        query: Callable[[str], Any],
        identity: str,
        dimensions: int | None,
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
        self.thresholds: Final[Mapping[str, float]] = MappingProxyType({})
        self._turn: AbstractContextManager[Any] = nullcontext() if parallel else threading.Lock()

    @property
    def dimensions(self) -> int:
        """Length of a vector; if it was not given, one word is embedded to find out."""
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
            raise EngineError.of(f"the embedder {self.identity}", error, self._library) from error

    def _checked(self, values: Any, count: int) -> FloatRows:
        try:
            # A value beyond float32 becomes infinite here and is refused below.
            with np.errstate(over="ignore"):
                raw = np.asarray(values, dtype=np.float64).astype(np.float32)
        except (TypeError, ValueError) as error:
            raise self._failed("did not give rows of numbers of equal length") from error
        if raw.ndim != 2 or raw.shape[0] != count or raw.shape[1] == 0:
            raise self._failed(f"gave shape {raw.shape}, wanted ({count}, d)")
        rows: FloatRows = unit_rows(raw, dimensions=self._dimensions)
        if not rows.any(axis=1).all():
            raise self._failed("gave a row of zeros")
        self._dimensions = rows.shape[1]
        return rows

    def _failed(self, what: str) -> EngineError:
        return EngineError(f"the embedder {self.identity} {what}", engine=self._library)


class _FrameworkEmbedder(_AdaptedEmbedder):
    """An adapter of a framework's object, by the names of its two methods.

    Args:
        model: the object.
        identity: a name for model and version; stored vectors are distinguished by it.
        dimensions: length of a vector, None to find out.
    """

    library: ClassVar[str]
    methods: ClassVar[tuple[str, str]]

    def __init__(
        self,
        model: Any,
        identity: str,
        dimensions: int | None = None,
    ) -> None:
        passages, query = (getattr(model, name) for name in self.methods)
        super().__init__(self.library, passages, query, identity, dimensions)


class LangChainEmbedder(_FrameworkEmbedder):
    """An object with `embed_documents` and `embed_query`, such as LangChain's `Embeddings`."""

    library = "langchain"
    methods = ("embed_documents", "embed_query")


class LlamaIndexEmbedder(_FrameworkEmbedder):
    """An object with `get_text_embedding_batch` and `get_query_embedding`, as in LlamaIndex."""

    library = "llama_index"
    methods = ("get_text_embedding_batch", "get_query_embedding")


class LiteLLMEmbedder(_AdaptedEmbedder):
    """An embedding model called through LiteLLM.

    Args:
        model: LiteLLM's name of it, `provider/model`.
        identity: a name for model and version, `litellm/` and the model when empty.
        dimensions: length of a vector, None to find out.
        batch_size: maximum texts in one call; providers take 96 or more.
        options: further arguments of `litellm.embedding`, such as `api_base` or `timeout`.
    """

    def __init__(
        self,
        model: str,
        identity: str = "",
        dimensions: int | None = None,
        *,
        batch_size: int = 96,
        **options: Any,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}, wanted at least 1")
        self._model = model
        self._batch_size = batch_size
        self._options = options
        super().__init__(
            "litellm",
            self._embed,
            lambda text: self._embed([text])[0],
            identity or f"litellm/{model}",
            dimensions,
            parallel=True,
        )

    def _embed(self, texts: list[str]) -> list[Any]:
        starts = range(0, len(texts), self._batch_size)
        return [row for at in starts for row in self._embed_once(texts[at : at + self._batch_size])]

    def _embed_once(self, texts: list[str]) -> list[Any]:
        answer = library("LiteLLMEmbedder").embedding(
            model=self._model, input=texts, **self._options
        )
        # The service may answer in any order; only the index tells which text a row belongs to.
        rows = sorted(answer.data, key=lambda row: row["index"])
        if [row["index"] for row in rows] != list(range(len(texts))):
            raise EngineError(
                f"{self._model} gave {len(rows)} rows for {len(texts)} texts", engine="litellm"
            )
        return [row["embedding"] for row in rows]


# Tokens that neighbouring windows of a long text share.
_OVERLAP: Final = 32
_POOLED: Final = frozenset({"pooling_mode_cls_token", "pooling_mode_mean_tokens"})
_LAYERS: Final = frozenset({"Transformer", "Pooling", "Normalize"})


class OnnxFolderEmbedder(_AdaptedEmbedder):
    """An embedder in a folder as on model hubs: `model.onnx`, `tokenizer.json`, and no card.

    Pooling (mean over the tokens, or first token) is read from `1_Pooling/config.json`, the window
    from `sentence_bert_config.json` and prefixes from `config_sentence_transformers.json`; without
    these files: mean, 512 tokens and no prefixes. A longer text is embedded in windows.

    Args:
        directory: the folder; `model.onnx` may also be in its subfolder `onnx`.
        identity: a name for model and version; the folder's name and a hash of its files when
            empty.
        prefixes: texts put before a query and before a passage; None for the folder's own.
    """

    def __init__(
        self,
        directory: str | Path,
        identity: str = "",
        *,
        prefixes: tuple[str, str] | None = None,
    ) -> None:
        folder = Path(directory)
        model = find_model_file(folder)
        if not (folder / "tokenizer.json").is_file():
            raise EngineError(f"there is no tokenizer.json in {folder}", engine="onnx")
        vocabulary = (folder / "tokenizer.json").read_bytes()
        pooling = _json(folder / "1_Pooling" / "config.json")
        ways = {n for n, on in pooling.items() if n.startswith("pooling_mode_") and on is True}
        layers = {str(module.get("type")) for module in _json(folder / "modules.json", list)}
        odd = sorted(ways - _POOLED or {n for n in layers if n.rpartition(".")[2] not in _LAYERS})
        if odd or len(ways) > 1:
            asked = f"{folder} asks for {', '.join(odd or sorted(ways))}"
            raise ConfigError(f"{asked}; wanted a model that pools by mean or by first token")
        self._first = "pooling_mode_cls_token" in ways
        size = _json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._size = size if isinstance(size, int) and size > 2 * _OVERLAP else 512
        if prefixes is None:
            prompts = _json(folder / "config_sentence_transformers.json").get("prompts") or {}
            passage = prompts.get("passage") or prompts.get("document")
            prefixes = (str(prompts.get("query") or ""), str(passage or ""))
        # Opened by path, since large models store their weights in files next to it.
        self._session, self._tokenizer = opened(str(model), vocabulary)
        self._inputs = {tensor.name for tensor in self._session.get_inputs()}
        # Hash everything that determines a vector, including a large model's weight files.
        files = [*sorted(model.parent.glob("model.onnx*")), folder / "tokenizer.json"]
        hashed = seals.digest(
            [*map(file_sha256, files), self._first, self._size, *prefixes, WINDOWS]
        )
        name = identity or f"{folder.resolve().name}+{hashed}"
        query, passage = prefixes
        super().__init__(
            "onnx",
            lambda texts: [self._row(passage + text) for text in texts],
            lambda text: self._row(query + text),
            name,
            None,
            parallel=True,
        )

    def _row(self, text: str) -> Any:
        try:
            tokens = self._tokenizer.encode(text).ids
            return average_windows(tokens, self._size, _OVERLAP, self._pooled)
        except Exception as error:  # onnxruntime and tokenizers have no class of their own
            raise failed("a text cannot be embedded", np) from error

    def _pooled(self, tokens: Sequence[int]) -> Any:
        ids = np.array([tokens], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        inputs["token_type_ids"] = np.zeros_like(ids)
        rows = self._session.run(
            None, {name: row for name, row in inputs.items() if name in self._inputs}
        )[0][0]
        vectors = np.asarray(rows, dtype=np.float64)
        if vectors.ndim == 1:
            # The network has already pooled its tokens.
            return vectors
        return vectors[0] if self._first else vectors.mean(axis=0)


def _json(path: Path, kind: type[Any] = dict) -> Any:
    """The content of a JSON file; an empty `kind` if it is missing or of another type."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return kind()
    return value if isinstance(value, kind) else kind()


STATIC_TABLE: Final = "table.npy"
STATIC_DIMENSIONS: Final = 256
# A token's vector in int8, and the factor that makes numbers of it.
STATIC_ROW: Final = np.dtype([("scale", "<f4"), ("codes", "i1", (STATIC_DIMENSIONS,))])
_STATIC: Final = "static-mean@1"


class _TokenVectors(NamedTuple):
    """Vectors of tokens in int8, shape (n, dimensions), and the factor of each."""

    scales: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int8]

    def sum(self, tokens: Sequence[int]) -> FloatRows:
        """The sum of these tokens' vectors, in a fixed order."""
        total: FloatRows = np.einsum(
            "i,ij->j", self.scales[tokens], self.codes[tokens], dtype=np.float32
        )
        return total


class StaticEmbedder:
    """Turns text into unit vectors with a table of token vectors, without running a model.

    The table is distilled from the built-in model, whose tokenizer cuts the text; a text's vector
    is the mean of its tokens' vectors. Thread-safe. The files are read at the first text.
    """

    symmetric: ClassVar[bool] = True

    def __init__(self) -> None:
        """Read the card of the included table."""
        self._weights, self._base = weights.describe("static"), weights.describe("minilm")
        card = self._weights.card
        vocabulary = self._base.card.files["tokenizer.json"]
        decisive = {"files": dict(card.files), "vocabulary": vocabulary, "algorithm": _STATIC}
        self.identity: Final = f"{card.name}/{card.version}+{seals.digest(decisive)}"
        self.dimensions: Final = card.dimensions
        self.thresholds: Final = MappingProxyType(dict(card.thresholds))
        self._lock = threading.Lock()
        self._loaded: tuple[_TokenVectors, tokenizers.Tokenizer] | None = None

    def verify(self) -> None:
        """Check the table against its published hash."""
        self._weights.verify()

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Embed passages.

        Spec: CRP-SPEC-009 §3.4
        """
        table, tokenizer = self._load()
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            try:
                tokens = tokenizer.encode(text, add_special_tokens=False).ids
            except Exception as error:  # tokenizers has no class of its own
                raise failed("a text cannot be cut into tokens", tokenizers) from error
            row[:] = table.sum(tokens)
            if not row.any():
                # Such as a text without a token: any direction is as good as another.
                row[:] = 1.0
        return unit_rows(rows)

    def embed_query(self, text: str) -> FloatRows:
        """Embed one text; queries and passages are treated alike."""
        row: FloatRows = self.embed_passages([text])[0]
        return row

    def _load(self) -> tuple[_TokenVectors, tokenizers.Tokenizer]:
        with self._lock:
            if self._loaded is None:
                file = io.BytesIO(self._weights.read(STATIC_TABLE))
                table = np.load(file, allow_pickle=False)
                # Two arrays: rows of a structured one are gathered four times as slowly.
                vectors = _TokenVectors(table["scale"].copy(), table["codes"].copy())
                self._loaded = vectors, tokenizer_of(self._base.read("tokenizer.json"))
            return self._loaded


LITELLM: Final = "litellm:"
ONNX: Final = "onnx:"
STATIC: Final = "static"


def embedder_of(source: object) -> Embedder:
    """Make the embedder that an argument specifies.

    Args:
        source: an object with the port's members; `static`; `litellm:MODEL`; `onnx:FOLDER`, or
            the folder itself; an `Embeddings` object of LangChain, or a `BaseEmbedding` of
            LlamaIndex.
    """
    if source == STATIC:
        static = StaticEmbedder()
        static.verify()
        return static
    if isinstance(source, str) and source.startswith(LITELLM):
        return LiteLLMEmbedder(source.removeprefix(LITELLM))
    if is_folder(source):
        folder = Path(str(source).removeprefix(ONNX))
        if (folder / "card.json").is_file():
            own = OnnxEmbedder(folder)
            own.verify()
            return own
        return OnnxFolderEmbedder(folder)
    if not isinstance(source, str | type):
        if hasattr(source, "embed_passages"):
            return cast("Embedder", source)
        for kind in (LlamaIndexEmbedder, LangChainEmbedder):
            if hasattr(source, kind.methods[0]):
                return kind(source, named_model(kind.library, source))
    raise ConfigError(
        f"embedder is {seen(source, hidden=False)}; give an Embedder, an Embeddings object of "
        "LangChain, a BaseEmbedding of LlamaIndex, a folder, or a text such as "
        "'litellm:text-embedding-3-small', 'onnx:FOLDER' or 'static'"
    )


def is_folder(source: object) -> bool:
    """Whether an argument specifies a folder: by its path, or after `onnx:`."""
    # Not `Path.is_dir`, which raises for a text that is too long for a path.
    named = isinstance(source, str) and (source.startswith(ONNX) or os.path.isdir(source))  # noqa: PTH112
    return named or isinstance(source, Path)


def named_model(library: str, source: object) -> str:
    """A name from an object's class and model, which identifies it in stored data."""
    words = (
        getattr(source, attribute, None) for attribute in ("model_name", "model", "deployment")
    )
    model = next((word for word in words if isinstance(word, str) and word), "")
    return "/".join(part for part in (library, type(source).__name__, model) if part)
