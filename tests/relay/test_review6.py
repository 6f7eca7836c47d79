"""Sessions that are asked several things at once, cancellations, and answers that are known."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from crp_integrations import Relay, asked_by
from crp_integrations.errors import HeaderSyntaxError, PolicySyntaxError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Action, Decision
from crp_integrations.guard.subjects import Subject
from crp_integrations.headers import names
from crp_integrations.headers.bodies import HaltBody
from crp_integrations.messages import Reply
from crp_integrations.policy.parse import parse
from crp_integrations.policy.records import Policy, ViolationReport
from crp_integrations.policy.render import policy_hash
from crp_integrations.relay import close as closing
from crp_integrations.relay import outcomes
from crp_integrations.relay.steps import Halt, NotModified, Refusal, Release
from crp_integrations.relay.turn import Turn
from crp_integrations.session.agents import Upward
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import EventType, HaltReason, RiskLevel
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS
from tests.relay.scripted import (
    HIGH,
    LOW,
    QUESTION,
    SESSION,
    Opener,
    answered,
    continued,
    events,
    opened,
    outcome,
)

SECRET = "The price of the Falcon contract of Northfield Energy is 77 million euros."
PRICE = "What is the price of the Falcon contract of Northfield Energy?"


def reply(text: str) -> Reply:
    """A model's reply."""
    return Reply(text=text, model="gpt-4o")


# --- an answer that is known, and what is demanded of it ------------------------------------


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


# --- two windows of a session at once -----------------------------------------------------


def test_a_window_that_began_before_a_stricter_policy_does_not_relax_it(
    open_relay: Opener,
) -> None:
    relay, _ = opened(open_relay, LOW)
    lax = relay.turn(QUESTION, session_id=SESSION, policy="halt-on CRITICAL; block-pii")
    strict = relay.turn(QUESTION, session_id=SESSION, policy="halt-on HIGH; require-flow 0.10")
    lax.begin()
    strict.begin()
    assert isinstance(strict.receive(reply(LOW)), Release)
    assert isinstance(lax.receive(reply(LOW)), Release)
    with relay.fabric.begin(write=False) as transaction:
        session = transaction.sessions.session(SESSION)
    assert session is not None
    wanted = parse("halt-on HIGH; require-flow 0.10; block-pii")
    assert parse(session.policy) == wanted


