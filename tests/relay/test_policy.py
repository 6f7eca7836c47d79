"""Policies and safety budgets: what they withhold, what they cost, and who decides."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.records import Report
from crp_integrations.errors import (
    AccessDenied,
    ConfigError,
    PolicyRelaxed,
    PolicySyntaxError,
    QualityUnreachable,
    SafetyHalt,
)
from crp_integrations.headers import names
from crp_integrations.headers.refusal_bodies import HaltBody
from crp_integrations.messages import Reply, ToolCall
from crp_integrations.policy.records import Policy, ViolationReport
from crp_integrations.relay import steps
from crp_integrations.relay.steps import Halt, Refusal, outcome_body
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import EventType, HaltReason, Oversight, Purpose, RiskLevel
from tests.relay.conftest import FACTS, KEY, Opener
from tests.relay.judges import MEASURED
from tests.relay.scripted_relays import (
    CRITICAL,
    HIGH,
    LOW,
    QUESTION,
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

PERSONAL = f"{LOW} Ask Hans Gruber at hans.gruber@example.org for more."
SILENT = "Tulips and roses grow in unrelated gardens in the valley."
TO = "report-uri https://reports.example.org/crp"


class Collected:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.reports: list[tuple[ViolationReport, Policy]] = []

    def take(self, report: ViolationReport, policy: Policy) -> None:
        self.reports.append((report, policy))

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self, timeout_s: float) -> None:
        raise AssertionError("a caller's own sink is the caller's to close")


# --- each directive ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directive", "bad", "reason"),
    [
        ("halt-on CRITICAL", CRITICAL, HaltReason.CRITICAL_RISK),
        ("halt-on HIGH", HIGH, HaltReason.POLICY),
        ("halt-on HIGH", CRITICAL, HaltReason.CRITICAL_RISK),
        ("require-grounding 0.90", CRITICAL, HaltReason.POLICY),
        ("require-entailment 0.99", CRITICAL, HaltReason.POLICY),
        ("block-ungrounded", CRITICAL, HaltReason.POLICY),
        ("block-pii", PERSONAL, HaltReason.POLICY),
        ("block-fabrication", CRITICAL, HaltReason.POLICY),
        ("default-src context", CRITICAL, HaltReason.POLICY),
        ("profile=medical", CRITICAL, HaltReason.CRITICAL_RISK),
    ],
)
def test_what_is_unsafe_is_withheld(
    open_relay: Opener, directive: str, bad: str, reason: HaltReason
) -> None:
    relay, _ = opened(open_relay, bad)
    ended = outcome(relay, policy=directive)
    assert isinstance(ended, Halt)
    assert ended.reason is reason
    assert steps.outcome_status(ended) == 451
    # Nothing of it can be continued, and nothing was charged.
    assert ended.answer.continuation_id == ""
    assert ended.answer.headers[names.SAFETY_BUDGET] == "1.0"
    assert ended.answer.headers[names.RETRY_AFTER] == "oversight-required"
    name = directive.split()[0]
    if "=" not in name:
        assert name in ended.answer.headers[names.VIOLATION].split(", ")
    if reason is HaltReason.CRITICAL_RISK:
        assert (ended.directive.split()[0], ended.value) == ("halt-on", "CRITICAL")
    (halted,) = session_events(relay, EventType.SAFETY_HALT)
    assert halted.data["reason"] == reason.value
    (violated,) = session_events(relay, EventType.POLICY_VIOLATION)
    assert violated.data["report_only"] is False
    # Without the directive the same answer is delivered.
    free, _ = opened(open_relay, bad)
    assert answered(free).text == bad


def test_parametric_claims_are_blocked(open_relay: Opener) -> None:
    """The engine reads a claim without names and figures that no fact supports as the model's."""
    own = "People everywhere like to swim in warm lakes."
    relay, _ = opened(open_relay, own)
    report = answered(relay).report
    assert report.attribution_breakdown["PARAMETRIC"] == 1
    blocked, _ = opened(open_relay, own)
    assert isinstance(outcome(blocked, policy="block-parametric"), Halt)


@pytest.mark.parametrize(
    ("directive", "first", "second"),
    [("require-flow 0.50", LOW, FACTS[4]), ("max-repetition MINOR", LOW, LOW)],
)
def test_what_is_not_useful_is_unreachable(
    open_relay: Opener, directive: str, first: str, second: str
) -> None:
    relay, _ = opened(open_relay, first, second)
    before = answered(relay)
    ended = outcome(relay, policy=directive, continuation_ids=[before.continuation_id])
    assert isinstance(ended, Refusal)
    assert isinstance(ended.error, QualityUnreachable)
    assert ended.status == 503
    assert directive in str(ended.error)


