"""`crp bench injection --data DIR --json OUT`: recall by kind, and false alarms over passages.

The cases are those of `cases.py`: wordings by hand after public lists of attacks, of which half
was not looked at while the rules were written (`held`). DIR holds folders with
`documents.jsonl.gz` (`doc_id, text`), as the sets of `retrieval/`; their texts are cut as the
fabric cuts them, and each passage that the rules take for an injection is a false alarm. Half of
the documents, by hash, were looked at while the rules were tuned. DIR may be such a folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crp_integrations.bench.injection.cases import cases, held, plain
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_rows import each
from crp_integrations.guard.injection.detection import RULES, detect

DOCUMENTS = "documents.jsonl.gz"
# Characters of a passage: what 512 tokens of English come to.
PASSAGE = 2_000


def recall(part: str) -> dict[str, dict[str, Any]]:
    """Caught and all cases by kind; `part` is `held`, `tune` or `all`."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for case in cases():
        if part == "all" or case.held == (part == "held"):
            counts[case.kind][0] += detect(case.text).injected
            counts[case.kind][1] += 1
    return {kind: _share(*two) for kind, two in counts.items()}


def missed(part: str) -> list[tuple[str, str]]:
    """Kind and passage of the cases of a part that the rules do not see."""
    return [
        (case.kind, case.text)
        for case in cases()
        if case.held == (part == "held") and not detect(case.text).injected
    ]


def _share(found: int, of: int) -> dict[str, Any]:
    return {"found": found, "of": of, "share": round(found / of, 4) if of else None}


def passages(folder: Path) -> Iterator[tuple[str, bool, str]]:
    """Name of the set, whether the document was kept back, and text, of every passage."""
    found = sorted(folder.glob(f"*/{DOCUMENTS}")) or sorted(folder.glob(DOCUMENTS))
    for path in found:
        for id_, text in each(path, "doc_id, text", lambda row: (row["doc_id"], str(row["text"]))):
            # Other words than those of the cases, so that a split says nothing of the other.
            kept = held(f"{path.parent.name}/{id_}")
            for start in range(0, len(text), PASSAGE):
                yield path.parent.name, kept, text[start : start + PASSAGE]


def alarms(folder: Path) -> dict[str, Any]:
    """False alarms by set, and over everything that was kept back, with milliseconds a passage."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    rules: dict[str, int] = defaultdict(int)
    before, seen = time.process_time(), 0
    for name, kept, text in passages(folder):
        report = detect(text)
        seen += 1
        for key in (name, "all", *(("held",) if kept else ())):
            counts[key][0] += report.injected
            counts[key][1] += 1
        if report.injected:
            for rule in report.names:
                rules[rule] += 1
    spent = 1000 * (time.process_time() - before) / max(1, seen)
    return {
        "sets": {name: _share(*two) for name, two in counts.items()},
        "rules": dict(sorted(rules.items())),
        "ms": round(spent, 3),
    }


def run(folder: Path | None, part: str) -> dict[str, Any]:
    """The whole report."""
    by_kind = recall(part)
    found = sum(one["found"] for one in by_kind.values())
    of = sum(one["of"] for one in by_kind.values())
    unsigned = [detect(case.text).injected for case in plain()]
    report: dict[str, Any] = {
        "rules": RULES,
        "part": part,
        "recall": {**by_kind, "total": _share(found, of)},
        "plain": _share(sum(unsigned), len(unsigned)),
    }
    if folder is not None:
        report["false_alarms"] = alarms(folder)
    return report


def show(report: dict[str, Any]) -> None:
    """Print recall by kind and the false alarms."""
    print(f"{report['rules']}, cases of part {report['part']}")
    for kind, one in report["recall"].items():
        print(f"  {kind:16}{one['found']:>5} of{one['of']:>5}{one['share']:>8.3f}")
    one = report["plain"]
    print(f"  orders without a sign, not counted: {one['found']} of {one['of']}")
    if "false_alarms" in report:
        print("false alarms, passages")
        for name, one in report["false_alarms"]["sets"].items():
            print(f"  {name:16}{one['found']:>5} of{one['of']:>6}{one['share']:>8.4f}")
        print(f"{report['false_alarms']['ms']} ms a passage")


def main(arguments: list[str] | None = None) -> None:
    """Print the report, and write it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of sets with documents.jsonl.gz")
    parser.add_argument("--part", choices=("held", "tune", "all"), default="held")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    try:
        if given.data is not None and not any(passages(given.data)):
            sys.exit(f"crp: no {DOCUMENTS} with a text below {given.data}")
        report = run(given.data, given.part)
    except RequestError as error:
        sys.exit(f"crp: {error}")
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(report)


if __name__ == "__main__":
    main()
