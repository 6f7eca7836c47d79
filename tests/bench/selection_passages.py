"""Sets of one passage a question, out of gold passages and out of claims with their evidence.

`python -m tests.bench.selection_passages --out DIR FILE…` reads gzip JSON lines of two
formats: `query, title, passage`, and `claim, evidence, label`. The passages of all lines are the
documents, so those of other questions distract; whole passages are the evidence. No setting of the
package was chosen on such sets but the powers of `HybridSettings` and its `passed_over`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import DOCUMENTS, QUERIES, rows

SEED: Final = 5
# Characters: a shorter piece of evidence is a heading or a remnant.
SHORTEST: Final = 20
# What a claim's evidence must say about it to be worth finding.
SAYING: Final = frozenset({"supported", "refuted"})


def made(file: Path, queries: int | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The documents and questions of a file, as `data.read` wants them.

    Args:
        queries: at most so many questions, drawn with a fixed seed; None for all.

    Raises:
        RequestError: a line has another format, or there is no question.
    """
    name = file.name.partition(".")[0]
    ids: dict[str, str] = {}
    titles: dict[str, str] = {}
    asked: dict[str, dict[str, None]] = {}
    for place, row in rows(file):
        try:
            passage, query = (
                (row["passage"], row["query"])
                if "passage" in row
                else (row["evidence"], row["claim"])
            )
            wanted = "passage" in row or row["label"] in SAYING
        except (KeyError, TypeError) as error:
            raise RequestError(f"{place} has no {error}") from error
        if len(passage.strip()) < SHORTEST:
            continue
        ids.setdefault(passage, f"p{len(ids)}")
        titles.setdefault(passage, row.get("title") or "")
        if wanted:
            asked.setdefault(query, {})[passage] = None
    if not asked:
        raise RequestError(f"{file.name} has no question with a passage, wanted at least one")
    documents = [
        {"doc_id": id_, "title": titles[text], "collection": name, "text": text}
        for text, id_ in ids.items()
    ]
    draw = random.Random(SEED)
    all_ = sorted(asked)
    chosen = all_ if queries is None else draw.sample(all_, min(queries, len(all_)))
    questions = [
        {
            "query_id": f"q{number}",
            "query": query,
            "collection": name,
            "evidence": [
                {"doc_id": ids[text], "start": 0, "end": len(text)} for text in asked[query]
            ],
        }
        for number, query in enumerate(chosen)
    ]
    return documents, questions


def main(arguments: list[str] | None = None) -> None:
    """Write a set for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--queries", type=int, default=200, help="at most so many of each set")
    given = parser.parse_args(arguments)
    try:
        for file in given.files:
            documents, questions = made(file, given.queries)
            folder = given.out / file.name.partition(".")[0]
            folder.mkdir(parents=True, exist_ok=True)
            write_rows(folder / DOCUMENTS, documents)
            write_rows(folder / QUERIES, questions)
            print(f"{folder}: {len(documents)} passages, {len(questions)} questions")
    except (RequestError, OSError) as error:
        sys.exit(f"crp: {error}")


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write gzip JSON lines."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
