"""Runs the whole measurement and says, for each demand, whether it was met."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crp_integrations.vectors import FloatRows
from tests.bench.fabric import communities, corpus, embeddings, opening
from tests.bench.fabric.bars import bars
from tests.bench.fabric.corpus import Corpus, Passage
from tests.bench.fabric.embeddings import Kind, Known
from tests.bench.fabric.search import (
    Data,
    filtered_search,
    vector_search,
    word_search,
)
from tests.bench.fabric.store import add, facts_of, ingest, opened
from tests.bench.lexical import queries
from tests.bench.measure import cpu_ms, machine, resident_mb, versions

# Passages that no store holds at first: a hundredth is added later, and all are asked for.
GROWTH = 100
QUERIES = 200
# Passages that are ingested as documents, and the length of their vectors.
INGESTED, DIMENSIONS = 10_000, 384
FILTER_SHARE = 0.01
PEERS = (
    "langchain-core",
    "llama-index-core",
    "hnswlib",
    "leidenalg",
    "igraph",
    "graspologic-native",
    "tantivy",
    "numpy",
    "onnxruntime",
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Material:
    """Passages that are stored at first, others that come later, and the vectors of all."""

    base: Corpus
    later: Sequence[Passage]
    embedder: Known
    rows: FloatRows


def run(
    sizes: Sequence[int],
    *,
    kind: Kind = "minilm",
    cache: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure at each size.

    Args:
        sizes: numbers of facts, at least 200.
        kind: the embedder; `hash` is for trying the bench out.
        cache: folder that keeps passages and vectors between runs.
        say: told what is being done.

    Raises:
        ConfigError: this environment has too few passages.
    """
    largest = max(sizes)
    wanted = largest + max(largest // GROWTH, QUERIES)
    say(f"reading {wanted} passages")
    whole = corpus.read(wanted, cache)
    say(f"embedding them with {kind}, as far as the cache does not have them")
    rows = embeddings.vectors(kind, whole.texts, cache, progress=_told(say))
    embedder = Known(embeddings.embedder_of(kind), whole.texts, rows)
    counts = whole.counts()
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(*PEERS),
        "embedder": embedder.identity,
        "source": {
            "text": "documentation inside the installed packages",
            "passages": len(whole.passages),
            "found": whole.found,
            "packages": {f"{name} {whole.versions[name]}": n for name, n in counts.items()},
        },
        "sizes": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        say("ingesting documents")
        part = whole.thinned(min(INGESTED, largest)).passages
        report["ingestion"] = ingest(Path(folder) / "documents", part, DIMENSIONS)
        for size in sizes:
            say(f"{size} facts")
            material = _material(whole, size, embedder, rows)
            report["sizes"][str(size)] = _size(Path(folder) / str(size), material, kind, say)
    report["bars"] = bars(report["sizes"], report["ingestion"])
    return report


def _material(whole: Corpus, size: int, embedder: Known, rows: FloatRows) -> Material:
    base = whole.thinned(size)
    stored = {(one.path, one.offset) for one in base.passages}
    left = [one for one in whole.passages if (one.path, one.offset) not in stored]
    # Those that come later are spread over all packages too.
    later = corpus.spread(left, max(size // GROWTH, QUERIES))
    place = {text: number for number, text in enumerate(whole.texts)}
    kept = rows[[place[one.text] for one in base.passages]]
    return Material(base, later, embedder, np.ascontiguousarray(kept))


def _size(folder: Path, material: Material, kind: Kind, say: Say) -> dict[str, Any]:
    base, embedder = material.base, material.embedder
    report: dict[str, Any] = {}
    facts = facts_of(base.passages)
    package = base.package_near(FILTER_SHARE)
    members = frozenset(n for n, one in enumerate(base.passages) if one.package == package)
    draw = random.Random(0)
    chosen = draw.sample(list(material.later), QUERIES)
    data = Data(
        ids=[fact.fact_id for fact in facts],
        texts=base.texts,
        rows=material.rows,
        package=package,
        members=members,
        asked=embedder.embed_passages([one.text for one in chosen]),
        terms=queries([one.text for one in chosen]),
    )
    memory = resident_mb()
    with opened(folder, embedder) as ours:
        say("  adding them")
        report["adding"] = add(ours, facts, embedder)
        del facts
        say("  what maintenance finds to do")
        report["maintain_ms"] = cpu_ms(lambda: ours.namespace.maintain())
        ours.namespace.nearest(data.asked[0], 1)
        report["memory_mb"] = resident_mb() - memory
        report["files_bytes"] = dict(ours.namespace.stats().files)
        say("  searching")
        report["search"] = vector_search(ours, data)
        say("  searching with a filter")
        report["filter"] = {"package": package, **filtered_search(ours, data)}
        say("  searching for words")
        report["words"] = word_search(ours, data)
        if "tantivy" in versions("tantivy"):
            with opened(folder, embedder, lexical="tantivy") as other:
                report["words_tantivy"] = word_search(other, data)
        say("  finding communities")
        report["reclustering"] = {"first": communities.first(ours)}
        more = facts_of(corpus.spread(material.later, max(1, len(base.passages) // GROWTH)))
        add(ours, more, embedder)
        report["reclustering"]["after_growth"] = communities.grown(ours)
    say("  opening it in a fresh process")
    report["opening"] = opening.measure(folder, data.asked[0], kind)
    return report


def _told(say: Say) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done % 5_000 < embeddings.TASK or done == total:
            say(f"  {done} of {total}")

    return progress
