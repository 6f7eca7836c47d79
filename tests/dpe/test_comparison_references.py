"""Quotations and citations that stand nowhere; objects and rows beside the same ones."""

from __future__ import annotations

import json

import pytest

from tests.dpe.comparing import compared, statuses

REPORT = "The inspector wrote: “The valve failed because the seal was brittle” in her report."
PLANS = "| Plan | Price | Seats |\n|---|---|---|\n| Basic | $9 | 1 |\n| Team | $29 | 10 |"
ORDER = {"order_id": "HP-48213", "status": "shipped", "total": 164.65, "gift": False}


def kinds(answer: str, passages: list[str], question: str = "", **options: bool) -> list[str]:
    claims = compared(answer, passages, question, **options)
    return [finding.kind for claim in claims for finding in claim.findings]


@pytest.mark.parametrize(
    ("answer", "question", "wrong"),
    [
        ("She wrote: “The valve failed because the pump ran dry”.", "", True),
        ("She wrote: “The valve failed […] the seal was brittle”.", "", False),
        ("She wrote: \"the valve failed, because the *seal* was brittle\".", "", False),
        ("You asked “why did the valve fail at noon”.", "Why did the valve fail at noon?", False),
        ("It is a “smart valve”.", "", False),
        ("Sie schrieb: „Das Ventil versagte, weil die Dichtung spröde war“.", "", False),
        ("A 24\" monitor of the inspector and a 27\" one are there.", "", False),
    ],
)  # fmt: skip
def test_a_quotation_that_stands_nowhere(answer: str, question: str, wrong: bool) -> None:
    assert kinds(answer, [REPORT], question) == (["QUOTE_NOT_FOUND"] if wrong else [])


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("The valve failed [3].", True),
        ("The valve failed [1, 4].", True),
        ("The valve failed [2].", False),
        ("See items[3] and rows[0][7] of it.", False),
        ("The valve failed [3].\n\n[3] https://example.org", False),
        ("`[3]` and ```\nx = [7]\n```", False),
    ],
)
def test_a_citation_of_a_passage_that_does_not_exist(answer: str, wrong: bool) -> None:
    passages = [REPORT, "Levels stayed low."]
    assert kinds(answer, passages) == (["CITATION_WRONG"] if wrong else [])
    assert kinds(answer, passages, numbered=False) == []


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "SUPPORTED"),
        ({"total": 165.65}, "CONTRADICTED"),
        ({"gift": True}, "CONTRADICTED"),
        ({"order_id": "HP-1"}, "NOT_CHECKED"),
        ({"status": "sent"}, "NOT_CHECKED"),
        ({"total": 1, "gift": True}, "NOT_CHECKED"),
        ({"carrier": "Velpost"}, "NOT_CHECKED"),
    ],
)
def test_an_object_beside_the_one_of_its_name(change: dict[str, object], status: str) -> None:
    passages = [json.dumps([ORDER, {"order_id": "HP-48377", "status": "open", "total": 78.5}])]
    found = statuses(json.dumps(ORDER | change), passages)
    if status == "CONTRADICTED":
        # The field that differs, and no other.
        assert found.count(status) == 1
        found.remove(status)
        assert set(found) == {"SUPPORTED"}
    else:
        assert set(found) == {status}


def test_rows_beside_rows() -> None:
    head = "| Plan | Price |\n|---|---|\n"
    assert statuses(f"{head}| Team | $29 |", [PLANS])[-1] == "SUPPORTED"
    assert statuses(f"{head}| Team | $39 |", [PLANS])[-1] == "CONTRADICTED"
    assert statuses(f"{head}| Gold | $39 |", [PLANS])[-1] == "NOT_CHECKED"
    assert statuses(f"{head}| Total | $39 |", [PLANS + "\n| Total | $38 |"])[-1] == "NOT_CHECKED"
    # A result in JSON beside it changes nothing.
    assert statuses(f"{head}| Team | $39 |", [PLANS, json.dumps(ORDER)])[-1] == "CONTRADICTED"
