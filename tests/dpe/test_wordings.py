"""The same thing in other words passes without a finding; one small change does not."""

from __future__ import annotations

import pytest

from crp_integrations.vocabulary import RiskLevel
from tests.dpe.helpers import check, kinds, only

NUMBER, DATE, NAME = "NUMBER_CHANGED", "DATE_SHIFTED", "ENTITY_SUBSTITUTED"
FLIP, FABRICATED = "NEGATION_FLIP", "fabrication"

REVENUE = (
    "Net revenue for the third quarter of 2024 was $4,200,000, up 15% from $3,650,000 in 2023."
)
MARGIN = "Operating margin fell to 12.4% from 14.1%."
ICE = "It loses about 4,213,000 tonnes of ice per year."
STATION = "The station opened in FY2023."
VERSION = "Version 2.3.1 removed support for Python 3.8."
ACT = (
    "Prohibited practices apply from 2 February 2025, while most obligations for high-risk systems "
    "apply from 2 August 2026."
)
DRUG = "The drug must not be given with MAO inhibitors. The dose is 10 mg once daily."
PEOPLE = "The population grew from 2.1 million in 2010 to 3.4 million in 2020."


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (REVENUE, "Up 15% from 2023, net revenue for the third quarter of 2024 was $4,200,000."),
        (REVENUE, "Net revenue was USD 4.2 million in the third quarter of 2024, up 15 per cent."),
        (REVENUE, "Net revenue for Q3 2024 was $4.2M, up 15 percent from $3.65M in 2023."),
        (MARGIN, "Operating margin fell from 14.1% to 12.4%."),
        (ICE, "It loses about 4.2 million tonnes of ice per year."),
        (ICE, "Yearly, it loses roughly 4\u202f213\u202f000 tonnes of ice."),
        (STATION, "The station opened in fiscal year 2023."),
        (STATION, "The station opened in FY 2023."),
        (STATION, "The station opened in FY23."),
        (VERSION, "Support for Python 3.8 was removed in v2.3.1."),
        ("Article 50 sets duties for providers.", "Duties for providers are set by Art. 50."),
        (ACT, "From 2 August 2026, most obligations for high-risk systems apply."),
        (DRUG, "Do not give the drug with MAO inhibitors."),
        (DRUG, "The dose is 10 mg once a day."),
        (PEOPLE, "The population grew to 3.4m in 2020 from 2.1m in 2010."),
        ("The Nile is about 6,650 kilometres long.", "The Nile is nearly 6,700 km long."),
        ("H1 revenues were $1.2 billion.", "Revenues in the first half were $1.2bn."),
        ("The key expires after 300 seconds.", "The key expires after 300 seconds.[^1]"),
        ("The key expires after 300 seconds.", "It expires after 300 seconds.\n\nSources: [1]"),
    ],
)
@pytest.mark.requirement("005-5.2-3", "005-5.3-8")
def test_other_words_for_the_same_thing_pass(source: str, answer: str) -> None:
    report = check(answer, [source])
    assert kinds(report) == []
    assert report.risk_level is RiskLevel.LOW


