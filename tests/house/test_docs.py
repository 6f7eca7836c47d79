"""Links resolve, decisions have their pages, numbers of decisions agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.pages import anchors, links
from tests.requirements.rows import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
WANTED = (
    "why", "main-path", "glossary", "supported", "errata", "spec-map", "contributing",
    "changelog", "tokens", "cli", "embedder", "fabric",
)  # fmt: skip


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


def _records() -> list[Path]:
    return sorted((DOCS / "adr").glob("[0-9]*.md"))


def test_decision_records_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name[:4]) for path in _records()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("path", _records(), ids=lambda path: path.stem)
def test_a_decision_record_has_its_three_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(rf"# {int(path.name[:4])}\. \S", text)
    assert re.search(r"^Status: \w+ · Date: \d{4}-\d\d-\d\d", text, re.MULTILINE)
    for part in ("Context", "Decision", "Consequences"):
        assert f"**{part}.**" in text


def test_every_decision_record_is_linked_from_the_errata_page() -> None:
    linked = {Path(target).name for target in links(DOCS / "errata.md")}
    assert [path.name for path in _records() if path.name not in linked] == []
