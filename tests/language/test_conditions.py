"""Conditions and what is left out of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.negation import dropped_conditions, find_conditions


def parts(text: str) -> list[str]:
    return [span.of(text) for span in find_conditions(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "It was conditionally approved, pending review by the board.",
            ["conditionally", "pending review by the board"],
        ),
        ("Refunds are given only if the item is unopened.", ["only if the item is unopened"]),
        ("Preliminary results may show benefit.", ["Preliminary", "may"]),
        ("All firms, except banks, must file unless exempt.", ["except banks", "unless exempt"]),
        ("It began in May 2024.", []),
        ("When was it built?", []),
        ("The policy applies.", []),
    ],
)
def test_conditions(text, expected):
    assert parts(text) == expected


@pytest.mark.parametrize(
    ("claim", "source", "missing"),
    [
        (
            "The plan was approved.",
            "The plan was conditionally approved pending review.",
            ["conditionally", "pending review"],
        ),
        (
            "Refunds are available.",
            "Refunds are available only if the item is unopened.",
            ["only if the item is unopened"],
        ),
        (
            "If the item is unopened, refunds are available.",
            "Refunds are available if the item is unopened.",
            [],
        ),
        ("All firms except banks must comply.", "All firms must comply, except for banks.", []),
        ("The drug might help.", "The drug may help.", []),
    ],
)
def test_dropped(claim, source, missing):
    assert [span.of(source) for span in dropped_conditions(claim, source)] == missing


@given(st.text(max_size=120))
def test_nothing_is_dropped_from_a_verbatim_text(text):
    assert dropped_conditions(text, text) == []
    for span in find_conditions(text):
        assert 0 <= span.start < span.end <= len(text)
