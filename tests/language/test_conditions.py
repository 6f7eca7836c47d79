"""Conditions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.negation import find_conditions


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


@given(st.text(max_size=120))
def test_conditions_stand_in_their_text(text):
    for span in find_conditions(text):
        assert 0 <= span.start < span.end <= len(text)
