"""Cross-encoders from a folder of ONNX files, and how the outputs of a classifier are read.

Each pair of query and text is a run of its own, since a batch changes the last bits of a score. A
text that is longer than the model takes is read in overlapping windows, of which the best decides.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers

from crp_integrations import seals
from crp_integrations.engines.onnx import failed, file_sha256, library, opened, tokenizer_of
from crp_integrations.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import onnxruntime

# Names that published models give to the output that means "this text answers the query".
_FITTING = ("relevant", "entailment", "yes", "true", "positive")
_GENERIC = "label_"


def labels_of(config: Mapping[str, Any], engine: str) -> tuple[str, ...]:
    """The names of a model's outputs in their order, from `id2label`; empty when it has none."""
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
    """The place of the output that means that a text fits."""
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
        # Unnamed outputs of a yes-or-no model: 1 means yes, wherever it stands.
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
        # A single output stands against a second one that is always 0.
        values, place = np.array([values[0], 0.0]), 0
    powers = np.exp(values - values.max())
    return float(powers[place] / powers.sum())


ALGORITHM: Final = "cross-encoder@1"
# Tokens that neighbouring windows of a text share, and the share of a run that a query may take.
_OVERLAP = 32
_QUERY_SHARE = 0.5
_LEAST_TOKENS = 80


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model ready to run, a tokenizer of single texts, and one of pairs in windows."""

    session: onnxruntime.InferenceSession
    single: tokenizers.Tokenizer
    pairs: tokenizers.Tokenizer


class OnnxCrossEncoder:
    """A folder with `model.onnx`, `tokenizer.json` and `config.json`, as model hubs have them.

    Safe under threads. The files are read at the first use.

    Args:
        directory: the folder; `model.onnx` may also lie in a folder `onnx` in it.
        label: the output that means that a text fits; None to find it in `id2label`.
        max_tokens: most tokens of one run, query and frame tokens included.
        threads: processor threads of one run.

    Raises:
        ConfigError: an argument has no usable value.
        EngineError: a file is missing or cannot be read.
    """

    def __init__(
        self, directory: str | Path, *, label: str | None = None, max_tokens: int = 512,
        threads: int = 1,
    ) -> None:  # fmt: skip
        if threads < 1:
            raise ConfigError(f"threads is {threads}, wanted at least 1")
        if max_tokens < _LEAST_TOKENS:
            raise ConfigError(f"max_tokens is {max_tokens}, wanted at least {_LEAST_TOKENS}")
        folder = Path(directory)
        places = (folder / "model.onnx", folder / "onnx" / "model.onnx")
        model_files = [place for place in places if place.is_file()]
        if not model_files:
            raise EngineError(f"there is no model.onnx in {folder}", engine="onnx")
        self._model, self._folder = model_files[0], folder
        config = _config(folder / "config.json")
        # A model whose config names no outputs has one.
        self._labels = labels_of(config, "onnx") or ("label_0",)
        self._place = fitting(self._labels, label)
        limit = config.get("max_position_embeddings")
        self._max_tokens = min(max_tokens, limit) if isinstance(limit, int) else max_tokens
        self._threads = threads
        self._lock = threading.Lock()
        self._name: str | None = None
        self._loaded: _Loaded | None = None

    @property
    def identity(self) -> str:
        """The folder's name and a hash over all that decides the scores."""
        with self._lock:
            if self._name is None:
                # Weights of large models lie in files beside it.
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
        """How well each text fits the query, in [0, 1].

        Raises:
            EngineError: a file cannot be loaded, a run failed, or the model's outputs are not
                those that its config names.
        """
        if not texts:
            return []
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            loaded = self._loaded
        question = self._shortened(loaded, query)
        return [self._score(loaded, question, text) for text in texts]

    def _score(self, loaded: _Loaded, query: str, text: str) -> float:
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

    def _shortened(self, loaded: _Loaded, query: str) -> str:
        """The query, or its beginning where it would leave too little room for a text."""
        most = int(self._max_tokens * _QUERY_SHARE)
        try:
            ends = [end for _, end in loaded.single.encode(query, add_special_tokens=False).offsets]
        except Exception as error:
            raise failed("a query cannot be cut into tokens", tokenizers) from error
        return query if len(ends) <= most else query[: ends[most - 1]]

    def _open(self) -> _Loaded:
        try:
            vocabulary = (self._folder / "tokenizer.json").read_bytes()
        except OSError as error:
            raise failed("the tokenizer cannot be loaded", tokenizers) from error
        # By its path, since weights of large models lie in files beside it.
        session, single = opened(str(self._model), vocabulary, threads=self._threads)
        pairs = tokenizer_of(vocabulary)
        pairs.enable_truncation(self._max_tokens, stride=_OVERLAP, strategy="only_second")
        return _Loaded(session, single, pairs)


def _config(place: Path) -> Mapping[str, Any]:
    """What config.json holds; nothing for a folder without one."""
    if not place.is_file():
        return {}
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{place.name} of the model cannot be read", engine="onnx") from error
    return config if isinstance(config, dict) else {}
