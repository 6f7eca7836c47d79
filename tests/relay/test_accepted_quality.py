"""Demands on quality: which tiers are accepted, the upgrade, and the refusal with its body."""

from __future__ import annotations

import json

import pytest

from crp_integrations import Relay
from crp_integrations.errors import QualityUnreachable
from crp_integrations.headers import names
from crp_integrations.policy.verdict import accepts_tier
from crp_integrations.relay import steps
from crp_integrations.relay.steps import Halt, Refusal
from crp_integrations.vocabulary import EventType, HaltReason, Purpose, QualityTier, RiskLevel
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.scripted_relays import (
    SESSION,
    SOUND,
    answered,
    answers_asked,
    outcome,
    refusal,
    session_events,
)

UNITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FACTS = tuple(
    f"Meridian reactor unit {name} does deliver {100 + 7 * n} megawatts each day."
    for n, name in enumerate(UNITS)
)
QUESTION = "What does each Meridian reactor unit deliver?"
COVERED = f"Each Meridian reactor unit does deliver some megawatts. {FACTS[0]}"
# It answers nothing, so that its quality caps the tier.
SILENT = "There is more to be said."
REFLEXIVE = "upgrade-on-risk reflexive"


def ready(open_relay: Opener, *script: object) -> tuple[Relay, ScriptedModel]:
    model = ScriptedModel(*script)
    relay = open_relay(models=model, dispatch={"continue_incomplete": False})
    relay.fabric.add(list(FACTS))
    return relay, model


def budget_of(relay: Relay, tier: QualityTier) -> int:
    """A budget whose envelope has a tier."""
    for budget in range(60, 330, 2):
        if relay.preview(QUESTION, budget_tokens=budget).quality_tier is tier:
            return budget
    raise AssertionError(f"no budget has tier {tier}")


@pytest.mark.requirement("003-8.4-1", "003-8.4-5")
@pytest.mark.parametrize(
    ("listed", "passing"),
    [("SA", "SA"), ("A", "SA"), ("SB", "SAB"), ("B", "SAB"), ("D", "SABCD"), ("", "SABCD")],
)
def test_a_tier_is_accepted_when_no_worse_than_the_worst_listed(listed: str, passing: str) -> None:
    wanted = [QualityTier(one) for one in listed]
    assert [tier for tier in QualityTier if accepts_tier(tier, wanted)] == [
        QualityTier(one) for one in passing
    ]


@pytest.mark.requirement("003-8.4-1", "003-8.4-5")
def test_a_computed_tier_of_a_passes_s_and_a(open_relay: Opener) -> None:
    relay, model = ready(open_relay, COVERED)
    budget = budget_of(relay, QualityTier.A)
    answer = answered(relay, QUESTION, budget_tokens=budget, accept_quality=["S", "A"])
    assert answer.envelope.quality_tier is QualityTier.A
    assert answered(relay, QUESTION, budget_tokens=budget, accept_quality=["B"]).text == COVERED
    assert len(model.calls) == 2


@pytest.mark.requirement("003-8.4-3", "003-8.4-4", "003-8.4-5")
def test_a_computed_tier_of_b_is_refused_with_the_gap(open_relay: Opener) -> None:
    relay, model = ready(open_relay, COVERED)
    budget = budget_of(relay, QualityTier.B)
    ended = outcome(relay, QUESTION, budget_tokens=budget, accept_quality=["S", "A"])
    assert isinstance(ended, Refusal)
    assert ended.status == steps.outcome_status(ended) == 503
    assert ended.headers[names.QUALITY_TIER] == "B"
    assert len(model.calls) == 1
    body = steps.outcome_body(ended)
    assert body is not None
    told = json.loads(body.model_dump_json())
    assert told["error"] == "quality_unreachable"
    assert (told["best_achievable"], told["accepted"]) == ("B", ["S", "A"])
    assert "tier B" in told["message"]
    assert told["session_id"] == SESSION
    # The gap: how far coverage, relevance and saturation went.
    assert told["facts_included"] < told["facts_available"] == len(FACTS)
    for name in ("envelope_score", "coverage_score", "relevance_mean", "saturation"):
        assert 0.0 <= told[name] <= 1.0
    # Nothing is said of the answer, and nothing was charged for it.
    assert COVERED not in body.model_dump_json()
    assert ended.headers[names.SAFETY_BUDGET] == "1.0"
    error = refusal(relay, QUESTION, budget_tokens=budget, accept_quality=["S", "A"])
    assert isinstance(error, QualityUnreachable)
    assert (error.tier, error.wanted) == ("B", ("S", "A"))
    assert relay.verify().windows == 2


