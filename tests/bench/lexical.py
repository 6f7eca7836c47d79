"""Lexical search: our store's FTS5 beside raw FTS5 and bm25s, on the same real text.

`python -m tests.bench.lexical --facts 1000,10000,100000 --json OUT`. Each answers the
same queries of 3 to 6 terms with its 50 best. Time is processor time of all threads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from crp_integrations.errors import MissingExtra
from crp_integrations.fabric.records import Fact, fact_id
from crp_integrations.language.words import STOP_WORDS, words
from crp_integrations.seals import sha256
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import unit_rows
from tests.bench import fabric_corpus
from tests.bench.measure import (
    cpu_ms,
    has_one_thread,
    in_one_thread,
    machine,
    median_ms,
    resident_mb,
    versions,
)

K = 50
QUERIES = 200
NAMESPACE = "bench"
KINDS = ("store", "fts5", "bm25s")
MODULE = "tests.bench.lexical"
Hits = list[tuple[str, float]]


class Engine(Protocol):
    """What is measured."""

    name: str

    def search(self, terms: Sequence[str], k: int) -> Hits:
        """Ids and scores of the k best texts that hold any of the terms."""
        ...


class OurStore:
    """FTS5 as our store keeps and asks it: a reading transaction, the facts' ids and statuses."""

    name = "our store (FTS5)"

    def __init__(self, texts: Sequence[str], folder: Path) -> None:
        self._store = SqliteStore(folder)
        self._add(texts)

    def search(self, terms: Sequence[str], k: int) -> Hits:
        """Ids and BM25 scores."""
        with self._store.begin(NAMESPACE, write=False) as transaction:
            return transaction.facts.search_text(terms, k)

    def change(self, ids: Sequence[str], texts: Sequence[str], gone: Sequence[str]) -> None:
        """Take facts out and put others in, in two transactions."""
        with self._store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(list(gone))
        self._add(texts)

    def close(self) -> None:
        """Release the files."""
        self._store.close()

    def _add(self, texts: Sequence[str]) -> None:
        facts = [Fact(content=text) for text in texts]
        # The vectors have no part in this; two dimensions are the fewest that mean anything.
        rows = unit_rows(np.ones((len(facts), 2), dtype=np.float32))
        with self._store.begin(NAMESPACE) as transaction:
            transaction.facts.add(facts, rows)


def queries(texts: Sequence[str], count: int = QUERIES, seed: int = 7) -> list[list[str]]:
    """Queries of 3 to 6 distinct words out of one text each, little words left out."""
    draw = random.Random(seed)
    found: list[list[str]] = []
    while len(found) < count:
        telling = [word.lower for word in words(draw.choice(texts))]
        telling = [w for w in dict.fromkeys(telling) if w not in STOP_WORDS and w.isalpha()]
        wanted = draw.randint(3, 6)
        if len(telling) >= wanted:
            found.append(draw.sample(telling, wanted))
    return found


def overlap(found: Sequence[Hits], truth: Sequence[Hits], k: int) -> float:
    """Mean share of the k best that are among another engine's k best."""
    shares = [
        len({id_ for id_, _ in one[:k]} & {id_ for id_, _ in other[:k]}) / min(k, len(other))
        for one, other in zip(found, truth, strict=True)
        if other
    ]
    return statistics.fmean(shares) if shares else 1.0


def made(kind: str, ids: Sequence[str], texts: Sequence[str], folder: Path) -> Engine:
    """An engine over texts.

    Raises:
        MissingExtra, ModuleNotFoundError: its library is not installed.
    """
    match kind:
        case "store":
            return OurStore(texts, folder)
        case "fts5":
            from tests.bench.peers.fts5 import RawFts5

            return RawFts5(ids, texts)
        case _:
            from tests.bench.peers.bm25s import RawBm25s

            return RawBm25s(ids, texts)


