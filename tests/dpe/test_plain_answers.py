"""Everyday answers, as chains give them: right ones pass, however they are written or spaced."""

from __future__ import annotations

from functools import cache

import pytest

from crp_integrations import weights
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import align
from crp_integrations.dpe.verifier.features_verifier import FeaturesVerifier
from crp_integrations.dpe.verifier.source_records import Records
from crp_integrations.dpe.verifier.values import read
from crp_integrations.vocabulary import RiskLevel
from tests.dpe.helpers import check, kinds

FIRM = (
    "Nordwind GmbH was founded on 3 May 2011 in Hamburg by Anna Becker. The company employs 1,250 "
    "people in 12 countries. The maximum load of the crane is 2.5 t. Refunds are granted within "
    "30 days of purchase unless the item was opened. The warranty lasts 24 months. The office is "
    "open Monday to Friday from 9 am to 5 pm. Support is not available on Sundays."
)
QUESTION = "Who is the CEO, and is support available on Sundays?"
RECORD = (
    "name: Finch and Fork.\nattributes Outdoor Seating: False.\nattributes Take Out: True.\n"
    "attributes Reservations: None.\nhours Monday: 17:30-23:00.\nbusiness_stars: 4.0.\n"
)


@cache
def verifier() -> FeaturesVerifier:
    return FeaturesVerifier(weights.load("verifier").read("features.json"))


def said(answer: str, *context: str, question: str = QUESTION) -> Report:
    return check(answer, context or [FIRM], question=question, verifier=verifier())


def typed(report: Report) -> list[str]:
    return [finding.kind for finding in report.findings if finding.stage == 3]


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I cannot answer this based on the provided documents.",
        "Based on the provided context, I am unable to answer this question.",
        "The context does not contain information about the CEO.",
        "I'm not sure.",
        "N/A",
        "You're welcome!",
        "Hello! How can I help you today?",
        "Could you please clarify your question?",
        "Let me know if you have any other questions.",
    ],
)
def test_a_refusal_or_a_courtesy_is_no_risk(answer: str) -> None:
    report = said(answer)
    assert report.risk_level is RiskLevel.LOW
    assert typed(report) == []
    assert report.hallucination_probability == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but the CEO is Bruno Keller.",
        "Unfortunately, I don't know, but the CEO Bruno Keller earns $93 million.",
        "The context does not mention the $93 million that Zebulon paid in 1977.",
        "Hello! The CEO is Bruno Keller.",
    ],
)
def test_a_claim_behind_a_courtesy_is_a_risk(answer: str) -> None:
    report = said(answer)
    assert report.risk_level is not RiskLevel.LOW
    assert "fabrication" in typed(report)


@pytest.mark.parametrize("talk", ["I'm sorry.", "You're welcome!", "Could you clarify?", "Hello!"])
def test_a_courtesy_takes_no_risk_from_a_lie(talk: str) -> None:
    lie = "Nordwind paid $93 million to Zebulon."
    for answer in (f"{talk} {lie}", f"{lie} {talk}"):
        report = said(answer)
        assert report.risk_level in (RiskLevel.MEDIUM, RiskLevel.HIGH, RiskLevel.CRITICAL)
        assert report.fabrication_count == 2


@pytest.mark.parametrize("opening", ["No, ", "No. ", "**No**, ", "No \u2013 ", ""])
def test_a_no_to_the_question_denies_nothing_in_the_answer(opening: str) -> None:
    assert typed(said(f"{opening}support is not available on Sundays.")) == []
    assert typed(said(f"{opening}support is available on Sundays.")) == ["NEGATION_FLIP"]


@pytest.mark.parametrize(
    "answer",
    [
        "Employees: 1,250",
        "| Employees | 1,250 |",
        "The maximum load of the crane is 2,500 kg.",
        "Refunds are granted within 30 days of purchase if the item has not been opened.",
        "The office is open Mon-Fri from 9 am to 5 pm.",
    ],
)
def test_the_same_said_otherwise(answer: str) -> None:
    report = said(answer)
    assert typed(report) == []
    assert report.risk_level is RiskLevel.LOW


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        ("The maximum load of the crane is 2.5 kg.", "NUMBER_CHANGED", "2.5 t"),
        ("The warranty lasts 12 months.", "NUMBER_CHANGED", "24 months"),
        ("Nordwind GmbH was founded by Peter Brandt.", "ENTITY_SUBSTITUTED", "Anna Becker"),
        ("Nordwind GmbH was founded in Munich.", "ENTITY_SUBSTITUTED", "Hamburg"),
        ("The office is open Mon-Sat from 9 am to 5 pm.", "fabrication", None),
    ],
)
def test_what_differs_is_named_with_what_stands_there(
    answer: str, kind: str, expected: str | None
) -> None:
    found = [one for one in said(answer).findings if one.stage == 3]
    assert [(one.kind, one.expected) for one in found] == [(kind, expected)]


