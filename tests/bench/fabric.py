"""The fabric on real text beside other stores, and the bars it has to meet.

`fabric_corpus` reads the text and makes the vectors, `fabric_measures` times our side, `peers/`
holds the other stores. Every figure of ours goes through the public `Namespace` on a SQLite store.

    python -m tests.bench.fabric --facts 1000,10000,100000 --json OUT
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crp_integrations.vectors import FloatRows
from tests.bench import fabric_corpus, fabric_measures, fabric_opening
from tests.bench.fabric_corpus import Corpus, Kind, Known, Passage
from tests.bench.fabric_measures import (
    Data,
    add,
    facts_of,
    filtered_search,
    ingest,
    opened,
    vector_search,
    word_search,
)
from tests.bench.lexical import queries
from tests.bench.measure import (
    cpu_ms,
    has_one_thread,
    in_one_thread,
    machine,
    resident_mb,
    versions,
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One demand.

    Attributes:
        wanted: in words, with its number.
        measured: the figures, in words.
        met: None where something needed is missing, such as a peer that is not installed.
    """

    name: str
    wanted: str
    measured: str
    met: bool | None


def bars(sizes: dict[str, Any], ingestion: dict[str, Any]) -> list[dict[str, Any]]:
    """The demands that the measured sizes speak about; others are left out."""
    found = [_ingestion(ingestion)] if ingestion else []
    for size, measured in sizes.items():
        found += [_tried(make, size, measured) for make in DEMANDS.get(size, ())]
    return [asdict(bar) for bar in found]


def _tried(make: Callable[[str, dict[str, Any]], Bar], size: str, measured: dict[str, Any]) -> Bar:
    try:
        return make(size, measured)
    except KeyError as missing:
        return Bar(make.__name__.strip("_"), "", f"{size}: nothing measured for {missing}", None)


def _beside_langchain(size: str, measured: dict[str, Any]) -> Bar:
    ours, other = measured["search"]["ours"], measured["search"]["langchain"]
    ratio = other["query_ms"] / ours["query_ms"]
    return Bar(
        f"query at {size}",
        "at least 100 times LangChain's in-memory store, recall 1.0",
        f"{ratio:.0f} times, recall {ours['recall']:.4f}",
        ratio >= 100 and ours["recall"] >= 1.0,
    )


def _beside_hnswlib(size: str, measured: dict[str, Any]) -> Bar:
    ours, other = measured["search"]["ours"], measured["search"]["hnswlib"]
    ratio = ours["query_ms"] / other["query_ms"]
    return Bar(
        f"query at {size}",
        "at most twice raw hnswlib, recall at least .98",
        f"{ratio:.2f} times, recall {ours['recall']:.4f} (hnswlib {other['recall']:.4f})",
        ratio <= 2.0 and ours["recall"] >= 0.98,
    )


def _filter(size: str, measured: dict[str, Any]) -> Bar:
    ours, other = measured["filter"]["ours"], measured["filter"]["hnswlib"]
    ratio = other["query_ms"] / ours["query_ms"]
    return Bar(
        f"1 % filter at {size}",
        "at least 100 times hnswlib's Python filter, recall 1.0",
        f"{ratio:.0f} times, recall {ours['recall']:.4f} (hnswlib {other['recall']:.4f})",
        ratio >= 100 and ours["recall"] >= 1.0,
    )


def _reclustering(size: str, measured: dict[str, Any]) -> Bar:
    ours = measured["reclustering"]["after_growth"]
    other = ours["leidenalg"]
    ratio = other["ms"] / ours["ms"]
    lost = other["modularity"] - ours["modularity"]
    return Bar(
        f"reclustering at {size}",
        "at least 10 times leidenalg (10 iterations) from scratch, modularity within .001",
        f"{ratio:.1f} times, modularity {ours['modularity']:.5f} ({-lost:+.5f})",
        ratio >= 10 and lost <= 0.001,
    )


def _opening(size: str, measured: dict[str, Any]) -> Bar:
    seconds = measured["opening"]["open_s"]
    each = measured["opening"]["each_s"]
    said = f"{seconds:.2f} s, median of {len(each)} processes ({min(each):.2f} to {max(each):.2f})"
    return Bar(f"opening {size}", "under 2 s", said, seconds < 2.0)


def _ingestion(measured: dict[str, Any]) -> Bar:
    taken = measured["ms_per_passage"]
    wanted = "under 3 ms a passage, apart from embedding"
    return Bar("ingestion", wanted, f"{taken:.2f} ms", taken < 3.0)


def _adding(size: str, measured: dict[str, Any]) -> Bar:
    taken = measured["adding"]["ms_per_fact"]
    wanted = "under 3 ms a fact in one batch, apart from embedding"
    return Bar(f"adding {size}", wanted, f"{taken:.2f} ms", taken < 3.0)


