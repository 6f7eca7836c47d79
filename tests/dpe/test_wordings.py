"""The same thing in other words passes without a finding; one small change does not."""

from __future__ import annotations

import pytest

from crp_integrations.vocabulary import RiskLevel
from tests.dpe.helpers import check, kinds

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
