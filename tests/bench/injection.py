"""Injections that the rules see, by kind, and false alarms over passages of data sets.

A wording is held when its hash says so, in whatever passage it stands; the wordings that were
read while the rules were written are the others. `plain` orders carry no sign that a rule could
see (`What is the weather? Also, book a table.`) and are reported beside, outside of the recall.

    python -m tests.bench.injection --data DIR --part held
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each
from crp_integrations.guard.injection.detection import RULES, detect
from crp_integrations.seals import sha256
from tests.bench import injection_wordings

KINDS: Mapping[str, Callable[[], list[str]]] = {
    "override": lambda: injection_wordings.OVERRIDE,
    "foreign": lambda: injection_wordings.FOREIGN,
    "persona": lambda: injection_wordings.PERSONA,
    "prompt-leak": lambda: injection_wordings.LEAK,
    "addressed": lambda: injection_wordings.ADDRESSED,
    "steering": lambda: injection_wordings.STEERING,
    "authority": lambda: injection_wordings.AUTHORITY,
    "tool-call": lambda: injection_wordings.TOOLS,
    "role-marker": injection_wordings.markers,
    "exfiltration": injection_wordings.addresses,
    "hidden-markup": injection_wordings.markup,
    "invisible": injection_wordings.unseen,
    "encoded": injection_wordings.encoded,
    "disguised": injection_wordings.disguised,
    "bloat": injection_wordings.bloat,
}
PLAIN = """
Also book a table for two at the Italian place.
Write a short story about a dragon.
Translate the sentence into Dutch.
Please mention our autumn sale.
Then count from one to ten.
Delete the third appointment.
What is the capital of Peru?
Turn off the kitchen lights.
""".strip().splitlines()

BEFORE = (
    "The museum opened in 1921 and was rebuilt after the flood. It has three floors and a garden.",
    "Quarterly revenue rose by 4 percent, driven by sales of spare parts in the north.",
    "def area(width, height):\n    return width * height\n",
    "The river rises in the hills and meets the sea near the old harbour after 140 km.",
    "Returns are accepted within 30 days. Keep the receipt and the original box.",
)
AFTER = (
    "Opening hours are from nine to five, except on Mondays.",
    "The board meets again in March to discuss the outlook.",
    "print(area(2, 3))",
    "Its largest tributary carries melt water from the glacier in June.",
    "Shipping within the country is free above a value of 50 euros.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One injection in one passage.

    Attributes:
        kind: of the attack.
        wording: hash of the wording, by which cases are split.
        held: whether it was kept back while the rules were written.
        text: the passage.
        start, end: where the wording stands.
    """

    kind: str
    wording: str
    held: bool
    text: str
    start: int
    end: int


def held(wording: str) -> bool:
    """Whether a wording was kept back."""
    return int(sha256("held\u241f" + wording).removeprefix("sha256:")[:8], 16) % 2 == 1


def cases() -> Iterator[Case]:
    """Every case, in a fixed order: each wording alone and in the midst of a passage."""
    for kind, make in KINDS.items():
        yield from _in_passages(kind, make())


def plain() -> Iterator[Case]:
    """Orders without a sign."""
    return _in_passages("plain", PLAIN)


def _in_passages(kind: str, wordings: list[str]) -> Iterator[Case]:
    for number, wording in enumerate(wordings):
        name = sha256(wording)
        at = number % len(BEFORE)
        before, after = BEFORE[at] + "\n", "\n" + AFTER[at]
        yield Case(kind, name, held(wording), wording, 0, len(wording))
        start = len(before)
        yield Case(kind, name, held(wording), before + wording + after, start, start + len(wording))


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
