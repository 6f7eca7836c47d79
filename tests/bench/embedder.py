"""Measures an embedder: recall, agreement with the float model, speed, thresholds.

`python -m tests.bench.embedder --data DIR` reads `DIR/retrieval/NAME`, with
`documents.jsonl.gz` and `queries.jsonl.gz` in each. In a set whose median document is longer
than `--cut` characters, documents are cut into passages of that length. Recall@5 is the mean
share of a query's evidence passages that are among the five nearest.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.engines.embeddings import embedder_of
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.evaluation.data_sets import rows_of
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows

Values = npt.NDArray[np.float32]
Report = dict[str, Any]
GRID = np.arange(0, 96) / 100
# One point of balanced accuracy: what is taken as no difference between two thresholds.
NEAR = 0.01


@dataclass(frozen=True, slots=True)
class Passage:
    """A document, or a piece of one that starts at a character offset."""

    document: str
    collection: str
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A set and its vectors.

    Attributes:
        evidence: positions of each query's evidence passages.
        similarity: shape (queries, passages).
        rows: the passages' vectors.
        asked: the queries' vectors.
        cut: characters of a passage, 0 where documents are whole.
    """

    passages: Sequence[Passage]
    queries: Sequence[str]
    evidence: Sequence[frozenset[int]]
    similarity: Values
    rows: FloatRows
    asked: FloatRows
    cut: int


def measure(directory: Path, embedder: Embedder, cut: int) -> Measured:
    """Embed one set; similarity has shape (queries, passages), -1 outside a query's collection."""
    documents = rows_of(directory / "documents.jsonl.gz")
    queries = rows_of(directory / "queries.jsonl.gz")
    long = statistics.median(len(d["text"]) for d in documents) > cut
    passages = [
        Passage(d["doc_id"], d["collection"], start, d["text"][start : start + step])
        for d in documents
        for step in [cut if long else max(1, len(d["text"]))]
        for start in range(0, max(1, len(d["text"])), step)
    ]
    places: dict[str, list[int]] = {}
    for place, passage in enumerate(passages):
        places.setdefault(passage.document, []).append(place)
    evidence = [
        frozenset(
            place
            for piece in query["evidence"]
            for place in places[piece["doc_id"]]
            if passages[place].start < piece["end"]
            and piece["start"] < passages[place].start + len(passages[place].text)
        )
        for query in queries
    ]
    rows = embedder.embed_passages([passage.text for passage in passages])
    asked = embedder.embed_passages([query["query"] for query in queries])
    similarity = asked @ rows.T
    collections = np.array([passage.collection for passage in passages])
    for number, query in enumerate(queries):
        similarity[number, collections != query["collection"]] = -1
    texts = [query["query"] for query in queries]
    return Measured(passages, texts, evidence, similarity, rows, asked, cut if long else 0)


def recall(found: Measured, k: int = 5) -> float:
    """Mean share of a query's evidence passages among its k nearest."""
    nearest = np.argsort(-found.similarity, axis=1, kind="stable")[:, :k].tolist()
    shares = [
        len(wanted & set(near)) / len(wanted)
        for wanted, near in zip(found.evidence, nearest, strict=True)
        if wanted
    ]
    return statistics.fmean(shares)


def milliseconds(embedder: Embedder, texts: Sequence[str]) -> float:
    """Processor time for one text, mean over texts, after a first run to load."""
    embedder.embed_query(texts[0])
    before = time.process_time()
    embedder.embed_passages(texts)
    return (time.process_time() - before) / len(texts) * 1000


def separation(
    pairs: Mapping[str, tuple[Values, Values]], literal: float, card: float | None
) -> Report:
    """Where a threshold best tells related from unrelated values.

    Args:
        pairs: for each set the values of related and of unrelated pairs.
        literal: the specification's threshold, reported beside.
        card: the card's threshold, reported beside when there is one.

    Returns:
        `best` has the highest balanced accuracy, mean over sets; `near` is the highest threshold
        within a point of it. For each, `literal` and `card`, the share of related values kept and
        of unrelated ones let through, by set.
    """
    accuracy = [
        statistics.fmean(
            (float((related >= t).mean()) + float((other < t).mean())) / 2
            for related, other in pairs.values()
        )
        for t in GRID
    ]
    top = max(accuracy)
    chosen = {
        "best": float(GRID[accuracy.index(top)]),
        "near": float(max(t for t, a in zip(GRID, accuracy, strict=True) if a >= top - NEAR)),
        "literal": literal,
    } | ({} if card is None else {"card": card})
    return {
        name: {
            "threshold": t,
            "balanced_accuracy": round(accuracy[round(t * 100)], 3),
            "kept": {s: round(float((r >= t).mean()), 3) for s, (r, _) in pairs.items()},
            "let_through": {s: round(float((o >= t).mean()), 4) for s, (_, o) in pairs.items()},
        }
        for name, t in chosen.items()
    }


