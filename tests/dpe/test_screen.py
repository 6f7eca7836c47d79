"""The screen: silent where it cannot tell, right where it speaks, and never talked out of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations import examine, weights
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.verifier.features_verifier import FeaturesVerifier
from crp_integrations.vocabulary import ClaimStatus, RiskLevel, Verification
from tests.dpe.helpers import check

LEVELS = list(RiskLevel)
PASSAGES = [
    (
        "The ferry Halma leaves Torvik at 07:40 and takes 95 minutes to Brenna. A single ticket "
        "costs 18 euros per person, and dogs travel free of charge."
    ),
    (
        "Between October and March the ferry does not run on Sundays. Groups of at least 12 get "
        "a discount of 15%. The captain, Jorun Aske, says: “We wait for the bus from Lom.”"
    ),
    "| Cabin | Beds | Price |\n|---|---|---|\n| Inner | 2 | €64 |\n| Outer | 2 | €82 |\n| Suite | 4 | €150 |",
]
TRUE = [
    "The ferry Halma leaves Torvik at 07:40.",
    "It takes 95 minutes to Brenna.",
    "Dogs travel free of charge.",
    "The Outer cabin costs €82.",
    "Groups of at least 12 get a discount of 15%.",
    "Thanks for asking!",
]
WRONG = [
    "The ferry Halma leaves Torvik at 08:40.",
    "The Suite costs €82.",
    "The captain is Marit Solheim.",
    "Between October and March the ferry runs on Sundays.",
]


def shipped() -> FeaturesVerifier:
    return FeaturesVerifier(weights.load("verifier").read("features.json"))


def screened(answer: str, question: str = "") -> Report:
    return check(answer, PASSAGES, question=question, verifier=shipped())


@pytest.mark.parametrize(
    "answer",
    [
        *TRUE,
        "An outer cabin is €18 dearer than an inner one, a suite €86.",
        "Two people pay 36 euros each way.",
        "You arrive at about 09:15.",
        "Twelve or more travellers pay 15 percent less.",
        "There is no Sunday ferry in winter.",
        "As you are five, the group discount does not apply.",
        "| Cabin | Price |\n|---|---|\n| Inner | €64 |\n| Suite | €150 |",
        '```json\n{"departs": "07:40", "minutes": 95, "dogs": "free"}\n```',
        "The passages do not say whether bicycles are allowed.",
        "IDK",
        "Not specified in the context.",
        "Dazu steht in den Quellen leider nichts.",
    ],
)
def test_what_is_right_is_quiet_however_it_is_put(answer: str) -> None:
    report = screened(answer, "We are five people with a dog: when does the ferry go?")
    assert report.risk_level is RiskLevel.LOW, report.findings
    assert report.findings == ()
    assert report.verification is Verification.SCREENED


@pytest.mark.parametrize(
    "marker",
    [
        " [1]", " [1, 2]", " [1, p. 3]", " (source 1)", " 【1:2†source】", "¹", "<sup>1</sup>",
        " [^1]", " [context-1]",
    ],
)  # fmt: skip
def test_no_form_of_citation_is_a_figure(marker: str) -> None:
    report = screened(f"The ferry Halma leaves Torvik at 07:40{marker}.")
    assert report.risk_level is RiskLevel.LOW, report.findings


@pytest.mark.parametrize("opening", ["**Fact 1:** ", "1️⃣ ", "1. ", "(1) "])
def test_a_numbered_opening_is_no_figure(opening: str) -> None:
    report = screened(f"{opening}The ferry Halma leaves Torvik at 07:40.")
    assert report.risk_level is RiskLevel.LOW, report.findings


@pytest.mark.parametrize(
    "opening",
    ["According to the tool, ", "Based on the search results, ", "My helper says that ", ""],
)
def test_an_attribution_hides_no_changed_figure(opening: str) -> None:
    report = screened(f"{opening}the ferry Halma leaves Torvik at 08:40.")
    assert report.risk_level is RiskLevel.HIGH
    assert [claim.status for claim in report.claims if claim.flagged] == [ClaimStatus.CONTRADICTED]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("Dogs travel free of charge [7].", "CITATION_WRONG"),
        ("The ferry Halma leaves Torvik for Brenna at 07:40 [3].", "CITATION_WRONG"),
        ("The captain says: “We never wait for anybody at all.”", "fabrication"),
        ("The captain is Marit Solheim.", "fabrication"),
        ("The Suite costs €82.", "NUMBER_CHANGED"),
        ("| Cabin | Price |\n|---|---|\n| Inner | €66 |", "NUMBER_CHANGED"),
        ("I don't know, but the ferry Halma leaves Torvik at 08:40.", "NUMBER_CHANGED"),
        ("Between October and March the ferry runs on Sundays.", "NEGATION_FLIP"),
    ],
)
def test_what_is_wrong_is_named(answer: str, kind: str) -> None:
    report = screened(answer)
    assert kind in [finding.kind for finding in report.findings]
    assert report.risk_level is not RiskLevel.LOW
    assert report.reasons


@pytest.mark.parametrize("answer", ["Yes.", "No", "Yes", "**No.**"])
def test_a_bare_yes_or_no_is_no_alarm(answer: str) -> None:
    assert screened(answer, "Do dogs travel free?").risk_level is RiskLevel.LOW


chosen = st.lists(st.sampled_from(TRUE), max_size=6)


@settings(max_examples=60, deadline=None)
@given(before=chosen, after=chosen, wrong=st.sampled_from(WRONG))
def test_adding_a_wrong_statement_never_lowers_the_risk(
    before: list[str], after: list[str], wrong: str
) -> None:
    without = screened(" ".join((*before, *after)))
    beside = screened(" ".join((*before, wrong, *after)))
    assert LEVELS.index(beside.risk_level) >= LEVELS.index(without.risk_level)
    assert beside.risk_score >= without.risk_score


@settings(max_examples=60, deadline=None)
@given(before=chosen, after=chosen, wrong=st.sampled_from(WRONG))
def test_true_statements_around_a_wrong_one_never_hide_it(
    before: list[str], after: list[str], wrong: str
) -> None:
    alone = screened(wrong)
    answer = " ".join((*before, wrong, *after))
    among = screened(answer)
    assert LEVELS.index(among.risk_level) >= LEVELS.index(alone.risk_level)
    start = answer.index(wrong)
    assert any(start <= one.start < start + len(wrong) for one in among.claims if one.flagged)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*TRUE, *WRONG]), min_size=1, max_size=5))
def test_the_risk_is_above_medium_only_with_a_finding_that_says_why(sentences: list[str]) -> None:
    report = screened(" ".join(sentences))
    if report.risk_level is not RiskLevel.LOW:
        assert report.findings
        assert report.reasons


@pytest.mark.parametrize(
    ("answer", "row", "reason"),
    [
        ("21 seats left on flight 417.", '{"flight": 417, "seats_left": 12}', "passage 1 says 12."),
        (
            "Flight 417 has 21 seats left.",
            '{"flight": 417, "seats_left": 12}',
            "passage 1 says 12.",
        ),
        ("Order 4417 has 9 items.", '{"order": 4417, "items": 6}', "passage 1 says 6."),
    ],
)
def test_the_reason_names_the_value_that_the_claim_does_not_state(
    answer: str, row: str, reason: str
) -> None:
    report = examine(answer, [row], "How many?")
    assert report.risk_level == "HIGH"
    assert report.reasons[0].endswith(reason)
