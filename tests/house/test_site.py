"""The site: its pages, what is generated, and what it may load."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from crp_integrations import errors
from tests.house import options_page, settings_page, site
from tests.house.api import DOORS, public
from tests.requirements.rows import ROOT

DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / ".mkdocs.yml").read_text(encoding="utf-8"))
API = DOCS / "reference" / "api"


def _listed(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [page for one in below for page in _listed(one)]


def _kinds() -> list[type[errors.CRPError]]:
    return [
        value for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.CRPError)
    ]  # fmt: skip


def test_the_navigation_lists_every_page_once() -> None:
    listed = _listed(SITE["nav"])
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == {page for page in pages if not page.startswith("adr/")}
    # Home, the four doors, and the evidence.
    doors = [name for one in SITE["nav"] for name in one]
    assert doors == ["Home", "Start", "How to", "Reference", "Explanation", "Evidence"]


def test_a_warning_fails_the_build_and_no_font_is_loaded() -> None:
    assert SITE["strict"] is True
    assert SITE["theme"]["font"] is False
    assert SITE["validation"]["links"]["anchors"] == "warn"
    assert not {"extra_css", "extra_javascript"} & set(SITE)
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "mkdocs build --quiet --strict" in run
    assert run.index("mkdocs build") < run.index("torch==")


def test_the_extra_of_the_site_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = (ROOT / ".ci" / "docs.txt").read_text(encoding="utf-8")
    for line in project["optional-dependencies"]["docs"]:
        name = re.split(r"[\[><=]", line)[0]
        assert re.search(rf"^{name}==", pinned, re.MULTILINE), name


@pytest.mark.parametrize("made", [settings_page, options_page], ids=["settings", "options"])
def test_a_generated_page_is_current(made: ModuleType) -> None:
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), (
        f"python -m {made.__name__} --write"
    )


def test_every_setting_has_a_meaning_and_a_variable() -> None:
    rows = [row.split(" | ") for row in settings_page.page().splitlines() if row.startswith("| `")]
    assert len(rows) > 400
    assert [row[0] for row in rows if not row[3].strip()] == []
    named = [row[4].strip("` |") for row in rows]
    assert len(set(named)) == len(named)
    assert "CRP_FABRIC__CHUNKING__MIN_FACT_TOKENS" in named


def test_the_page_of_errors_lists_each_with_its_status() -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| (?:↳ )?`(\w+)` \| (\d+) \| \S", page, re.MULTILINE))
    assert told == {kind.__name__: str(kind.status_hint) for kind in _kinds()}
    kinds = {kind.__name__: kind for kind in _kinds()}
    above = errors.CRPError
    for arrow, name in re.findall(r"^\| (↳ )?`(\w+)`", page, re.MULTILINE):
        if arrow:
            assert issubclass(kinds[name], above), name
        else:
            above = kinds[name]


@pytest.mark.parametrize("door", [door for door in DOORS if not door.endswith(".errors")])
def test_the_api_page_of_a_door_has_its_public_names(door: str) -> None:
    page = (API / f"{door.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    told = re.findall(rf"^::: {re.escape(door)}\.(\w+)$", page, re.MULTILINE)
    known = {kind.__name__ for kind in _kinds()}
    assert len(told) == len(set(told))
    assert set(told) == set(public(importlib.import_module(door))) - known


@pytest.mark.parametrize("page", sorted(API.glob("*.md")), ids=lambda page: page.stem)
def test_what_an_api_page_describes_exists(page: Path) -> None:
    for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ('<script src="https://cdn.example/a.js"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', True),
        ('<img src="https://img.shields.example/a.svg">', True),
        ('<p style="background: url(https://a.example/b.png)">', True),
        ('<a href="https://a.example">a</a><link rel="canonical" href="https://a.example">', False),
        ('<script src="assets/a.js"></script><img src="../images/a.png">', False),
    ],
)
def test_a_load_from_elsewhere_is_found(tmp_path: Path, text: str, *, loaded: bool) -> None:
    (tmp_path / "index.html").write_text(text)
    assert site.main([str(tmp_path)]) == loaded


def test_a_style_that_loads_from_elsewhere_is_found_and_so_is_an_empty_site(tmp_path: Path) -> None:
    assert site.main([str(tmp_path)]) == 1
    (tmp_path / "index.html").write_text("<p>")
    assert site.main([str(tmp_path)]) == 0
    (tmp_path / "a.css").write_text("@import 'https://fonts.example/a.css';")
    assert site.main([str(tmp_path)]) == 1


def _hook() -> ModuleType:
    place = ROOT / ".ci" / "site_hook.py"
    spec = importlib.util.spec_from_file_location("site_hook", place)
    assert spec is not None and spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


@pytest.mark.parametrize(("name", "found"), [("adr/0001-a.md", False), ("how-to/a.md", True)])
def test_decision_records_are_not_searched(name: str, *, found: bool) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=name), meta={})
    _hook().on_page_markdown("# 1. A", page=page)
    assert page.meta.get("search", {}).get("exclude", False) is not found


def test_a_link_out_of_the_site_becomes_the_path() -> None:
    hook = _hook()
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/a.md"))
    text = (
        "[one](../../examples/judge.py), [`.ci/run`](../../.ci/run), [two](../reference/cli.md#a)"
    )
    assert hook.on_page_markdown(text, page=page) == (
        "one (`examples/judge.py`), `.ci/run`, [two](../reference/cli.md#a)"
    )