def thresholds(sets: Mapping[str, Measured], embedder: Embedder) -> Report:
    """Calibrate the card's thresholds; a part without fitting sets is left out."""
    report: Report = {}
    known = embedder.thresholds
    marks = sorted({known.get("neighbour", 0.60), 0.60})
    if len(sets) > 1:
        floor = {
            name: (one.similarity.max(axis=1), _foreign(name, sets)) for name, one in sets.items()
        }
        report["relevance_floor"] = separation(floor, 0.50, known.get("relevance_floor_measured"))
    whole = {name: one for name, one in sets.items() if not one.cut}
    neighbour = {name: _adjacent(one) for name, one in sets.items() if one.cut}
    if neighbour:
        report["neighbour"] = separation(neighbour, 0.60, known.get("neighbour"))
    if whole:
        opening = {name: _openings(one, embedder) for name, one in whole.items()}
        report["opening_coherence"] = separation(opening, 0.40, known.get("opening_coherence"))
    report["with_neighbour"] = {
        name: {f"{t:.2f}": round(float((_nearest(one) >= t).mean()), 3) for t in marks}
        for name, one in sets.items()
    }
    return report


def _foreign(name: str, sets: Mapping[str, Measured]) -> Values:
    # A question asked of another set has no answer there: its best value should fall below.
    asked = sets[name].asked
    return np.concatenate([(asked @ s.rows.T).max(axis=1) for n, s in sets.items() if n != name])


def _adjacent(one: Measured) -> tuple[Values, Values]:
    names = np.array([passage.document for passage in one.passages])
    values = one.rows @ one.rows.T
    same = names[:, None] == names[None, :]
    following = np.flatnonzero(names[:-1] == names[1:])
    return values[following, following + 1], values[~same]


def _nearest(one: Measured) -> Values:
    values = one.rows @ one.rows.T
    np.fill_diagonal(values, -1)
    nearest: Values = values.max(axis=1)
    return nearest


def _openings(one: Measured, embedder: Embedder, limit: int = 500) -> tuple[Values, Values]:
    # First half of a document against the sentence that follows, and against other documents'.
    split = [re.split(r"(?<=[.!?])\s+(?=[A-Z])", p.text) for p in one.passages]
    split = [sentences for sentences in split if len(sentences) > 1][:limit]
    before = embedder.embed_passages([" ".join(s[: len(s) // 2]) for s in split])
    after = embedder.embed_passages([s[len(s) // 2] for s in split])
    values = before @ after.T
    return np.diagonal(values).copy(), values[~np.eye(len(split), dtype=bool)]


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.embedder", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds retrieval/")
    parser.add_argument("--sets", nargs="+", default=["hotpot", "musique"])
    parser.add_argument("--model", help="a recipe's output, or `static`; default: MiniLM")
    parser.add_argument("--float", type=Path, help="the recipe's output in float32")
    parser.add_argument("--cut", type=int, default=800, help="characters of a passage")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--thresholds", action="store_true", help="calibrate the thresholds")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    embedder = embedder_of(given.model) if given.model else OnnxEmbedder()
    folder = given.data / "retrieval"
    sets = {name: measure(folder / name, embedder, given.cut) for name in given.sets}
    report: Report = {"identity": embedder.identity, "cut": given.cut, "threads": given.threads}
    report["recall_at_5"] = {name: round(recall(one), 4) for name, one in sets.items()}
    first = next(iter(sets.values()))
    report["cpu_ms"] = {
        "passage": round(milliseconds(embedder, [p.text for p in first.passages[:300]]), 2),
        "query": round(milliseconds(embedder, first.queries[:300]), 2),
    }
    if given.float:
        exact = OnnxEmbedder(given.float)
        others = {name: measure(folder / name, exact, given.cut) for name in given.sets}
        cosines = np.concatenate([(sets[n].rows * others[n].rows).sum(axis=1) for n in sets])
        report["recall_at_5_float"] = {name: round(recall(one), 4) for name, one in others.items()}
        report["cosine_to_float"] = {
            "texts": len(cosines),
            "mean": round(float(cosines.mean()), 5),
            "worst": round(float(cosines.min()), 5),
        }
    if given.thresholds:
        report["thresholds"] = thresholds(sets, embedder)
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
