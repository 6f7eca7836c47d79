"""Questions in parts: windows side by side, and one that brings them together."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.envelope.prompt import HIERARCHICAL
from crp_integrations.errors import ModelError, ModelRateLimited, RequestError, UnknownContinuation
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.composition import PART_ANSWERS, PARTS_WITHOUT_ANSWER
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import EventType, Pattern, Purpose
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.need_questions import (
    COMMISSIONED,
    COOLING,
    COST,
    INVENTED,
    MODEL,
    NEEDS,
    QUESTION,
    REVENUE,
    WHOLE,
    WORSE,
    event_data,
    made,
    question,
    session,
    system,
    windows,
)
from tests.session import graph_faults

OWN = dict(zip(NEEDS, (COMMISSIONED, REVENUE, COOLING), strict=True))


class Parted(ScriptedModel):
    """Answers each part with its own words and the whole with all; threads may call it."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = {**OWN, QUESTION: WHOLE, **answers}
        self.lock = threading.Lock()

    def call(self, call: ModelCall) -> Reply:
        with self.lock:
            self.calls.append(call)
        said = self.answers[question(call)]
        if isinstance(said, BaseException):
            raise said
        return Reply(text=said, model=call.model, usage=COST)

    def of(self, asked: str) -> ModelCall:
        (found,) = [call for call in self.calls if question(call) == asked]
        return found


def sound(relay: Relay, answer: Answer) -> None:
    """The graph has no fault by either opinion, its edges are chained, and the trail is whole."""
    nodes = windows(relay, answer.session_id)
    settings = relay.settings.sessions.graph
    assert not graph_faults.find_faults(nodes, settings)
    with relay.fabric.begin(write=False) as transaction:
        assert (
            graph_faults.find_unchained(nodes, transaction.journal.seals(answer.session_id)) == []
        )
    assert relay.verify().windows == len(nodes)


@pytest.mark.parametrize("strategy", ["hierarchical", "fan-out", "fan-in"])
def test_each_part_has_a_window_and_the_last_one_follows_all(
    open_relay: Opener, strategy: str
) -> None:
    model = Parted()
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy=strategy)
    plan, *parts, whole = windows(relay, answer.session_id)
    assert (plan.window_number, plan.strategy, plan.parents) == (1, "fan-out", ())
    assert [(one.window_number, one.pattern, one.parents) for one in parts] == [
        (2, Pattern.FAN_OUT, (plan.window_id,))
    ] * 3
    assert (whole.window_number, whole.pattern) == (3, Pattern.FAN_IN)
    assert set(whole.parents) == {one.window_id for one in parts}
    assert (answer.window_id, answer.window_number) == (whole.window_id, 3)
    assert set(answer.parts) == set(whole.parents)
    assert (answer.text, answer.pieces) == (WHOLE, ())
    sound(relay, answer)


def test_the_seal_of_a_fan_in_follows_from_all_its_parents(open_relay: Opener) -> None:
    relay = made(open_relay, Parted())
    answer = relay.ask(QUESTION, model=MODEL, strategy="hierarchical")
    *_, whole = windows(relay, answer.session_id)
    with relay.fabric.begin(write=False) as transaction:
        seals = {seal.window_id: seal for seal in transaction.journal.seals(answer.session_id)}
    parents = sorted(seals[id_].hmac for id_ in whole.parents)
    assert seals[whole.window_id].parent_hmac == "|".join(parents)
    assert len({seal.parent_hmac for id_, seal in seals.items() if id_ in whole.parents}) == 1
    (made_,) = event_data(relay, answer.session_id, EventType.FAN_OUT_CREATED)
    assert made_["children"] == 3
    (merged,) = event_data(relay, answer.session_id, EventType.FAN_IN_MERGED)
    assert set(merged["parents"]) == set(whole.parents)


def test_each_part_is_asked_alone_and_the_whole_with_what_was_found(open_relay: Opener) -> None:
    model = Parted()
    answer = made(open_relay, model).ask(
        QUESTION, model=MODEL, strategy="hierarchical", temperature=0.4, system_prompt="Be brief."
    )
    assert len(model.calls) == 4
    for need, own in OWN.items():
        call = model.of(need)
        assert system(call).startswith("Be brief.")
        assert all(other not in call.messages[1].content for other in NEEDS if other != need)
        assert own in system(model.of(QUESTION))
    whole = model.of(QUESTION)
    assert PART_ANSWERS in system(whole)
    assert HIERARCHICAL in system(whole)
    assert PARTS_WITHOUT_ANSWER not in system(whole)
    assert {call.temperature for call in model.calls} == {0.4}
    assert answer.envelope.sub_queries == NEEDS
    assert answer.headers["CRP-Context-Strategy"] == "hierarchical"


