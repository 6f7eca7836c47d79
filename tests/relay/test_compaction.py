"""A long conversation is shortened before the model is asked, and the journal says what of it."""

from __future__ import annotations

import pytest

from crp_integrations import Relay, compact
from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction.records import Trigger
from crp_integrations.messages import Message, ToolCall
from crp_integrations.receipt.replay import replay
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType
from tests.doubles import NOON, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.need_questions import event_data, made, said

MODEL = "any/model"
QUESTION = "Why did crane 3 stop?"
ON = {"context_limits": {MODEL: 4_000}, "compaction": {"enabled": True}}


def log(number: int) -> str:
    lines = [f"2026-05-0{number} 12:00:{n:02d} INFO heartbeat of pump {n % 4}" for n in range(50)]
    return "\n".join(
        [*lines, f"2026-05-0{number} 12:01:00 ERROR crane {number} stopped at 18 tons"]
    )


def rounds(count: int) -> list[Message]:
    found = [Message(role="user", content="Read the logs of the cranes, please.")]
    for number in range(1, count + 1):
        call = ToolCall(id=f"c{number}", name="read_log", arguments=f'{{"crane": {number}}}')
        found.append(Message(role="assistant", tool_calls=(call,)))
        found.append(Message(role="tool", content=log(number), tool_call_id=call.id))
    return [*found, Message(role="assistant", content="I have read all of them.")]


HISTORY = rounds(6)


@pytest.mark.requirement("SUM-privacy-2")
def test_a_long_history_is_shortened_and_journalled_by_ids(open_relay: Opener) -> None:
    model = ScriptedModel(FACTS[0])
    relay = made(open_relay, model, **ON)
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY)
    account = answer.compaction
    assert account is not None and account.fits and Trigger.BUDGET in account.triggers
    (call,) = model.calls
    assert "crane 3 stopped at 18 tons" in said(call)
    assert said(call).count("heartbeat") < 100
    assert call.messages[-1].content == QUESTION
    # The journal holds what the account holds, without a word of it.
    (told,) = event_data(relay, answer.session_id, EventType.CONTEXT_COMPACTED)
    assert (told["before"], told["after"]) == (account.tokens_before, account.tokens_after)
    dropped = event_data(relay, answer.session_id, EventType.CONTEXT_DROPPED)
    assert [(one["report"], one["items"]) for one in dropped] == [
        (report.id, list(report.dropped_item_ids)) for report in account.reports
    ]
    # Hash and signer of each summary.
    written = event_data(relay, answer.session_id, EventType.SUMMARY_WRITTEN)
    assert [(one["summary"], one["content_hash"], one["signer"]) for one in written] == [
        (one.id, sha256(one.text), relay.fabric.subject.name) for one in account.summaries
    ]
    assert written and all(one["signer"] for one in written)
    assert "heartbeat" not in str([told, *dropped, *written])
    relay.verify()
    # What was sent is what the receipt replays.
    receipt = relay.receipt(answer.receipt_id)
    assert receipt is not None and replay(receipt).same


def test_it_is_off_unless_it_is_asked_for(open_relay: Opener) -> None:
    model = ScriptedModel(FACTS[0])
    relay = made(open_relay, model, context_limits={MODEL: 4_000})
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY)
    assert answer.compaction is None
    assert model.calls[-1].messages[-len(HISTORY) - 1 : -1] == tuple(HISTORY)
    assert relay.ask(QUESTION, model=MODEL, history=HISTORY, compact=True).compaction is not None
    on = made(open_relay, ScriptedModel(FACTS[0]), **ON)
    assert on.ask(QUESTION, model=MODEL, history=HISTORY, compact=False).compaction is None
    # Without a history there is nothing to look at.
    assert on.ask(QUESTION, model=MODEL).compaction is None


def test_large_results_become_artifacts_where_the_settings_say_so(open_relay: Opener) -> None:
    settings = {"enabled": True, "offload": True, "offload_tokens": 100}
    options = {**ON, "compaction": settings}
    model = ScriptedModel(FACTS[0])
    relay = made(open_relay, model, **options)
    relay.turn(QUESTION, model=MODEL, history=HISTORY).preview()
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY)
    assert answer.compaction is not None
    kept = [one for one in answer.compaction.artifacts if one.kind != "summary"]
    assert kept
    assert {relay.sandbox().get(one.ref).text for one in kept} <= {log(n) for n in range(1, 7)}
    assert any(f"(kept whole as {one.ref})" in said(model.calls[-1]) for one in kept)
    # Nothing is kept of a session that nothing may be kept of.
    quiet = relay.ask(
        QUESTION, model=MODEL, history=HISTORY, session_id="crp_sess_" + "q" * 16, cache="no-store"
    )
    assert quiet.compaction is not None and quiet.compaction.artifacts == ()


def test_a_preview_shows_what_would_be_sent_and_keeps_nothing(open_relay: Opener) -> None:
    options = {**ON, "compaction": {"enabled": True, "offload": True, "offload_tokens": 100}}
    relay = made(open_relay, ScriptedModel(FACTS[0]), **options)
    turn = relay.turn(QUESTION, model=MODEL, history=HISTORY)
    turn.preview()
    whole = sum(len(one.content) for one in HISTORY)
    assert sum(len(one.content) for one in turn.fit(MODEL).call.messages) < whole / 2
    with relay.fabric.begin(write=False) as transaction:
        assert not [
            event
            for event in transaction.journal.events()
            if event.event_type is EventType.ARTIFACT_ACCESS
        ]


def test_a_history_that_is_broken_is_refused_by_name(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(FACTS[0]), **ON)
    with pytest.raises(RequestError, match="makes no such call"):
        relay.ask(QUESTION, model=MODEL, history=[*HISTORY[:1], *HISTORY[2:]])


def test_plain_messages_are_shortened_without_a_question(open_relay: Opener) -> None:
    relay: Relay = made(open_relay, ScriptedModel(FACTS[0]))
    asked = {"role": "user", "content": QUESTION}
    given = [*(message.model_dump(exclude_none=True) for message in HISTORY[:1]), asked]
    assert relay.compact(given, model=MODEL).account.triggers == ()
    compact = relay.compact([*HISTORY, asked], model=MODEL, budget_tokens=800)
    assert compact.account.fits and compact.messages[-1].content == QUESTION
    assert relay.count_tokens(compact.messages, MODEL).n == compact.account.tokens_after
    # Handed over with the question, the account is journalled with its window.
    answer = relay.ask(
        QUESTION, model=MODEL, history=compact.messages[:-1], compaction=compact.account
    )
    assert answer.compaction == compact.account
    assert event_data(relay, answer.session_id, EventType.CONTEXT_DROPPED)


def test_the_front_door_shortens_without_a_store() -> None:
    asked = {"role": "user", "content": QUESTION}
    whole = compact([*HISTORY, asked], model="gpt-4o")
    assert whole.messages[:-1] == tuple(HISTORY) and whole.account.triggers == ()
    short = compact([*HISTORY, asked], model="gpt-4o", budget_tokens=1_500, now=NOON)
    assert short.account.fits and Trigger.BUDGET in short.account.triggers
    assert any("crane 3 stopped at 18 tons" in message.content for message in short.messages)
    assert {report.created_at for report in short.account.reports} == {NOON}
