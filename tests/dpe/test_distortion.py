"""Stage 3b: what was changed in a sentence is found, named and located."""

from __future__ import annotations

import pytest

from crp_integrations.vocabulary import DistortionType, RiskLevel
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import kinds, only
from tests.dpe.texts import HARBOUR, LIBRARY, MEDICINE, SPACE, TEXTS

# Context, answer, type, what stands wrong in the answer, what the context says.
TABLE = [
    pytest.param(
        "revenue was $4.2M", "revenue was $4.8M", "NUMBER_CHANGED", "$4.8M", "$4.2M",
        marks=pytest.mark.requirement("005-5.3-2"),
    ),
    pytest.param(
        "the policy does not apply", "the policy applies", "NEGATION_FLIP", "the policy applies", "not",
        marks=pytest.mark.requirement("005-5.3-3"),
    ),
    pytest.param(
        "enacted in 2024", "enacted in 2023", "DATE_SHIFTED", "2023", "2024",
        marks=pytest.mark.requirement("005-5.3-4"),
    ),
    pytest.param(
        "according to NIST", "according to ISO", "ENTITY_SUBSTITUTED", "ISO", "NIST",
        marks=pytest.mark.requirement("005-5.3-5"),
    ),
    pytest.param(
        "increased by 15%", "increased by 50%", "MAGNITUDE_ALTERED", "50%", "15%",
        marks=pytest.mark.requirement("005-5.3-6"),
    ),
    pytest.param(
        "conditionally approved pending review", "approved", "CONTEXT_STRIPPED", "approved",
        "conditionally", marks=pytest.mark.requirement("005-5.3-7"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "answer", "kind", "wrong", "right"), TABLE)
def test_the_examples_of_the_specification(
    source: str, answer: str, kind: str, wrong: str, right: str
) -> None:
    report = check(answer, [source])
    finding = only(report)
    assert finding.kind == kind
    assert answer[finding.start : finding.end] == wrong
    assert finding.expected == right
    assert finding.evidence is not None
    assert finding.evidence.fact_id == "f1"
    assert source[finding.evidence.start : finding.evidence.end] == right
    assert report.distortion_count == 1
    assert report.distortion_types == (DistortionType(kind),)
    assert report.fabrication_count == 0


@pytest.mark.parametrize(("source", "answer", "kind", "wrong", "right"), TABLE)
def test_the_examples_as_whole_sentences(
    source: str, answer: str, kind: str, wrong: str, right: str
) -> None:
    before, after = "At Corvane Ltd the board said that ", " last week."
    fact = f"{before}{source}{after}"
    report = check(f"{before}{answer}{after}", [HARBOUR, fact])
    assert kinds(report) == [kind]
    assert report.findings[0].evidence is not None
    assert report.findings[0].evidence.fact_id == "f2"


# What replaces what in a passage, and the type that follows.
EDITS = [
    (HARBOUR, "4,200,000", "4,700,000", "NUMBER_CHANGED"),
    (HARBOUR, "640 people", "460 people", "NUMBER_CHANGED"),
    (HARBOUR, "$18.5 million", "$18.5 billion", "NUMBER_CHANGED"),
    (HARBOUR, "$18.5 million", "€18.5 million", "NUMBER_CHANGED"),
    (MEDICINE, "50 mg", "500 mg", "NUMBER_CHANGED"),
    (MEDICINE, "860 patients", "680 patients", "NUMBER_CHANGED"),
    (SPACE, "1,250 kg", "1,520 kg", "NUMBER_CHANGED"),
    (SPACE, "9 days", "9 weeks", "NUMBER_CHANGED"),
    (LIBRARY, "5 km", "5 miles", "NUMBER_CHANGED"),
    (MEDICINE, "50 mg", "50 g", "NUMBER_CHANGED"),
    (SPACE, "2 Mbps", "2 Gbps", "NUMBER_CHANGED"),
    (HARBOUR, "15%", "51%", "MAGNITUDE_ALTERED"),
    (MEDICINE, "8%", "18%", "MAGNITUDE_ALTERED"),
    (HARBOUR, "2024-03-12", "2024-03-21", "DATE_SHIFTED"),
    (LIBRARY, "1871", "1878", "DATE_SHIFTED"),
    (MEDICINE, "7 May 2019", "7 March 2019", "DATE_SHIFTED"),
    (SPACE, "August 2016", "August 2015", "DATE_SHIFTED"),
    (LIBRARY, "November 1932", "November 1923", "DATE_SHIFTED"),
    (HARBOUR, "Clara Voss", "Martin Brandt", "ENTITY_SUBSTITUTED"),
    (LIBRARY, "Edmund Hale", "Robert Pym", "ENTITY_SUBSTITUTED"),
    (LIBRARY, "National Archives", "British Museum", "ENTITY_SUBSTITUTED"),
    (MEDICINE, "European Medicines Agency", "World Health Organization", "ENTITY_SUBSTITUTED"),
    (SPACE, "Halden Aerospace", "Norden Systems", "ENTITY_SUBSTITUTED"),
    (HARBOUR, "does not serve", "does serve", "NEGATION_FLIP"),
    (HARBOUR, "was opened", "was not opened", "NEGATION_FLIP"),
    (LIBRARY, "was never printed", "was printed", "NEGATION_FLIP"),
    (MEDICINE, "must not be taken", "must be taken", "NEGATION_FLIP"),
    (SPACE, "has not found", "has found", "NEGATION_FLIP"),
    (MEDICINE, "approved the tablet", "did not approve the tablet", "NEGATION_FLIP"),
    (HARBOUR, "conditionally approved pending a noise survey by the county", "approved", "CONTEXT_STRIPPED"),
    (LIBRARY, " only if a librarian is present", "", "CONTEXT_STRIPPED"),
    (MEDICINE, " if the patient develops a rash", "", "CONTEXT_STRIPPED"),
    (SPACE, " unless the Sun stands between the probe and Earth", "", "CONTEXT_STRIPPED"),
]  # fmt: skip


def _sentence(text: str, part: str) -> str:
    found = [s for s in text.replace("Dr. ", "Dr.~").split(". ") if part in s.replace("~", " ")]
    return found[0].replace("~", " ").rstrip(".") + "."


@pytest.mark.requirement("005-5.3-1", "005-5.3-8")
@pytest.mark.parametrize(("text", "old", "new", "kind"), EDITS)
def test_one_edit_in_a_verbatim_sentence(text: str, old: str, new: str, kind: str) -> None:
    true = _sentence(text, old)
    false = true.replace(old, new)
    assert true != false
    others = [other for other in TEXTS if other != text]
    report = check(false, [*others, text])
    assert kind in kinds(report)
    finding = next(f for f in report.findings if f.kind == kind)
    assert finding.evidence is not None
    assert finding.evidence.fact_id == "f4"
    assert finding.expected
    assert finding.expected in text[finding.evidence.start : finding.evidence.end]
    assert report.distortion_count == len(report.findings)
    assert report.risk_level is not RiskLevel.LOW


@pytest.mark.requirement("005-5.3-8")
def test_a_value_that_is_true_of_another_thing_is_still_wrong() -> None:
    context = [
        "The red team earned 5 points in round one.",
        "The blue team earned 7 points in round one.",
        "Tom Berg joined the firm in 2005.",
        "Maria Lopez joined the firm in 2001.",
    ]
    assert kinds(check("The red team earned 7 points in round one.", context)) == ["NUMBER_CHANGED"]
    assert kinds(check("Tom Berg joined the firm in 2001.", context)) == ["DATE_SHIFTED"]


def test_two_facts_in_one_sentence_are_no_distortion() -> None:
    context = [
        "The probe Meridian 4 weighs 1,250 kg.",
        "The probe Meridian 4 reached Ceres in March 2021.",
    ]
    report = check(
        "The probe Meridian 4, which weighs 1,250 kg, reached Ceres in March 2021.", context
    )
    assert kinds(report) == []


def test_a_value_in_a_clause_of_a_longer_sentence_is_located() -> None:
    answer = "Its north pier was opened by Clara Voss, and freight grew by 19% compared with 2022."
    finding = only(check(answer, [HARBOUR]))
    assert answer[finding.start : finding.end] == "19%"
    assert finding.expected == "15%"


def test_a_title_in_quotation_marks_is_a_name() -> None:
    context = ['He presents a podcast called "Frontier" on the island radio.']
    answer = 'He presents a podcast called "Oahu" on the island radio.'
    finding = only(check(answer, context))
    assert (finding.kind, finding.expected) == ("ENTITY_SUBSTITUTED", "Frontier")
