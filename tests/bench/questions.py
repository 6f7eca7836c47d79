"""Scores the decomposition of questions by rules beside the whole question.

`python -m tests.bench.questions --data FILE --json OUT` reads gzip JSON lines with
`question` and `steps` (Break's high-level decompositions). A step's `#n` stands for the text of
step n. A step that adds nothing but an operation on other steps (count, sum, which is higher, both)
looks nothing up, so it is no need; the question's needs are the steps that are left.

Texts are compared as sets of content stems: F1 of a sub-query and a need.

- `best_match_f1`: every need takes its best sub-query and every sub-query its best need; harmonic
  mean of the two means.
- `aligned_f1`: a sub-query and a need count once, in the pairing that gives most; twice the sum
  over sub-queries plus needs. Too many and too few both cost.
- `count_agreement`: as many sub-queries as needs. `count_error`: mean distance of the counts.

All are means over questions. Rows at even places, and the first 30, were read while the rules were
written (`develop`); the others were not (`report`).

`--single DIR` gives, for sets shaped like `retrieval/NAME`, the share of queries that is split.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crp_integrations.envelope.decomposition import DECOMPOSE, decompose
from crp_integrations.envelope.settings import DecomposeSettings
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import rows_of
from crp_integrations.language.words import content_stems

SEEN = 30
METRICS = ("best_match_f1", "aligned_f1", "count_agreement", "count_error")

_REFERENCE = re.compile(r"#(\d{1,2})")
_WORD = re.compile(r"[^\W_]+")
_OPERATIONS = frozenset(
    """return number count sum total difference average mean combined higher highest lower lowest
    more most less least fewer fewest larger largest smaller smallest bigger biggest greater
    greatest longer longest shorter shortest older oldest younger youngest earlier earliest later
    latest first second third last maximum minimum multiplication division both either one true
    false if same equal besides times 100 percent is are was were which who what where when the a an
    of in for each and or than to that from by on at as with has have does do not it there how many
    much""".split()
)


def needs(steps: Sequence[str]) -> list[str]:
    """The steps that look something up, with every reference put in words."""
    told: list[str] = []
    wanted: list[str] = []
    for step in steps:
        bare = step.removeprefix("return ").strip()
        own = {word.casefold() for word in _WORD.findall(_REFERENCE.sub(" ", bare))}
        full = _REFERENCE.sub(lambda match: _told(told, int(match[1])), bare)
        told.append(" ".join(full.split()))
        if own - _OPERATIONS:
            wanted.append(told[-1])
    return wanted or told[-1:]


def _told(told: Sequence[str], number: int) -> str:
    return told[number - 1] if 0 < number <= len(told) else ""


def overlap(left: str, right: str) -> float:
    """F1 of two texts' sets of content stems, in [0, 1]."""
    ours, theirs = set(content_stems(left)), set(content_stems(right))
    both = len(ours & theirs)
    return 2 * both / (len(ours) + len(theirs)) if both else 0.0


def score(found: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """The four figures of one question."""
    matrix = [[overlap(one, other) for other in wanted] for one in found]
    precise = statistics.fmean(max(row) for row in matrix)
    complete = statistics.fmean(max(row[place] for row in matrix) for place in range(len(wanted)))
    total = precise + complete
    return {
        "best_match_f1": 2 * precise * complete / total if total else 0.0,
        "aligned_f1": 2 * _aligned(matrix) / (len(found) + len(wanted)),
        "count_agreement": float(len(found) == len(wanted)),
        "count_error": float(abs(len(found) - len(wanted))),
    }


def _aligned(matrix: list[list[float]]) -> float:
    """The largest sum of a one-to-one pairing; which rows are taken is kept as bits."""
    best = {0: 0.0}
    for column in zip(*matrix, strict=True):
        after = dict(best)
        for taken, so_far in best.items():
            for row, value in enumerate(column):
                if not taken >> row & 1:
                    key = taken | 1 << row
                    after[key] = max(after.get(key, 0.0), so_far + value)
        best = after
    return max(best.values())


def halves(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows that the rules were written with, and the others."""
    return {
        "develop": [*rows[:SEEN], *rows[SEEN::2]],
        "report": list(rows[SEEN + 1 :: 2]),
    }


def measure(rows: Sequence[dict[str, Any]], settings: DecomposeSettings) -> dict[str, Any]:
    """The means of the rules and of the whole question over rows, and over each source."""
    ways: dict[str, Callable[[str], tuple[str, ...]]] = {
        "rules": lambda question: decompose(question, settings),
        "whole": lambda question: (question,),
    }
    wanted = [needs(row["steps"]) for row in rows]
    report: dict[str, Any] = {"questions": len(rows)}
    report["more_than_one_need"] = round(statistics.fmean(len(one) > 1 for one in wanted), 4)
    for way, cut in ways.items():
        found = [cut(row["question"]) for row in rows]
        scores = [score(one, other) for one, other in zip(found, wanted, strict=True)]
        groups = [str(row.get("id", "")).split("_")[0] for row in rows]
        report[way] = {
            **_means(scores),
            "split": round(statistics.fmean(len(one) > 1 for one in found), 4),
            "by_source": {
                group: _means([one for one, of in zip(scores, groups, strict=True) if of == group])
                for group in sorted(set(groups))
            },
        }
    return report


def _means(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.fmean(one[name] for one in scores), 4) for name in METRICS}


def split_share(folder: Path, settings: DecomposeSettings) -> dict[str, dict[str, float]]:
    """For each set in a folder the number of queries and the share that is split."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*/queries.jsonl.gz")):
        cut = [len(decompose(row["query"], settings)) for row in rows_of(path)]
        found[path.parent.name] = {
            "queries": len(cut),
            "split": round(statistics.fmean(count > 1 for count in cut), 4),
            "sub_queries": round(statistics.fmean(cut), 4),
        }
    return found


def run(
    data: Path, single: Path | None = None, settings: DecomposeSettings | None = None
) -> dict[str, Any]:
    """The whole report.

    Raises:
        RequestError: the file has fewer rows than both halves need, or a row lacks a field.
    """
    chosen = settings or DecomposeSettings()
    rows = rows_of(data)
    if len(rows) < SEEN + 2:
        raise RequestError(f"{data} has {len(rows)} rows, wanted at least {SEEN + 2}")
    for number, row in enumerate(rows, 1):
        if not row.get("question") or not row.get("steps"):
            raise RequestError(f"row {number} of {data} lacks question or steps")
    report: dict[str, Any] = {"algorithm": DECOMPOSE}
    for name, half in halves(rows).items():
        report[name] = measure(half, chosen)
    if single is not None:
        report["single"] = split_share(single, chosen)
    return report


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.questions", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="gzip JSON lines with steps")
    parser.add_argument("--single", type=Path, help="directory with NAME/queries.jsonl.gz")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    text = json.dumps(run(given.data, given.single), indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
