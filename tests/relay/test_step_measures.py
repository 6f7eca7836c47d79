"""Write, select, compress and isolate: measured in every window, and each can stop it."""

from __future__ import annotations

import pytest

from crp_integrations.errors import StepStopped
from crp_integrations.governance.settings import STEPS, Guardrail, RunStep, StepMeasurement
from crp_integrations.messages import Message
from crp_integrations.vocabulary import EventType
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.need_questions import event_data, made
from tests.relay.test_compaction import HISTORY, MODEL, ON, QUESTION

SESSION = "crp_sess_" + "s" * 16
HELD = "The crane of the northern quay was stopped by the wind on the second of May 2026."


@pytest.mark.requirement("SUM-princ-2")
def test_every_window_records_the_four_steps(open_relay: Opener) -> None:
    model = ScriptedModel(FACTS[0])
    relay = made(open_relay, model, **ON)
    relay.add([HELD], session_id=SESSION, cache="no-store")
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY, session_id=SESSION)
    (began,) = event_data(relay, SESSION, EventType.DISPATCH_STARTED)
    steps = {step: StepMeasurement(step=step, **_named(began[step.value])) for step in STEPS}
    assert steps[RunStep.WRITE].items_after == 1
    selected = steps[RunStep.SELECT]
    assert selected.items_after == len(answer.envelope.facts)
    assert selected.tokens_after == answer.envelope.token_count
    assert selected.items_before >= selected.items_after
    account = answer.compaction
    assert account is not None
    compressed = steps[RunStep.COMPRESS]
    assert (compressed.tokens_before, compressed.tokens_after) == (
        account.tokens_before,
        account.tokens_after,
    )
    assert compressed.items_before == len(HISTORY)
    isolated = steps[RunStep.ISOLATE]
    (call,) = model.calls
    sent = relay.count_tokens(call.messages, MODEL).n
    # The parts are counted apart, the call as a whole.
    assert isolated.tokens_after == pytest.approx(sent, rel=0.02)
    assert isolated.tokens_after < isolated.tokens_before


def _named(counts: list[int]) -> dict[str, int]:
    return dict(
        zip(("items_before", "items_after", "tokens_before", "tokens_after"), counts, strict=True)
    )


@pytest.mark.requirement("SUM-princ-2")
@pytest.mark.parametrize(
    ("step", "guardrail", "seen"),
    [
        ("write", {"most_items": 0}, "1 items, at most 0"),
        ("select", {"least_items": 99}, "at least 99"),
        ("compress", {"most_tokens": 10}, "at most 10"),
        ("isolate", {"most_tokens": 20}, "at most 20"),
    ],
)
def test_any_steps_guardrail_stops_a_run(
    step: str, guardrail: dict[str, int], seen: str, open_relay: Opener
) -> None:
    model = ScriptedModel(FACTS[0])
    relay = made(open_relay, model, steps={step: guardrail})
    relay.add([HELD], session_id=SESSION, cache="no-store")
    with pytest.raises(StepStopped, match=f"step {step}: .*{seen}") as stopped:
        relay.ask(QUESTION, model=MODEL, history=HISTORY[:1], session_id=SESSION)
    assert stopped.value.step == step
    # No model was asked, and the window is sealed as refused.
    assert model.calls == []
    (failed,) = event_data(relay, SESSION, EventType.DISPATCH_FAILED)
    assert (failed["outcome"], failed["error"]) == ("refused", "StepStopped")
    relay.verify()


def test_a_guardrail_asks_for_what_it_says_alone() -> None:
    one = StepMeasurement(step=RunStep.SELECT, items_after=3, tokens_after=50)
    assert Guardrail().fault(one) == ""
    assert Guardrail(least_items=3, most_items=3, most_tokens=50).fault(one) == ""
    assert "at least 4" in Guardrail(least_items=4).fault(one)
    assert "at most 2" in Guardrail(most_items=2).fault(one)
    assert "at most 49" in Guardrail(most_tokens=49).fault(one)


def test_without_guardrails_nothing_is_stopped(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(FACTS[0]))
    message = Message(role="user", content="Before.")
    assert relay.ask(QUESTION, model=MODEL, history=[message]).text == FACTS[0]
