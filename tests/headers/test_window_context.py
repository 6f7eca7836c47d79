"""What session, policy and agents say in a response."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.names import AgentPhase, RetryCondition
from crp_integrations.headers.records import HeaderSettings, SetSessionValue
from crp_integrations.headers.response_headers import (
    RETRY,
    WindowContext,
    render_headers,
    retry_for,
)
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import BudgetWarning, HaltReason, Oversight, QualityTier, Strategy
from tests.headers.header_samples import SESSION, envelope, report, seal

WINDOWS = ("crp_win_0123456789abcdef", "crp_win_fedcba9876543210")


def said(passed: WindowContext | None = None, **fields: Any) -> dict[str, str]:
    sealed = fields.pop("seal", {})
    return render_headers(
        envelope(),
        report(),
        session_id=SESSION,
        window_number=2,
        window_total=5,
        seal=seal(**sealed),
        passed=passed,
        **fields,
    )


def test_everything_that_can_be_passed() -> None:
    passed = WindowContext(
        policy_applied="halt-on HIGH; block-pii",
        violation=("require-flow", "max-repetition"),
        oversight_mode=Oversight.HUMAN_REVIEW,
        nonce="base64:aGVsbG8=",
        seed=7,
        residency="de",
        dispatch_strategy=Strategy.AGENTIC,
        phase=AgentPhase.REFINE,
        loop_depth=1,
        safety_budget=0.2,
        budget_warning="low",
        tool_calls=0,
        session_parent=SESSION,
        revision_round=(2, 3),
        dag_root=WINDOWS[0],
        lineage=WINDOWS,
        report_uri="/crp/v3/reports/crp_win_fedcba9876543210",
        trail_id="crp_trail_0123456789abcdef",
        trail_uri="https://a.example/trail/1",
        set_session=SetSessionValue(token="abc.DEF", window=2, quality_history=(QualityTier.A,)),
        flow_remedy="stitched",
    )
    headers = said(passed)
    assert {name: headers[name] for name in set(headers) - set(said())} == {
        "CRP-Safety-Policy-Applied": "halt-on HIGH; block-pii",
        "CRP-Safety-Violation": "require-flow, max-repetition",
        "CRP-Safety-Oversight-Mode": "human-review",
        "CRP-Safety-Nonce": "base64:aGVsbG8=",
        "CRP-LLM-Reproducibility-Seed": "7",
        "CRP-Compliance-Data-Residency": "DE",
        "CRP-Agent-Dispatch-Strategy": "agentic",
        "CRP-Agent-Phase": "REFINE",
        "CRP-Agent-Loop-Depth": "1",
        "CRP-Agent-Safety-Budget": "0.2",
        "CRP-Safety-Budget-Warning": "low",
        "CRP-Agent-Tool-Calls": "0",
        "CRP-Agent-Session-Parent": SESSION,
        "CRP-Agent-Revision-Round": "2/3",
        "CRP-Provenance-DAG-Root": f"dag:{WINDOWS[0]}",
        "CRP-Provenance-Window-Lineage": f"{WINDOWS[0]} -> {WINDOWS[1]}",
        "CRP-Provenance-Report-URI": "/crp/v3/reports/crp_win_fedcba9876543210",
        "CRP-Compliance-Audit-Trail-Id": "crp_trail_0123456789abcdef",
        "CRP-Compliance-Audit-Trail-URI": "https://a.example/trail/1",
        "CRP-Set-Session": (
            "token=abc.DEF; Path=/; Max-Age=3600; Signed; SameSite=Strict; Window=2; "
            "QualityHistory=A"
        ),
    }
    assert parse_response(headers).budget_warning is BudgetWarning.LOW


@pytest.mark.requirement("003-14.3-1")
def test_the_session_carries_the_tier_of_every_window() -> None:
    history = (QualityTier.A, QualityTier.A, QualityTier.B)
    text = said(
        WindowContext(set_session=SetSessionValue(token="a.b", window=3, quality_history=history))
    )["CRP-Set-Session"]
    assert text.endswith("; Window=3; QualityHistory=A,A,B")
    again = parse_response({"CRP-Set-Session": text}).set_session
    assert again is not None
    assert again.quality_history == history


@pytest.mark.parametrize("reason", HaltReason)
def test_a_withheld_answer_always_says_what_to_wait_for(reason: HaltReason) -> None:
    headers = said(WindowContext(halt_reason=reason), seal={"outcome": "halted"})
    assert headers["CRP-Safety-Retry-After"] == RETRY[reason] == retry_for(reason)
    assert "CRP-Safety-Retry-After" not in said(WindowContext(halt_reason=reason))


def test_a_withheld_answer_without_a_reason_asks_for_a_person() -> None:
    assert said(seal={"outcome": "halted"})["CRP-Safety-Retry-After"] == "oversight-required"
    assert RETRY[HaltReason.BUDGET_DEPLETED] is RetryCondition.NEW_SESSION


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (0, "0"),
        (120, "120"),
        (datetime(2026, 5, 25, 10, tzinfo=UTC), "2026-05-25T10:00:00Z"),
        (RetryCondition.NEW_SESSION, "new-session-required"),
    ],
)
def test_the_caller_s_own_word_goes_first(after: Any, text: str) -> None:
    passed = WindowContext(halt_reason=HaltReason.POLICY, retry_after=after)
    assert said(passed, seal={"outcome": "halted"})["CRP-Safety-Retry-After"] == text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"safety_budget": 1.5}, "safety_budget"),
        ({"loop_depth": -1}, "loop_depth"),
        ({"budget_warning": "none"}, "budget_warning"),
        ({"policy_applied": "halt-on HIGH\r\nX: y"}, "Policy-Applied contains a control character"),
        ({"lineage": ("window-1",)}, "Window-Lineage"),
        ({"trail_uri": "nowhere"}, "Audit-Trail-URI"),
        ({"report_uri": "https://a.example/?q=what is"}, "Report-URI"),
        ({"dag_root": "the root"}, "DAG-Root"),
    ],
)
def test_what_no_header_can_say_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(HeaderSyntaxError, match=words):
        said(WindowContext(**fields))


@pytest.mark.requirement("003-16.3-1")
def test_a_setting_hides_the_domain_of_the_question() -> None:
    assert said()["CRP-Memory-CKF-Community"] == "eu-ai-act-compliance"
    chosen = Settings(headers={"show_community": False}).headers
    assert chosen == HeaderSettings(show_community=False)
    hidden = said(settings=chosen)
    assert set(said()) - set(hidden) == {"CRP-Memory-CKF-Community"}
    assert "eu-ai-act" not in str(hidden)
