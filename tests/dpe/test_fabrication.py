"""Stage 3a: what no source has."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import ARITHMETIC
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.fidelity import order_of_search
from crp_integrations.dpe.state import StageTools, State
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.dpe.verifier.context import PassageContext
from crp_integrations.vocabulary import Attribution, RiskLevel
from tests.doubles import HashEmbedder
from tests.dpe.helpers import LITERAL, kinds
from tests.dpe.helpers import check_literally as check
from tests.dpe.texts import HARBOUR, TEXTS

FACT = "The port authority employs 640 people."
INVENTED = [
    "Professor Karl Stein of Oxford discovered 57 new species of moss in 1911.",
    "The painter Lucia Ferrand sold 23 canvases to Count Orlov.",
    "In 1954 the shipbuilder Ruud Bakker lost $77 million on the Caspian Sea.",
    "Senator Ophelia Grant won 88% of all votes in Nebraska.",
]


@pytest.mark.requirement("005-5.2-2", "005-5.2-3")
@pytest.mark.parametrize("answer", INVENTED)
def test_a_wholly_invented_sentence(answer: str) -> None:
    report = check(answer, TEXTS)
    assert report.fabrication_count >= 2
    assert set(kinds(report)) == {"fabrication"}
    assert report.claims[0].attribution is Attribution.UNVERIFIABLE
    assert report.claims[0].evidence == ()
    assert report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
    wrong = {answer[f.start : f.end] for f in report.findings}
    assert any(any(c.isdigit() for c in text) for text in wrong)
    assert any(text[0].isupper() for text in wrong)


@pytest.mark.requirement("005-5.2-1")
@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("The harbour belongs to the merchant Ruud Bakker.", "Ruud Bakker"),
        ("The harbour is rented by Corvane Logistics.", "Corvane Logistics"),
        ("The harbour was dredged in May 1987.", "May 1987"),
        ("Of the ships in the harbour 34% carry grain.", "34%"),
        ("The harbour is described in ISO 90210.", "ISO 90210"),
        (
            "The harbour has a page at https://example.org/lindmouth.",
            "https://example.org/lindmouth",
        ),
    ],
)
def test_each_kind_of_invention(answer: str, wrong: str) -> None:
    report = check(answer, [HARBOUR])
    assert [answer[f.start : f.end] for f in report.findings] == [wrong]
    assert kinds(report) == ["fabrication"]
    assert report.fabrication_count == 1


@pytest.mark.requirement("005-5.2-2")
def test_common_knowledge_is_a_setting() -> None:
    answer = "The harbour is painted in every guide to Ruritania."
    assert kinds(check(answer, [HARBOUR])) == ["fabrication"]
    allowed = DpeSettings(common_knowledge=("Ruritania",))
    assert kinds(check(answer, [HARBOUR], settings=allowed)) == []
    assert kinds(check("The harbour is loud on every Monday.", [HARBOUR])) == []


def test_a_name_of_the_question_is_not_invented() -> None:
    answer = "The harbour is not mentioned by Ruud Bakker."
    assert kinds(check(answer, [HARBOUR], question="What does Ruud Bakker say?")) == []


@pytest.mark.requirement("005-5.2-3")
@pytest.mark.parametrize(
    "answer",
    [
        "The probe carries 3 cameras and was built in Toulouse.",
        "The National Archives say that the catalogue was never printed.",
        "The pier in Lindmouth was opened in March 2024.",
    ],
)
def test_what_traces_is_not_flagged(answer: str) -> None:
    assert kinds(check(answer, TEXTS)) == []


@pytest.mark.requirement("005-5.2-4")
def test_every_claim_is_searched_and_ungrounded_ones_first() -> None:
    answer = "The port authority employs 640 people. Doctor Quill sold 99 yachts to Monaco in 1954."
    tools = StageTools(HashEmbedder(), AlignmentVerifier(), LITERAL)
    state = State(Dossier("", answer, (("f1", FACT),)), tools, lambda: PassageContext([FACT]))
    for _, stage in ARITHMETIC[:2]:
        state = stage(state)
    assert [state.claims[p].attribution for p in order_of_search(state)] == [
        Attribution.UNVERIFIABLE,
        Attribution.CONTEXT_GROUNDED,
    ]
    found = {answer[f.start : f.end] for f in check(answer, [FACT]).findings}
    assert {"99", "1954"} <= set(found) | {w.split()[0] for w in found}


def test_one_defect_is_one_finding() -> None:
    report = check("The port authority employs 460 people.", [HARBOUR])
    assert kinds(report) == ["NUMBER_CHANGED"]
    assert report.fabrication_count == 0
