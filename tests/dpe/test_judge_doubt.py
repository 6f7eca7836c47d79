"""Which claims the evidence has word for word or value for value, so that no judge is asked."""

from __future__ import annotations

import pytest
from crp_integrations.dpe.judge.quotation import without_doubt
from hypothesis import given
from hypothesis import strategies as st

from tests.dpe.judging import Case, statuses

PASSAGE = (
    "The Aurach bridge was opened in May 1998 and is 312 metres long. "
    "If the wind exceeds 90 km/h, the bridge is closed to trucks. "
    "The toll was not raised in 2021."
)


@pytest.mark.parametrize(
    "answer",
    [
        "The Aurach bridge was opened in May 1998.",
        "The **Aurach bridge** was opened in May 1998",
        "the aurach bridge was opened in may 1998.",
        "If the wind exceeds 90 km/h, the bridge is closed to trucks.",
        "The toll was not raised in 2021.",
        "Aurach bridge opened May 1998.",
    ],
)
def test_what_the_evidence_says_leaves_no_doubt(answer: str) -> None:
    report = Case(answer, [PASSAGE]).screened
    assert statuses(report) == ["SUPPORTED"]
    assert without_doubt(report.claims)
    (quotation,) = report.claims[0].quotations
    assert quotation.text == PASSAGE[quotation.start : quotation.end]


@pytest.mark.parametrize(
    "answer",
    [
        "The Aurach bridge was opened in May 1999.",
        "The Aurach bridge was opened in June 1998.",
        "The Aurach bridge is 31 metres long.",
        "The Aurach bridge was closed in May 1998.",
        "The Aurach bridge was not opened in May 1998.",
        "The bridge is closed to trucks.",
        "The toll was raised in 2021.",
        "The Aubach bridge was opened in May 1998.",
        "The bridge was designed by Lena Brandt.",
        "A bridge.",
    ],
)
def test_what_it_does_not_say_word_for_word_is_in_doubt(answer: str) -> None:
    report = Case(answer, [PASSAGE]).screened
    assert not without_doubt(report.claims)


def test_one_doubt_is_a_doubt_and_courtesies_are_none() -> None:
    sure = "The Aurach bridge was opened in May 1998."
    assert without_doubt(Case(f"{sure} Shall I go on?", [PASSAGE]).screened.claims)
    assert not without_doubt(Case(f"{sure} It has a museum.", [PASSAGE]).screened.claims)
    assert not without_doubt(Case(sure, []).screened.claims)


@given(st.integers(0, 10**5), st.integers(0, 10**5))
def test_only_the_same_figure_is_the_same(one: int, other: int) -> None:
    report = Case(
        f"The basin of the mill holds {other} litres.",
        [f"It is known that the basin of the mill holds {one} litres of water."],
    ).screened
    assert without_doubt(report.claims) == (one == other)
