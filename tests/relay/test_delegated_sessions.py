"""Sessions that are delegated to: their budget, their depth, and what the journal says of them."""

from __future__ import annotations

import pytest

from crp_integrations import asked_by
from crp_integrations.errors import SafetyHalt
from crp_integrations.headers import names
from crp_integrations.headers.bodies import HaltBody
from crp_integrations.policy.parse import parse
from crp_integrations.policy.render import policy_hash
from crp_integrations.relay import steps
from crp_integrations.relay.steps import Refusal
from crp_integrations.session.agents import Upward
from crp_integrations.vocabulary import EventType, HaltReason
from tests.relay.scripted import (
    LOW,
    QUESTION,
    SESSION,
    Opener,
    answered,
    events,
    opened,
)


def test_a_delegation_of_a_spent_session_says_that_its_budget_is_spent(
    open_relay: Opener,
) -> None:
    relay, _ = opened(open_relay, LOW)
    answered(relay)
    with relay.fabric.begin(write=True) as transaction:
        session = transaction.sessions.session(SESSION)
        assert session is not None
        transaction.sessions.keep(session.changed(safety_budget=0.1))
    with pytest.raises(SafetyHalt) as halted:
        relay.delegate(SESSION)
    body = steps.outcome_body(Refusal(halted.value, {}))
    assert isinstance(body, HaltBody)
    assert body.crp_halt_reason is HaltReason.BUDGET_DEPLETED
    assert body.session_id == SESSION
    assert body.headers[names.RETRY_AFTER] == "new-session-required"


def test_a_session_that_was_delegated_to_keeps_its_depth(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    answered(relay)
    child = relay.ask(QUESTION, **asked_by(relay.delegate(SESSION)))
    later = relay.ask(QUESTION, session_id=child.session_id)
    assert child.headers[names.LOOP_DEPTH] == later.headers[names.LOOP_DEPTH] == "1"


def test_the_journal_says_under_what_a_session_began(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    answered(relay, policy="halt-on CRITICAL")
    child = relay.ask(QUESTION, **asked_by(relay.delegate(SESSION)))
    parents, began = events(relay, EventType.SESSION_CREATED)
    assert parents.data["policy_hash"] == policy_hash(parse("halt-on CRITICAL"))
    assert "parent_session" not in parents.data
    assert began.session_id == child.session_id
    assert began.data["parent_session"] == SESSION
    assert began.data["loop_depth"] == 1
    assert began.data["policy_hash"] == parents.data["policy_hash"]
    relay.verify()


def test_a_result_that_is_handed_over_twice_costs_once(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    parent = answered(relay, session_id="crp_sess_" + "p" * 16)
    up = Upward(session_id="crp_sess_" + "c" * 16, hmac="sha256:" + "a" * 64, halted=True)
    once = relay.take(parent.session_id, up)
    assert relay.take(parent.session_id, up) == once
    assert relay.take(parent.session_id, up.changed(hmac="sha256:" + "b" * 64)) < once
