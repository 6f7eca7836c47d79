"""Agents that ask agents: what goes down, what comes back, and where it ends.

Sessions that are delegated to: their budget, their depth, and what the journal says of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Answer, Relay, asked_by, from_headers, result_of
from crp_integrations.dpe.records import REJECTED, RejectedClaim
from crp_integrations.errors import AccessDenied, PolicyRelaxed, RequestError, SafetyHalt
from crp_integrations.headers import names
from crp_integrations.headers.codec import read_upward as up_headers
from crp_integrations.headers.codec import write_downward as down_headers
from crp_integrations.policy.policy_text import parse_policy, policy_hash
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, RiskLevel, SafetyMode
from tests.commands import script
from tests.doubles import HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, KEY, Opener
from tests.relay.need_questions import (
    COMMISSIONED,
    INVENTED,
    MODEL,
    NEEDS,
    WORSE,
    event_data,
    made,
    session,
    windows,
)
from tests.relay.scripted_relays import LOW, QUESTION, SESSION, answered, opened, session_events

ASKED = f"{NEEDS[0]}?"
# What is supported and what is not, side by side, is of high risk; the latter alone of critical.
HIGH = f"{COMMISSIONED} {INVENTED}"
CRITICAL = WORSE


def begun(relay: Relay, **asking: Any) -> Answer:
    return relay.ask(ASKED, model=MODEL, **asking)


def left(relay: Relay, session_id: str) -> float:
    return session(relay, session_id).safety_budget


def test_what_goes_down_is_what_holds(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    parent = begun(relay, policy="halt-on HIGH; block-pii", safety_budget=0.8)
    down = relay.delegate(parent.session_id, safety_mode=SafetyMode.STRICT)
    assert down.session_parent == parent.session_id
    assert (down.safety_budget, down.loop_depth) == (0.8, 1)
    assert "halt-on HIGH" in down.policy
    child = begun(relay, **asked_by(down))
    kept = session(relay, child.session_id)
    assert child.session_id != parent.session_id
    assert (kept.parent_session, kept.loop_depth, kept.safety_budget) == (parent.session_id, 1, 0.8)
    assert child.headers["CRP-Agent-Loop-Depth"] == "1"
    assert child.headers["CRP-Agent-Session-Parent"] == parent.session_id
    # The mode and the policy hold together, each directive at its strictest.
    applied = child.headers["CRP-Safety-Policy-Applied"]
    assert "halt-on HIGH" in applied
    assert "block-pii" in applied
    assert "block-ungrounded" in applied
    assert session(relay, parent.session_id).delegations == 1


def test_a_child_can_tighten_what_it_inherits_and_not_relax_it(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    down = relay.delegate(begun(relay, policy="halt-on HIGH").session_id)
    with pytest.raises(PolicyRelaxed, match="halt-on"):
        begun(relay, **asked_by(down), policy="halt-on CRITICAL")
    tighter = f"{down.policy}; block-pii"
    begun(relay, **asked_by(down), policy=tighter)
    # A budget that a child claims for itself is a ceiling and never more.
    child = begun(relay, **{**asked_by(down), "safety_budget": 0.4})
    assert left(relay, child.session_id) == 0.4


def test_a_result_bounds_the_parents_budget_and_stands_in_its_trail(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED, CRITICAL))
    parent = begun(relay)
    child = begun(relay, **asked_by(relay.delegate(parent.session_id)))
    up = result_of(child)
    assert (up.safety_budget, up.risk_level) == (0.65, RiskLevel.CRITICAL)
    assert up.hmac == child.report.hmac
    assert relay.take(parent.session_id, up) == 0.65
    assert left(relay, parent.session_id) == 0.65
    (event,) = event_data(relay, parent.session_id, EventType.SUB_AGENT_RESULT)
    assert event["session"] == child.session_id
    assert event["chain_tip"] == child.report.hmac
    assert (event["budget"], event["cost"]) == (0.65, 0.35)
    assert COMMISSIONED not in str(event)
    # A child that has more left than its parent gives nothing back.
    assert relay.take(parent.session_id, up.changed(safety_budget=1.0)) == 0.65
    assert relay.verify().sessions == 2


def test_a_childs_451_costs_its_parent(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED, CRITICAL))
    parent = begun(relay, policy="halt-on HIGH")
    with pytest.raises(SafetyHalt) as halted:
        begun(relay, **asked_by(relay.delegate(parent.session_id)))
    up = result_of(halted.value)
    assert (up.halted, up.risk_level) == (True, RiskLevel.CRITICAL)
    assert up.session_id.startswith("crp_sess_")
    assert relay.take(parent.session_id, up) == 0.65
    (event,) = event_data(relay, parent.session_id, EventType.SUB_AGENT_RESULT)
    assert (event["session"], event["cost"]) == (up.session_id, 0.35)


def test_a_half_open_circuit_lets_nobody_delegate(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED, "NONE"))
    parent = begun(relay, safety_budget=0.5)
    with pytest.raises(AccessDenied, match=r"safety budget is 0\.5"):
        relay.delegate(parent.session_id)
    assert session(relay, parent.session_id).delegations == 0
    spent = begun(relay)
    relay.take(spent.session_id, Upward(safety_budget=0.1))
    with pytest.raises(SafetyHalt, match="BUDGET_DEPLETED") as halted:
        relay.delegate(spent.session_id)
    assert halted.value.value == "a safety budget of 0.1"
    (event,) = event_data(relay, spent.session_id, EventType.SAFETY_BUDGET_DEPLETED)
    assert event["budget"] == 0.1
    with pytest.raises(SafetyHalt, match="no model was asked"):
        begun(relay, session_id=spent.session_id)


def test_a_budget_of_nothing_ends_the_session(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    parent = begun(relay)
    assert relay.take(parent.session_id, Upward(safety_budget=0.0)) == 0.0
    assert session(relay, parent.session_id).ended
    # Whatever else returns is still noted.
    assert relay.take(parent.session_id, Upward(safety_budget=0.0, halted=True)) == 0.0
    assert len(event_data(relay, parent.session_id, EventType.SUB_AGENT_RESULT)) == 2
    with pytest.raises(AccessDenied, match="has ended"):
        begun(relay, session_id=parent.session_id)
    assert relay.verify().sessions == 1


@pytest.mark.parametrize("by_headers", [False, True])
def test_agents_three_deep(open_relay: Opener, by_headers: bool) -> None:
    relay = made(
        open_relay,
        ScriptedModel(*[COMMISSIONED] * 3, HIGH),
        headers={"trail_uri": "/trails/{session_id}"},
    )
    agents = [begun(relay, policy="warn-on HIGH")]
    for depth in (1, 2, 3):
        down = relay.delegate(agents[-1].session_id)
        asking = from_headers(down_headers(down)) if by_headers else asked_by(down)
        agents.append(begun(relay, **asking))
        assert session(relay, agents[-1].session_id).loop_depth == depth
        assert "warn-on HIGH" in agents[-1].headers["CRP-Safety-Policy-Applied"]
    # Alone it would be of high risk; so deep among agents it is of critical.
    assert agents[3].report.risk_level == "CRITICAL"
    # The deepest one's risk comes up through all of them.
    for parent, child in zip(reversed(agents[:-1]), reversed(agents[1:]), strict=True):
        budget = left(relay, child.session_id)
        assert budget == 0.65
        # Its own answer came before its sub-agent's, and spoke of what was left then.
        said = {**child.headers, "CRP-Agent-Safety-Budget": str(budget)}
        up = up_headers(said) if by_headers else result_of(child, budget)
        assert relay.take(parent.session_id, up) == 0.65
        (event,) = event_data(relay, parent.session_id, EventType.SUB_AGENT_RESULT)
        assert (event["session"], event["chain_tip"]) == (child.session_id, child.report.hmac)
    assert relay.verify().sessions == 4


def test_a_chain_of_agents_ends_at_depth_five(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED)
    relay = made(open_relay, model)
    agent = begun(relay)
    for _ in range(5):
        agent = begun(relay, **asked_by(relay.delegate(agent.session_id)))
    assert session(relay, agent.session_id).loop_depth == 5
    with pytest.raises(AccessDenied, match="depth 6"):
        relay.delegate(agent.session_id)
    calls = len(model.calls)
    forged = Downward(safety_budget=1.0, session_parent=agent.session_id, loop_depth=6)
    for asking in (asked_by(forged), from_headers(down_headers(forged))):
        with pytest.raises(AccessDenied) as denied:
            begun(relay, **asking)
        assert denied.value.status_hint == 403
    assert len(model.calls) == calls


def registered(**agent: Any) -> dict[str, Any]:
    return {"sessions": {"agents": {"registered": [{"agent_id": "reader", **agent}]}}}


def test_what_is_registered_of_an_agent_binds_it(open_relay: Opener) -> None:
    def relay(**agent: Any) -> Relay:
        return made(open_relay, ScriptedModel(COMMISSIONED), **registered(**agent))

    limited = relay(max_delegations=1)
    parent = begun(limited, agent_id="reader")
    limited.delegate(parent.session_id)
    with pytest.raises(AccessDenied, match="delegated 1 times"):
        limited.delegate(parent.session_id)

    shallow = relay(max_loop_depth=1)
    root = begun(shallow, agent_id="reader")
    child = begun(shallow, **asked_by(shallow.delegate(root.session_id)), agent_id="reader")
    with pytest.raises(AccessDenied, match="depth 2"):
        shallow.delegate(child.session_id)

    plain = relay(allowed_strategies=["push"])
    begun(plain, agent_id="reader")
    with pytest.raises(AccessDenied, match="may not use 'pull'"):
        begun(plain, agent_id="reader", strategy="pull")

    strict = relay(safety_policy="halt-on HIGH")
    answer = begun(strict, agent_id="reader")
    assert "halt-on HIGH" in answer.headers["CRP-Safety-Policy-Applied"]
    assert "halt-on HIGH" in strict.delegate(answer.session_id).policy
    with pytest.raises(PolicyRelaxed):
        begun(strict, agent_id="reader", policy="halt-on CRITICAL")
    with pytest.raises(AccessDenied, match="not registered"):
        begun(strict, agent_id="writer")


def test_an_agent_of_parts_may_be_asked_for_parts_alone(open_relay: Opener) -> None:
    relay = made(
        open_relay, ScriptedModel(COMMISSIONED), **registered(allowed_strategies=["hierarchical"])
    )
    answer = relay.ask(
        "? ".join(NEEDS) + "?", model=MODEL, agent_id="reader", strategy="hierarchical"
    )
    assert len(answer.parts) == 3


def test_a_session_that_is_not_known_delegates_nothing(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    for asked in (
        lambda: relay.delegate("crp_sess_7f3a9bc2d4e1f083"),
        lambda: relay.take("crp_sess_7f3a9bc2d4e1f083", Upward()),
    ):
        with pytest.raises(RequestError, match="not known"):
            asked()


def test_a_session_that_stores_nothing_delegates_from_memory(
    open_relay: Opener, tmp_path: Path
) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED, CRITICAL), store=SqliteStore(tmp_path))
    parent = begun(relay, cache="no-store")
    child = begun(relay, **asked_by(relay.delegate(parent.session_id)), cache="no-store")
    assert relay.take(parent.session_id, result_of(child)) == 0.65
    assert begun(relay, session_id=parent.session_id, cache="no-store").headers[
        "CRP-Agent-Safety-Budget"
    ] == str(0.3)
    with relay.fabric.begin(write=False) as transaction:
        assert list(transaction.sessions.session_ids()) == []


def test_a_region_goes_down_with_the_question(open_relay: Opener, tmp_path: Path) -> None:
    relay = open_relay(models=ScriptedModel(COMMISSIONED), regions={"eu": tmp_path / "eu"})
    relay.region("eu").add(list(FACTS))
    parent = begun(relay, residency="eu")
    with pytest.raises(RequestError, match="not known"):
        relay.delegate(parent.session_id)
    down = relay.delegate(parent.session_id, residency="eu")
    assert down.residency == "eu"
    child = begun(relay, **asked_by(down))
    assert child.headers["CRP-Compliance-Data-Residency"] == "EU"
    assert relay.take(parent.session_id, result_of(child), residency="eu") == 1.0


CHILD = """
import json, sys
from crp_integrations import Relay, from_headers
from crp_integrations.errors import SafetyHalt
from tests.doubles import HashEmbedder, ScriptedModel
from tests.relay.judges import MEASURED
told = json.load(sys.stdin)
model = ScriptedModel(told["answer"])
options = {"embedder": HashEmbedder(), "key": told["key"], "models": model, "dpe": MEASURED}
with Relay.open(told["store"], **options) as relay:
    relay.fabric.add(told["facts"])
    try:
        answer = relay.ask(told["question"], model="any/model", **from_headers(told["headers"]))
    except SafetyHalt as error:
        print(json.dumps({"status": 451, "headers": {}, "session": error.session_id}))
    else:
        print(json.dumps({"status": 200, "headers": answer.headers, "session": answer.session_id}))