def test_parts_are_asked_at_the_same_time(open_relay: Opener) -> None:
    together = threading.Barrier(3, timeout=20)

    class Meeting(Parted):
        def call(self, call: ModelCall) -> Reply:
            if question(call) != QUESTION:
                together.wait()
            return super().call(call)

    relay = made(open_relay, Meeting())
    assert relay.ask(QUESTION, model=MODEL, strategy="hierarchical").text == WHOLE


def test_a_part_that_fails_is_left_out_and_said(open_relay: Opener) -> None:
    model = Parted(**{NEEDS[1]: ModelRateLimited("slow down")})
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="hierarchical")
    assert "parts-not-answered=1" in answer.report.flags
    told = system(model.of(QUESTION))
    assert f"{PARTS_WITHOUT_ANSWER}\n- {NEEDS[1]}" in told
    assert len(answer.parts) == 2
    outcomes = [node.outcome for node in windows(relay, answer.session_id)]
    assert sorted(outcomes) == ["failed", "released", "released", "released", "released"]
    sound(relay, answer)


def test_when_all_parts_fail_the_first_says_why(open_relay: Opener) -> None:
    model = Parted(**{need: ModelRateLimited(f"slow down: {need}") for need in NEEDS})
    relay = made(open_relay, model)
    session_id = "crp_sess_7f3a9bc2d4e1f083"
    with pytest.raises(ModelRateLimited, match=NEEDS[0]):
        relay.ask(QUESTION, model=MODEL, strategy="hierarchical", session_id=session_id)
    assert [node.outcome for node in windows(relay, session_id)] == ["released", *["failed"] * 3]
    assert relay.verify().windows == 4


def test_the_whole_may_fail_and_the_parts_stay_sealed(open_relay: Opener) -> None:
    relay = made(open_relay, Parted(**{QUESTION: ModelError("gone")}))
    session_id = "crp_sess_7f3a9bc2d4e1f083"
    with pytest.raises(ModelError, match="gone"):
        relay.ask(QUESTION, model=MODEL, strategy="hierarchical", session_id=session_id)
    assert windows(relay, session_id)[-1].outcome == "failed"
    assert relay.verify().windows == 5


def test_parts_inherit_the_budget_whole_and_the_smallest_goes_on(open_relay: Opener) -> None:
    # 0.15 each for the two beside what is supported, 0.35 for the one alone.
    model = Parted(
        **{
            NEEDS[0]: f"{COMMISSIONED} {INVENTED}",
            NEEDS[1]: f"{COMMISSIONED} {INVENTED}",
            NEEDS[2]: WORSE,
            QUESTION: WHOLE,
        }
    )
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="hierarchical", safety_budget=0.9)
    plan, *parts, whole = windows(relay, answer.session_id)
    assert plan.safety_budget == 0.9
    assert sorted(one.safety_budget for one in parts) == [0.55, 0.75, 0.75]
    assert whole.safety_budget == 0.55
    assert session(relay, answer.session_id).safety_budget == 0.55


def test_all_calls_are_paid_for_by_the_answer(open_relay: Opener) -> None:
    answer = made(open_relay, Parted()).ask(QUESTION, model=MODEL, strategy="hierarchical")
    usage = answer.reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (400, 40)
    assert usage.cost_usd == pytest.approx(0.04)


def test_a_question_of_one_part_is_asked_as_it_is(open_relay: Opener) -> None:
    asked = f"{NEEDS[0]}?"
    model = ScriptedModel(COMMISSIONED)
    relay = made(open_relay, model)
    answer = relay.ask(asked, model=MODEL, strategy="hierarchical")
    assert (len(model.calls), question(model.calls[0])) == (1, asked)
    assert len(windows(relay, answer.session_id)) == 1


def test_parts_beyond_the_most_are_answered_in_the_last_window(open_relay: Opener) -> None:
    for options in (
        {"dispatch": {"hierarchical_parts": 2}},
        {"sessions": {"graph": {"fan_out": 2}}},
    ):
        model = Parted()
        relay = made(open_relay, model, **options)
        answer = relay.ask(QUESTION, model=MODEL, strategy="hierarchical")
        assert len(model.calls) == 3
        assert answer.envelope.sub_queries == NEEDS
        sound(relay, answer)


