"""Vectors of texts by hash, so that no text is embedded twice while its vector is in the cache.

Where a long text is cut is cached with them.

Keys are hashes, so the cache contains no text; but a vector can be inverted, so `forget` empties
the cache, in memory and on disk.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from crp_integrations.errors import ConfigError, StoreError
from crp_integrations.guard.decisions import LOCAL_TENANT
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows, from_bytes, to_bytes

_LOG = logging.getLogger(__name__)
# Bytes of a key; and of an entry of the dictionary with its key and the objects around them.
_KEY: Final = 32
_ENTRY: Final = 250
# A record of a file is a checksum, a key and a row.
_CHECKSUM: Final = 8
_SUFFIX: Final = ".vectors"


class VectorCache:
    """A cache of vectors of one or more embedders; the least recently used go first. Thread-safe.

    Args:
        megabytes: maximum size in memory, and of each file; by default enough for an evaluation
            with two million passages. A full file is started anew.
        folder: keeps vectors between processes, in a file for each embedder; None for none.

    Raises:
        ConfigError: the folder cannot be written.
    """

    def __init__(self, megabytes: float = 4_000, folder: str | Path | None = None) -> None:
        self._most = int(megabytes * 1_000_000)
        self._folder = None if folder is None else Path(folder)
        self._rows: OrderedDict[bytes, bytes] = OrderedDict()
        self._used = 0
        self._forgotten = 0
        self._read: set[str] = set()
        self._lock = threading.Lock()
        if self._folder is not None:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"vector_cache {str(folder)!r} cannot be made ({error.strerror}); give a "
                    "folder that this process can write"
                ) from error

    @property
    def size(self) -> int:
        """Bytes of the vectors in memory, with the objects around them."""
        return self._used

    def rows(self, keys: Sequence[bytes], file: str = "") -> tuple[list[bytes | None], int]:
        """The cached rows of keys, and the number of times that the cache was emptied so far."""
        with self._lock:
            if self._folder and file and file not in self._read:
                self._read.add(file)
                self._read_files(file)
            rows = [self._rows.get(key) for key in keys]
            for key, row in zip(keys, rows, strict=True):
                if row is not None:
                    self._rows.move_to_end(key)
            return rows, self._forgotten

    def add(self, rows: Mapping[bytes, bytes], begun: int, file: str = "") -> None:
        """Add rows that were made since `begun`, unless the cache was emptied meanwhile."""
        with self._lock:
            if begun == self._forgotten:
                self._add(rows)
                if self._folder and file:
                    self._write(rows, self._folder, file)

    def forget(self, lasting: bool = True) -> None:
        """Drop all vectors in memory, on disk if `lasting`, and those that are being made now.

        Raises:
            StoreError: a file cannot be removed.
        """
        with self._lock:
            self._rows.clear()
            self._used = 0
            self._forgotten += 1
            if not lasting:
                # The files stay, and are read again.
                self._read.clear()
                return
            left: list[tuple[Path, OSError]] = []
            for path in self._files("*"):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    left.append((path, error))
        for path, failure in left:
            raise StoreError(
                f"{path.name} in vector_cache cannot be removed ({failure.strerror}); erased "
                "content may be in it: remove it, then erase again"
            ) from failure

    def _add(self, rows: Mapping[bytes, bytes]) -> None:
        for key, row in rows.items():
            if key not in self._rows:
                self._used += len(row) + _ENTRY
            self._rows[key] = row
        while self._used > self._most:
            _, row = self._rows.popitem(last=False)
            self._used -= len(row) + _ENTRY

    def _files(self, file: str) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob(f"{file}-*{_SUFFIX}"))

    def _read_files(self, file: str) -> None:
        """Read a file's rows up to the first damaged record, and cut the file there."""
        for path in self._files(file):
            size = _CHECKSUM + _KEY + 4 * int(path.stem.rpartition("-")[2])
            try:
                content = path.read_bytes()
                rows = {}
                whole = 0
                for start in range(0, len(content) - size + 1, size):
                    record = content[start + _CHECKSUM : start + size]
                    if content[start : start + _CHECKSUM] != _checksum(record):
                        break
                    rows[record[:_KEY]] = record[_KEY:]
                    whole = start + size
                if whole < len(content):
                    os.truncate(path, whole)
            except OSError as error:
                _LOG.warning("a file of vector_cache was not read: %s", error.strerror)
                continue
            self._add(rows)

    def _write(self, rows: Mapping[bytes, bytes], folder: Path, file: str) -> None:
        """Append rows to their file, in one write, as other processes may append too."""
        length = len(next(iter(rows.values())))
        path = folder / f"{file}-{length // 4}{_SUFFIX}"
        records = b"".join(_checksum(key + row) + key + row for key, row in rows.items())
        try:
            if path.exists() and path.stat().st_size + len(records) > self._most:
                path.unlink(missing_ok=True)
            number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(number, "ab", buffering=0) as opened:
                opened.write(records)
        except OSError as error:
            _LOG.warning("vectors were not written to vector_cache: %s", error.strerror)


def _key(text: str, kind: bytes) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY, key=kind).digest()


def _checksum(record: bytes) -> bytes:
    return blake2b(record, digest_size=_CHECKSUM).digest()


