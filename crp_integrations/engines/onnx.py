"""Models in ONNX files: the built-in embedder (all-MiniLM-L6-v2), and cross-encoders in a folder.

Each text, and each pair of query and text, is run alone: a batch would change the last bits of a
vector or a score and save no time. Many texts are run in several threads instead. A text longer
than a model takes is read in overlapping windows: the vector is the mean of at most 16 of theirs,
the score the best of theirs.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import tokenizers

from crp_integrations import seals, weights
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.vectors import FloatRows, unit_rows

if TYPE_CHECKING:
    import onnxruntime


WINDOWS: Final = "windows@1"
# 16,000 characters of prose. A question of 20,000 characters may have 13,000 tokens, whose 60
# windows took 7 seconds of processor time.
MOST_WINDOWS: Final = 16
# Fewer texts a thread are not worth starting one; more threads would take a large machine over.
_TEXTS_A_THREAD, _MOST_THREADS = 4, 8


def library() -> ModuleType:
    """Import onnxruntime with telemetry disabled.

    From 1.31 on its builds store a device id in the home folder and send usage data to Microsoft,
    unless this variable is set before the library is loaded.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    runtime: ModuleType = importlib.import_module("onnxruntime")
    return runtime


def windows(count: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Cut a sequence into the fewest possible windows of about equal length.

    Args:
        count: tokens of the sequence, at least 0.
        size: maximum tokens in a window, above `overlap`.
        overlap: minimum tokens that neighbouring windows share.

    Returns:
        Start and end of each window, in order; together they cover the sequence.

    >>> windows(10, 6, 2)
    [(0, 6), (4, 10)]
    """
    if count <= size:
        return [(0, count)]
    number = -(-(count - overlap) // (size - overlap))
    length = -(-(count + (number - 1) * overlap) // number)
    slack = count - length
    return [(i * slack // (number - 1), i * slack // (number - 1) + length) for i in range(number)]


def average_windows(
    tokens: Sequence[int],
    size: int,
    overlap: int,
    embed: Callable[[Sequence[int]], npt.NDArray[np.floating]],
) -> npt.NDArray[np.float64]:
    """The mean of the vectors of a text's windows, weighted by their numbers of tokens.

    A text with more than `MOST_WINDOWS` is read at so many, from its start to its end.

    Args:
        tokens: tokens of the text with the first and last control token, which each window gets.
        size: maximum tokens in a window, control tokens included.
    """
    first, body, last = tokens[:1], tokens[1:-1], tokens[-1:]
    total: Any = 0.0
    spans = windows(len(body), size - 2, overlap)
    if len(spans) > MOST_WINDOWS:
        last_span = len(spans) - 1
        spans = [spans[step * last_span // (MOST_WINDOWS - 1)] for step in range(MOST_WINDOWS)]
    for start, end in spans:
        window = [*first, *body[start:end], *last]
        total = total + embed(window).astype(np.float64) * len(window)
    # Divided by the tokens, so that a single window gives the model's own values.
    return np.asarray(total / max(1, len(tokens)), dtype=np.float64)


class OnnxEmbedder:
    """Turns text into unit vectors with the built-in model or another folder with a card.

    Thread-safe. The model is read, verified and loaded at the first text.

    Attributes:
        symmetric: a query and a passage of the same words have one vector.
    """

    symmetric: ClassVar[bool] = True

    def __init__(self, directory: Path | None = None) -> None:
        """Read and check the model's card."""
        model_weights = (
            weights.describe_directory(directory) if directory else weights.describe("minilm")
        )
        card = model_weights.card
        if card.dimensions < 1 or card.passage < 2 or card.overlap >= card.passage - 2:
            raise EngineError(
                f"{card.name} has {card.dimensions} dimensions, a passage of {card.passage} and "
                f"an overlap of {card.overlap} tokens, wanted an embedder's card",
                engine="onnx",
            )
        self._weights = model_weights
        self._thresholds = MappingProxyType(dict(card.thresholds))
        decisive = {
            "files": dict(card.files),
            "passage": card.passage,
            "overlap": card.overlap,
            "algorithm": WINDOWS,
        }
        self._identity = f"{card.name}/{card.version}+{seals.digest(decisive)}"
        self._lock = threading.Lock()
        self._pooling = threading.Lock()
        self._loaded: tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer] | None = None

    def verify(self) -> None:
        """Check every file against its published hash, without loading the model."""
        self._weights.verify()

    @property
    def identity(self) -> str:
        """Name, version and a hash over the files' hashes and the window settings."""
        return self._identity

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._weights.card.dimensions

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The card's calibrated thresholds by name."""
        return self._thresholds

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Embed passages one by one, many of them in several threads.

        Spec: CRP-SPEC-009 §3.4
        """
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)

        def fill(number: int) -> None:
            rows[number] = self.embed_query(texts[number])

        # The longest first, so that all threads finish at about the same time.
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        threads = min(_processors(), _MOST_THREADS, len(texts) // _TEXTS_A_THREAD)
        # One call at a time has a pool, so that callers' threads do not multiply it.
        if threads > 1 and self._pooling.acquire(blocking=False):
            try:
                # One pool a call: threads that outlive it would be missing after a fork.
                with ThreadPoolExecutor(threads, thread_name_prefix="crp-minilm") as pool:
                    deque(pool.map(fill, order), maxlen=0)
                return rows
            except RuntimeError:
                # The interpreter is ending and starts no more threads.
                pass
            finally:
                self._pooling.release()
        for number in order:
            fill(number)
        return rows

    def embed_query(self, text: str) -> FloatRows:
        """Embed one text; this model treats queries and passages alike."""
        session, tokenizer = self._load()
        card = self._weights.card
        try:
            tokens = tokenizer.encode(text).ids
        except Exception as error:  # tokenizers has no class of its own
            raise failed("a text cannot be cut into tokens", tokenizers) from error
        mean = average_windows(
            tokens, card.passage, card.overlap, lambda window: _mean(session, window)
        )
        row: FloatRows = unit_rows(np.atleast_2d(mean), dimensions=card.dimensions)[0]
        return row

    def _load(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            return self._loaded

    def _open(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        return opened(self._weights.read("model.onnx"), self._weights.read("tokenizer.json"))


def _processors() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _mean(session: onnxruntime.InferenceSession, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
    try:
        rows = session.run(["mean"], {"input_ids": np.array([tokens], dtype=np.int64)})[0]
    except Exception as error:
        raise failed(f"a run over {len(tokens)} tokens failed", library()) from error
    mean: npt.NDArray[np.float32] = rows[0]
    return mean


def opened(
    model: bytes | str, vocabulary: bytes
) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
    """Load a model and its tokenizer; given bytes, those that were hashed."""
    onnxruntime = library()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads sleep instead of spinning, as the caller needs the processor for other work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Fused operators differ between versions of the runtime and save no time on this model.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes share no base but Exception
        raise failed("the model cannot be loaded", onnxruntime) from error
    return session, tokenizer_of(vocabulary)


def tokenizer_of(vocabulary: bytes) -> tokenizers.Tokenizer:
    """A tokenizer without truncation or padding that never makes control tokens from a text."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(vocabulary.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # "[SEP]" in a text is plain text, so that content cannot insert control tokens.
        tokenizer.encode_special_tokens = True
    except Exception as error:  # tokenizers has no class of its own
        raise failed("the tokenizer cannot be loaded", tokenizers) from error
    return tokenizer


