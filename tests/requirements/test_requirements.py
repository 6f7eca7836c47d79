"""The tables, the marks and the pages that are made from them agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crp_integrations import examine, pack
from crp_integrations.envelope.rank import rank_weights
from crp_integrations.relay.settings import load
from crp_integrations.vocabulary import GroundingMode
from tests.requirements import spec_map, supported
from tests.requirements.marks import marks
from tests.requirements.rows import ROOT, SUPPORTED, rows


def test_every_mark_names_a_known_id() -> None:
    assert sorted(set(marks()) - set(rows())) == []


def test_every_demand_that_is_due_has_a_marked_test() -> None:
    due = [row.id for row in rows().values() if row.part <= supported.PART_NOW]
    marked = marks()
    assert [id for id in due if id not in marked] == []


def test_every_demand_that_is_due_has_its_own_wording() -> None:
    assert [
        row.id for row in rows().values() if row.part <= supported.PART_NOW and not row.short
    ] == []


def test_the_supported_page_claims_known_ids_once() -> None:
    claims = supported.claimed(SUPPORTED.read_text(encoding="utf-8"))
    assert len(claims) == len(set(claims))
    assert set(claims) <= set(rows())


# A row's example: source, answer, earlier answer; and the number that shows that it was found.
EXAMPLES = {
    "005-5.2-2": ("The reactor is open.", "It was built by Hans Gruber.", "", "fabrication_count"),
    "005-5.3-2": ("The fee is 40 EUR.", "The fee is 45 EUR.", "", "distortion_count"),
    "005-5.3-3": ("The fee is due.", "The fee is not due.", "", "distortion_count"),
    "005-5.3-4": ("The pass was given on 4 March 2019.", "The pass was given on 4 March 2017.", "",
                  "distortion_count"),
    "005-5.3-5": ("according to NIST", "according to ISO", "", "distortion_count"),
    "005-5.3-6": ("increased by 15%", "increased by 50%", "", "distortion_count"),
    "005-5.3-7": ("conditionally approved", "approved", "", "distortion_count"),
    "005-8.1-1": ("", "Revenue increased 20%.", "Revenue decreased 5%.", "contradiction_count"),
    "005-8.2-4": ("", "Revenue was $5.1M.", "Revenue was $4.2M.", "contradiction_count"),
    "005-8.2-5": ("", "The bridge is not open.", "The bridge is open.", "contradiction_count"),
    "005-8.2-6": ("", "Reviews were largely negative.", "Reviews were generally positive.",
                  "contradiction_count"),
    "005-8.2-7": ("", "Growth was approximately 16%.", "Growth was about 15%.",
                  "contradiction_count"),
}  # fmt: skip


@pytest.mark.parametrize("id", EXAMPLES)
def test_a_row_that_holds_in_literal_alone_says_so(id: str) -> None:
    source, answer, before, number = EXAMPLES[id]
    prior = [before] if before else []
    ordinary, literal = (
        getattr(examine(answer, [source or "Tulips bloom."], prior=prior, settings=made), number)
        for made in (load(), load(preset="literal"))
    )
    assert literal == 1
    assert rows()[id].short.startswith("`literal`: ") == (ordinary == 0)


def test_weights_and_ceilings_that_hold_in_literal_alone_say_so() -> None:
    ordinary, literal = (
        rank_weights(made.envelope, GroundingMode.PREFERRED, temporal=False)
        for made in (load(), load(preset="literal"))
    )
    for id, field in (
        ("003-6.2-2", "relevance"),
        ("003-6.2-3", "importance"),
        ("003-6.2-4", "freshness"),
        ("003-6.2-5", "diversity"),
    ):
        differs = getattr(ordinary, field) != getattr(literal, field)
        assert rows()[id].short.startswith("`literal`: ") == differs
    sparse = pack("When do tulips bloom?", ["Tulips bloom in spring."], model="gpt-4o",
                  budget_tokens=3_000, grounding=GroundingMode.STRICT)  # fmt: skip
    assert (sparse.quality_tier.value, sparse.saturation < 0.7, sparse.caps) == ("S", True, ())
    for id in ("003-8.2-1", "003-8.2-2", "003-8.2-3", "003-8.2-4", "003-9.3-3", "003-13.1-3"):
        assert rows()[id].short.startswith("`literal`: ")


def test_a_page_claims_exactly_what_was_shown() -> None:
    ids = list(rows())[3:9]
    assert sorted(supported.claimed(supported.page(ids))) == sorted(ids)


def test_a_failing_test_takes_its_id_from_the_page() -> None:
    results = {
        "passed": {"003-7.3-1": ["a"], "003-7.3-2": ["b"]},
        "failed": {"003-7.3-2": ["c"]},
    }
    assert supported.shown(results) == ["003-7.3-1"]


def test_a_claim_whose_tests_were_all_skipped_is_told_apart() -> None:
    results = {
        "passed": {"003-7.3-1": ["a"]},
        "failed": {"003-7.3-2": ["c"]},
        "skipped": {"003-7.3-1": ["b"], "003-7.3-2": ["d"], "003-7.3-3": ["e"]},
    }
    assert supported.skipped(results) == ["003-7.3-3"]


def test_a_selection_that_ran_with_more_installed_completes_a_whole_run() -> None:
    whole = {
        "whole": True,
        "passed": {"003-7.3-1": ["a"]},
        "failed": {},
        "skipped": {"003-7.3-2": ["b"], "003-7.3-3": ["c"]},
    }
    part = {
        "whole": False,
        "passed": {"003-7.3-2": ["b"]},
        "failed": {"003-7.3-1": ["a"]},
        "skipped": {},
    }
    both = supported.completed(whole, part)
    assert both["whole"]
    assert supported.shown(both) == ["003-7.3-2"]
    assert supported.skipped(both) == ["003-7.3-3"]


def test_the_specification_map_is_fresh() -> None:
    assert spec_map.PAGE.read_text(encoding="utf-8") == spec_map.page()


@pytest.mark.parametrize("line", ["Spec: somewhere", "Spec: §4", "Spec: CRP-SPEC-003 7.4"])
def test_a_spec_line_that_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="does not read"):
        spec_map.references(line)


def test_a_spec_line_may_name_several_sections() -> None:
    line = "Spec: CRP-SPEC-003 §7.4, §8; CRP-SPEC-005 §4.2"
    assert spec_map.references(line) == [
        ("CRP-SPEC-003", "7.4"),
        ("CRP-SPEC-003", "8"),
        ("CRP-SPEC-005", "4.2"),
    ]


MINI = """
import pytest

