"""Right answers in forms that rules over words have flagged: none is, without a judge or with one."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import examine
from crp_integrations.vocabulary import RiskLevel
from tests.dpe.judging import Case

SITUATIONS = {
    "a word cut at a line's end": (
        "The agree-\nment ends on 4 May 2026. The ware-\nhouse is in Oslo.",
        "The agreement ends on 4 May 2026.",
    ),
    "a name with a hyphen at a line's end": (
        "The report is by Jean-\nPaul Martin.",
        "The report is by Jean-Paul Martin.",
    ),
    "a character reference": ("R&amp;D costs 4 million euros.", "R&D costs 4 million euros."),
    "one as a pronoun": (
        "The west gate is closed. The east gate opens at 9:00.",
        "The east one opens at 9:00.",
    ),
    "an account number in groups": (
        "Pay to DE89370400440532013000.",
        "Pay to DE89 3704 0044 0532 0130 00.",
    ),
    "LaTeX settings": ("The mass is 12.5 kg.", r"The mass is $12.5\,\mathrm{kg}$."),
    "thoughts before the answer": (
        "Tickets cost 40 euros.",
        "<think>Maybe 50 euros? No.</think>Tickets cost 40 euros.",
    ),
    "German nouns": (
        "Die Gebühr beträgt 40 Euro und ist im Voraus zu zahlen.",
        "Die Zahlung der Gebühr von 40 Euro erfolgt im Voraus.",
    ),
    "a decimal comma": ("The pump weighs 12.5 kg.", "Die Pumpe wiegt 12,5 kg."),
    "a ligature": ("The oﬃce is on the ﬁrst ﬂoor.", "The office is on the first floor."),
    "a number in words": ("The bus takes 5 minutes.", "The bus takes five minutes."),
    "a sum": ("The fee is 12 euros. Shipping is 3 euros.", "In all you pay 15 euros."),
    "a product": ("A box costs 18.90 euros.", "Twelve boxes cost 226.80 euros."),
    "a duration that was computed": (
        "The doors open at 18:30. The show starts at 20:00.",
        "Between doors and show there are 90 minutes.",
    ),
    "a letter for a room": ("Room A has 12 seats.", "There are 12 seats in room A."),
    "an order's number before words": (
        "Order 4417 was sent to Main Street 3.",
        "Order 4417 went out to Main Street 3.",
    ),
    "typographic quotation marks": (
        'He called it "a quiet place".',
        "He called it “a quiet place”.",
    ),
    "a value from the question": ("Members pay 20 euros.", "With 3 members you pay 60 euros."),
    "a table's figure as prose": (
        "| year | guests |\n|---|---|\n| 2024 | 1,250 |",
        "In 2024 there were 1250 guests.",
    ),
    "another time format": ("The office closes at 5 pm.", "The office closes at 17:00."),
}
each = pytest.mark.parametrize(("passage", "answer"), SITUATIONS.values(), ids=SITUATIONS)
QUESTION = "What do 3 members need to know?"


def supporting(material: dict[str, Any]) -> dict[str, Any]:
    """The reply of a judge that supports every claim by the whole passage."""
    quotes = [{"in": "1", "text": material["passages"][0][1]}]
    numbers = [part[0] for part in material["answer"] if isinstance(part, list)]
    claims = [{"n": number, "status": "SUPPORTED", "quotes": quotes} for number in numbers]
    return {"id": material["id"], "claims": claims}


@each
def test_nothing_is_flagged_without_a_judge(passage: str, answer: str) -> None:
    report = examine(answer, [passage], QUESTION)
    assert report.risk_level in (RiskLevel.LOW, RiskLevel.UNKNOWN)
    assert not any(claim.findings for claim in report.claims)


@each
def test_a_judge_that_supports_them_is_believed(passage: str, answer: str) -> None:
    report = Case(answer, [passage], QUESTION).judged(supporting)
    assert report.risk_level is RiskLevel.LOW
