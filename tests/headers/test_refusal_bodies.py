"""Bodies of refusals, as a gateway prints them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crp_integrations.envelope.records import Cap
from crp_integrations.errors import (
    AccessDenied,
    CRPError,
    HeaderSyntaxError,
    LimitReached,
    ModelTimeout,
    NoRelevantFacts,
    PolicyRelaxed,
    PolicySyntaxError,
    QualityUnreachable,
    SafetyHalt,
    StaleTip,
    StoreError,
    TokenRefused,
    UnknownContinuation,
)
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.names import RetryCondition
from crp_integrations.headers.refusal_bodies import (
    Body,
    HaltBody,
    InheritanceBody,
    PolicySyntaxBody,
    RefusalBody,
    halt_body,
    quality_gap_body,
    refusal_body,
)
from crp_integrations.policy.inheritance import tighten
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.vocabulary import HaltReason, QualityTier
from tests.headers.header_samples import SESSION, envelope

TRAIL = "https://a.example/trail/1"


def printed(body: Body) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(body.model_dump_json())
    assert type(body).model_validate(made) == body
    return made


@pytest.mark.parametrize(
    ("reason", "word", "person", "wait"),
    [
        (HaltReason.CRITICAL_RISK, "CRITICAL_HALLUCINATION_RISK", True, "oversight-required"),
        (HaltReason.UNACCEPTABLE, "UNACCEPTABLE_EU_AI_ACT", True, "oversight-required"),
        (HaltReason.BUDGET_DEPLETED, "SAFETY_BUDGET_DEPLETED", False, "new-session-required"),
        (HaltReason.POLICY, "POLICY_VIOLATION", True, "oversight-required"),
        (HaltReason.OVERSIGHT, "OVERSIGHT_REQUIRED", True, "oversight-required"),
    ],
)
def test_a_451(reason: HaltReason, word: str, person: bool, wait: str) -> None:
    body = halt_body(
        reason,
        session_id=SESSION,
        audit_trail_uri=TRAIL,
        directive="halt-on HIGH",
        value="CRITICAL",
    )
    assert printed(body) == {
        "schema": "halt-body/1",
        "crp_halt_reason": word,
        "directive": "halt-on HIGH",
        "value": "CRITICAL",
        "session_id": SESSION,
        "audit_trail_uri": TRAIL,
        "oversight_required": person,
        "retry_condition": wait,
    }
    assert body.STATUS == 451
    # The header goes with the status, and says the same.
    assert parse_response(body.headers).retry_after == RetryCondition(wait)


@pytest.mark.requirement("003-8.4-4")
def test_a_503_explains_the_gap() -> None:
    error = QualityUnreachable("tier B is the best; S, A wanted", tier="B", wanted=("S", "A"))
    cap = Cap(ceiling=QualityTier.B, reason="2 facts of importance 0.90 or more did not fit")
    body = quality_gap_body(
        error, envelope(quality_tier=QualityTier.A, caps=(cap,)), session_id=SESSION
    )
    made = printed(body)
    assert made["message"] == "tier B is the best; S, A wanted"
    assert (made["accepted"], made["best_achievable"]) == (["S", "A"], "B")
    assert made["caps"] == [{"ceiling": "B", "reason": cap.reason}]
    assert made["envelope_score"] == 0.8
    assert (made["facts_included"], made["facts_available"]) == (2, 4)
    assert body.STATUS == 503
    assert parse_response(body.headers).quality_tier is QualityTier.B
    # Nothing of what the envelope holds is told.
    assert "secret" not in json.dumps(made)


def test_a_403_names_directive_parent_and_child() -> None:
    with pytest.raises(PolicyRelaxed) as caught:
        tighten(parse_policy("require-grounding 0.90"), parse_policy("require-grounding 0.50"))
    body = refusal_body(caught.value)
    made = printed(body)
    assert made["error"] == "safety_policy_inheritance_violation"
    assert made["directive"] == "require-grounding"
    assert (float(made["parent"]), float(made["child"])) == (0.9, 0.5)
    assert isinstance(body, InheritanceBody)
    assert body.STATUS == 403
    assert body.headers == {"CRP-Safety-Violation": "inheritance"}
    assert parse_response(body.headers).violation == ("inheritance",)


def test_a_400_says_unknown_directive_and_where() -> None:
    with pytest.raises(PolicySyntaxError) as caught:
        parse_policy("halt-on HIGH; blok-pii")
    body = refusal_body(caught.value)
    made = printed(body)
    assert (made["error"], made["column"]) == ("unknown directive", 15)
    assert "unknown directive 'blok-pii'" in made["message"]
    assert isinstance(body, PolicySyntaxBody)
    assert (body.STATUS, body.headers) == (400, {})


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (HeaderSyntaxError("CRP-X is no header"), 400, "header_syntax_error"),
        (TokenRefused("the token has expired"), 401, "token_refused"),
        (AccessDenied("loop depth 6 is above 5"), 403, "access_denied"),
        (UnknownContinuation("no such window"), 404, "unknown_continuation"),
        (StaleTip("the session has gone on"), 409, "stale_tip"),
        (
            NoRelevantFacts("nothing", directive="only-if-ckf", value="0.2"),
            424,
            "no_relevant_facts",
        ),
        (LimitReached("10 of 10 windows"), 429, "limit_reached"),
    ],
)
def test_other_refusals_say_what_was_wrong(error: CRPError, status: int, word: str) -> None:
    assert printed(refusal_body(error)) == {
        "schema": "refusal-body/1",
        "error": word,
        "message": str(error),
        "status": status,
        "directive": error.directive or None,
        "value": error.value or None,
    }


@pytest.mark.parametrize("error", [StoreError("/srv/kb is full"), ModelTimeout("host db7 is slow")])
def test_what_failed_inside_stays_in_the_log(error: CRPError) -> None:
    body = refusal_body(error)
    assert isinstance(body, RefusalBody)
    assert (body.message, body.status) == ("", error.status_hint)
    assert body.headers == {}


def test_a_halt_that_was_raised_has_the_same_body() -> None:
    error = SafetyHalt("withheld", reason="SAFETY_BUDGET_DEPLETED", session_id=SESSION)
    assert refusal_body(error, audit_trail_uri=TRAIL) == halt_body(
        HaltReason.BUDGET_DEPLETED, session_id=SESSION, audit_trail_uri=TRAIL
    )
    untold = refusal_body(SafetyHalt("withheld"), session_id=SESSION)
    assert isinstance(untold, HaltBody)
    assert untold.oversight_required