def test_an_incomplete_answer_is_unreachable(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, SILENT)
    error = refusal(relay, policy="require-completeness 0.90")
    assert isinstance(error, QualityUnreachable)


@pytest.mark.requirement("005-7.4-2")
def test_critical_risk_halts_with_451_and_is_posted(open_relay: Opener) -> None:
    sink = Collected()
    trails = {"trail_uri": "https://crp.example.org/trails/{session_id}"}
    relay, _ = opened(open_relay, CRITICAL, violations=sink, headers=trails)
    error = refusal(relay, policy=f"halt-on CRITICAL; {TO}")
    assert isinstance(error, SafetyHalt)
    assert (error.status_hint, error.reason) == (451, HaltReason.CRITICAL_RISK)
    assert error.session_id == SESSION
    assert isinstance(error.report, Report)
    assert error.report.risk_level is RiskLevel.CRITICAL
    ((report, policy),) = sink.reports
    assert policy.report_uri == ("https://reports.example.org/crp",)
    assert report.directive_violated == "halt-on CRITICAL"
    assert (report.session_id, report.window_id) == (SESSION, error.report.window_id)
    assert (report.risk_level, report.fabrication_count) == (
        RiskLevel.CRITICAL,
        error.report.fabrication_count,
    )
    assert report.grounding_pct == round(error.report.grounding_pct, 3)
    assert report.audit_trail_uri == f"https://crp.example.org/trails/{SESSION}"
    # Numbers and ids; nothing of the answer.
    assert "Gruber" not in report.model_dump_json()


@pytest.mark.parametrize("text", ["halt-on", "blok-pii", "require-grounding 1.5"])
def test_a_policy_that_is_none_is_refused_and_the_window_sealed(
    open_relay: Opener, text: str
) -> None:
    relay, model = opened(open_relay, LOW)
    error = refusal(relay, policy=text)
    assert isinstance(error, PolicySyntaxError)
    assert error.status_hint == 400
    assert model.calls == []
    assert relay.verify().windows == 1
    # The session goes on, and its graph hangs together.
    assert answered(relay).window_number == 2


# --- reporting ---------------------------------------------------------------------------


def test_a_policy_that_is_only_reported_withholds_nothing(open_relay: Opener) -> None:
    sink = Collected()
    relay, model = opened(open_relay, CRITICAL, violations=sink)
    answer = answered(relay, report_only=f"halt-on HIGH; block-fabrication; {TO}")
    assert answer.text == CRITICAL
    assert len(model.calls) == 1
    assert names.VIOLATION not in answer.headers
    assert {report.directive_violated for report, _ in sink.reports} == {
        "halt-on HIGH",
        "block-fabrication",
    }
    (event,) = session_events(relay, EventType.POLICY_VIOLATION)
    assert event.data["report_only"] is True
    assert sorted(event.data["directives"]) == ["block-fabrication", "halt-on"]


def test_without_an_address_nothing_is_posted(open_relay: Opener) -> None:
    sink = Collected()
    relay, _ = opened(open_relay, CRITICAL, violations=sink)
    refusal(relay, policy="halt-on CRITICAL")
    assert sink.reports == []


def test_reports_are_posted_over_http_and_hold_nothing_up() -> None:
    """The relay's own deliveries, to a server on this machine that the operator has listed."""
    received: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    from tests.doubles import NOON, HashEmbedder, ScriptedModel

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    uri = f"http://127.0.0.1:{server.server_port}/crp"
    relay = Relay.open(
        embedder=HashEmbedder(),
        key=KEY,
        clock=NOON,
        models=ScriptedModel(CRITICAL),
        dpe=MEASURED,
        reports={"hosts": ["127.0.0.1"], "receivers": {"siem": uri}},
    )
    relay.fabric.add(list(FACTS))
    try:
        with pytest.raises(SafetyHalt):
            relay.ask(QUESTION, policy="halt-on CRITICAL; report-to siem")
        relay.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    (body,) = received
    assert ViolationReport.model_validate_json(body).directive_violated == "halt-on CRITICAL"


# --- inheritance -------------------------------------------------------------------------


