"""Vectors for a bench: made once in several processes, kept in a cache, looked up afterwards.

The cache is one file an embedder, named by its identity: the SHA-256 of each text and its row.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from crp_integrations import seals
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import EngineError
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows, unit_rows

Kind = Literal["minilm", "hash"]
Progress = Callable[[int, int], None]
Hashes = npt.NDArray[np.uint8]

# Texts of one task of a worker, and after how many of them the cache is saved.
TASK = 250
SAVE_EVERY = 20_000


class HashEmbedder:
    """A bag of words hashed into 256 dimensions: quick, for trying a bench out."""

    identity: Final = "bench-hash/256"
    dimensions: Final = 256
    thresholds: Mapping[str, float] = {}

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, 256)."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()) or [""]:
                row[_place(word)] += 1.0
        return unit_rows(rows)

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (256,)."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


@cache
def _place(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:2], "big") % 256


def embedder_of(kind: Kind) -> Embedder:
    """The shipped embedder, or the one for trying out."""
    return HashEmbedder() if kind == "hash" else _minilm()


@cache
def _minilm() -> OnnxEmbedder:
    return OnnxEmbedder(threads=1)


class Known:
    """An embedder whose vectors were made before: it looks texts up and embeds only new ones.

    Attributes:
        identity, dimensions, thresholds: those of the embedder that made them.
        seconds: processor time spent within, for taking off what is not the fabric's.
    """

    def __init__(self, base: Embedder, texts: Sequence[str], rows: FloatRows) -> None:
        self._base = base
        self._rows = rows
        self._place = {text: place for place, text in enumerate(texts)}
        self.seconds = 0.0

    @property
    def identity(self) -> str:
        """Name and version of the embedder that made the vectors."""
        return self._base.identity

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._base.dimensions

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The embedder's thresholds."""
        return self._base.thresholds

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, dimensions)."""
        # Of this thread alone: other threads of an ingestion work meanwhile.
        before = time.thread_time()
        places = [self._place.get(text, -1) for text in texts]
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for number, place in enumerate(places):
            rows[number] = (
                self._rows[place] if place >= 0 else self._base.embed_query(texts[number])
            )
        self.seconds += time.thread_time() - before
        return rows

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,)."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


def vectors(
    kind: Kind,
    texts: Sequence[str],
    folder: Path | None = None,
    *,
    processes: int = 2,
    progress: Progress | None = None,
) -> FloatRows:
    """The vectors of texts, from the cache as far as it has them.

    Args:
        folder: where the cache is; None for none.
        processes: that embed side by side, at least 1.
        progress: called with texts done and texts to do.

    Returns:
        Unit rows in the order of the texts.

    Raises:
        EngineError: the cache is of rows of another length, or the embedder failed.
    """
    embedder = embedder_of(kind)
    hashes = _hashes(texts)
    path = (
        None if folder is None else folder / f"vectors-{seals.digest(embedder.identity)[7:23]}.npz"
    )
    held, rows = _load(path, embedder.dimensions)
    place = {row.tobytes(): number for number, row in enumerate(held)}
    missing = [number for number, one in enumerate(hashes) if one.tobytes() not in place]
    tasks = [missing[start : start + TASK] for start in range(0, len(missing), TASK)]
    new_hashes: list[Hashes] = []
    new_rows: list[FloatRows] = []

    def keep() -> None:
        nonlocal held, rows
        held = np.concatenate([held, *new_hashes])
        rows = np.concatenate([rows, *new_rows])
        new_hashes.clear()
        new_rows.clear()
        if path is not None:
            _save(path, held, rows)

    done = 0
    for task, made in zip(tasks, _made(kind, texts, tasks, processes), strict=True):
        new_hashes.append(hashes[task])
        new_rows.append(made)
        before, done = done, done + len(task)
        if progress:
            progress(done, len(missing))
        if done // SAVE_EVERY > before // SAVE_EVERY:
            keep()
    if new_rows:
        keep()
    place = {row.tobytes(): number for number, row in enumerate(held)}
    found: FloatRows = rows[[place[h.tobytes()] for h in hashes]]
    return np.ascontiguousarray(found)


def _made(
    kind: Kind, texts: Sequence[str], tasks: Sequence[Sequence[int]], processes: int
) -> Iterator[FloatRows]:
    batches = [(kind, [texts[number] for number in task]) for task in tasks]
    if kind == "hash" or len(batches) < 2:
        yield from map(_embed, batches)
        return
    # Fresh processes: a copy of one that runs threads of a library may hang.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_embed, batches)


def _embed(batch: tuple[Kind, list[str]]) -> FloatRows:
    kind, texts = batch
    return embedder_of(kind).embed_passages(texts)


def _hashes(texts: Sequence[str]) -> Hashes:
    digests = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 32)


def _load(path: Path | None, dimensions: int) -> tuple[Hashes, FloatRows]:
    if path is None or not path.exists():
        return np.zeros((0, 32), np.uint8), np.zeros((0, dimensions), np.float32)
    with np.load(path, allow_pickle=False) as stored:
        hashes, rows = stored["hashes"], stored["rows"]
    if rows.shape != (len(hashes), dimensions):
        raise EngineError(
            f"the cache {path.name} holds rows of shape {rows.shape}, "
            f"wanted ({len(hashes)}, {dimensions}); remove it"
        )
    return hashes, rows


def _save(path: Path, hashes: Hashes, rows: FloatRows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        np.savez(file, hashes=hashes, rows=rows)
    Path(file.name).replace(path)
