"""Recorded replies of a capable model over answers of our own: languages, needs and conflicts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.dpe.records import Report
from crp_integrations.evaluation.answers import read_cases, screened, verdict
from crp_integrations.evaluation.recorded_replies import recorded, replies
from crp_integrations.vocabulary import RiskLevel

HERE = Path(__file__).parent


def reports(name: str) -> Iterator[tuple[dict[str, Any], Report, Report]]:
    """Each labelled row, its report without a judge, and with the recorded reply."""
    path = HERE / "labelled" / f"{name}.jsonl"
    known = replies(HERE / "replies" / f"claude-2026-11-{name}.jsonl")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    for row, case in zip(rows, read_cases([path]), strict=True):
        one = screened(case)
        read = verdict(one, recorded(one, known[case.name]))
        # A reply to an older prompt would leave the answer unread.
        assert read.failed == "", case.name
        yield row, one.report, read.report


def test_answers_in_five_languages() -> None:
    found: Counter[tuple[bool, RiskLevel]] = Counter()
    named: Counter[bool] = Counter()
    for row, alone, judged in reports("languages"):
        # Half of the passages are English: without a judge nothing is flagged for its language.
        assert alone.risk_level in (RiskLevel.LOW, RiskLevel.UNKNOWN)
        flags = [flag for flag in alone.flags if flag.startswith("language=")]
        assert flags in ([], [f"language={row['language']}"])
        named[row["passage_language"] != row["language"]] += bool(flags)
        found[row["hallucinated"], judged.risk_level] += 1
        assert judged.flagged is row["hallucinated"]
    assert found[False, RiskLevel.LOW] >= 98
    assert sum(found.values()) == 140
    assert named[True] >= 69
    assert named[False] == 0


def test_which_parts_of_a_question_are_answered() -> None:
    for row, alone, judged in reports("needs"):
        assert alone.quality.completeness.level is None
        found = judged.quality.completeness
        assert [need in found.covered for need in row["needs"]] == row["answered"], row["id"]
        assert not judged.flagged


@pytest.mark.requirement("005-5.4-1")
def test_answers_that_contradict_themselves() -> None:
    for row, _, judged in reports("conflicts"):
        assert (judged.contradiction_count > 0) is row["conflict"], row["id"]
        assert judged.flagged is row["conflict"]


def test_repaired_answers_as_fresh_readers_read_them() -> None:
    """215 readings, blind, of the field's answers: repaired, right ones, and wrong ones beside."""
    lines = (HERE / "replies" / "claude-2026-11-repaired.jsonl").read_text("utf-8").splitlines()
    read = Counter((row["shown"], row["right"]) for row in map(json.loads, lines))
    well = Counter((row["shown"], row["reads_well"]) for row in map(json.loads, lines))
    assert read == {("repaired", True): 114, ("repaired", False): 1, ("right", True): 60,
                    ("wrong", False): 40}  # fmt: skip
    assert well["repaired", True] == 112
    page = (HERE.parents[1] / "docs" / "evidence" / "accuracy.md").read_text("utf-8")
    assert "114 of the 115" in page
    assert "112 read well" in page