@pytest.mark.parametrize(
    ("source", "answer", "kind"),
    [
        # Signs that stand beside the digits are part of the figure.
        (
            "The fee is $4,200,000 in total.",
            "The fee is \u20ac4,200,000 in total.",
            NUMBER,
        ),
        ("Temperatures reached -12 \u00b0C.", "Temperatures reached 12 \u00b0C.", NUMBER),
        # A figure before a unit that reads as a code.
        ("Stop at an eGFR of 30 mL/min/1.73 m2.", "Stop at an eGFR of 45 mL/min/1.73 m2.", NUMBER),
        # How often.
        (ICE, "It loses about 4,213,000 tonnes of ice per day.", NUMBER),
        (DRUG, "The dose is 10 mg once weekly.", NUMBER),
        (DRUG, "The dose is 10 mg twice daily.", NUMBER),
        # Which way.
        (MARGIN, "Operating margin fell to 14.1% from 12.4%.", "MAGNITUDE_ALTERED"),
        (MARGIN, "Operating margin rose to 12.4% from 14.1%.", FLIP),
        (REVENUE, REVENUE.replace("up 15%", "down 15%"), FLIP),
        (DRUG, "The drug must be given with MAO inhibitors.", FLIP),
        (PEOPLE, PEOPLE.replace("grew", "fell"), FLIP),
        (VERSION, "Version 2.3.1 added support for Python 3.8.", FLIP),
        (VERSION, "Version 2.3.2 removed support for Python 3.8.", NAME),
        (STATION, "The station opened in FY2022.", DATE),
        ("Set `max_retries` to 5.", "Set `max_tries` to 5.", NAME),
        ("Revenue in the third quarter was $5m.", "Revenue in Q2 was $5m.", FABRICATED),
    ],
)
@pytest.mark.requirement("005-5.2-3", "005-5.3-1", "005-5.3-8")
def test_one_small_change_is_found(source: str, answer: str, kind: str) -> None:
    assert kind in kinds(check(answer, [source]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The valve is always open.", "The valve is never open."),
        ("The cache is flushed always.", "The cache is never flushed."),
        ("The tests failed to pass.", "The tests passed."),
        ("The team failed to deliver the report.", "The team delivered the report."),
        ("The board refused to sign the contract.", "The board signed the contract."),
        ("The operator was unable to restart the pump.", "The operator restarted the pump."),
        ("The device ships without a charger.", "The device ships with a charger."),
        ("The plan no longer covers dental care.", "The plan covers dental care."),
        ("None of the servers were patched.", "All of the servers were patched."),
        ("None of the servers were patched.", "The servers were patched."),
        (
            "Neither the pump nor the valve was replaced.",
            "Both the pump and the valve were replaced.",
        ),
        ("The application was accepted.", "The application was rejected."),
        ("The request was approved by the board.", "The request was denied by the board."),
        ("The board approved the merger.", "The merger was rejected by the board."),
        ("The gate was opened at noon.", "The gate was closed at noon."),
        ("The gate is open.", "The gate is closed."),
        ("Smoking is allowed in the lobby.", "Smoking is forbidden in the lobby."),
        ("The policy permits remote work.", "The policy prohibits remote work."),
        ("The additive causes corrosion.", "The additive prevents corrosion."),
        ("The home side won the match.", "The home side lost the match."),
        ("The engine passed the inspection.", "The engine failed the inspection."),
        ("The feature is enabled by default.", "The feature is disabled by default."),
        ("Breakfast is included in the price.", "Breakfast is excluded from the price."),
        ("The log is written before the commit.", "The log is written after the commit."),
        ("The minimum age is 18.", "The maximum age is 18."),
        ("The tank sits above the pump.", "The tank sits below the pump."),
        ("The service was started on Monday.", "The service was stopped on Monday."),
        ("The door must be locked.", "The door must be unlocked."),
        ("The pump uses more power.", "The pump uses less power."),
    ],
)
@pytest.mark.requirement("005-5.3-1")
def test_a_denial_or_an_opposite_is_one_finding_both_ways(one: str, other: str) -> None:
    for answer, source in ((one, other), (other, one)):
        report = check(answer, [source, "The depot in Leeds is large."])
        assert only(report).kind == FLIP
        assert report.risk_level is not RiskLevel.LOW
        assert kinds(check(answer, [answer, source])) == []
        assert kinds(check(answer, [f"{source} {answer}"])) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The crew needs more than 20 workers.", "The crew needs fewer than 20 workers."),
        ("The crew needs at least 20 workers.", "The crew needs at most 20 workers."),
    ],
)
@pytest.mark.requirement("005-5.3-1")
def test_a_turned_bound_is_one_finding(one: str, other: str) -> None:
    assert only(check(one, [other])).kind == NUMBER
    assert only(check(other, [one])).kind == NUMBER


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The gate closed at noon and opened at six.", "The gate opened at six."),
        ("The gate closed at noon and opened at six.", "The gate closed at noon."),
        ("At noon the gate was closed.", "The gate was closed at noon."),
        ("The tests failed to pass.", "The tests did not pass."),
        ("The request was rejected by the board.", "The request was denied by the board."),
        ("The request was rejected by the board.", "The board rejected the request."),
        ("The request was rejected by the board.", "The request was not accepted by the board."),
        ("Smoking is forbidden in the lobby.", "Smoking is not allowed in the lobby."),
        ("The tank sits above the pump.", "The pump sits below the tank."),
        ("Norton bought the shares from Ellis.", "Ellis sold the shares to Norton."),
        ("The feature is enabled by default and can be disabled.", "The feature can be disabled."),
        (
            "Neither the pump nor the valve was replaced.",
            "Neither the valve nor the pump was replaced.",
        ),
    ],
)
@pytest.mark.requirement("005-5.3-8")
def test_the_same_sense_in_other_words_is_no_flip(source: str, answer: str) -> None:
    assert kinds(check(answer, [source])) == []