def failed(what: str, library: ModuleType) -> EngineError:
    """An error for a library's failure, with the library's name and version."""
    name, version = library.__name__, str(getattr(library, "__version__", ""))
    return EngineError(f"{name} {version}: {what}", engine=name, version=version)


def find_model_file(folder: Path) -> Path:
    """The path of `model.onnx` in a folder laid out as on model hubs."""
    for place in (folder / "model.onnx", folder / "onnx" / "model.onnx"):
        if place.is_file():
            return place
    raise EngineError(f"there is no model.onnx in {folder}", engine="onnx")


def file_sha256(place: Path) -> str:
    """The SHA-256 of a model's file, read in blocks as it may be larger than memory."""
    try:
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(f"{place.name} of the model cannot be read", engine="onnx") from error


# Names in published models of the output that means "this text answers the query".
_FITTING = ("relevant", "entailment", "yes", "true", "positive")
_GENERIC = "label_"


def labels_of(config: Mapping[str, Any], engine: str) -> tuple[str, ...]:
    """The names of a model's outputs in their order, from `id2label`; empty without it."""
    named = config.get("id2label")
    if not isinstance(named, Mapping):
        return ()
    try:
        by_place = {int(place): str(name) for place, name in named.items()}
    except (TypeError, ValueError):
        by_place = {}
    if sorted(by_place) != list(range(len(named))):
        raise EngineError("id2label of the model's config does not count from 0", engine=engine)
    return tuple(by_place[place] for place in range(len(by_place)))


def fitting(labels: Sequence[str], label: str | None) -> int:
    """The index of the output that means that a text fits the query."""
    lowered = [name.casefold() for name in labels]
    if label is not None:
        if label.casefold() in lowered:
            return lowered.index(label.casefold())
        raise ConfigError(f"label {label!r:.40} is not one of the model's labels {list(labels)}")
    if len(labels) == 1:
        return 0
    known = [name for name in _FITTING if name in lowered]
    if known:
        return lowered.index(known[0])
    if len(labels) == 2 and all(name.startswith(_GENERIC) for name in lowered):
        # Unnamed outputs of a yes-or-no model: `label_1` means yes, at either index.
        return lowered.index(max(lowered))
    raise ConfigError(
        f"the model's labels are {list(labels)}; say with label= which one means that a text fits"
    )


def probability(logits: npt.ArrayLike, place: int) -> float:
    """The probability of one output: logistic for a single output, softmax among several.

    Args:
        logits: raw outputs, shape (labels,).

    Returns:
        A number in [0, 1]; NaN for outputs that are not finite.

    >>> probability([0.0], 0), probability([1.0, 1.0], 1)
    (0.5, 0.5)
    """
    values = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(values).all():
        return float("nan")
    if len(values) == 1:
        # The logistic of a single output is its softmax with a second output of 0.
        values, place = np.array([values[0], 0.0]), 0
    powers = np.exp(values - values.max())
    return float(powers[place] / powers.sum())


