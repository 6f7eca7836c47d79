"""Writes `docs/evidence/supported.md` from the last whole test run: `python -m tests.requirements.supported`.

With `--check` nothing is written; the exit status is 1 when the page claims an id that no test
of the last run shows, or when the page is not what would be written. A claim whose tests were all
skipped, for want of an extra or of data, is named and let stand.

With `--whole FILE` the last run is a selection that completes the whole run whose record FILE is:
what was skipped there and passes here is shown.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.requirements.rows import FOLDER, RESULTS, SUPPORTED, Row, rows

TEMPLATE = FOLDER / "supported.template.md"
CLAIM = re.compile(r"^- `([^`]+)` ", re.MULTILINE)
PART_NOW = 3
Results = dict[str, Any]


def claimed(page: str) -> list[str]:
    """The ids that a page claims."""
    return CLAIM.findall(page.split("## Not shown yet")[0])


def shown(results: Results) -> list[str]:
    """Ids with at least one passing marked test and no failing one, in document order."""
    return [id for id in rows() if id in results["passed"] and id not in results["failed"]]


def skipped(results: Results) -> list[str]:
    """Ids whose marked tests were all skipped, in document order."""
    ran = results["passed"].keys() | results["failed"].keys()
    return [id for id in rows() if id in results["skipped"] and id not in ran]


def completed(whole: Results, part: Results) -> Results:
    """A whole run, and a selection that ran with more installed."""
    names = ("passed", "failed", "skipped")
    both = {name: {**whole[name], **part[name]} for name in names}
    return {"whole": whole["whole"], **both}


def page(ids: list[str]) -> str:
    """The whole page for the ids that were shown."""
    known = rows()
    by_place = sorted((known[id] for id in ids), key=_place)
    lines = [TEMPLATE.read_text(encoding="utf-8").rstrip(), ""]
    for document, of_document in groupby(by_place, key=lambda row: row.document):
        lines += [f"### {document}", ""]
        for section, of_section in groupby(of_document, key=lambda row: row.section):
            lines += [f"**§{section}**", ""]
            lines += [_line(row) for row in of_section]
            lines.append("")
    due = [row for row in known.values() if row.part <= PART_NOW and row.id not in ids]
    later = [row for row in known.values() if row.part > PART_NOW and row.id not in ids]
    lines += ["## Not shown yet", ""]
    lines += [f"Due now and shown by no test: {len(due) or 'none'}.", ""]
    lines += [_line(row) for row in due]
    lines += [""] if due else []
    lines.append(f"Belonging to later parts of the work and absent: {len(later)} demands.")
    return "\n".join(lines) + "\n"


def _place(row: Row) -> tuple[str, list[int], str]:
    return row.document, [int(number) for number in re.findall(r"\d+", row.section)], row.id


def _line(row: Row) -> str:
    return f"- `{row.id}` {row.short or f'§{row.section}'}"


def main(arguments: list[str]) -> int:
    """Write or check the page; the exit status."""
    if not RESULTS.exists():
        print(f"{RESULTS.name} is missing: run the whole suite first", file=sys.stderr)
        return 1
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if "--whole" in arguments:
        whole = Path(arguments[arguments.index("--whole") + 1])
        results = completed(json.loads(whole.read_text(encoding="utf-8")), results)
    if not results["whole"]:
        print("the last test run was a selection: run the whole suite first", file=sys.stderr)
        return 1
    if "--check" not in arguments:
        SUPPORTED.write_text(page(shown(results)), encoding="utf-8")
        return 0
    written = SUPPORTED.read_text(encoding="utf-8")
    unseen = sorted(set(claimed(written)) & set(skipped(results)))
    if unseen:
        print(f"claimed, and skipped in this run: {', '.join(unseen)}")
    wanted = page([id for id in rows() if id in {*shown(results), *unseen}])
    unproven = sorted(set(claimed(written)) - {*shown(results), *unseen})
    if unproven:
        print(f"docs/evidence/supported.md claims what no test shows: {', '.join(unproven)}")
    elif written != wanted:
        new = sorted(set(claimed(wanted)) - set(claimed(written)))
        print(
            f"docs/evidence/supported.md is stale, shown and not claimed: {', '.join(new) or 'no id'}"
        )
        print("run python -m tests.requirements.supported after a whole run")
    return int(written != wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
