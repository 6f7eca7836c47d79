"""Headers of a request become fields of a question, and each of them acts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_type_hints

import pytest

from crp_integrations import Answer, Relay, from_headers
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.errors import (
    AccessDenied,
    CRPError,
    HeaderSyntaxError,
    PolicyRelaxed,
    PolicySyntaxError,
    RequestError,
    SafetyHalt,
    TokenRefused,
    UnknownContinuation,
)
from crp_integrations.headers import codec, names
from crp_integrations.headers.codec import parse_request, parse_response
from crp_integrations.policy.records import Policy
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Request
from crp_integrations.vocabulary import GroundingMode, Strategy
from tests.doubles import ScriptedModel
from tests.relay.conftest import KEY, Opener
from tests.relay.need_questions import (
    COMMISSIONED,
    MODEL,
    NEEDS,
    QUESTION,
    REVENUE,
    WORSE,
    made,
    session,
    windows,
)

ASKED = f"{NEEDS[0]}?"
CRITICAL = WORSE
SESSION = "crp_sess_7f3a9bc2d4e1f083"
# One usable value of every request header.
EVERY = {
    names.SESSION_ID: SESSION,
    names.GROUNDING_MODE: "context-strict",
    names.ACCEPT_STRATEGY: "pull, push",
    names.DISPATCH_STRATEGY: "pull",
    names.SEED: "7",
    names.CACHE: "no-store, max-age=60",
    names.IF_MATCH: "*",
    names.RESIDENCY: "EU",
    names.CONTINUATION_ID: "crp_cont_0123456789abcdef, crp_cont_fedcba9876543210",
    names.ACCEPT_QUALITY: "S, A",
    names.ACCEPT_RISK: "HIGH",
    names.OVERSIGHT_MODE: "human-review",
    names.SAFETY_MODE: "strict",
    names.POLICY: "halt-on HIGH",
    names.POLICY_REPORT_ONLY: "block-pii",
    names.SAFETY_REPORT_URI: "https://reports.example/crp",
    names.NONCE: "base64:AAAA",
    names.SAFETY_BUDGET: "0.75",
    names.LOOP_DEPTH: "2",
    names.SESSION_PARENT: "crp_sess_0123456789abcdef",
    names.PHASE: "PLAN",
    names.SESSION_TOKEN: "abc.def",
    names.OVERSIGHT_TOKEN: "approved:sha256:" + "0" * 64,
}


def asked(relay: Relay, headers: dict[str, str], question: str = ASKED, **asking: Any) -> Answer:
    return relay.ask(question, model=MODEL, **{**from_headers(headers), **asking})


@pytest.fixture
def relay(open_relay: Opener) -> Relay:
    return made(open_relay, ScriptedModel(COMMISSIONED))


def of(open_relay: Opener, *script: Any, **options: Any) -> Relay:
    return made(open_relay, ScriptedModel(*script), **options)


# --- the words ---------------------------------------------------------------------------


def test_every_request_header_becomes_a_field(relay: Relay) -> None:
    assert set(EVERY) == {form.name for form in codec.REQUEST.values()}
    whole = from_headers(EVERY)
    plain = from_headers({})
    assert plain == {}
    for name, value in EVERY.items():
        alone = from_headers({name: value})
        assert alone, f"{name} says nothing"
        assert set(alone) <= set(get_type_hints(QuestionFields))
    # Each is one that a request takes.
    request = Request(query=ASKED, model=MODEL, **whole)
    assert request.strategy is Strategy.PULL
    assert request.grounding is GroundingMode.STRICT
    # A policy from a parent agent is inherited, any other is the question's own.
    assert (request.policy, request.inherited_policy) == ("", "halt-on HIGH")
    assert from_headers({names.POLICY: "halt-on HIGH"}) == {"policy": "halt-on HIGH"}


@pytest.mark.parametrize("given", [EVERY, list(EVERY.items()), parse_request(EVERY)])
def test_headers_come_in_any_shape(given: Any) -> None:
    assert from_headers(given) == from_headers(EVERY)


@pytest.mark.parametrize(
    "bad",
    [
        {"CRP-Safety-Hallucination-Risk": "LOW"},
        {"CRP-Nonsense": "1"},
        {names.SAFETY_BUDGET: "1"},
        {names.LOOP_DEPTH: "-1"},
        {names.CACHE: "no-stroe"},
    ],
)
def test_what_is_no_request_header_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(HeaderSyntaxError) as refused:
        from_headers(bad)
    assert refused.value.status_hint == 400


# --- each of them acts -------------------------------------------------------------------


def test_session_and_continuation(open_relay: Opener) -> None:
    relay = of(open_relay, COMMISSIONED, REVENUE)
    first = asked(relay, {names.SESSION_ID: SESSION})
    assert first.session_id == SESSION
    going_on = {names.SESSION_ID: SESSION, names.CONTINUATION_ID: first.continuation_id}
    second = asked(relay, going_on, f"{NEEDS[1]}?")
    assert windows(relay, SESSION)[1].parents == (first.window_id,)
    shown = {fact.fact_id for fact in first.envelope.facts}
    assert shown.isdisjoint(fact.fact_id for fact in second.envelope.facts)
    with pytest.raises(UnknownContinuation):
        asked(relay, {names.SESSION_ID: SESSION, names.CONTINUATION_ID: "crp_cont_" + "0" * 16})


def test_several_continuation_ids_join(open_relay: Opener) -> None:
    relay = of(open_relay, COMMISSIONED)
    root = asked(relay, {names.SESSION_ID: SESSION}, k=1)
    ids = [
        asked(
            relay, {names.SESSION_ID: SESSION, names.CONTINUATION_ID: root.continuation_id}, k=2
        ).continuation_id
        for _ in range(2)
    ]
    asked(relay, {names.SESSION_ID: SESSION, names.CONTINUATION_ID: ", ".join(ids)})
    assert len(windows(relay, SESSION)[-1].parents) == 2


def test_oversight_and_its_token(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED)
    relay = made(open_relay, model)
    with pytest.raises(SafetyHalt) as halted:
        asked(relay, {names.OVERSIGHT_MODE: "human-review"})
    hashed = halted.value.report.response_content_hash
    approved = {names.OVERSIGHT_MODE: "human-review", names.OVERSIGHT_TOKEN: f"approved:{hashed}"}
    assert asked(relay, approved).text == COMMISSIONED
    other = {**approved, names.OVERSIGHT_TOKEN: "approved:sha256:" + "0" * 64}
    with pytest.raises(SafetyHalt):
        asked(relay, other)
    calls = len(model.calls)
    with pytest.raises(SafetyHalt, match="no model was asked"):
        asked(relay, {names.OVERSIGHT_MODE: "halt"})
    assert len(model.calls) == calls


def test_safety_mode(open_relay: Opener) -> None:
    relay = of(open_relay, CRITICAL)
    with pytest.raises(SafetyHalt):
        asked(relay, {names.SAFETY_MODE: "strict"})
    assert asked(relay, {names.SAFETY_MODE: "permissive"}).text == CRITICAL
    warned = asked(relay, {names.SAFETY_MODE: "warn"})
    assert "warn-on HIGH" in warned.headers[names.POLICY_APPLIED]
    # It tightens what a session holds to, and relaxes nothing of it.
    relay = of(open_relay, COMMISSIONED)
    held = {names.SESSION_ID: SESSION, names.POLICY: "halt-on MEDIUM; require-flow 0.20"}
    asked(relay, held)
    both = asked(relay, {names.SESSION_ID: SESSION, names.SAFETY_MODE: "strict"})
    applied = both.headers[names.POLICY_APPLIED]
    for directive in ("halt-on MEDIUM", "require-flow 0.20", "block-ungrounded", "warn-on HIGH"):
        assert directive in applied
    # Strictness that was asked for once stays with the session.
    assert "block-ungrounded" in session(relay, SESSION).policy
    asked(relay, {names.SESSION_ID: SESSION, names.SAFETY_MODE: "permissive"})
    assert "block-ungrounded" in session(relay, SESSION).policy


def test_safety_policies(open_relay: Opener) -> None:
    relay = of(open_relay, CRITICAL)
    with pytest.raises(SafetyHalt):
        asked(relay, {names.POLICY: "halt-on HIGH"})
    with pytest.raises(PolicySyntaxError):
        asked(relay, {names.POLICY: "halt-on SOMETIMES"})
    inherited = {names.SESSION_PARENT: SESSION, names.LOOP_DEPTH: "1", names.POLICY: "halt-on HIGH"}
    with pytest.raises(PolicyRelaxed):
        asked(relay, inherited, policy="halt-on CRITICAL")
    with pytest.raises(SafetyHalt):
        asked(relay, inherited)


class Sink:
    def __init__(self) -> None:
        self.taken: list[tuple[Any, Policy]] = []

    def take(self, report: Any, policy: Policy) -> None:
        self.taken.append((report, policy))


def with_sink(relay: Relay) -> Sink:
    sink = Sink()
    world = relay._world
    relay._world = replace(world, listeners=replace(world.listeners, sink=sink))
    return sink


def test_an_address_for_reports(open_relay: Opener) -> None:
    relay = of(open_relay, CRITICAL)
    sink = with_sink(relay)
    with pytest.raises(SafetyHalt):
        asked(
            relay,
            {
                names.SESSION_ID: SESSION,
                names.POLICY: "halt-on HIGH; report-uri https://own.example/r",
                names.SAFETY_REPORT_URI: "https://reports.example/crp",
            },
        )
    # Each by itself, since a policy may be full of addresses.
    receivers = {address for _, policy in sink.taken for address in policy.report_uri}
    assert receivers == {"https://own.example/r", "https://reports.example/crp"}
    # It is this request's alone.
    assert "reports.example" not in session(relay, SESSION).policy
    with pytest.raises(RequestError):
        relay.ask(ASKED, model=MODEL, report_uri="ftp://nowhere")


def test_a_nonce_is_bound_to_the_policy_it_came_with(relay: Relay, open_relay: Opener) -> None:
    held = {names.SESSION_ID: SESSION, names.POLICY: "halt-on HIGH"}
    answer = asked(relay, held)
    nonce = answer.headers[names.NONCE]
    assert nonce != asked(relay, held).headers[names.NONCE]
    asked(relay, {**held, names.NONCE: nonce})
    # The same policy in other words is the same policy.
    asked(relay, {**held, names.POLICY: "HALT-ON   high", names.NONCE: nonce})
    for other in (
        {**held, names.POLICY: "halt-on HIGH; block-pii", names.NONCE: nonce},
        {names.NONCE: nonce},
        {**held, names.NONCE: "base64:AAAA"},
    ):
        with pytest.raises(RequestError, match="nonce") as refused:
            asked(relay, {**other, names.SESSION_ID: "crp_sess_" + "1" * 16})
        assert refused.value.status_hint == 400
    elsewhere = made(open_relay, ScriptedModel(COMMISSIONED), key="cd" * 32)
    with pytest.raises(RequestError, match="nonce"):
        asked(elsewhere, {**held, names.NONCE: nonce})
    # One that was given out before the key was rotated is still good.
    rotated = made(open_relay, ScriptedModel(COMMISSIONED), key=f"{KEY},{'cd' * 32}")
    asked(rotated, {**held, names.NONCE: nonce})
    # Without a policy there is nothing to bind it to.
    assert names.NONCE not in asked(relay, {}).headers


def test_depth_parent_and_phase(relay: Relay) -> None:
    parent = "crp_sess_0123456789abcdef"
    answer = asked(
        relay, {names.SESSION_PARENT: parent, names.LOOP_DEPTH: "2", names.PHASE: "PLAN"}
    )
    said = parse_response(answer.headers)
    assert (said.loop_depth, said.session_parent, said.phase) == (2, parent, "PLAN")
    assert session(relay, answer.session_id).loop_depth == 2
    with pytest.raises(AccessDenied) as denied:
        asked(relay, {names.LOOP_DEPTH: "6"})
    assert denied.value.status_hint == 403
    # A parent that tells no depth is the root.
    answer = asked(relay, {names.SESSION_PARENT: parent})
    assert parse_response(answer.headers).loop_depth == 1


def test_a_session_token_alone_names_its_session(open_relay: Opener) -> None:
    relay = of(open_relay, COMMISSIONED)
    token = parse_response(asked(relay, {names.SESSION_ID: SESSION}).headers).set_session.token
    second = asked(relay, {names.SESSION_TOKEN: token})
    assert (second.session_id, second.window_number) == (SESSION, 2)
    assert asked(relay, {}).session_id != SESSION
    for wrong in (token[:-4] + "AAAA", "secret.secret", "."):
        with pytest.raises(TokenRefused, match="not genuine"):
            relay.ask(QUESTION, session_token=wrong)
    newer = parse_response(second.headers).set_session.token
    third = relay.ask(QUESTION, session_token=newer)
    assert (third.session_id, third.window_number) == (SESSION, 3)


def test_what_is_refused_names_no_secret(relay: Relay) -> None:
    with pytest.raises(CRPError) as refused:
        asked(relay, {names.SESSION_ID: SESSION, names.SESSION_TOKEN: "secret.secret"})
    assert "secret" not in str(refused.value)


def test_headers_and_arguments_go_together(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED)
    relay = made(open_relay, model)
    answer = asked(relay, {names.GROUNDING_MODE: "open"}, QUESTION, temperature=0.1, k=1)
    assert model.calls[0].temperature == 0.1
    assert [is_summary(fact.source_id) for fact in answer.envelope.facts].count(False) == 1


@pytest.mark.parametrize("how", [{"oversight": "halt"}, {"policy": "oversight halt"}])
def test_a_halt_before_the_model_names_directive_and_value(how: dict[str, Any]) -> None:
    with Relay.open() as relay, pytest.raises(SafetyHalt) as halt:
        relay.ask("When?", **how)
    assert (halt.value.directive, halt.value.value) == ("require-oversight halt", "no approval")


def test_a_spent_budget_names_the_setting_and_what_is_left() -> None:
    enforced = Relay.open(sessions={"budget": {"enforce": True}})
    with enforced as relay, pytest.raises(SafetyHalt) as halt:
        relay.ask("When?", safety_budget=0.05)
    assert halt.value.directive == "sessions.budget.enforce"
    assert halt.value.value == "a safety budget of 0.05"