def test_a_model_may_take_the_question_apart(open_relay: Opener) -> None:
    class Planner(Parted):
        def call(self, call: ModelCall) -> Reply:
            if call.purpose is Purpose.DECOMPOSE:
                self.calls.append(call)
                return Reply(text=json.dumps(NEEDS[:2]), usage=COST)
            return super().call(call)

    model = Planner()
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, model=MODEL, strategy="hierarchical", decompose="model")
    assert [call.purpose for call in model.calls].count(Purpose.DECOMPOSE) == 1
    assert {NEEDS[0], NEEDS[1], QUESTION} <= {question(call) for call in model.calls}
    assert set(NEEDS[:2]) <= set(answer.envelope.sub_queries)
    assert answer.reply.usage.prompt_tokens == 100 * len(model.calls)
    assert windows(relay, answer.session_id)[0].tokens == 110
    sound(relay, answer)


def test_a_plan_whose_model_fails_is_sealed_as_failed(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(ModelError("gone")))
    session_id = "crp_sess_7f3a9bc2d4e1f083"
    with pytest.raises(ModelError, match="gone"):
        relay.ask(
            QUESTION, model=MODEL, strategy="hierarchical", decompose="model", session_id=session_id
        )
    assert [node.outcome for node in windows(relay, session_id)] == ["failed"]


def test_parts_go_on_from_a_session_that_is_under_way(open_relay: Opener) -> None:
    relay = made(open_relay, Parted(), max_windows=9)
    first = relay.ask(QUESTION, model=MODEL)
    for _ in range(2):
        answer = relay.ask(
            QUESTION, model=MODEL, strategy="hierarchical", session_id=first.session_id
        )
    numbers = [node.window_number for node in windows(relay, first.session_id)]
    assert numbers == [1, 2, 3, 3, 3, 4, 5, 6, 6, 6, 7]
    sound(relay, answer)


def test_a_driver_of_ones_own_hands_over_outcomes(open_relay: Opener) -> None:
    relay = made(open_relay, Parted())
    played = relay.play(QUESTION, model=MODEL, strategy="hierarchical")
    fan = played.begin()
    assert len(fan.turns) == 3
    with pytest.raises(RequestError, match="together"):
        played.receive(Reply(text="too early"))
    error = ModelError("all at once")
    assert played.fail(error).error is error


# --- by hand -----------------------------------------------------------------------------


def test_a_caller_fans_out_and_in_by_continuation_ids(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, REVENUE, INVENTED, COOLING)
    relay = made(open_relay, model)
    ask = {"model": MODEL, "k": 2, "cache": "no-cache"}
    root = relay.ask(f"{NEEDS[0]}?", **ask)
    assert root.continuation_id
    here = {**ask, "session_id": root.session_id, "continuation_ids": [root.continuation_id]}
    left = relay.ask(f"{NEEDS[1]}?", **here)
    right = relay.ask("Which gardens grow tulips?", **here)
    both = {**here, "continuation_ids": [left.continuation_id, right.continuation_id]}
    joined = relay.ask(f"{NEEDS[2]}?", **both)
    nodes = {node.window_id: node for node in windows(relay, root.session_id)}
    assert nodes[left.window_id].pattern is Pattern.LINEAR
    assert nodes[right.window_id].pattern is Pattern.BRANCH
    assert nodes[joined.window_id].pattern is Pattern.FAN_IN
    assert set(nodes[joined.window_id].parents) == {left.window_id, right.window_id}
    # Nothing that either branch has shown is shown again.
    shown = {f.fact_id for one in (root, left, right) for f in one.envelope.facts}
    assert shown.isdisjoint(f.fact_id for f in joined.envelope.facts)
    # The budget of the poorer branch goes on.
    assert nodes[joined.window_id].safety_budget == min(
        nodes[left.window_id].safety_budget, nodes[right.window_id].safety_budget
    )
    sound(relay, joined)


def test_ids_of_another_session_join_nothing(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    ours = relay.ask(f"{NEEDS[0]}?", model=MODEL)
    theirs = relay.ask(f"{NEEDS[0]}?", model=MODEL)
    with pytest.raises(UnknownContinuation):
        relay.ask(
            QUESTION,
            model=MODEL,
            session_id=ours.session_id,
            continuation_ids=[ours.continuation_id, theirs.continuation_id],
        )
