"""Boundary F1 of sentence splitters on web text: ours beside pysbd, Punkt and LlamaIndex's.

Sentences of each document of the English Web Treebank are joined by blanks, split again, and
the inner ends compared. Run `python -m tests.bench.sentences --data DIR` or `python -m
tests.bench.sentences --data DIR`, where DIR holds `sentences/ewt_dev.jsonl.gz` with rows
`{"document": …, "sentence": …}`. Nothing is fetched; a peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each
from crp_integrations.language.text import split_sentences

Splitter = Callable[[str], list[int]]
FILE = Path("sentences") / "ewt_dev.jsonl.gz"


def ours(text: str) -> list[int]:
    """Where our sentences end."""
    return [span.end for span in split_sentences(text)]


def read(path: Path) -> list[list[str]]:
    """The documents of a file as lists of sentences.

    Raises:
        RequestError: the file cannot be read, or a row is of another form.
    """
    found = each(path, "document, sentence", lambda row: (row["document"], str(row["sentence"])))
    return [
        [sentence.strip() for _, sentence in group]
        for _, group in groupby(found, key=itemgetter(0))
    ]


def score(documents: Iterable[list[str]], splitter: Splitter = ours) -> dict[str, float]:
    """Precision, recall and F1 over inner sentence ends, each in [0, 1]."""
    right = found = wanted = 0
    for sentences in documents:
        text = " ".join(sentences)
        ends, place = set(), 0
        for sentence in sentences:
            place += len(sentence)
            ends.add(place)
            place += 1
        guessed = set(splitter(text))
        ends.discard(len(text))
        guessed.discard(len(text))
        right += len(ends & guessed)
        found += len(guessed)
        wanted += len(ends)
    precision, recall = right / max(1, found), right / max(1, wanted)
    total = precision + recall
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / total if total else 0.0,
        "boundaries": float(wanted),
    }


def run(documents: Sequence[list[str]]) -> dict[str, dict[str, float]]:
    """The scores of ours and of every peer that is installed, with processor time.

    Returns:
        By name `precision`, `recall`, `f1`, `boundaries` and `ms`, of the whole set in ms.
    """
    from tests.bench.peers.splitters import installed

    found = {}
    for name, splitter in [("crp", ours), *installed()]:
        splitter("Once. Twice.")
        before = time.process_time()
        scores = score(documents, splitter)
        scores["ms"] = 1000 * (time.process_time() - before)
        found[name] = {key: round(value, 4) for key, value in scores.items()}
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the scores of each splitter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    path = given.data if given.data.is_file() else given.data / FILE
    try:
        found: dict[str, Any] = run(read(path))
    except (RequestError, OSError) as error:
        sys.exit(f"crp: {error}")
    if given.json:
        given.json.write_text(json.dumps({"results": found}, indent=2) + "\n", encoding="utf-8")
    print(f"{'splitter':24}{'precision':>10}{'recall':>8}{'F1':>8}{'ms':>9}")
    for name, row in found.items():
        print(
            f"{name:24}{row['precision']:>10.4f}{row['recall']:>8.4f}{row['f1']:>8.4f}"
            f"{row['ms']:>9.1f}"
        )


if __name__ == "__main__":
    main()
