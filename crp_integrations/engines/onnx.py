"""The embedder that ships: all-MiniLM-L6-v2 on onnxruntime, one text a run.

A text's vector depends on its own characters, the files and the processor, never on what was
embedded with it: a batch of equal lengths changes the last bits, so no batches are made (they
save nothing here either). Text above the passage window is embedded in windows.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import tokenizers

from crp_integrations import seals, weights
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.vectors import FloatRows, unit_rows

if TYPE_CHECKING:
    import onnxruntime

WINDOWS: Final = "windows@1"


def library() -> ModuleType:
    """onnxruntime, imported so that it reports nothing.

    From 1.31 on its builds keep a device id in the home folder and send usage to their maker,
    unless this variable stands before the library is loaded.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    runtime: ModuleType = importlib.import_module("onnxruntime")
    return runtime


def windows(count: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Cut a sequence into the fewest windows, all of about one length.

    Args:
        count: tokens of the sequence, at least 0.
        size: the most tokens in a window, above `overlap`.
        overlap: the fewest tokens that neighbouring windows share.

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


class OnnxEmbedder:
    """Turns text into unit vectors with the shipped model or another recipe's output.

    Safe under threads. The model is read, verified and loaded at the first text.
    """

    def __init__(self, directory: Path | None = None, *, threads: int = 1) -> None:
        """Read the card."""
        if threads < 1:
            raise ConfigError(f"threads is {threads}, wanted at least 1")
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
        self._threads = threads
        self._thresholds = MappingProxyType(dict(card.thresholds))
        decisive = {
            "files": dict(card.files),
            "passage": card.passage,
            "overlap": card.overlap,
            "algorithm": WINDOWS,
        }
        self._identity = f"{card.name}/{card.version}+{seals.digest(decisive)}"
        self._lock = threading.Lock()
        self._loaded: tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer] | None = None

    def verify(self) -> None:
        """Check every file against its published hash, without loading the model."""
        self._weights.verify()

    @property
    def identity(self) -> str:
        """Name, quantisation and a hash over the files' hashes and the window rule."""
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
        """Embed passages one by one.

        Spec: CRP-SPEC-009 §3.4
        """
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for number, text in enumerate(texts):
            rows[number] = self.embed_query(text)
        return rows

    def embed_query(self, text: str) -> FloatRows:
        """Embed one text; this model treats queries and passages alike."""
        session, tokenizer = self._load()
        card = self._weights.card
        try:
            tokens = tokenizer.encode(text).ids
        except Exception as error:  # tokenizers has no class of its own
            raise failed("a text cannot be cut into tokens", tokenizers) from error
        first, body, last = tokens[:1], tokens[1:-1], tokens[-1:]
        total: npt.NDArray[np.float64] | float = 0.0
        for start, end in windows(len(body), card.passage - 2, card.overlap):
            window = first + body[start:end] + last
            total = total + _mean(session, window).astype(np.float64) * len(window)
        # Scaled back to one token, so that one window gives the model's own values.
        means = np.atleast_2d(total / len(tokens))
        row: FloatRows = unit_rows(means, dimensions=card.dimensions)[0]
        return row

    def _load(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            return self._loaded

    def _open(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        return opened(
            self._weights.read("model.onnx"),
            self._weights.read("tokenizer.json"),
            threads=self._threads,
        )


def _mean(session: onnxruntime.InferenceSession, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
    try:
        rows = session.run(["mean"], {"input_ids": np.array([tokens], dtype=np.int64)})[0]
    except Exception as error:
        raise failed(f"a run over {len(tokens)} tokens failed", library()) from error
    mean: npt.NDArray[np.float32] = rows[0]
    return mean


def opened(
    model: bytes | str, vocabulary: bytes, *, threads: int
) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
    """A model and its tokenizer, of the bytes that were hashed."""
    onnxruntime = library()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads wait instead of spinning; the caller has other work for the processor.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Fused operators change with the runtime's version, and save no time on the shipped model.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes share no base but Exception
        raise failed("the model cannot be loaded", onnxruntime) from error
    return session, tokenizer_of(vocabulary)


def tokenizer_of(vocabulary: bytes) -> tokenizers.Tokenizer:
    """A tokenizer of whole texts, in which no text makes a control token."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(vocabulary.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # "[SEP]" in a text is text: content must not reach the model's control tokens.
        tokenizer.encode_special_tokens = True
    except Exception as error:  # tokenizers has no class of its own
        raise failed("the tokenizer cannot be loaded", tokenizers) from error
    return tokenizer


def failed(what: str, library: ModuleType) -> EngineError:
    """An error of a library, with its name and version."""
    name, version = library.__name__, str(getattr(library, "__version__", ""))
    return EngineError(f"{name} {version}: {what}", engine=name, version=version)


def file_sha256(place: Path) -> str:
    """The SHA-256 of a file of a model, which may be larger than the memory."""
    try:
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(f"{place.name} of the model cannot be read", engine="onnx") from error