ALGORITHM: Final = "cross-encoder@1"
# Tokens shared by neighbouring windows of a text, and maximum share of a query in a run.
_OVERLAP = 32
_QUERY_SHARE = 0.5
_LEAST_TOKENS = 80


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    """A loaded model, a tokenizer for single texts, and one for pairs that cuts windows."""

    session: onnxruntime.InferenceSession
    single: tokenizers.Tokenizer
    pairs: tokenizers.Tokenizer


class OnnxCrossEncoder:
    """A model in a folder with `model.onnx`, `tokenizer.json` and `config.json`, as on model hubs.

    Thread-safe. Model and tokenizer are read at the first use.

    Args:
        directory: the folder; `model.onnx` may also be in its subfolder `onnx`.
        label: name of the output that means that a text fits; None to find it in `id2label`.
        max_tokens: maximum tokens of one run, query and control tokens included.
    """

    def __init__(
        self, directory: str | Path, *, label: str | None = None, max_tokens: int = 512
    ) -> None:
        if max_tokens < _LEAST_TOKENS:
            raise ConfigError(f"max_tokens is {max_tokens}, wanted at least {_LEAST_TOKENS}")
        folder = Path(directory)
        self._model, self._folder = find_model_file(folder), folder
        config = _config(folder / "config.json")
        # A model whose config does not name outputs is taken to have one.
        self._labels = labels_of(config, "onnx") or ("label_0",)
        self._place = fitting(self._labels, label)
        limit = config.get("max_position_embeddings")
        self._max_tokens = min(max_tokens, limit) if isinstance(limit, int) else max_tokens
        self._lock = threading.Lock()
        self._name: str | None = None
        self._loaded: _LoadedModel | None = None

    @property
    def identity(self) -> str:
        """The folder's name and a hash over everything that determines the scores."""
        with self._lock:
            if self._name is None:
                # Large models store their weights in files next to `model.onnx`.
                files = [*self._model.parent.glob("model.onnx*"), self._folder / "tokenizer.json"]
                decisive = {
                    "files": {place.name: file_sha256(place) for place in sorted(files)},
                    "place": self._place,
                    "max_tokens": self._max_tokens,
                    "algorithm": ALGORITHM,
                }
                self._name = f"{self._folder.resolve().name}+{seals.digest(decisive)}"
            return self._name

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text fits the query, in [0, 1]."""
        if not texts:
            return []
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            loaded = self._loaded
        question = self._shortened(loaded, query)
        return [self._score(loaded, question, text) for text in texts]

    def _score(self, loaded: _LoadedModel, query: str, text: str) -> float:
        try:
            first = loaded.pairs.encode(query, text)
        except Exception as error:  # tokenizers has no class of its own
            raise failed("a text cannot be cut into tokens", tokenizers) from error
        return max(self._run(loaded.session, run) for run in (first, *first.overflowing))

    def _run(self, session: onnxruntime.InferenceSession, run: tokenizers.Encoding) -> float:
        ready = {
            "input_ids": run.ids,
            "attention_mask": run.attention_mask,
            "token_type_ids": run.type_ids,
        }
        wanted = [tensor.name for tensor in session.get_inputs()]
        try:
            feed = {name: np.array([ready[name]], dtype=np.int64) for name in wanted}
            logits = session.run(None, feed)[0]
        except Exception as error:  # the runtime's classes share no base but Exception
            raise failed(f"a run over {len(run.ids)} tokens failed", library()) from error
        shape = (1, len(self._labels))
        if np.shape(logits) != shape:
            raise EngineError(
                f"the model gave shape {np.shape(logits)}, wanted {shape} for its labels",
                engine="onnx",
            )
        return probability(logits[0], self._place)

    def _shortened(self, loaded: _LoadedModel, query: str) -> str:
        """The query, or its beginning if it has too many tokens to leave enough for a text."""
        most = int(self._max_tokens * _QUERY_SHARE)
        try:
            ends = [end for _, end in loaded.single.encode(query, add_special_tokens=False).offsets]
        except Exception as error:
            raise failed("a query cannot be cut into tokens", tokenizers) from error
        return query if len(ends) <= most else query[: ends[most - 1]]

    def _open(self) -> _LoadedModel:
        try:
            vocabulary = (self._folder / "tokenizer.json").read_bytes()
        except OSError as error:
            raise failed("the tokenizer cannot be loaded", tokenizers) from error
        # By path, since large models store their weights in files next to it.
        session, single = opened(str(self._model), vocabulary)
        pairs = tokenizer_of(vocabulary)
        pairs.enable_truncation(self._max_tokens, stride=_OVERLAP, strategy="only_second")
        return _LoadedModel(session, single, pairs)


def _config(place: Path) -> Mapping[str, Any]:
    """The content of config.json; empty for a folder without one."""
    if not place.is_file():
        return {}
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{place.name} of the model cannot be read", engine="onnx") from error
    return config if isinstance(config, dict) else {}