@pytest.mark.requirement("003-8.4-2", "003-8.4-5")
def test_an_unmet_demand_is_upgraded_where_the_policy_says_so(open_relay: Opener) -> None:
    """An answer that leaves the question open caps its tier; another one does not."""
    relay, model = ready(open_relay, SILENT, COVERED, SOUND)
    budget = budget_of(relay, QualityTier.A)
    asking = {"budget_tokens": budget, "accept_quality": ["S", "A"]}
    answer = answered(relay, QUESTION, policy=REFLEXIVE, **asking)
    assert answer.text == COVERED
    assert answer.envelope.quality_tier is QualityTier.A
    assert answer.headers[names.STRATEGY] == "reflexive"
    (event,) = session_events(relay, EventType.RE_DISPATCH)
    assert "quality" in event.data["triggers"]
    assert len(answers_asked(model)) == 2
    # Without the directive the same answer is refused at once.
    plain, model = ready(open_relay, SILENT, COVERED)
    ended = outcome(plain, QUESTION, **asking)
    assert isinstance(ended, Refusal)
    assert (ended.status, ended.headers[names.QUALITY_TIER]) == (503, "B")
    assert len(model.calls) == 1


@pytest.mark.requirement("003-8.4-2", "003-8.4-3")
def test_a_quality_still_unmet_after_the_upgrades_is_refused(open_relay: Opener) -> None:
    relay, model = ready(
        open_relay, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else SILENT
    )
    budget = budget_of(relay, QualityTier.A)
    ended = outcome(relay, QUESTION, policy=REFLEXIVE, budget_tokens=budget, accept_quality=["A"])
    assert isinstance(ended, Refusal)
    assert ended.headers[names.QUALITY_TIER] == "B"
    assert len(answers_asked(model)) == 3
    assert isinstance(ended.error, QualityUnreachable)


@pytest.mark.requirement("003-8.4-2")
def test_the_policys_own_tiers_are_demanded_alike(open_relay: Opener) -> None:
    relay, _ = ready(open_relay, SILENT, COVERED, SOUND)
    budget = budget_of(relay, QualityTier.A)
    answer = answered(
        relay, QUESTION, policy=f"require-quality S A; {REFLEXIVE}", budget_tokens=budget
    )
    assert answer.text == COVERED
    plain, _ = ready(open_relay, SILENT)
    ended = outcome(plain, QUESTION, policy="require-quality S A", budget_tokens=budget)
    assert isinstance(ended, Refusal)
    assert ended.status == 503


def test_a_highest_risk_is_accepted_and_no_higher(open_relay: Opener) -> None:
    risky = f"{COVERED} Hans Gruber built it in 1998 for $88 billion."
    relay, _ = ready(open_relay, risky)
    ended = outcome(relay, QUESTION, accept_risk="LOW")
    assert steps.outcome_status(ended) == 451
    assert isinstance(ended, Halt)
    critical = ended.answer.report.risk_level is RiskLevel.CRITICAL
    assert ended.reason is (HaltReason.CRITICAL_RISK if critical else HaltReason.POLICY)
    assert answered(relay, QUESTION, accept_risk="CRITICAL").text == risky


def test_a_risk_above_the_accepted_one_is_asked_again_where_it_may_be(open_relay: Opener) -> None:
    relay, model = ready(open_relay, f"{SILENT} Hans Gruber knows.", COVERED, SOUND)
    asking = {"accept_risk": "LOW", "policy": f"warn-on CRITICAL; {REFLEXIVE}"}
    assert answered(relay, QUESTION, **asking).text == COVERED
    assert len(answers_asked(model)) == 2
    assert "risk" in session_events(relay, EventType.RE_DISPATCH)[0].data["triggers"]
