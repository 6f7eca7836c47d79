"""Stage 3c: an answer that contradicts itself."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.settings import DpeSettings
from tests.dpe.helpers import check
from tests.dpe.texts import TEXTS

PAIRS = [
    ("The lake is 40 metres deep.", "The lake is 55 metres deep."),
    ("The contract was signed in 2018.", "The contract was signed in 2016."),
    ("The new law applies to small firms.", "The new law does not apply to small firms."),
]


@pytest.mark.parametrize("pairs", ["share", "all"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_claims_that_cannot_both_be_true(first: str, second: str, pairs: str) -> None:
    settings = DpeSettings.model_validate({"pairs": pairs})
    report = check(f"{first} Whales sing. {second}", [first], settings=settings)
    assert report.contradiction_count == 1
    assert report.contradiction_scope == "intra"
    finding = next(f for f in report.findings if f.kind == "contradiction")
    assert (finding.claim_id, finding.other_claim_id) == ("c3", "c1")


@pytest.mark.parametrize(
    "answer",
    [
        "The lake is 40 metres deep. The river is 55 metres deep.",
        "In 2018 the lake was 40 metres deep. In 2020 the lake was 55 metres deep.",
        "Anna Weiss earned 5 points. Carl Berg earned 7 points.",
        "The lake is 40 metres deep. The lake is 40 metres deep.",
        " ".join(TEXTS),
    ],
)
def test_what_is_no_contradiction(answer: str) -> None:
    report = check(answer, TEXTS)
    assert report.contradiction_count == 0
    assert report.contradiction_scope == "none"


def test_what_the_context_says_twice_is_not_the_answers_fault() -> None:
    context = [PAIRS[0][0], PAIRS[0][1]]
    assert check(" ".join(context), context).contradiction_count == 0


def test_a_listing_that_is_not_compared_is_said_to_be() -> None:
    first, second = "The lake is 40 metres deep.", "The lake is 55 metres deep."
    listing = DpeSettings.model_validate({"most_pair_values": 1})
    longer = "In 2018 the lake was 40 metres deep."
    report = check(f"{longer} {second}", [longer], settings=listing)
    assert "not-paired=1" in report.flags
    assert report.thresholds["most_pair_values"] == 1.0
    whole = check(f"{first} {second}", [first], settings=listing)
    assert whole.contradiction_count == 1
    assert not any(flag.startswith("not-paired") for flag in whole.flags)
