"""Our side of the measurement: a relay's fabric on a SQLite store, with vectors made before."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from crp_integrations import Relay
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Block, Document, Fact
from crp_integrations.fabric.settings import CommunitySettings, FabricSettings
from crp_integrations.ports import Embedder
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows, unit_rows
from tests.bench.fabric.corpus import Passage
from tests.bench.fabric.embeddings import Known
from tests.bench.measure import cpu_ms

# No ingestion is to find communities by the way: that is measured by itself.
NEVER = 1_000_000_000


class Watch:
    """A tracer that adds up the processor time of each step, in milliseconds."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step."""
        before = time.process_time()
        try:
            yield
        finally:
            taken = (time.process_time() - before) * 1000
            self.steps[name] = self.steps.get(name, 0.0) + taken


class Instant:
    """Vectors out of a text's hash, for what is measured apart from embedding.

    Attributes:
        seconds: processor time spent within.
    """

    thresholds: dict[str, float] = {}

    def __init__(self, dimensions: int) -> None:
        self.identity = f"bench-instant/{dimensions}"
        self.dimensions = dimensions
        self.seconds = 0.0

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, dimensions)."""
        before = time.thread_time()
        seeds = [int(sha256(text)[7:23], 16) for text in texts]
        rows = [np.random.default_rng(s).standard_normal(self.dimensions) for s in seeds]
        block = unit_rows(np.array(rows, dtype=np.float32).reshape(len(texts), self.dimensions))
        self.seconds += time.thread_time() - before
        return block

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,)."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


@dataclass(frozen=True, slots=True)
class Opened:
    """A relay over a store, and what its steps took."""

    relay: Relay
    watch: Watch = field(default_factory=Watch)

    @property
    def namespace(self) -> Namespace:
        """The fabric's only way to read and write."""
        return self.relay.fabric


@contextmanager
def opened(folder: Path, embedder: Embedder, *, lexical: str = "fts5") -> Iterator[Opened]:
    """A store opened as a user opens it, but for reclustering by itself."""
    settings = Settings(
        fabric=FabricSettings.model_validate(
            {
                "communities": CommunitySettings(recluster_after=NEVER),
                "maintain_on_open": False,
                "lexical": lexical,
            }
        )
    )
    watch = Watch()
    with Relay.open(folder, embedder=embedder, settings=settings, tracer=watch) as relay:
        yield Opened(relay, watch)


def facts_of(passages: Sequence[Passage]) -> list[Fact]:
    """One fact a passage, with its package for a filter."""
    return [
        Fact(
            content=passage.text,
            source_location=f"{passage.path}#{passage.offset}",
            metadata={"package": passage.package},
        )
        for passage in passages
    ]


def documents_of(passages: Sequence[Passage]) -> list[Document]:
    """The passages as documents, one a file, as a loader would hand them over."""
    files: dict[str, list[Passage]] = {}
    for passage in passages:
        files.setdefault(passage.path, []).append(passage)
    found = []
    for path, parts in files.items():
        blocks, start = [], 0
        for part in parts:
            blocks.append(Block(text=part.text, start=start))
            start += len(part.text) + 2
        text = "\n\n".join(part.text for part in parts)
        found.append(
            Document(uri=path, title=path, blocks=tuple(blocks), document_hash=sha256(text))
        )
    return found


def add(into: Opened, facts: Sequence[Fact], embedder: Known) -> dict[str, float]:
    """Add facts in one batch; milliseconds a fact, without the time in the embedder."""
    inside = embedder.seconds
    taken = cpu_ms(lambda: into.namespace.add(facts))
    taken -= (embedder.seconds - inside) * 1000
    return {"facts": len(facts), "ms_per_fact": taken / len(facts)}


def ingest(folder: Path, passages: Sequence[Passage], dimensions: int) -> dict[str, float]:
    """Ingest the passages as documents into a store of their own, apart from embedding."""
    embedder = Instant(dimensions)
    documents = documents_of(passages)
    with opened(folder, embedder) as into:
        taken = cpu_ms(lambda: into.namespace.ingest(documents))
        stored = into.namespace.size()
    own = taken - embedder.seconds * 1000
    return {
        "documents": len(documents),
        "passages": len(passages),
        "facts": stored,
        "ms_per_passage": own / len(passages),
    }
