"""A text in the place of a policy, and other slips, are named with what to give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations import examine
from crp_integrations.errors import RequestError
from crp_integrations.policy.inheritance import apply_mode, tighten
from crp_integrations.policy.policy_text import parse_policy, policy_hash, render_policy
from crp_integrations.policy.verdict import judge_answer

POLICY = parse_policy("halt-on HIGH")
REPORT = examine("The fee is 40 EUR a month.", ["The fee is 40 EUR a month."])


@pytest.mark.parametrize("odd", [None, 5, b"halt-on HIGH", ["halt-on HIGH"], POLICY], ids=type)
def test_a_policy_is_read_from_a_text(odd: Any) -> None:
    with pytest.raises(RequestError, match=rf"read from a text, .*; got {type(odd).__name__}"):
        parse_policy(odd)


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (lambda one: judge_answer(one, REPORT), "policy"),
        (render_policy, "policy"),
        (policy_hash, "policy"),
        (lambda one: tighten(one, POLICY), "parent"),
        (lambda one: tighten(POLICY, one), "child"),
        (lambda one: apply_mode(one, None), "policy"),
    ],
)
@pytest.mark.parametrize(
    ("odd", "seen"),
    [("halt-on LOW", "of type str"), (5, "of type int"), (REPORT, "of type Report")],
)
def test_a_policy_is_given_as_one(
    verb: Callable[[Any], object], name: str, odd: Any, seen: str
) -> None:
    with pytest.raises(RequestError) as caught:
        verb(odd)
    assert str(caught.value) == f"{name} is {seen}; give a Policy, such as parse('halt-on HIGH')"


def test_a_report_and_a_mode_are_given_as_such() -> None:
    odd: Any
    for odd in (None, "The fee is 40 EUR a month."):
        with pytest.raises(RequestError, match=r"report is of type (NoneType|str); give a Report"):
            judge_answer(POLICY, odd)
    for odd in ("bogus", "STRICT"):
        with pytest.raises(RequestError, match="wanted one of strict, warn, permissive"):
            apply_mode(POLICY, odd)
    assert tighten(POLICY, None) is POLICY
