"""Links resolve, decisions have their pages, numbers of decisions agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench import calls
from tests.bench.call_doors import DOORS
from tests.house.pages import anchors, links, words
from tests.requirements.rows import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
WANTED = (
    "index", "contributing", "changelog", "reference/glossary", "reference/errors", "reference/cli",
    "reference/settings", "reference/report", "explanation/architecture", "explanation/checking",
    "explanation/misses", "explanation/specifications", "evidence/supported", "evidence/spec-map",
)  # fmt: skip
# Words beside code that the site may have, and the pages that are generated or a record of the past.
WORDS = 40_500
UNCOUNTED = re.compile(
    r"adr/|changelog\.md|evidence/(supported|spec-map)\.md|reference/(settings|cli-options)\.md"
    r"|reference/api/"
)


@pytest.mark.parametrize("name", WANTED)
def test_a_wanted_page_is_there(name: str) -> None:
    assert len((DOCS / f"{name}.md").read_text(encoding="utf-8")) > 300


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_resolve(page: Path) -> None:
    broken = []
    for target in links(page):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_the_site_has_a_ceiling_of_words_beside_code() -> None:
    counted = {
        page.relative_to(DOCS).as_posix(): words(page)
        for page in DOCS.rglob("*.md")
        if not UNCOUNTED.match(page.relative_to(DOCS).as_posix())
    }
    assert sum(counted.values()) <= WORDS, sorted(counted.items(), key=lambda one: -one[1])


def test_the_tables_of_costs_have_the_doors_that_are_measured() -> None:
    for page, (columns, rows) in calls.PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        lines = text.partition(calls.BEGIN)[2].partition(calls.END)[0].partition("\n\n")[0]
        cells = [line.strip("| ").split(" | ") for line in lines.splitlines()]
        assert [row[0] for row in cells[2:]] == [name for name in DOORS if re.search(rows, name)]
        assert lines.splitlines()[0] == f"|  | {' | '.join(columns)} |", page


def _records() -> list[Path]:
    return sorted((DOCS / "adr").glob("[0-9]*.md"))


def test_each_decision_record_has_a_number_of_its_own() -> None:
    numbers = [int(path.name[:4]) for path in _records()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("path", _records(), ids=lambda path: path.stem)
def test_a_decision_record_has_its_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(rf"# {int(path.name[:4])}\. \S", text)
    assert re.search(r"^Status: accepted · Date: \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    parts = re.findall(r"^\*\*([\w ]+)\.\*\*", text, re.MULTILINE)
    assert parts == ["Context", "Decision", "Options weighed", "Consequences"]


@pytest.mark.parametrize("path", _records(), ids=lambda path: path.stem)
def test_a_decision_record_fits_a_page(path: Path) -> None:
    assert words(path) <= 480


def test_every_decision_record_is_linked_from_the_page_on_the_specifications() -> None:
    linked = {Path(target).name for target in links(DOCS / "explanation" / "specifications.md")}
    assert [path.name for path in _records() if path.name not in linked] == []