def test_windows_that_are_kept_in_memory_are_each_charged(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, _ = opened(open_relay, HIGH)
    turns = [relay.turn(QUESTION, session_id=SESSION, cache="no-store") for _ in range(2)]
    for turn in turns:
        turn.begin()
    first_is_out, second_is_in = threading.Event(), threading.Event()
    ends = closing.quarantine

    def held_up(*given: Any) -> None:
        # The first window has committed, and is overtaken before it is held in memory.
        if not first_is_out.is_set():
            first_is_out.set()
            second_is_in.wait(1.0)
        ends(*given)

    monkeypatch.setattr(closing, "quarantine", held_up)
    first = threading.Thread(target=turns[0].receive, args=[reply(HIGH)])
    first.start()
    assert first_is_out.wait(10.0)
    second = threading.Thread(target=turns[1].receive, args=[reply(HIGH)])
    second.start()
    second.join(2.0)
    second_is_in.set()
    first.join()
    second.join()
    session = relay._world.remembered.of(SESSION).session
    assert session is not None
    assert session.safety_budget == 0.7


# --- a cancellation at any moment ------------------------------------------------------------


@pytest.mark.parametrize("method", ["begin", "receive"])
def test_a_turn_that_is_cancelled_between_its_calls_is_sealed(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    relay, model = opened(open_relay, LOW)
    reached, cancelled = threading.Event(), threading.Event()
    plain = getattr(Turn, method)

    def slow(self: Turn, *given: Any) -> Any:
        reached.set()
        assert cancelled.wait(10.0)
        return plain(self, *given)

    monkeypatch.setattr(Turn, method, slow)

    async def play() -> None:
        asking = asyncio.ensure_future(
            relay.aask(QUESTION, session_id=SESSION, strategy="reflexive")
        )
        await asyncio.to_thread(reached.wait, 10.0)
        asking.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(play())
    with relay.fabric.begin(write=False) as transaction:
        seals = list(transaction.journal.seals(SESSION))
    assert [seal.outcome for seal in seals] == ["cancelled"]
    assert len(model.calls) == (0 if method == "begin" else 1)


# --- agents -----------------------------------------------------------------------------


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
    body = outcomes.body(Refusal(halted.value, {}))
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


# --- who hears of what --------------------------------------------------------------------


class Labelled:
    """Lets nobody but one user read what is secret."""

    name = "labelled"

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        allowed = action != "read" or "secret" not in labels or subject.name == "alice"
        return Decision(allowed=allowed, guard=self.name, reason="what is secret is alice's")


def two_users(open_relay: Opener, *said: str) -> tuple[Relay, Relay, ScriptedModel]:
    """Relays of two users over one store, of whom one may read what is secret."""
    store, model = MemoryStore(), ScriptedModel(*said)
    alice, bob = (
        open_relay(store, models=model, guard=Labelled(), subject=Subject(tenant="t", name=name))
        for name in ("alice", "bob")
    )
    alice.fabric.add([Fact(content=SECRET, labels=("secret",))])
    alice.fabric.add(list(FACTS))
    return alice, bob, model


def test_a_continuation_hears_nothing_of_facts_that_its_user_may_not_read(
    open_relay: Opener,
) -> None:
    alice, bob, model = two_users(open_relay, SECRET)
    first = answered(alice, PRICE)
    second = continued(alice, first, PRICE)
    assert SECRET in "".join(message.content for message in model.calls[-1].messages)
    for before in (first, second):
        continued(bob, before, PRICE)
        assert "77" not in "".join(message.content for message in model.calls[-1].messages)


def test_a_report_is_read_by_who_may_read_what_it_is_about(open_relay: Opener) -> None:
    alice, bob, _ = two_users(open_relay, SECRET, SECRET, LOW)
    first = answered(alice, PRICE)
    second = continued(alice, first, PRICE)
    assert alice.report(first.window_id) is not None
    assert alice.report(second.window_id) is not None
    assert bob.report(first.window_id) is None
    assert bob.report(second.window_id) is None
    plain = answered(bob, session_id="crp_sess_" + "b" * 16)
    assert bob.report(plain.window_id) is not None
    assert alice.report(plain.window_id) is not None


def test_a_use_that_is_forbidden_is_not_shown_live(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, system={"domain": "biometric-identification"})
    shown: list[object] = []
    with pytest.raises(SafetyHalt):
        shown.extend(relay.stream(QUESTION, live=True))
    assert shown == []


def test_that_a_person_approved_an_answer_is_journalled(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    withheld = outcome(relay, oversight="human-review")
    assert isinstance(withheld, Halt)
    token = f"approved:{withheld.answer.report.response_content_hash}"
    shown = answered(relay, oversight="human-review", oversight_token=token)
    told = events(relay, EventType.OVERSIGHT_TRIGGERED)
    assert [event.data["approved"] for event in told] == [False, True]
    assert told[-1].window_id == shown.window_id
    relay.verify()


class Broken:
    """Takes violations and fails with each."""

    def take(self, report: ViolationReport, policy: Policy) -> None:
        raise OSError("no room")


@pytest.mark.parametrize("broken", [True, False])
def test_reporting_a_violation_costs_no_answer_and_seals_nothing_twice(
    open_relay: Opener, broken: bool
) -> None:
    taken = Violations()
    relay, _ = opened(open_relay, HIGH, violations=Broken() if broken else taken)
    full = " ".join(f"https://reports.example/{number}" for number in range(4))
    ended = outcome(
        relay,
        policy=f"require-quality S A B; report-uri {full}",
        report_uri="https://reports.example/own",
    )
    assert isinstance(ended, Refusal)
    assert ended.status == 503
    with relay.fabric.begin(write=False) as transaction:
        assert len(list(transaction.journal.seals(SESSION))) == 1
    addresses = {uri for policy in taken.policies for uri in policy.report_uri}
    assert len(addresses) == (0 if broken else 5)


class Violations:
    """Keeps the policies that violations were reported under."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []

    def take(self, report: ViolationReport, policy: Policy) -> None:
        self.policies.append(policy)


def test_a_sealed_window_whose_headers_cannot_be_made_is_not_sealed_again(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, _ = opened(open_relay, HIGH)

    def unsayable(*given: Any) -> dict[str, str]:
        raise HeaderSyntaxError("no header can say this")

    monkeypatch.setattr(Turn, "_headers", unsayable)
    with pytest.raises(HeaderSyntaxError):
        relay.ask(QUESTION, session_id=SESSION)
    with relay.fabric.begin(write=False) as transaction:
        assert [seal.outcome for seal in transaction.journal.seals(SESSION)] == ["released"]
    relay.verify()


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


def test_policies_side_by_side_may_name_many_addresses(open_relay: Opener) -> None:
    hosts = [f"https://{name}.example.com/r" for name in "abcde"]
    mine = f"report-uri {' '.join(hosts[:3])}; warn-on HIGH"
    theirs = f"report-uri {' '.join(hosts[2:])}; halt-on CRITICAL"
    relay, _ = opened(open_relay, LOW, policy=mine)
    answer = answered(relay, inherited_policy=theirs)
    assert "halt-on CRITICAL" in answer.headers["CRP-Safety-Policy-Applied"]


def test_an_address_with_a_password_is_in_no_message(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    with pytest.raises(PolicySyntaxError) as refused:
        relay.ask(QUESTION, policy="report-uri ftp://user:hunter2@example.com/r")
    assert "hunter2" not in str(refused.value)