class CachedEmbedder:
    """An embedder that caches every vector; the same bits as without the cache. Thread-safe.

    Texts are embedded outside of the cache's lock. A text that two threads need at once may be
    embedded twice.

    Attributes:
        identity, dimensions, thresholds: values of the embedder that makes the vectors.
        symmetric: whether a query and a passage of the same words have one vector.

    Args:
        scope: name under which vectors are cached, and then only in memory; None for the
            embedder's identity.
        tenant: whose texts are embedded; a tenant's vectors serve no other.
        keeps: whether new vectors are added.
        lasting: whether vectors may be written to the cache's folder.
    """

    def __init__(
        self,
        base: Embedder,
        cache: VectorCache,
        *,
        scope: str | None = None,
        tenant: str = "",
        keeps: bool = True,
        lasting: bool = True,
    ) -> None:
        self._base = base
        self._cache = cache
        self._scope = scope
        self._tenant = tenant
        self._keeps = keeps
        name = f"{base.identity if scope is None else scope}\0{tenant}\0"
        self.symmetric: bool = getattr(base, "symmetric", False)
        query = "passage" if self.symmetric else "query"
        self._passage_key, self._query_key = (
            sha256(f"{name}{kind}".encode()).digest() for kind in ("passage", query)
        )
        self._file = sha256(name.encode()).hexdigest()[:32] if lasting and scope is None else ""

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
            return self._base.embed_passages(texts)
        return self._cached(texts, self._base.embed_passages, self._passage_key)

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,)."""
        row: FloatRows = self._cached(
            [text],
            lambda texts: np.asarray(self._base.embed_query(texts[0]))[None],
            self._query_key,
        )[0]
        return row

    def cached_values(
        self, kind: str, texts: Sequence[str], make: Callable[[list[str]], Sequence[bytes]]
    ) -> list[bytes]:
        """The values of a function of texts, which is called for those that are not cached.

        They stay in memory.

        Args:
            kind: name of the function with all that its values depend on beside a text.
        """
        own = sha256(f"{self._tenant}\0{kind}".encode()).digest()
        keys = [_key(text, own) for text in texts]
        cached, begun = self._cache.rows(keys)
        values = {key: value for key, value in zip(keys, cached, strict=True) if value is not None}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in values}
        if new:
            fresh = dict(zip(new, make(list(new.values())), strict=True))
            if self._keeps:
                self._cache.add(fresh, begun)
            values |= fresh
        return [values[key] for key in keys]

    def _cached(
        self, texts: Sequence[str], embed: Callable[[list[str]], FloatRows], kind: bytes
    ) -> FloatRows:
        keys = [_key(text, kind) for text in texts]
        cached, begun = self._cache.rows(keys, self._file)
        rows = {key: row for key, row in zip(keys, cached, strict=True) if row is not None}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in rows}
        if new:
            made = embed(list(new.values()))
            if getattr(made, "dtype", None) != np.float32 or np.shape(made)[:1] != (len(new),):
                # Callers check what a foreign embedder returns; it is not cached.
                return made if len(new) == len(texts) else embed(list(texts))
            fresh = {key: to_bytes(row) for key, row in zip(new, made, strict=True)}
            if self._keeps:
                self._cache.add(fresh, begun, self._file)
            if len(new) == len(texts):
                return made
            rows |= fresh
        return from_bytes([rows[key] for key in keys], len(rows[keys[0]]) // 4)


class SharedEmbedder(CachedEmbedder):
    """A `CachedEmbedder` for several tenants, which does not keep the vectors of every call."""

    def of_tenant(self, tenant: str) -> SharedEmbedder:
        """This embedder with vectors of a tenant, which stay in memory.

        They serve no other tenant, so that nobody can find out whether another one has a text. The
        local tenant shares those of functions without a store.
        """
        own = "" if tenant == LOCAL_TENANT else tenant
        return SharedEmbedder(self._base, self._cache, scope=self._scope, tenant=own, lasting=False)

    def beside(self, base: Embedder) -> SharedEmbedder:
        """Another embedder over the same cache, for the same tenant; its vectors stay in memory."""
        return SharedEmbedder(
            base, self._cache, tenant=self._tenant, keeps=self._keeps, lasting=False
        )

    def without_keeping(self) -> SharedEmbedder:
        """This embedder without adding new vectors: for bulk loads, and under `no-store`."""
        return SharedEmbedder(
            self._base,
            self._cache,
            scope=self._scope,
            tenant=self._tenant,
            keeps=False,
            lasting=bool(self._file),
        )


_NUMBERS: Final = itertools.count()
_OBJECTS: Final[dict[int, tuple[weakref.ref[Any], str]]] = {}


def object_scope(source: object) -> str:
    """A name for an object as long as it lives; empty for one without weak references.

    Two objects of a framework can have one name and different vectors.
    """
    place = id(source)
    known = _OBJECTS.get(place)
    if known is not None and known[0]() is source:
        return known[1]

    def drop(gone: weakref.ref[Any]) -> None:
        if _OBJECTS.get(place, (None,))[0] is gone:
            del _OBJECTS[place]

    try:
        _OBJECTS[place] = (weakref.ref(source, drop), f"object {next(_NUMBERS)}")
    except TypeError:
        return ""
    return _OBJECTS[place][1]
