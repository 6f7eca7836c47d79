"""Tool calls and what tools answered stand behind the question: on the wire and in the receipt."""

from __future__ import annotations

import pytest

from crp_integrations.errors import RequestError
from crp_integrations.messages import Message, ToolCall
from crp_integrations.receipt.replay import replay
from tests.receipt.relayed import ANSWER, MODEL, QUESTION, changed, opened, receipt_of
from tests.receipt.wire import replays, told

CALL = ToolCall(id="c1", name="look_up", arguments="{}")
HISTORY = (
    Message(role="user", content="Hello."),
    Message(role="assistant", content="Hello!"),
    Message(role="assistant", tool_calls=(CALL,)),
    Message(role="tool", content="412 megawatts", tool_call_id="c1"),
)


@pytest.mark.parametrize("asking", [{}, {"strategy": "reflexive"}, {"compact": True}])
def test_what_follows_the_question_is_sent_behind_it(asking: dict[str, object]) -> None:
    relay, model = opened(ANSWER, "- 512 is not there.", ANSWER)
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY, results=2, **asking)
    sent = [[(one.role, one.content) for one in call.messages] for call in model.calls]
    assert [role for role, _ in sent[0]][1:] == ["user", "assistant", "user", "assistant", "tool"]
    assert sent[0][3] == ("user", QUESTION)
    receipt = receipt_of(relay, answer.receipt_id)
    assert told(receipt) == sent
    assert replays(receipt)


def test_another_order_of_the_messages_is_found() -> None:
    relay, _ = opened()
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY, results=2)
    other = changed(
        receipt_of(relay, answer.receipt_id),
        lambda content: content["request"].update(results=1),
    )
    found = replay(other).part("prompt")
    assert found.place == "calls[0].messages[3].role"


@pytest.mark.parametrize(("results", "words"), [(5, "a history of 4"), (-1, "greater than or")])
def test_more_results_than_messages_are_refused(results: int, words: str) -> None:
    relay, model = opened()
    with pytest.raises(RequestError, match=words):
        relay.ask(QUESTION, model=MODEL, history=HISTORY, results=results)
    assert model.calls == []
