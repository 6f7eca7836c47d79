"""Embedding many texts: slice by slice, several slices side by side, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import EngineError
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.ports.engines import Progress, ProgressCount
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.ports import Clock, Embedder
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows, unit_rows

# When vectors were last kept for an ingestion under way; maintenance clears what it left behind.
PREPARED_SETTING = "prepared_at"

Slice = Sequence[tuple[str, str]]
Row = npt.NDArray[np.float32]
# Texts looked up in the store at once.
_STEP = 512


def embed_texts(
    embedder: Embedder, slices: Iterable[Slice], *, workers: int
) -> Iterator[tuple[Slice, FloatRows]]:
    """Embed slices of content hashes and texts; a text's vector depends on the text alone."""
    waiting = iter(slices)
    first = list(islice(waiting, 2))
    if workers == 1 or len(first) < 2:
        for part in chain(first, waiting):
            yield part, _rows(embedder, part)
        return
    running: deque[tuple[Slice, Future[FloatRows]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="crp-embed") as pool:
        try:
            for part in chain(first, waiting):
                running.append((part, pool.submit(_rows, embedder, part)))
                if len(running) > workers:
                    done, rows = running.popleft()
                    yield done, rows.result()
            while running:
                done, rows = running.popleft()
                yield done, rows.result()
        finally:
            # After a failure nothing that has not begun is begun.
            for _, rows in running:
                rows.cancel()


def _rows(embedder: Embedder, part: Slice) -> FloatRows:
    rows = embedder.embed_passages([text for _, text in part])
    block = unit_rows(rows, dimensions=embedder.dimensions)
    if len(block) != len(part):
        raise EngineError(
            f"embedder {embedder.identity!r} gave {len(block)} vectors for {len(part)} texts",
            engine=embedder.identity,
        )
    return block


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """The vectors of texts by content hash, in memory or kept in the store.

    Attributes:
        begin: opens a transaction of the namespace; true for a writing one.
        check: raises ConfigError when what is embedded no longer belongs into the namespace.
    """

    begin: Callable[[bool], AbstractContextManager[Transaction]]
    check: Callable[[FactsFacet], None]
    embedder: Embedder
    clock: Clock
    settings: FabricSettings

    def vectors(self, texts: Mapping[str, str], progress: Progress) -> dict[str, Row]:
        """Embed texts by content hash and give their rows."""
        told = ProgressCount("embed", progress, len(texts))
        items, size = list(texts.items()), self.settings.embed_slice
        slices = (items[start : start + size] for start in range(0, len(items), size))
        rows: dict[str, Row] = {}
        for part, block in embed_texts(self.embedder, slices, workers=self.settings.embed_workers):
            rows.update(zip((content_hash for content_hash, _ in part), block, strict=True))
            told.more(len(part))
        return rows

    def prepare(self, texts: Iterable[tuple[str, str]], told: ProgressCount) -> None:
        """Embed texts that have no vector in the store, and keep each slice there as it comes."""
        slices = self._missing(iter(texts), told)
        for part, block in embed_texts(self.embedder, slices, workers=self.settings.embed_workers):
            with self.begin(True) as transaction:
                self.check(transaction.facts)
                hashes = [content_hash for content_hash, _ in part]
                transaction.facts.prepare(self.embedder.identity, hashes, block)
                transaction.facts.set_setting(PREPARED_SETTING, iso(self.clock.now()))
            told.more(len(part))

    def _missing(self, texts: Iterator[tuple[str, str]], told: ProgressCount) -> Iterator[Slice]:
        """Slices of those texts that have no vector in the store yet."""
        part: list[tuple[str, str]] = []
        while group := list(islice(texts, _STEP)):
            distinct = dict(group)
            with self.begin(False) as transaction:
                there = transaction.facts.prepared(self.embedder.identity, list(distinct))
            fresh = [item for item in distinct.items() if item[0] not in there]
            told.more(len(group) - len(fresh))
            for item in fresh:
                part.append(item)
                if len(part) == self.settings.embed_slice:
                    yield part
                    part = []
        if part:
            yield part
