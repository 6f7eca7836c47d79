"""`python -m tests.recipes.verifier --data FOLDER --out FOLDER [--folds N]`.

Fits the file of the `features` verifier and its card, or with `--folds` one file for each fold
of the contexts and `folds.json`, which says for each context which file did not see it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from crp_integrations.dpe.verifier.fitted_model import SCHEMA, Fitted
from crp_integrations.seals import sha256_hex
from crp_integrations.weights import Card
from tests.recipes.verifier.labelled_answers import (
    Answer,
    Row,
    changed_answers,
    measured,
    read,
)
from tests.recipes.verifier.layers import as_json, fold_of, layers, maps

NAME: Final = "features@1"
SETS: Final = (
    "ragtruth_half", "summedits_some", "fm2_dev", "wice_dev", "factcheckgpt", "negation_nli",
    "begin_dev", "infotabs_train",
)  # fmt: skip
# Answers as assistants give them, a file a domain, in a folder beside the sets.
FIELD: Final = "field"
# Rows that are read of a set at most: statements over records are many, and alike.
MOST: Final = {"infotabs_train": 4_000}
# Text under CC BY-SA, ODC-BY, Apache-2.0 or MIT, over which changed sentences are made.
OPEN: Final = ("fm2_dev", "wice_dev", "factcheckgpt", "begin_dev")


LIMITS: Final = (
    "English. Words, values and records are laid side by side; nothing is inferred. What the "
    "context does not hold is found; a minimal edit that keeps every word of the source, a swapped "
    "relation and a conclusion over several steps are mostly missed. Rates of wrong answers were "
    "learned from question answering, news summaries and texts on records of restaurants."
)


def gather(data: Path, sets: Sequence[str], cache: Path | None) -> list[Row]:
    """The measured rows of data sets, with changed sentences of our own."""
    found: list[Row] = []
    open_: list[Answer] = []
    for path in paths(data, sets):
        name = path.name.split(".")[0]
        answers = read(path)[: MOST.get(name)]
        if name in OPEN:
            open_ += answers
        found += _kept(name, answers, cache)
        _say(f"{name}: {len(answers)} answers measured")
    extra = changed_answers(open_)
    return found + _kept("made", extra, cache)


def paths(data: Path, sets: Sequence[str]) -> list[Path]:
    """The files of data sets, and of every domain of the answers beside them."""
    found = [data / f"{name}.jsonl.gz" for name in sets]
    return found + sorted((data.parent / FIELD).glob("*.jsonl.gz"))


def _kept(name: str, answers: Sequence[Answer], cache: Path | None) -> list[Row]:
    place = cache / f"{name}.pkl" if cache else None
    if place is not None and place.exists():
        # Written by this recipe a moment ago, in a folder that its caller names.
        rows: list[Row] = pickle.loads(place.read_bytes())
        return rows
    rows = [row for answer in answers if (row := measured(answer)) is not None]
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(pickle.dumps(rows))
    return rows


def card(content: bytes) -> Card:
    """The card of the fitted file."""
    return Card(
        name="features",
        version=NAME,
        licence="MIT",
        notice="Fitted by tests.recipes.verifier; no text of the data is inside.",
        origin="tests.recipes.verifier",
        origin_sha256=sha256_hex(content),
        files={"features.json": sha256_hex(content)},
        limits=LIMITS,
    )


def fitted(rows: Sequence[Row], used: Sequence[Path] = ()) -> bytes:
    """The fitted file of rows."""
    found = layers(rows, _say)
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": NAME,
        "data": [
            {"name": path.name.split(".")[0], "sha256": sha256_hex(path.read_bytes())}
            for path in used
        ],
        "claim": as_json(found.claim),
        "word": as_json(found.word),
        "answer": as_json(found.answer),
        **maps(rows, found),
    }
    text = json.dumps(content, separators=(",", ":"), sort_keys=True) + "\n"
    Fitted.of(text.encode())
    return text.encode()


def main(arguments: list[str] | None = None) -> None:
    """Run the recipe from a command line."""
    parser = argparse.ArgumentParser(prog="tests.recipes.verifier", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--folds", type=int, help="fit so many files, each without a fold")
    parser.add_argument("--only", type=int, help="fit this fold alone, beside other processes")
    parser.add_argument("--sets", default=",".join(SETS), help="names with commas between")
    parser.add_argument("--cache", type=Path, help="folder that keeps measures between runs")
    given = parser.parse_args(arguments)
    rows = gather(given.data, given.sets.split(","), given.cache)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.folds is None:
        used = paths(given.data, given.sets.split(","))
        content = fitted(rows, used)
        (given.out / "card.json").write_text(card(content).model_dump_json(indent=2) + "\n")
        (given.out / "features.json").write_bytes(content)
        print(f"{sha256_hex(content)}  features.json")
        return
    only = range(given.folds) if given.only is None else [given.only]
    for number in only:
        kept = [row for row in rows if fold_of(row.answer.source, given.folds) != number]
        (given.out / f"fold-{number}.json").write_bytes(fitted(kept))
        _say(f"fold {number} of {given.folds} fitted without {len(rows) - len(kept)} answers")
    assigned = {row.answer.source: fold_of(row.answer.source, given.folds) for row in rows}
    (given.out / "folds.json").write_text(json.dumps(assigned, indent=0, sort_keys=True) + "\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