def test_twelve_countries_are_no_source_of_twelve_months() -> None:
    assert typed(said("12 months", question="How long is the warranty?")) == ["fabrication"]
    assert typed(said("12", question="In how many countries?")) == []


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The U.S.-led airstrikes go on.", "The US-led airstrikes go on."),
        ("The U.N. Security Council met late.", "The UN Security Council met late."),
        ("Gov. Doug Ducey signed the bill.", "Governor Doug Ducey signed the bill."),
        ("It stands at 1150 Coast Rd, Ste E.", "It stands at 1150 Coast Road, Suite E."),
        ("The average low is 56 degrees Fahrenheit, the high 79.", "The average low is 56 degrees Fahrenheit (13 degrees Celsius)."),
        ("The International Committee of the Red Cross on Saturday called for a ceasefire.", "The International Committee of the Red Cross (ICRC) called for a ceasefire."),
        ("Russia submitted a draft resolution.", "The Russian Government submitted a draft resolution."),
        ("It hit Earth on October 20, 2023, and October 21, 2023.", "It hit Earth on Oct. 20-21, 2023."),
        ("The cafe has a rating of 4.5 stars.", "The cafe has four and a half stars out of five."),
        ("Twist the hair and add a section. Repeat both to the end.", "Step 1: Twist the hair and add a section."),
        ("passage 1: It is open.\n\npassage 2: It is free.", "It is open and free (passages 1 and 2)."),
        ("Entry is free on Saturday and Sunday.", "Entry is free on Sat. & Sun."),
        ("Reviews by customers are mixed.", "Customer reviews are mixed."),
        ("hours Monday: 7:0-20:0\nhours Saturday: 9:0-21:0", "It is open from 7:00 am to 8:00 pm on Monday."),
    ],
)  # fmt: skip
def test_short_forms_and_marks_are_no_change(source: str, answer: str) -> None:
    assert kinds(check(answer, [source])) == []


SPACED = [
    lambda text: f"\n\n {text} \n",
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: text.replace(" ", "  "),
    lambda text: text.replace("\n", "\r\n"),
]
ANSWERS = [
    f"{FIRM.split('. ')[0]}.\nThe warranty lasts 36 months.",
    "- The crane lifts at most 2.5 t.\n- It was built on 4 May 2012.",
]


@pytest.mark.parametrize("change", SPACED)
@pytest.mark.parametrize("answer", ANSWERS)
def test_white_space_changes_no_score(answer: str, change) -> None:
    plain, other = said(answer), said(change(answer))
    assert other.base_score == pytest.approx(plain.base_score, abs=1e-6)
    assert kinds(other) == kinds(plain)


@pytest.mark.parametrize("change", SPACED[1:])
def test_a_record_is_one_however_its_lines_end(change) -> None:
    records, other = Records([RECORD]), Records([change(RECORD)])
    assert records.entries
    text = "It has outdoor seating and take out."
    assert [one.verdict for one in other.named(text)] == [
        one.verdict for one in records.named(text)
    ]
    assert other.hours == records.hours
    assert other.ratings == records.ratings


@pytest.mark.parametrize("answer", [*ANSWERS, "The office is open on Sundays.", FIRM])
def test_a_passage_that_is_there_twice_says_no_more(answer: str) -> None:
    other = "Hamburg lies on the Elbe. The harbour was opened in 1189."
    once, twice = said(answer, FIRM, other), said(answer, FIRM, other, f" {FIRM}\n", other)
    assert twice.base_score == once.base_score
    assert twice.claims == once.claims


def test_evidence_in_wide_and_folded_text_stands_where_it_says() -> None:
    source = "The  bridge\u00a0\u00a0is\u200b 300  metres long.\r\nIt opened on  Oct.  20, 2023."
    context = Context([source])
    for claim in ("The bridge is 310 metres long.", "It opened on Oct. 21, 2023."):
        (change,) = align(claim, context).changes
        assert source[change.start : change.end] == change.source.text
        assert claim[change.claim.start : change.claim.end] == change.claim.text
    assert [value.text for value in read(source).values if value.family != "name"] == [
        "300  metres",
        "Oct.  20, 2023",
    ]
