"""Agents within agents: who may ask, what goes down, what comes back, and what never passes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import AccessDenied, SafetyHalt
from crp_integrations.headers.names import NEVER_PASSED
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.session import agents
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.session.settings import (
    AgentSettings,
    RegisteredAgent,
    SafetyBudgetSettings,
    SessionSettings,
)
from crp_integrations.vocabulary import SafetyMode, Strategy
from tests.session.window_nodes import SESSION, session

CHILD = "crp_sess_0000000000000001"
READER = RegisteredAgent(
    agent_id="reader",
    max_loop_depth=2,
    max_delegations=1,
    allowed_strategies=(Strategy.PUSH, Strategy.PULL),
    safety_policy="halt-on HIGH",
)
SETTINGS = SessionSettings(
    budget=SafetyBudgetSettings(enforce=True), agents=AgentSettings(registered=(READER,))
)


def canonical(policy: str) -> str:
    return render_policy(parse_policy(policy))


def admit(
    agent: RegisteredAgent | None = None, strategy: Strategy = Strategy.PUSH, depth: int = 0
) -> None:
    agents.admit_agent(agent, strategy=strategy, loop_depth=depth, settings=SETTINGS.agents)


def test_an_agent_is_found_by_name_and_no_other_is_let_in() -> None:
    assert agents.find_agent("", SETTINGS.agents) is None
    assert agents.find_agent("reader", SETTINGS.agents) == READER
    with pytest.raises(AccessDenied, match="'writer' is not registered"):
        agents.find_agent("writer", SETTINGS.agents)


def test_what_an_agent_may_not_do_is_refused_with_403() -> None:
    admit(depth=5)
    admit(READER, Strategy.PULL, 2)
    for agent, strategy, depth, said in (
        (None, Strategy.PUSH, 6, "loop depth 6 is above 5"),
        (READER, Strategy.PUSH, 3, "loop depth 3 is above 2"),
        (READER, Strategy.AGENTIC, 0, "may not use 'agentic', only push, pull"),
        (RegisteredAgent(agent_id="x", allowed_strategies=()), Strategy.PUSH, 0, "only none"),
    ):
        with pytest.raises(AccessDenied, match=said) as refused:
            admit(agent, strategy, depth)
        assert refused.value.status_hint == 403


def test_a_registration_cannot_lift_the_general_bound() -> None:
    deep = RegisteredAgent(agent_id="deep", max_loop_depth=9)
    assert agents.max_depth(deep, SETTINGS.agents) == 5
    assert agents.max_depth(READER, SETTINGS.agents) == 2
    assert agents.max_depth(None, SETTINGS.agents) == 5


def test_what_goes_down() -> None:
    parent = session(safety_budget=0.85, policy=canonical("halt-on HIGH"), loop_depth=1)
    down = agents.delegate(
        parent, agent=None, settings=SETTINGS, residency="DE", safety_mode=SafetyMode.STRICT
    )
    assert down == Downward(
        safety_budget=0.85,
        policy=canonical("halt-on HIGH"),
        session_parent=SESSION,
        loop_depth=2,
        residency="DE",
        safety_mode=SafetyMode.STRICT,
    )
    assert agents.count_delegation(parent).delegations == 1


@pytest.mark.parametrize("record", [Downward, Upward])
def test_no_field_could_hold_what_never_passes(record: type) -> None:
    fields = set(record.model_fields)
    assert len(fields) > 5
    words = {name.removeprefix("CRP-").lower().replace("-", "_") for name in NEVER_PASSED}
    assert {"session_token", "set_session", "context_etag"} <= words
    short = {"token", "session_token", "etag", "if_match", "quality_tier", "tier", "set_session"}
    assert fields.isdisjoint(words | short)


@pytest.mark.parametrize(
    ("fields", "agent", "error", "said"),
    [
        ({"safety_budget": 0.5}, None, AccessDenied, "above 0.5 an agent may delegate"),
        ({"safety_budget": 0.1}, None, SafetyHalt, "SAFETY_BUDGET_DEPLETED"),
        ({"loop_depth": 5}, None, AccessDenied, "depth 6, at most 5"),
        ({"loop_depth": 2}, READER, AccessDenied, "depth 3, at most 2"),
        ({"delegations": 1}, READER, AccessDenied, "delegated 1 times, at most 1"),
    ],
)
def test_a_delegation_that_is_not_allowed(
    fields: dict[str, Any], agent: RegisteredAgent | None, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        agents.delegate(session(**fields), agent=agent, settings=SETTINGS)


def test_what_goes_down_reads_back() -> None:
    down = agents.delegate(
        session(safety_budget=0.85, policy=canonical("halt-on CRITICAL")),
        agent=None,
        settings=SETTINGS,
    )
    assert (down.safety_budget, down.loop_depth, down.session_parent) == (0.85, 1, SESSION)
    assert Downward.model_validate_json(down.model_dump_json()) == down


UPS = st.builds(
    Upward,
    safety_budget=st.none() | st.integers(0, 10_000).map(lambda n: n / 10_000),
    halted=st.booleans(),
)
PARENTS = st.integers(0, 10_000).map(lambda n: session(safety_budget=n / 10_000))


@given(PARENTS, st.lists(UPS, max_size=5))
def test_a_parents_budget_never_rises(parent: agents.Session, ups: list[Upward]) -> None:
    left = [parent.safety_budget]
    for up in ups:
        parent = agents.charge_return(parent, up, SETTINGS)
        left.append(parent.safety_budget)
    assert left == sorted(left, reverse=True)
    for up in ups:
        assert up.safety_budget is None or left[-1] <= up.safety_budget
