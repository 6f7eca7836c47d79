"""An answer that is known is confirmed only where it meets what is demanded by now."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.relay.steps import NotModified
from crp_integrations.vocabulary import RiskLevel
from tests.relay.scripted import (
    HIGH,
    Opener,
    answered,
    opened,
    outcome,
)


@pytest.mark.parametrize(
    "demanded",
    [
        {"policy": "halt-on MEDIUM"},
        {"safety_mode": "strict"},
        {"oversight": "human-review"},
        {"accept_risk": "LOW"},
        {"accept_quality": ["S"]},
    ],
)
def test_an_answer_is_not_confirmed_against_demands_that_it_was_not_held_against(
    open_relay: Opener, demanded: dict[str, Any]
) -> None:
    relay, model = opened(open_relay, HIGH)
    first = answered(relay)
    assert first.report.risk_level is RiskLevel.HIGH
    asked = len(model.calls)
    again = outcome(relay, if_match=first.envelope.etag, **demanded)
    assert not isinstance(again, NotModified)
    assert len(model.calls) > asked


@pytest.mark.parametrize("demanded", [{}, {"accept_risk": "HIGH"}, {"accept_quality": ["D"]}])
def test_an_answer_that_meets_what_is_demanded_is_confirmed(
    open_relay: Opener, demanded: dict[str, Any]
) -> None:
    relay, model = opened(open_relay, HIGH)
    first = answered(relay, policy="warn-on HIGH")
    asked = len(model.calls)
    again = outcome(relay, if_match=first.envelope.etag, **demanded)
    assert isinstance(again, NotModified)
    assert len(model.calls) == asked
