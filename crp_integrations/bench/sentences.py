"""Boundary F1 of the sentence splitter on web text.

Sentences of each document of the English Web Treebank are joined by blanks, split again, and
the inner ends compared. Run `python -m crp_integrations.bench.sentences --data DIR`, where DIR
holds `sentences/ewt_dev.jsonl.gz` with rows `{"document": …, "sentence": …}`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from crp_integrations.language.sentences import split_sentences


def read(path: Path) -> list[list[str]]:
    """The documents of a file as lists of sentences."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        [str(row["sentence"]).strip() for row in group]
        for _, group in groupby(rows, key=lambda row: row["document"])
    ]


def score(documents: Iterable[list[str]]) -> dict[str, float]:
    """Precision, recall and F1 over inner sentence ends, each in [0, 1]."""
    right = found = wanted = 0
    for sentences in documents:
        text = " ".join(sentences)
        ends, place = set(), 0
        for sentence in sentences:
            place += len(sentence)
            ends.add(place)
            place += 1
        guessed = {span.end for span in split_sentences(text)}
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


def main() -> None:
    """Print the scores as one line of JSON."""
    parser = argparse.ArgumentParser(description="Boundary F1 of the sentence splitter.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    path = parser.parse_args().data / "sentences" / "ewt_dev.jsonl.gz"
    print(json.dumps({name: round(value, 4) for name, value in score(read(path)).items()}))


if __name__ == "__main__":
    main()
