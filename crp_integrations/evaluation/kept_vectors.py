"""An embedder with its vectors cached on disk, so that each text is embedded once."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from crp_integrations import seals
from crp_integrations.errors import EngineError
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows

SAVE_EVERY = 2_000


class KeptVectors:
    """An embedder that caches vectors. Thread-safe.

    Attributes:
        identity, dimensions, thresholds: values of the embedder that makes the vectors.
    """

    def __init__(self, base: Embedder, folder: Path | None) -> None:
        """Load this embedder's cached vectors from a folder; None for a cache in memory."""
        self._base = base
        self._lock = threading.Lock()
        name = f"selection-{seals.digest(base.identity)[7:23]}.npz"
        self._path = None if folder is None else folder / name
        self._rows: dict[bytes, FloatRows] = {}
        self._unsaved = 0
        if self._path is not None and self._path.exists():
            self._read(self._path)

    @property
    def identity(self) -> str:
        """Name and version of the embedder that makes the vectors."""
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
        """Unit row vectors of texts, shape (n, dimensions)."""
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        return self._looked_up(texts, self._base.embed_passages, "passage")

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,)."""
        row: FloatRows = self._looked_up(
            [text],
            lambda texts: np.stack([self._base.embed_query(query) for query in texts]),
            "query",
        )[0]
        return row

    def _looked_up(
        self, texts: Sequence[str], embed: Callable[[Sequence[str]], FloatRows], kind: str
    ) -> FloatRows:
        # A model can treat a query and a passage of the same words differently.
        keys = [hashlib.sha256(f"{kind} {text}".encode()).digest() for text in texts]
        with self._lock:
            new = dict.fromkeys(
                (key, text) for key, text in zip(keys, texts, strict=True) if key not in self._rows
            )
        made = embed([text for _, text in new]) if new else ()
        with self._lock:
            self._rows |= {key: row for (key, _), row in zip(new, made, strict=True)}
            self._unsaved += len(new)
            if self._unsaved >= SAVE_EVERY:
                self._save()
            # Return a copy, as the caller may change it.
            return np.stack([self._rows[key] for key in keys])

    def save(self) -> None:
        """Write new vectors to the folder."""
        with self._lock:
            if self._unsaved:
                self._save()

    def _save(self) -> None:
        self._unsaved = 0
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        hashes = np.frombuffer(b"".join(self._rows), dtype=np.uint8).reshape(-1, 32)
        with tempfile.NamedTemporaryFile(
            dir=self._path.parent, suffix=".part", delete=False
        ) as file:
            np.savez(file, hashes=hashes, rows=np.stack(list(self._rows.values())))
        Path(file.name).replace(self._path)

    def _read(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                hashes, rows = stored["hashes"], stored["rows"]
        except (OSError, ValueError, KeyError) as error:
            raise EngineError(f"the cache {path.name} cannot be read; remove it") from error
        if rows.shape != (len(hashes), self.dimensions):
            raise EngineError(
                f"the cache {path.name} holds rows of shape {rows.shape}, "
                f"wanted ({len(hashes)}, {self.dimensions}); remove it"
            )
        self._rows = {text_hash.tobytes(): row for text_hash, row in zip(hashes, rows, strict=True)}
