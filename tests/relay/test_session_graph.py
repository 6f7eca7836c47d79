"""Where a window may hang in its session: one answer a token, so many branches, no refused ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.errors import (
    AccessDenied,
    CRPError,
    LimitReached,
    PolicySyntaxError,
    StaleTip,
    UnknownContinuation,
)
from crp_integrations.headers.codec import parse_response
from crp_integrations.messages import Reply
from crp_integrations.relay.drive import drive_stream
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import Dispatch, Halt, Outcome, Refusal, Release
from crp_integrations.relay.turn import Turn
from crp_integrations.vocabulary import EventType, Pattern
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import (
    HIGH,
    LOW,
    QUESTION,
    SESSION,
    answered,
    continued,
    opened,
    outcome,
    refusal,
    session_events,
)
from tests.relay.test_sessions import nodes, token_of
from tests.session.graph_faults import find_faults

PARTS = "When was the Meridian reactor commissioned? What revenue did Northfield Energy report?"


def ends(turn: Turn, text: str = LOW) -> Outcome:
    """What a turn that has begun comes to with a reply."""
    ended = turn.receive(Reply(text=text, model="gpt-4o"))
    assert not isinstance(ended, Dispatch)
    return ended


# --- one token, one answer ------------------------------------------------------------------


def test_of_two_questions_with_one_token_one_is_answered(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, HIGH, dpe=DpeSettings())
    token = token_of(answered(relay))
    first, second = (
        relay.turn(QUESTION, session_id=SESSION, session_token=token) for _ in range(2)
    )
    first.begin()
    second.begin()
    assert isinstance(ends(first, HIGH), Release)
    late = ends(second, HIGH)
    assert isinstance(late, Refusal)
    assert isinstance(late.error, StaleTip)
    assert late.status == 409
    # It is sealed, costs nothing, and leaves the session to the one that was answered.
    assert [node.outcome for node in nodes(relay)] == ["released", "released", "refused"]
    with relay.fabric.begin(write=False) as transaction:
        session = transaction.sessions.session(SESSION)
    assert session is not None
    assert session.safety_budget == 0.7
    assert relay.verify().windows == 3
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)


def test_a_withheld_answer_has_the_token_too(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, dispatch={"redispatches": 0})
    token = token_of(answered(relay))
    asked = {"session_id": SESSION, "session_token": token}
    first = relay.turn(QUESTION, policy="halt-on HIGH", **asked)
    second = relay.turn(QUESTION, **asked)
    first.begin()
    second.begin()
    assert isinstance(ends(first, HIGH), Halt)
    late = ends(second)
    assert isinstance(late, Refusal)
    assert isinstance(late.error, StaleTip)


def test_a_failed_question_leaves_the_token_to_the_other(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    token = token_of(answered(relay))
    first, second = (
        relay.turn(QUESTION, session_id=SESSION, session_token=token) for _ in range(2)
    )
    first.begin()
    second.begin()
    first.fail(RuntimeError("gone"))
    assert isinstance(ends(second), Release)


def test_of_two_plans_with_one_token_one_goes_on(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    token = token_of(answered(relay))
    asked = {"session_id": SESSION, "session_token": token, "strategy": "hierarchical"}
    first, second = (relay.play(PARTS, **asked) for _ in range(2))
    calls = len(model.calls)
    plan = second._plan  # type: ignore[union-attr]
    assert plan.survey() is None
    first.begin()
    plan.survey = lambda: None  # type: ignore[method-assign]
    late = second.begin()
    assert isinstance(late, Refusal)
    assert isinstance(late.error, StaleTip)
    assert len(model.calls) == calls
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)


def test_a_live_stream_ends_with_the_refusal(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    token = token_of(answered(relay))
    other = relay.turn(QUESTION, session_id=SESSION, session_token=token)
    other.begin()
    live = relay.turn(QUESTION, session_id=SESSION, session_token=token)
    parts = drive_stream(live, ScriptedModel(LOW), shows=lambda: True)
    shown = next(parts)
    assert isinstance(shown, str)
    ends(other)
    *_, last = parts
    assert isinstance(last, Refusal)
    assert isinstance(last.error, StaleTip)


# --- what did not come in ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"policy": "blok-pii"}, PolicySyntaxError),
        ({"continuation_ids": ["crp_cont_" + "0" * 16]}, UnknownContinuation),
    ],
)
def test_who_knows_a_sessions_id_alone_uses_none_of_its_windows_up(
    open_relay: Opener, asked: dict[str, object], error: type[CRPError]
) -> None:
    relay, _ = opened(open_relay, LOW, FACTS[1], sessions={"graph": {"nodes": 4}}, max_windows=3)
    first = answered(relay)
    for _ in range(5):
        assert isinstance(refusal(relay, **asked), error)
    assert [node.window_id for node in nodes(relay)] == [first.window_id]
    second = continued(relay, first)
    assert (second.window_number, bool(second.continuation_id)) == (2, True)
    (_, node) = nodes(relay)
    assert (node.parents, node.pattern) == ((first.window_id,), Pattern.LINEAR)
    # They are sealed, and in the trail of the session that they named.
    assert len(session_events(relay, EventType.DISPATCH_FAILED)) == 5
    assert relay.verify().windows == 7
    third = answered(relay)
    assert (third.window_number, third.continuation_id) == (3, "")


def test_a_refused_question_names_nobody_whose_the_session_is(open_relay: Opener) -> None:
    agents = [{"agent_id": "reader", "max_loop_depth": 2}, {"agent_id": "writer"}]
    relay, _ = opened(open_relay, LOW, sessions={"agents": {"registered": agents}})
    error = refusal(relay, agent_id="reader", loop_depth=2, policy="blok-pii")
    assert isinstance(error, PolicySyntaxError)
    first = answered(relay, agent_id="writer")
    with relay.fabric.begin(write=False) as transaction:
        session = transaction.sessions.session(SESSION)
    assert session is not None
    assert (session.agent_id, session.loop_depth) == ("writer", 0)
    assert isinstance(refusal(relay, agent_id="reader"), AccessDenied)
    assert first.window_number == 2
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)
    assert relay.verify().windows == 3


def test_a_window_follows_no_refused_one(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    first = answered(relay)
    refused = outcome(relay, oversight="halt")
    assert isinstance(refused, Refusal)
    after = answered(relay)
    by_id = {node.window_id: node for node in nodes(relay)}
    assert len(by_id) == 3
    assert by_id[after.window_id].parents == (first.window_id,)
    assert by_id[after.window_id].pattern is Pattern.LINEAR
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)
    assert relay.verify().windows == 3


# --- how many go on from one window -----------------------------------------------------------


def branches(relay, first: Answer, count: int) -> list[Turn]:
    """Turns that have begun, each of which goes on from one window."""
    made = [
        relay.turn(QUESTION, session_id=SESSION, continuation_ids=[first.continuation_id])
        for _ in range(count)
    ]
    for turn in made:
        turn.begin()
    return made


def test_so_many_windows_go_on_from_one_and_no_more(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW, sessions={"graph": {"fan_out": 2}}, max_windows=9)
    first = answered(relay)
    a, b = continued(relay, first), continued(relay, first)
    asked = len(model.calls)
    error = refusal(relay, continuation_ids=[first.continuation_id])
    assert isinstance(error, LimitReached)
    assert error.status_hint == 429
    assert len(model.calls) == asked
    # What brings branches together is none.
    answered(relay, continuation_ids=[a.continuation_id, b.continuation_id])
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)


def test_branches_that_end_at_the_same_time_are_counted_too(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, sessions={"graph": {"fan_out": 2}})
    first = answered(relay)
    ended = [ends(turn) for turn in branches(relay, first, 3)]
    kinds: list[Callable[..., object]] = [type(one) for one in ended]
    assert kinds == [Release, Release, Refusal]
    assert isinstance(ended[-1], Refusal)
    assert isinstance(ended[-1].error, LimitReached)
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)


def test_branches_that_failed_take_no_place(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, sessions={"graph": {"fan_out": 1}})
    first = answered(relay)
    for turn in branches(relay, first, 2):
        turn.fail(RuntimeError("gone"))
    assert parse_response(continued(relay, first, QUESTION).headers).session_id == SESSION
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)
