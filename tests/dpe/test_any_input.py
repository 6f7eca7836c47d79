"""Whatever the answer and the context hold, there is a report, exact, whole and reproducible."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.report import finish
from tests.dpe.helpers import check_literally as check

BITS = st.sampled_from(
    """Revenue was $4.2M in 2024.|not |unless |1/0|10^99|1e999 |\u00bd|\u00b2|[1]|[0]|[^1]|http://
    a@b.c|FY23 |Q3 |v1.2 |24:99|from 5 to 3|between 5 and 10|\n```\n|\n# H\n|1. |half a |\u3020
    \ud800|\u200b|\u0301|\x00|1,000.00.00|$|-5|31/02/2024|two hundred and |per day|once a day
    9999999999999999999999999999999999999999999999|5 x 10^99|\n\n| a | b |\n|---|---|\n""".split(
        "|"
    )
)
ANY = st.lists(
    st.one_of(BITS, st.text(st.characters(exclude_categories=()), max_size=30)), max_size=8
).map("".join)


@settings(max_examples=60, deadline=None)
@given(ANY, st.lists(ANY, max_size=3), ANY)
@pytest.mark.requirement("005-3.2-1", "005-15.2-5")
def test_any_text_gives_a_report_with_exact_places(
    answer: str, context: list[str], question: str
) -> None:
    report = finish(check(answer, context, question=question))
    readable = re.sub("[\ud800-\udfff]", "\ufffd", answer)
    for claim in report.claims:
        assert claim.text == readable[claim.start : claim.end] != ""
        for entity in claim.entities:
            assert entity.text == readable[entity.start : entity.end]
        for place in claim.evidence:
            assert 0 <= place.start <= place.end <= len(context[int(place.fact_id[1:]) - 1])
    for finding in report.findings:
        assert 0 <= finding.start <= finding.end <= len(answer)
    assert Report.model_validate_json(report.model_dump_json()) == report


@settings(max_examples=40, deadline=None)
@given(ANY, st.lists(ANY, min_size=2, max_size=4), st.randoms())
@pytest.mark.requirement("005-4.1-1")
def test_the_order_of_the_facts_changes_no_verdict(answer: str, context: list[str], r: Any) -> None:
    other = list(context)
    r.shuffle(other)
    first, second = check(answer, context), check(answer, other)
    assert _verdict(first) == _verdict(second)


def _verdict(report: Report) -> tuple[object, ...]:
    return (
        report.composite_score,
        report.fabrication_count,
        report.distortion_count,
        report.contradiction_count,
        [(claim.attribution, claim.similarity) for claim in report.claims],
    )


def test_a_lone_surrogate_is_read_as_a_replacement_character() -> None:
    report = finish(check("The fee \ud800 is 50.", ["The fee \udfff is 50."], question="\ud800"))
    assert report.claims[0].text == "The fee \ufffd is 50."
    assert report.report_hash.startswith("sha256:")


SCRIPT = """
from tests.dpe.helpers import check_literally as check
from tests.dpe.texts import *
from crp_integrations.dpe.stages.report import finish
answer = "Revenue was $4.8M in 2023, and Nils Berg said it rose daily. It does not apply."
context = ["Revenue was $4.2M in 2024. It applies.", "Ann Berg said it fell weekly.", "A B C"]
print(finish(check(answer, context)).model_dump_json())
"""


@pytest.mark.requirement("005-15.2-1")
def test_two_processes_write_the_same_bytes() -> None:
    written = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(written) == 1 and b"NUMBER_CHANGED" in written.pop()


def _sentences(count: int, shift: int = 0) -> str:
    return " ".join(
        f"The mill at site {n} made {n * 7919 % 1_000_003} tonnes in {1900 + n % 120}."
        for n in range(shift, shift + count)
    )


def _work(answer: str, context: list[str]) -> int:
    """How many calls an examination makes: the same on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        check(answer, context)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("shape", ["answer", "many facts", "one long fact", "figures"])
@pytest.mark.requirement("005-6.2-4")
def test_twice_the_text_is_about_twice_the_work(shape: str) -> None:
    def work(count: int) -> int:
        shift = 100_000 + 10_000 * count  # no text is remembered from the smaller run
        if shape == "answer":
            return _work(_sentences(count // 8, shift), [_sentences(20, shift)])
        if shape == "many facts":
            return _work(_sentences(3, shift), [_sentences(1, shift + n) for n in range(count)])
        if shape == "one long fact":
            return _work(_sentences(3, shift), [_sentences(count, shift)])
        return _work("The cache is 5.", [f"{shift} " + "1," * 4 * count])

    work(100)  # words that all of them have are stemmed once in a process
    assert work(400) < 2.8 * work(200)
