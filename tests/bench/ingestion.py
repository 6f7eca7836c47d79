"""Measures the ingestion of one long text file: memory, time apart from embedding, resuming.

`python -m tests.bench.ingestion --megabytes 200 --json OUT` writes a text file into a
temporary folder, begins to ingest it into a store on disk, kills that process after a share of the
vectors, and ingests it again in a process of its own.

The text is that of documentation inside the installed packages (`.md`, `.rst`, `.txt`), repeated
until the file is long enough, since only memory and time are measured here; a number in front of
each paragraph makes every repetition another text. The embedder is a stand-in that hashes
characters into 64 dimensions, so that what is left is the ingestion itself.

`python -m tests.bench.ingestion --documents DATA/retrieval/hotpot --before FOLDER` compares with
LangChain's `InMemoryVectorStore.add_documents`, by turns in one process: FOLDER is what
`tests.recipes.minilm --quantisation weight-only` writes, whose texts run one after another.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np

from crp_integrations.engines.embeddings import StaticEmbedder
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.system import SystemClock
from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import IngestError
from crp_integrations.evaluation.data_sets import rows_of
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.loaders.documents import load_path
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import FloatRows, unit_rows

Report = dict[str, Any]
# What is divided by what.
COMPARED = (("ours", "langchain"), ("unchanged", "ours"), ("static", "langchain"))
SUFFIXES = {".md", ".rst", ".txt"}
# The share of a kilobyte in which ru_maxrss counts.
KILO = 1 if sys.platform == "darwin" else 1024
_SHORTEST, _LONGEST = 40, 20_000


class StandIn:
    """An embedder that costs next to nothing, counts its texts and its own time.

    Args:
        dies_after: texts after which the process kills itself; 0 for never.
    """

    identity = "stand-in/64"
    dimensions = 64
    thresholds: Mapping[str, float] = {}

    def __init__(self, dies_after: int = 0) -> None:
        self.texts = 0
        self.cpu_s = 0.0
        self._dies_after = dies_after

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Characters hashed into 64 counts."""
        if 0 < self._dies_after <= self.texts:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.thread_time()
        rows = np.stack(
            [
                np.bincount(np.frombuffer(text.encode(), dtype=np.uint8) & 63, minlength=64)
                for text in texts
            ]
        )
        made = unit_rows(rows.astype(np.float32))
        self.texts += len(texts)
        self.cpu_s += time.thread_time() - began
        return made

    def embed_query(self, text: str) -> FloatRows:
        """The same of one text."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


def real_paragraphs() -> Iterator[str]:
    """Paragraphs of the documentation inside the installed packages, in sorted order."""
    root = Path(sysconfig.get_paths()["purelib"])
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            for block in split_paragraphs(text):
                if _SHORTEST <= len(block.text) <= _LONGEST:
                    yield block.text


def write_file(path: Path, size: int) -> int:
    """Write paragraphs until the file has `size` bytes; how many rounds over them that took.

    Raises:
        IngestError: no installed package holds documentation.
    """
    written = 0
    with path.open("w", encoding="utf-8") as out:
        for number in count(1):
            before = written
            for text in real_paragraphs():
                written += len(f"{number}. {text}\n\n".encode())
                out.write(f"{number}. {text}\n\n")
                if written >= size:
                    return number
            if written == before:
                raise IngestError("no installed package holds documentation to make a file of")
    return 0


def ingest(place: Path, file: Path, dies_after: int, answer: Connection) -> None:
    """Ingest the file in this process and send what that took."""
    embedder = StandIn(dies_after)
    store = SqliteStore(place)
    fabric = Fabric(
        store,
        embedder,
        counter_for("gpt-4"),
        SystemClock(),
        FixedKeyRing(b"b" * 32),
        settings=FabricSettings(embed_workers=1),
    )
    namespace = fabric.bind(Subject(tenant="bench"))
    # What the first use of the tokenizer and the store takes is there in any process.
    fabric.counter.count("warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown: dict[str, float] = {}

    def progress(step: str, done: int, total: int) -> None:
        grown[step] = _mib(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    cpu, wall = time.process_time(), time.perf_counter()
    report = namespace.ingest(load_path(file), progress=progress)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    passages = len(report.facts)
    answer.send(
        {
            "passages": passages,
            "embedded": embedder.texts,
            "embedder": embedder.identity,
            "rss_before_mib": _mib(before),
            "rss_growth_mib": _mib(after - before),
            "rss_growth_by_step_mib": grown,
            "cpu_s": round(cpu, 1),
            "wall_s": round(wall, 1),
            "embedding_cpu_s": round(embedder.cpu_s, 1),
            "ms_per_passage": round((cpu - embedder.cpu_s) / passages * 1000, 3),
            "wall_ms_per_passage": round((wall - embedder.cpu_s) / passages * 1000, 3),
        }
    )
    store.close()


class OneAfterAnother:
    """An embedder's texts by themselves, in one thread, as LangChain's `Embeddings`."""

    def __init__(self, embedder: OnnxEmbedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One run after the other."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        row: list[float] = self._embedder.embed_query(text).tolist()
        return row


def compare(texts: Sequence[str], before: Path | None, rounds: int) -> Report:
    """Ingest files here and documents in LangChain's store by turns; seconds and their ratios.

    Args:
        texts: documents, shared out over the rounds; the first of them warms both models up.
        before: the recipe's folder of LangChain's embedder; None for what ships.
        rounds: pairs of measurements.
    """
    from langchain_core.documents import Document
    from langchain_core.vectorstores import InMemoryVectorStore

    peer = InMemoryVectorStore(cast(Any, OneAfterAnother(OnnxEmbedder(before))))
    embedder = OnnxEmbedder()
    took: dict[str, list[tuple[float, float]]] = {
        name: [] for name in ("langchain", "ours", "unchanged", "static")
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        ring = FixedKeyRing(b"b" * 32)
        namespaces = {}
        for name, own in (("ours", embedder), ("static", StaticEmbedder())):
            store = opened.enter_context(closing(SqliteStore(Path(folder, name))))
            fabric = Fabric(store, own, counter_for("gpt-4"), SystemClock(), ring)
            namespaces[name] = fabric.bind(Subject(tenant="bench"))
            namespaces[name].add([texts[0]])
        peer.add_texts([texts[0]])
        for number in range(rounds):
            files = Path(folder, f"round{number}")
            files.mkdir()
            for place, text in enumerate(texts[1 + number :: rounds]):
                (files / f"{place:06}.txt").write_text(text, encoding="utf-8")

            def peers(files: Path = files) -> None:
                read = [path.read_text(encoding="utf-8") for path in sorted(files.iterdir())]
                peer.add_documents([Document(text) for text in read])

            def ours(name: str, files: Path = files) -> None:
                namespaces[name].ingest(load_path(files))

            acts = {"langchain": peers, "ours": partial(ours, "ours")}
            acts |= {"unchanged": acts["ours"], "static": partial(ours, "static")}
            for name, act in acts.items():
                cpu, wall = time.process_time(), time.perf_counter()
                act()
                took[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    report: Report = {"documents": len(texts) - 1, "rounds": rounds, "embedder": embedder.identity}
    for place, kind in enumerate(("cpu", "wall")):
        seconds = {name: [pair[place] for pair in pairs] for name, pairs in took.items()}
        report[f"{kind}_s"] = {name: round(sum(values), 3) for name, values in seconds.items()}
        for name, others in COMPARED:
            ratios = [
                round(other / own, 2)
                for other, own in zip(seconds[others], seconds[name], strict=True)
            ]
            report[f"{kind}_{others}_to_{name}"] = {
                "pairs": ratios,
                "median": statistics.median(ratios),
            }
    return report


def _mib(counted: int) -> float:
    return round(counted * KILO / 2**20, 1)


def measure(megabytes: float, killed_after: int) -> Report:
    """The whole measurement.

    Args:
        megabytes: length of the file.
        killed_after: texts embedded before the first process is killed; 0 for no such process.
    """
    size = int(megabytes * 1e6)
    # A fresh process for each, or its peak would be that of the one before.
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        file, place = Path(folder, "long.txt"), Path(folder, "kb")
        rounds = write_file(file, size)
        runs: list[Report] = []
        for dies_after in (killed_after, 0) if killed_after else (0,):
            receiving, sending = context.Pipe(duplex=False)
            child = context.Process(target=ingest, args=(place, file, dies_after, sending))
            child.start()
            sending.close()
            try:
                runs.append(receiving.recv())
            except EOFError:
                runs.append({})
            child.join()
        whole = runs[-1]
        stored = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        return {
            "file_mb": round(file.stat().st_size / 1e6, 1),
            "rounds_of_the_same_paragraphs": rounds,
            "killed_after_texts": killed_after if not runs[0] else None,
            "resumed_share": round(
                1 - whole["embedded"] / max(1, whole["embedded"] + killed_after), 4
            ),
            "store_mb": round(stored / 1e6, 1),
            **whole,
        }


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.ingestion", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument(
        "--killed-after",
        type=int,
        default=20_000,
        help="texts embedded before the kill; 0 for no kill, to see memory alone",
    )
    parser.add_argument("--documents", type=Path, help="a data set: compare with LangChain's store")
    parser.add_argument("--before", type=Path, help="the recipe's output for LangChain's store")
    parser.add_argument("--most", type=int, default=200, help="documents of the set")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if given.documents:
        rows = rows_of(given.documents / "documents.jsonl.gz")[: given.most]
        report = compare([row["text"] for row in rows], given.before, given.rounds)
    else:
        report = measure(given.megabytes, given.killed_after)
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
