"""The safety budget of a session: what an answer costs, and what little of it brings about."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from crp_integrations.errors import AccessDenied, SafetyHalt
from crp_integrations.headers import names
from crp_integrations.headers.refusal_bodies import HaltBody
from crp_integrations.relay.steps import Halt, Refusal, outcome_body
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import EventType, HaltReason, Purpose, RiskLevel
from tests.relay.conftest import Opener
from tests.relay.scripted_relays import (
    CRITICAL,
    HIGH,
    LOW,
    SESSION,
    SOUND,
    answered,
    continued,
    medium,
    opened,
    outcome,
    refusal,
    session_events,
)


@pytest.mark.requirement("005-7.4-5")
def test_low_risk_passes_clean_and_costs_nothing(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    headers = answered(relay, policy="warn-on MEDIUM; halt-on CRITICAL").headers
    assert headers[names.RISK] == "LOW"
    assert headers[names.SAFETY_BUDGET] == "1.0"
    assert names.BUDGET_WARNING not in headers
    assert names.VIOLATION not in headers
    assert not session_events(relay, EventType.POLICY_VIOLATION, EventType.SAFETY_HALT)


@pytest.mark.requirement("005-7.4-4")
def test_medium_risk_passes_with_its_headers_and_costs_five_hundredths(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, medium(open_relay))
    headers = answered(relay, policy="warn-on MEDIUM; halt-on CRITICAL").headers
    assert headers[names.RISK] == "MEDIUM"
    assert 0.20 <= float(headers[names.RISK_SCORE]) < 0.45
    assert headers[names.SAFETY_BUDGET] == "0.95"


@pytest.mark.requirement("005-7.4-3")
def test_high_risk_is_upgraded_and_costs_fifteen_hundredths(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else HIGH)
    answer = answered(relay, policy="upgrade-on-risk reflexive")
    assert answer.headers[names.STRATEGY] == "reflexive"
    assert answer.headers[names.SAFETY_BUDGET] == "0.85"
    assert {event.data["to"] for event in session_events(relay, EventType.STRATEGY_UPGRADE)} == {
        "reflexive"
    }
    free, _ = opened(open_relay, HIGH)
    assert answered(free).headers[names.SAFETY_BUDGET] == "0.85"


def test_a_withheld_answer_costs_nothing(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, CRITICAL, LOW)
    assert isinstance(outcome(relay, policy="halt-on CRITICAL"), Halt)
    assert answered(relay).headers[names.SAFETY_BUDGET] == "1.0"


def test_a_failed_call_costs_nothing(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, RuntimeError("gone"), LOW)
    with pytest.raises(RuntimeError):
        relay.ask("Who?", session_id=SESSION)
    assert answered(relay).headers[names.SAFETY_BUDGET] == "1.0"


def test_half_open_the_circuit_asks_for_a_reflexive_answer(open_relay: Opener) -> None:
    relay, model = opened(
        open_relay,
        CRITICAL,
        CRITICAL,
        LOW,
        SOUND,
        LOW,
        dispatch={"continue_incomplete": False, "redispatch_on_contradiction": False},
    )
    assert answered(relay).headers[names.SAFETY_BUDGET] == "0.65"
    second = answered(relay)
    assert second.headers[names.SAFETY_BUDGET] == "0.3"
    assert second.headers[names.BUDGET_WARNING] == "caution"
    assert len(model.calls) == 2
    third = answered(relay)
    assert third.headers[names.STRATEGY] == "reflexive"
    assert third.headers[names.REVISION_ROUND] == "1/2"
    assert [call.purpose for call in model.calls[2:]] == [Purpose.ANSWER, Purpose.CRITIQUE]
    (upgrade,) = session_events(relay, EventType.STRATEGY_UPGRADE)
    assert (upgrade.data["before"], upgrade.data["to"]) == ("push", "reflexive")
    assert upgrade.data["why"] == "circuit"
    # What the caller chose besides a single call stays.
    assert answered(relay, strategy="pull").headers[names.STRATEGY] == "pull"


def test_below_a_quarter_a_person_must_review(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, SOUND)
    ended = outcome(relay, safety_budget=0.2499)
    assert isinstance(ended, Halt)
    assert ended.reason is HaltReason.OVERSIGHT
    assert ended.answer.headers[names.BUDGET_WARNING] == "low"
    assert ended.answer.headers[names.RETRY_AFTER] == "oversight-required"
    at_the_bound, _ = opened(open_relay, LOW, SOUND)
    assert answered(at_the_bound, safety_budget=0.25).headers[names.BUDGET_WARNING] == "caution"
    seen: list[str] = []

    def reviewer(_: object, text: str) -> bool:
        seen.append(text)
        return True

    reviewed, _ = opened(open_relay, LOW, SOUND, reviewer=reviewer)
    assert answered(reviewed, safety_budget=0.2).text == LOW
    assert seen == [LOW]


@pytest.mark.parametrize("left", [0.10, 0.05])
def test_at_a_tenth_no_model_is_asked(open_relay: Opener, left: float) -> None:
    relay, model = opened(open_relay, LOW, headers={"trail_uri": "/trails/{session_id}"})
    ended = outcome(relay, safety_budget=left)
    assert isinstance(ended, Refusal)
    assert (ended.status, model.calls) == (451, [])
    assert ended.headers[names.RETRY_AFTER] == "new-session-required"
    # There is no envelope, and still its trail and budget are told.
    assert ended.envelope is None
    assert ended.headers[names.TRAIL_ID].startswith("crp_trail_")
    assert ended.headers[names.TRAIL_URI] == f"/trails/{SESSION}"
    assert float(ended.headers[names.SAFETY_BUDGET]) == left
    told = outcome_body(ended)
    assert isinstance(told, HaltBody)
    assert told.audit_trail_uri == f"/trails/{SESSION}"
    error = refusal(relay)
    assert isinstance(error, SafetyHalt)
    assert error.reason is HaltReason.BUDGET_DEPLETED
    assert (error.session_id, error.report) == (SESSION, None)
    assert {event.data["reason"] for event in session_events(relay, EventType.SAFETY_HALT)} == {
        HaltReason.BUDGET_DEPLETED.value
    }
    assert relay.verify().windows == 2
    # Another session goes on.
    assert answered(relay, session_id="crp_sess_" + "b" * 16).text == LOW


def test_a_budget_that_runs_out_ends_the_session(open_relay: Opener) -> None:
    def reviewer(*_: object) -> bool:
        return True

    relay, model = opened(
        open_relay,
        lambda call: SOUND if call.purpose is Purpose.CRITIQUE else CRITICAL,
        reviewer=reviewer,
    )
    left = [answered(relay).headers[names.SAFETY_BUDGET] for _ in range(3)]
    assert left == ["0.65", "0.3", "0.0"]
    (depleted,) = session_events(relay, EventType.SAFETY_BUDGET_DEPLETED)
    assert depleted.data["budget"] == "0.0000"
    asked = len(model.calls)
    for _ in range(2):
        error = refusal(relay)
        assert isinstance(error, AccessDenied)
        assert "has ended" in str(error)
    assert len(model.calls) == asked
    # What was refused is sealed all the same, and the session stays as it ended.
    assert relay.verify().windows == 5
    with relay.fabric.begin(write=False) as transaction:
        kept = transaction.sessions.session(SESSION)
    assert kept is not None
    assert (kept.ended, kept.safety_budget) == (True, 0.0)


def test_the_last_answer_of_a_session_brings_no_token(open_relay: Opener) -> None:
    relay, _ = opened(
        open_relay,
        lambda call: SOUND if call.purpose is Purpose.CRITIQUE else CRITICAL,
        reviewer=lambda report, text: True,
    )
    first = answered(relay, safety_budget=0.3)
    assert first.headers[names.SAFETY_BUDGET] == "0.0"
    assert names.SET_SESSION not in first.headers


def test_a_request_lowers_the_budget_and_never_raises_it(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    assert answered(relay, safety_budget=0.8).headers[names.SAFETY_BUDGET] == "0.8"
    assert answered(relay, safety_budget=1.0).headers[names.SAFETY_BUDGET] == "0.8"
    assert answered(relay).headers[names.SAFETY_BUDGET] == "0.8"


def test_the_budget_is_that_of_the_session_and_not_of_a_branch(open_relay: Opener) -> None:
    costly = ["The hall cost $71 billion in 1931.", "The tower cost $83 billion in 1947."]
    relay, _ = opened(open_relay, HIGH, *costly, dispatch={"redispatches": 0})
    first = answered(relay)
    left = 0.85
    for text in costly:
        branch = continued(relay, first)
        assert branch.text == text
        left = round(left - relay.settings.sessions.budget.costs.of(branch.report.risk_level), 4)
        assert branch.headers[names.SAFETY_BUDGET] == str(left)
    assert left < 0.85


def test_windows_that_end_together_are_all_charged(open_relay: Opener) -> None:
    store = MemoryStore()
    relay, _ = opened(open_relay, HIGH, store=store)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: answered(relay), range(4)))
    assert all(one.report.risk_level is RiskLevel.HIGH for one in done)
    with relay.fabric.begin(write=False) as transaction:
        kept = transaction.sessions.session(SESSION)
        nodes = transaction.sessions.windows(SESSION)
    assert kept is not None
    assert kept.safety_budget == 0.4
    assert sorted(node.safety_budget for node in nodes) == [0.4, 0.55, 0.7, 0.85]