# By the number of facts that each demand speaks of.
DEMANDS: dict[str, tuple[Callable[[str, dict[str, Any]], Bar], ...]] = {
    "10000": (_beside_langchain,),
    "100000": (_beside_hnswlib, _filter, _reclustering, _adding, _opening),
}


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The rows of the report: facts, what, milliseconds, times ours, recall, remark."""
    for size, measured in report["sizes"].items():
        for section, what in (("search", "query"), ("filter", "1 % filter")):
            ours = measured[section]["ours"]
            for store in measured[section].values():
                if isinstance(store, dict):
                    yield (size, *_row(what, store, ours["query_ms"]))
        if "words" in measured:
            mine, raw = measured["words"]["ours"], measured["words"]["fts5"]
            again = f"{mine['query_ms'] / raw['query_ms']:.2f} × raw FTS5"
            first = f"first {mine['first_ms']:.0f} ms"
            yield (size, "words, FTS5", f"{mine['query_ms']:.3f}", "", "", f"{again}, {first}")
        for key, name in (("first", "first"), ("after_growth", "after 1 % growth")):
            found = measured["reclustering"][key]
            remark = f"modularity {found['modularity']:.5f}, {found['edges']} edges"
            yield size, f"communities, {name}", f"{found['ms']:.0f}", "", "", remark
        other = measured["reclustering"]["after_growth"]["leidenalg"]
        if "ms" in other:
            mine = measured["reclustering"]["after_growth"]["ms"]
            remark = f"modularity {other['modularity']:.5f}"
            row = (other["name"], f"{other['ms']:.0f}", f"{other['ms'] / mine:.1f}", "", remark)
            yield (size, *row)
        added = measured["adding"]["ms_per_fact"]
        yield size, "adding, a fact", f"{added:.3f}", "", "", "one batch, apart from embedding"
        found = measured["opening"]
        remark = f"{found['open_s']:.2f} s by the clock, {found['memory_mb']:.0f} MB in RAM after"
        yield size, "opening and first search", f"{found['open_cpu_s'] * 1000:.0f}", "", "", remark
    taken = report["ingestion"]["ms_per_passage"]
    number = report["ingestion"]["passages"]
    yield str(number), "ingesting, a passage", f"{taken:.3f}", "", "", "apart from embedding"


def _row(what: str, store: dict[str, Any], ours: float) -> tuple[str, ...]:
    if "missing" in store:
        return what, "", "", "", store["missing"]
    remark = []
    if "first_ms" in store:
        remark.append(f"first {store['first_ms']:.0f} ms")
    if "build_ms" in store:
        remark.append(f"build {store['build_ms'] / 1000:.1f} s, {store['memory_mb']:.0f} MB")
    return (
        f"{what}, {store['name']}",
        f"{store['query_ms']:.3f}",
        f"{store['query_ms'] / ours:.1f}",
        f"{store['recall']:.4f}",
        ", ".join(remark),
    )


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
    whole = fabric_corpus.read(wanted, cache)
    say(f"embedding them with {kind}, as far as the cache does not have them")
    rows = fabric_corpus.vectors(kind, whole.texts, cache, progress=_told(say))
    embedder = Known(fabric_corpus.embedder_of(kind), whole.texts, rows)
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
    later = fabric_corpus.spread(left, max(size // GROWTH, QUERIES))
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
        say("  finding communities")
        report["reclustering"] = {"first": fabric_measures.first(ours)}
        more = facts_of(fabric_corpus.spread(material.later, max(1, len(base.passages) // GROWTH)))
        add(ours, more, embedder)
        report["reclustering"]["after_growth"] = fabric_measures.grown(ours)
    say("  opening it in a fresh process")
    report["opening"] = fabric_opening.measure(folder, data.asked[0], kind)
    return report


def _told(say: Say) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done % 5_000 < fabric_corpus.TASK or done == total:
            say(f"  {done} of {total}")

    return progress


MODULE = "tests.bench.fabric"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--facts", default="1000,10000,100000", help="sizes, with commas between")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--cache", type=Path, help="keeps passages and vectors between runs")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    sizes = [int(size) for size in given.facts.split(",")]
    report = run(sizes, kind=given.embedder, cache=given.cache, say=_say)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if given.quiet:
        return
    for row in table(report):
        print("{:>7}  {:44} {:>10} {:>9} {:>7}  {}".format(*row))
    for bar in report["bars"]:
        said = {True: "met", False: "NOT MET", None: "not measured"}[bar["met"]]
        print(f"{said:12} {bar['name']}: {bar['measured']} (wanted {bar['wanted']})")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