"""


@pytest.mark.parametrize(("answer", "status", "after"), [(HIGH, 200, 0.85), (CRITICAL, 451, 0.65)])
def test_an_agent_in_another_process_over_headers(
    open_relay: Opener, tmp_path: Path, answer: str, status: int, after: float
) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED), store=SqliteStore(tmp_path / "parent"))
    parent = begun(relay, policy="halt-on CRITICAL")
    down = relay.delegate(parent.session_id)
    told = {
        "headers": down_headers(down),
        "answer": answer,
        "question": ASKED,
        "facts": list(FACTS),
        "store": str(tmp_path / "child"),
        # Another operator's key: the parent cannot verify the child's chain, and notes its tip.
        "key": "cd" * 32,
    }
    ran = script("-c", CHILD, stdin=json.dumps(told))
    assert ran.returncode == 0, ran.stderr
    back = json.loads(ran.stdout)
    assert back["status"] == status
    up = up_headers(back["headers"], status=back["status"])
    assert relay.take(parent.session_id, up) == after
    (event,) = event_data(relay, parent.session_id, EventType.SUB_AGENT_RESULT)
    if status == 200:
        assert event["chain_tip"] == back["headers"]["CRP-Provenance-HMAC"]
        assert event["session"] == back["session"]
    with Relay.open(
        SqliteStore(tmp_path / "child"), embedder=HashEmbedder(), key="cd" * 32
    ) as child:
        kept = session(child, back["session"])
        assert (kept.parent_session, kept.loop_depth) == (parent.session_id, 1)
        assert "halt-on CRITICAL" in kept.policy
        assert len(windows(child, back["session"])) == 1
        assert child.verify().sessions == 1
    assert relay.verify().sessions == 1
    assert told["key"] != KEY


def test_an_agent_keeps_its_name_within_a_session(open_relay: Opener) -> None:
    agents = [{"agent_id": "reader", "allowed_strategies": ["push"]}, {"agent_id": "writer"}]
    relay = open_relay(models=ScriptedModel(FACTS[0]), sessions={"agents": {"registered": agents}})
    relay.fabric.add(list(FACTS))
    first = relay.ask("Who operates the reactor?", agent_id="reader")
    with pytest.raises(AccessDenied, match="'reader'"):
        relay.ask(
            "Who operates it?", session_id=first.session_id, agent_id="writer", strategy="pull"
        )
    half_open = relay.ask(
        "Who operates it?", session_id=first.session_id, agent_id="reader", safety_budget=0.40
    )
    assert half_open.headers["CRP-Context-Strategy"] == "push"


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
    parents, began = session_events(relay, EventType.SESSION_CREATED)
    assert parents.data["policy_hash"] == policy_hash(parse_policy("halt-on CRITICAL"))
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


def test_flagged_claims_go_up_by_headers_and_are_flagged_above(open_relay: Opener) -> None:
    wrong = FACTS[0].replace("412", "512")
    below = made(open_relay, ScriptedModel(wrong))
    above = made(open_relay, ScriptedModel(FACTS[1], wrong))
    parent = begun(above).session_id
    child = begun(below, parent_session=parent, loop_depth=1)
    assert child.report.flagged
    up = up_headers(child.headers)
    assert up.flagged == result_of(child).flagged != ()
    # Only an agent's answer to another agent names them.
    assert names.FLAGGED_CLAIMS not in begun(made(open_relay, ScriptedModel(wrong))).headers
    above.take(parent, up)
    told = begun(above, session_id=parent).report
    assert told.flagged
    assert any(one.kind == REJECTED for claim in told.claims for one in claim.findings)


def test_a_result_for_a_session_that_is_not_known_is_held_nowhere(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    claim = RejectedClaim(text="The reactor delivers 512 megawatts.")
    with pytest.raises(RequestError, match="not known"):
        relay.take(SESSION, Upward(flagged=(claim,)))
    assert relay._world.memory.sessions.of(SESSION).rejected == ()
