"""F1 of the recognisers of personal data by category, beside presidio's patterns.

`python -m tests.bench.pii --data FILE --json OUT` reads gzip JSON lines
`{"text": …, "spans": [{"start", "end", "type"}]}`. A span counts as found exactly when both ends
agree, and as overlapping when one character does; each gold span is matched once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each

Place = tuple[str, int, int]
Finder = Callable[[str], list[Place]]
# Our kinds and the data set's types; kinds without a type there are not scored.
SAME = {
    "person": "PERSON",
    "email": "EMAIL_ADDRESS",
    "phone": "PHONE_NUMBER",
    "ssn": "US_SSN",
    "age": "AGE",
    "street_address": "STREET_ADDRESS",
    "postcode": "ZIP_CODE",
    "ip": "IP_ADDRESS",
    "url": "DOMAIN_NAME",
    "credit_card": "CREDIT_CARD",
    "iban": "IBAN_CODE",
    "ethnicity": "NRP",
}


def ours(text: str) -> list[Place]:
    """What our recognisers find, under the data set's names."""
    return [
        (SAME[one.kind], one.start, one.end) for one in find_personal_data(text) if one.kind in SAME
    ]


def read(path: Path) -> list[tuple[str, list[Place]]]:
    """Texts with their gold spans.

    Raises:
        RequestError: the file cannot be read, or a row is of another form.
    """
    return list(each(path, "text, spans: [{type, start, end}]", _marked))


def _marked(row: dict[str, Any]) -> tuple[str, list[Place]]:
    return row["text"], [(one["type"], one["start"], one["end"]) for one in row["spans"]]


def score(rows: Sequence[tuple[str, list[Place]]], finder: Finder) -> dict[str, dict[str, float]]:
    """For each type exact and overlapping precision, recall and F1, with the counts."""
    gold: dict[str, int] = defaultdict(int)
    found: dict[str, int] = defaultdict(int)
    exact: dict[str, int] = defaultdict(int)
    over: dict[str, int] = defaultdict(int)
    for text, spans in rows:
        guessed = sorted(set(finder(text)))
        for kind, _, _ in spans:
            gold[kind] += 1
        for kind, _, _ in guessed:
            found[kind] += 1
        for kind, _, _ in set(spans) & set(guessed):
            exact[kind] += 1
        left = list(guessed)
        for kind, start, end in sorted(spans):
            match = next((g for g in left if g[0] == kind and g[1] < end and g[2] > start), None)
            if match is not None:
                left.remove(match)
                over[kind] += 1
    return {
        kind: {
            "gold": gold[kind],
            "found": found[kind],
            **_rates("", exact[kind], found[kind], gold[kind]),
            **_rates("overlap_", over[kind], found[kind], gold[kind]),
        }
        for kind in sorted(gold)
    }


def _rates(name: str, right: int, found: int, gold: int) -> dict[str, float]:
    return {
        f"{name}precision": round(right / found, 4) if found else 0.0,
        f"{name}recall": round(right / gold, 4) if gold else 0.0,
        f"{name}f1": round(2 * right / (found + gold), 4) if found + gold else 0.0,
    }


def run(rows: Sequence[tuple[str, list[Place]]]) -> dict[str, Any]:
    """The figures of ours and of presidio where it is installed, with milliseconds a text."""
    systems: list[tuple[str, Finder]] = [("crp", ours)]
    try:
        from tests.bench.peers.presidio import patterns

        systems.append(patterns())
    except ImportError:
        pass
    results: dict[str, Any] = {}
    for name, finder in systems:
        finder("A first call.")
        before = time.process_time()
        by_type = score(rows, finder)
        spent = 1000 * (time.process_time() - before) / max(1, len(rows))
        results[name] = {"types": by_type, "ms": round(spent, 3)}
    return results


def main(arguments: list[str] | None = None) -> None:
    """Print F1 by type and system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="gzip JSON lines")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    try:
        found = run(read(given.data))
    except (RequestError, OSError) as error:
        sys.exit(f"crp: {error}")
    if given.json:
        given.json.write_text(json.dumps({"results": found}, indent=2) + "\n", encoding="utf-8")
    show(found)


def show(found: dict[str, Any]) -> None:
    """Print exact and overlapping F1 of every system by type."""
    names = list(found)
    print(f"{'type':16}{'gold':>6}" + "".join(f"{f'{name} exact, overlap':>34}" for name in names))
    for kind, row in found[names[0]]["types"].items():
        cells = "".join(
            f"{found[name]['types'][kind]['f1']:>26.3f}"
            f"{found[name]['types'][kind]['overlap_f1']:>8.3f}"
            for name in names
        )
        print(f"{kind:16}{row['gold']:>6}{cells}")
    print(", ".join(f"{name}: {found[name]['ms']} ms a text" for name in names))


if __name__ == "__main__":
    main()