@pytest.mark.requirement("003-7.3-1")
def test_good():
    assert True

@pytest.mark.requirement("003-7.3-2")
def test_bad():
    assert {bad}

@pytest.mark.requirement("{third}")
@pytest.mark.skip
def test_skipped():
    assert False
"""


def _mini_project(folder: Path, *, bad: str, third: str, claims: list[str]) -> Path:
    (folder / "tests" / "requirements").mkdir(parents=True)
    (folder / "docs" / "evidence").mkdir(parents=True)
    for name in ("rows.py", "supported.py", "marks.py", "__init__.py"):
        text = (ROOT / "tests/requirements" / name).read_text(encoding="utf-8")
        (folder / "tests/requirements" / name).write_text(text, encoding="utf-8")
    for path in (ROOT / "tests/requirements").glob("part*.csv"):
        (folder / "tests/requirements" / path.name).write_bytes(path.read_bytes())
    (folder / "tests/requirements/supported.template.md").write_text("# Head\n", encoding="utf-8")
    (folder / "tests/__init__.py").write_text("", encoding="utf-8")
    (folder / "tests/conftest.py").write_text(
        (ROOT / "tests/conftest.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (folder / "tests/test_mini.py").write_text(MINI.format(bad=bad, third=third), encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n', encoding="utf-8"
    )
    claimed = "".join(f"- `{id}` words\n" for id in claims)
    (folder / "docs/evidence/supported.md").write_text(claimed, encoding="utf-8")
    return folder


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        # The small project's tests use none of the plugins that are installed.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_run_fails_when_the_page_claims_what_was_not_shown(tmp_path: Path) -> None:
    folder = _mini_project(
        tmp_path, bad="True", third="003-7.3-3", claims=["003-7.3-1", "003-7.3-4"]
    )
    run = _pytest(folder)
    assert run.returncode == 1
    assert "2 passed, 1 skipped" in run.stdout
    assert "claims 003-7.3-4" in run.stdout
    assert "claims 003-7.3-1" not in run.stdout


def test_a_claim_whose_test_was_skipped_stands(tmp_path: Path) -> None:
    folder = _mini_project(
        tmp_path, bad="True", third="003-7.3-3", claims=["003-7.3-1", "003-7.3-3"]
    )
    assert _pytest(folder).returncode == 0


def test_a_run_passes_when_every_claim_was_shown(tmp_path: Path) -> None:
    folder = _mini_project(
        tmp_path, bad="True", third="003-7.3-3", claims=["003-7.3-1", "003-7.3-2"]
    )
    assert _pytest(folder).returncode == 0
    command = [sys.executable, "-m", "tests.requirements.supported"]
    assert subprocess.run([*command, "--check"], cwd=folder, capture_output=True).returncode == 1
    assert subprocess.run(command, cwd=folder).returncode == 0
    assert subprocess.run([*command, "--check"], cwd=folder).returncode == 0
    page = (folder / "docs/evidence/supported.md").read_text(encoding="utf-8")
    assert sorted(supported.claimed(page)) == ["003-7.3-1", "003-7.3-2"]


def test_an_unknown_id_stops_the_run(tmp_path: Path) -> None:
    run = _pytest(_mini_project(tmp_path, bad="True", third="999-1", claims=[]))
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unknown id '999-1'" in run.stdout + run.stderr