def memory_of(kind: str, ids: Sequence[str], texts: Sequence[str], folder: Path) -> float:
    """Memory that an engine takes in a process of its own, in MB."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_grown_by, kind, ids, texts, folder).result()


def _grown_by(kind: str, ids: Sequence[str], texts: Sequence[str], folder: Path) -> float:
    # A first index loads the library.
    first = made(kind, ids[:1], texts[:1], folder / "first")
    before = resident_mb()
    engine = made(kind, ids, texts, folder / "second")
    engine.search(["first"], 1)
    grown = resident_mb() - before
    del first
    return grown


def measure(texts: Sequence[str], asked: Sequence[Sequence[str]], folder: Path) -> dict[str, Any]:
    """Every engine over the same texts.

    Args:
        texts: all but the last hundredth are indexed first; these come in for the update.
    """
    fresh = max(2, len(texts) // 100)
    base, new = list(texts[:-fresh]), list(texts[-fresh:])
    ids = [fact_id("user", "", sha256(text)) for text in texts]
    report: dict[str, Any] = {}
    truth: list[Hits] = []
    for kind in KINDS:
        before = time.process_time()
        try:
            engine = made(kind, ids[:-fresh], base, folder / kind)
        except (MissingExtra, ModuleNotFoundError) as error:
            report[kind] = {"missing": str(error)}
            continue
        build = (time.process_time() - before) * 1000
        found = [engine.search(terms, K) for terms in asked]
        truth = truth or found
        middle, runs = median_ms(asked, partial(_search, engine))
        change = getattr(engine, "change", None)
        one = hundredth = build
        if change is not None:
            one = cpu_ms(partial(change, ids[-1:], new[-1:], ids[:1]))
            hundredth = cpu_ms(partial(change, ids[-fresh:-1], new[:-1], ids[1:fresh]))
        if isinstance(engine, OurStore):
            engine.close()
        report[kind] = {
            "name": engine.name,
            "query_ms": middle,
            "queries": runs,
            "build_ms": build,
            "update_one_ms": one,
            "update_hundredth_ms": hundredth,
            "memory_mb": memory_of(kind, ids[:-fresh], base, folder / f"{kind}-memory"),
            "overlap_10": overlap(found, truth, 10),
            "overlap_50": overlap(found, truth, K),
        }
    return report


def _search(engine: Engine, terms: Sequence[str]) -> Hits:
    return engine.search(terms, K)


def run(sizes: Sequence[int], cache: Path | None = None) -> dict[str, Any]:
    """Measure at several sizes.

    Raises:
        ConfigError: the environment has too few passages.
    """
    whole = fabric_corpus.read(max(sizes), cache)
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions("bm25s", "numpy"),
        "k": K,
        "sizes": {},
    }
    for size in sizes:
        texts = whole.thinned(size).texts
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(texts, queries(texts), Path(folder) / "store")
        report["sizes"][str(size)] = measured
    return report


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as lines of text."""
    yield (
        f"{'facts':>7} {'engine':28} {'query ms':>9} {'build s':>8} {'one ms':>8} "
        f"{'1 % ms':>8} {'MB':>6} {'top 10':>7} {'top 50':>7}"
    )
    for size, engines_ in report["sizes"].items():
        for one in engines_.values():
            if "missing" in one:
                yield f"{size:>7} {one['missing']}"
                continue
            yield (
                f"{size:>7} {one['name']:28} {one['query_ms']:9.3f} {one['build_ms'] / 1000:8.2f} "
                f"{one['update_one_ms']:8.2f} {one['update_hundredth_ms']:8.1f} "
                f"{one['memory_mb']:6.0f} {one['overlap_10']:7.3f} {one['overlap_50']:7.3f}"
            )


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--facts", default="100000", help="numbers of passages, with commas")
    parser.add_argument("--cache", type=Path, help="folder that keeps the passages between runs")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    report = run([int(size) for size in given.facts.split(",")], given.cache)
    for line in lines(report):
        print(line)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
