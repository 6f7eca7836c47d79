"""Down to a sub-agent and back up: what passes, what never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import names
from crp_integrations.headers.codec import (
    parse_request,
    read_downward,
    read_upward,
    write_downward,
    write_response,
)
from crp_integrations.headers.records import RequestHeaders, ResponseHeaders
from crp_integrations.headers.values import LONGEST_CLAIMS, write_flagged
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.vocabulary import ChainIntegrity, RiskLevel, SafetyMode
from tests.headers.header_samples import ETAG, SESSION
from tests.headers.header_strategies import ASKED, RESPONSES

VALUES = Downward(
    safety_budget=0.85,
    policy="halt-on HIGH; block-pii",
    session_parent=SESSION,
    loop_depth=2,
    residency="de",
    safety_mode=SafetyMode.STRICT,
)
CHILD = "crp_sess_childchildchild1"
DOWNWARD = st.fixed_dictionaries(
    {"safety_budget": ASKED["safety_budget"], "session_parent": ASKED["session_parent"],
     "loop_depth": st.integers(1, 50)},
    optional={"policy": ASKED["safety_policy"], "residency": ASKED["residency"],
              "safety_mode": ASKED["safety_mode"]},
).map(lambda fields: Downward(**fields))  # fmt: skip


def test_six_values_go_down() -> None:
    assert write_downward(VALUES) == {
        "CRP-Agent-Safety-Budget": "0.85",
        "CRP-Safety-Policy": "halt-on HIGH; block-pii",
        "CRP-Agent-Session-Parent": SESSION,
        "CRP-Agent-Loop-Depth": "2",
        "CRP-Compliance-Data-Residency": "DE",
        "CRP-Safety-Mode": "strict",
    }


@given(DOWNWARD)
def test_a_child_reads_what_its_parent_handed_down(values: Downward) -> None:
    assert read_downward(parse_request(write_downward(values))) == values


def test_a_request_of_nobody_s_agent_hands_nothing_down() -> None:
    asked = parse_request(
        {names.SAFETY_BUDGET: "0.5", names.POLICY: "block-pii", names.LOOP_DEPTH: "0"}
    )
    assert read_downward(asked) is None
    alone = read_downward(parse_request({names.SESSION_PARENT: SESSION}))
    assert alone == Downward(safety_budget=1.0, session_parent=SESSION, loop_depth=1)
    deep = read_downward(RequestHeaders(loop_depth=4))
    assert deep is not None
    assert (deep.loop_depth, deep.session_parent) == (4, "")


def test_a_region_that_no_header_can_name_does_not_go_on_without_its_name() -> None:
    with pytest.raises(HeaderSyntaxError, match="Data-Residency"):
        write_downward(VALUES.changed(residency="eu-west"))


def test_a_budget_is_not_rounded_up_on_its_way_down() -> None:
    assert write_downward(VALUES.changed(safety_budget=0.99996))[names.SAFETY_BUDGET] == "0.9999"


def test_six_values_come_back_up() -> None:
    headers = {
        "crp-agent-safety-budget": "0.65",
        "CRP-Safety-Hallucination-Risk": "HIGH",
        "CRP-Provenance-HMAC": ETAG,
        "CRP-Provenance-Chain-Integrity": "VALID",
        "CRP-Compliance-Audit-Trail-URI": "https://child.example/trail/1",
        "CRP-Quality-Score": "0.91",
        "CRP-Context-Session-Id": CHILD,
        # Malformed, and nobody's business here.
        "CRP-Context-Window": "first",
        "CRP-Session-Token": "a.b",
    }
    assert read_upward(headers) == Upward(
        session_id=CHILD,
        safety_budget=0.65,
        risk_level=RiskLevel.HIGH,
        hmac=ETAG,
        chain_integrity=ChainIntegrity.VALID,
        audit_uri="https://child.example/trail/1",
        quality_score=0.91,
    )
    assert read_upward({}) == Upward()
    assert read_upward({}, status=451).halted


def test_a_child_that_says_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(HeaderSyntaxError, match="Safety-Budget"):
        read_upward({names.SAFETY_BUDGET: "2.0"})
    with pytest.raises(HeaderSyntaxError, match="occurs twice"):
        read_upward({names.SAFETY_BUDGET: "0.5", names.SAFETY_BUDGET.lower(): "0.6"})


@given(RESPONSES, DOWNWARD)
def test_token_etag_tier_and_session_pass_neither_way(
    said: ResponseHeaders, values: Downward
) -> None:
    assert not names.NEVER_PASSED & set(write_downward(values))
    sent = write_response(said)
    passed = {name: text for name, text in sent.items() if name not in names.NEVER_PASSED}
    assert read_upward(sent) == read_upward(passed)


CLAIM = st.builds(
    RejectedClaim,
    text=st.text(max_size=120),
    said=st.text(max_size=120),
    wrong=st.text(max_size=20),
    reason=st.text(max_size=120),
)


@given(st.lists(CLAIM, max_size=30))
def test_flagged_claims_go_up_as_far_as_they_fit(claims: list[RejectedClaim]) -> None:
    value = write_flagged(claims)
    assert value.isascii()
    assert len(value) <= LONGEST_CLAIMS
    assert "\n" not in value
    found = read_upward({names.FLAGGED_CLAIMS.lower(): value} if value else {}).flagged
    assert set(found) <= set(claims)
    assert len(claims) > 5 or list(found) == claims


@pytest.mark.parametrize(
    "value", ["x", "{}1", "[1]", '[["a"]]', "[" * 3_000, '[["a","b",1,"","",""]]']
)
def test_flagged_claims_of_another_form_are_refused(value: str) -> None:
    with pytest.raises(HeaderSyntaxError, match="Flagged-Claims"):
        read_upward({names.FLAGGED_CLAIMS: value})