def test_within_a_session_a_policy_can_only_be_tightened(open_relay: Opener) -> None:
    sink = Collected()
    relay, model = opened(open_relay, LOW, violations=sink)
    first = answered(relay, policy=f"halt-on HIGH; {TO}")
    asked = len(model.calls)
    # The session's policy holds on, also where a call brings none.
    assert "halt-on HIGH" in answered(relay).headers[names.POLICY_APPLIED]
    error = refusal(relay, policy=f"halt-on CRITICAL; {TO}")
    assert isinstance(error, PolicyRelaxed)
    assert (error.status_hint, error.directive) == (403, "halt-on")
    assert (error.parent, error.child) == ("HIGH", "CRITICAL")
    assert len(model.calls) == asked + 1
    (report, _) = sink.reports[-1]
    assert (report.violation_type.value, report.session_id) == ("inheritance", SESSION)
    (event,) = session_events(relay, EventType.POLICY_VIOLATION)
    assert event.data["directives"] == ["halt-on"]
    tighter = answered(relay, policy=f"halt-on MEDIUM; block-pii; {TO}")
    assert "halt-on MEDIUM" in tighter.headers[names.POLICY_APPLIED]
    # What was tightened stays so, and what was refused changed nothing.
    assert isinstance(refusal(relay, policy=f"halt-on HIGH; block-pii; {TO}"), PolicyRelaxed)
    again = continued(relay, first)
    assert "halt-on MEDIUM" in again.headers[names.POLICY_APPLIED]


def test_the_first_policy_of_a_session_may_say_anything(open_relay: Opener) -> None:
    """A default that nobody stated is no parent that could be relaxed."""
    wide = "default-src context parametric ckf cross-session"
    relay, _ = opened(open_relay, LOW)
    assert answered(relay, policy=wide).headers[names.POLICY_APPLIED] == wide
    later, _ = opened(open_relay, LOW)
    answered(later)
    assert answered(later, policy=wide).headers[names.POLICY_APPLIED] == wide


def test_nobody_relaxes_the_operators_policy(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, HIGH, policy="halt-on HIGH")
    assert isinstance(outcome(relay), Halt)
    assert isinstance(refusal(relay, policy="warn-on HIGH"), PolicyRelaxed)
    assert isinstance(refusal(relay, policy="halt-on CRITICAL"), PolicyRelaxed)
    tighter = outcome(relay, policy="halt-on MEDIUM")
    assert isinstance(tighter, Halt)


def test_a_session_follows_its_operators_policy_of_today(open_relay: Opener) -> None:
    from crp_integrations.stores.memory import MemoryStore

    store = MemoryStore()
    before, _ = opened(open_relay, LOW, store=store)
    answered(before, policy="halt-on CRITICAL")
    after, _ = opened(open_relay, HIGH, store=store, policy="halt-on HIGH")
    assert isinstance(outcome(after), Halt)


# --- oversight ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asking",
    [{"oversight": "halt"}, {"policy": "oversight halt"}, {"report_only": "oversight halt"}],
    ids=str,
)
def test_an_oversight_of_halt_asks_no_model(open_relay: Opener, asking: dict[str, str]) -> None:
    relay, model = opened(open_relay, LOW)
    ended = outcome(relay, **asking)
    assert isinstance(ended, Refusal)
    assert (ended.status, model.calls) == (451, [])
    assert ended.headers[names.RETRY_AFTER] == "oversight-required"
    assert ended.headers[names.SAFETY_BUDGET] == "1.0"
    error = refusal(relay, **asking)
    assert ended.headers[names.TRAIL_ID] == error.trail
    assert isinstance(error, SafetyHalt)
    assert (error.reason, error.session_id) == (HaltReason.OVERSIGHT, SESSION)
    assert [event.data["reason"] for event in session_events(relay, EventType.SAFETY_HALT)] == [
        HaltReason.OVERSIGHT.value
    ] * 2
    assert relay.verify().windows == 2


def test_a_callers_mode_never_relaxes_the_policys(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    assert steps.outcome_status(outcome(relay, policy="oversight halt", oversight="auto")) == 451
    assert model.calls == []


def test_without_a_reviewer_an_answer_to_be_reviewed_is_withheld(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    ended = outcome(relay, oversight="human-review")
    assert isinstance(ended, Halt)
    assert ended.reason is HaltReason.OVERSIGHT
    assert ended.answer.headers[names.OVERSIGHT_MODE] == "human-review"
    assert len(model.calls) == 1
    (event,) = session_events(relay, EventType.OVERSIGHT_TRIGGERED)
    assert event.data["mode"] == Oversight.HUMAN_REVIEW.value
    assert event.data["approved"] is False


def test_an_async_reviewer_is_refused_at_once() -> None:
    async def reviewer(report: Report, text: str) -> bool:
        return True

    with pytest.raises(ConfigError, match="async function"):
        Relay.open(reviewer=reviewer)  # type: ignore[arg-type]


def test_a_reviewer_sees_report_and_text_and_decides(open_relay: Opener) -> None:
    seen: list[tuple[Report, str]] = []

    def reviewer(report: Report, text: str) -> bool:
        seen.append((report, text))
        return len(seen) > 1

    relay, _ = opened(open_relay, LOW, reviewer=reviewer)
    assert isinstance(outcome(relay, oversight="human-review"), Halt)
    assert answered(relay, oversight="human-review").text == LOW
    assert [text for _, text in seen] == [LOW, LOW]
    assert seen[0][0].risk_level is RiskLevel.LOW
    answered(relay)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("word", "approves"),
    [(True, True), (1, True), (False, False), (0, False), (None, False), ("no", False)],
)
def test_whatever_a_reviewer_gives_is_a_decision(
    open_relay: Opener, word: object, approves: bool
) -> None:
    relay, _ = opened(open_relay, LOW, reviewer=lambda report, text: word)
    if approves:
        answered(relay, oversight="human-review")
    else:
        assert isinstance(refusal(relay, oversight="human-review"), SafetyHalt)


@pytest.mark.parametrize(
    ("asking", "directive", "value"),
    [
        ({"accept_risk": "LOW"}, "accept-risk LOW", "CRITICAL"),
        ({"accept_quality": ["S"]}, "accept-quality S", "D"),
        ({"policy": "require-quality S A"}, "require-quality S A", "D"),
        ({"policy": "profile=medical"}, "halt-on HIGH", "CRITICAL"),
        ({"oversight": "human-review"}, "require-oversight human-review", "no approval"),
        ({"oversight": "halt"}, "require-oversight halt", "no approval"),
        ({"safety_budget": 0.2}, "sessions.budget.review 0.25", "no approval"),
        ({"safety_budget": 0.1}, "sessions.budget.enforce", "a safety budget of 0.1"),
    ],
)
def test_every_halt_names_the_demand_and_the_value_found(
    open_relay: Opener, asking: dict[str, Any], directive: str, value: str
) -> None:
    relay, _ = opened(open_relay, lambda call: CRITICAL)
    error: Any = refusal(relay, **asking)
    assert (error.directive, error.value) == (directive, value)
    ended = outcome(relay, **{**asking, "session_id": "crp_sess_" + "b" * 16})
    body: Any = outcome_body(ended)
    assert (body.directive, body.value) == (directive, value)
    headers = ended.headers if isinstance(ended, Refusal) else ended.answer.headers
    assert directive.split()[0] in headers[names.VIOLATION].split(", ")


@pytest.mark.parametrize(
    ("answer", "blocks"),
    [
        ("Jo Smith (jo.smith@example.org) gets 412 megawatts.", False),
        ("The number is (202) 555-0142.", False),
        ("Write to smith@example.org about the 412 megawatts.", True),
        ("Write to jo.smith@example.org or hans.gruber@example.org.", True),
    ],
)
def test_block_pii_leaves_the_questions_own_data_alone(
    open_relay: Opener, answer: str, blocks: bool
) -> None:
    relay, _ = opened(open_relay, lambda call: answer)
    question = f"I am Jo Smith, jo.smith@example.org, +1 202 555 0142. {QUESTION}"
    ended = outcome(relay, question, policy="block-pii")
    assert isinstance(ended, Halt) == blocks
    if blocks:
        assert isinstance(ended, Halt)
        assert (ended.directive, ended.value) == ("block-pii", "1 direct")


def test_a_reply_that_asks_for_tools_is_passed_on_without_review(open_relay: Opener) -> None:
    """It answers nothing yet; the answer that follows is reviewed."""
    call = ToolCall(id="1", name="weather", arguments="{}")
    relay, _ = opened(open_relay, Reply(text="", tool_calls=(call,)), LOW)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    passed = answered(relay, oversight="human-review", tools=tools)
    assert passed.reply.tool_calls == (call,)
    assert isinstance(outcome(relay, oversight="human-review", tools=tools), Halt)


def test_a_token_approves_exactly_the_answer_that_was_seen(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, LOW, HIGH)
    withheld = outcome(relay, oversight="human-review")
    assert isinstance(withheld, Halt)
    token = f"approved:{withheld.answer.report.response_content_hash}"
    assert token == f"approved:{sha256(LOW)}"
    approved = answered(relay, oversight="human-review", oversight_token=token)
    assert approved.text == LOW
    # The same token approves no other answer.
    ended = outcome(relay, oversight="human-review", oversight_token=token)
    assert isinstance(ended, Halt)
    assert ended.answer.text == HIGH


def test_an_approval_does_not_undo_a_halt(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, CRITICAL, reviewer=lambda report, text: True)
    asking = {"policy": "halt-on CRITICAL; oversight human-review"}
    token = f"approved:{sha256(CRITICAL)}"
    ended = outcome(relay, oversight_token=token, **asking)
    assert isinstance(ended, Halt)
    assert ended.reason is HaltReason.CRITICAL_RISK


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
