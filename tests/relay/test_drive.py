from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from crp_integrations.errors import ModelError
from crp_integrations.messages import Reply
from crp_integrations.relay.drive import adrive, adrive_stream, drive, drive_stream
from crp_integrations.relay.steps import Fan, Refusal, Release
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS

QUESTION = "When was the Meridian reactor commissioned?"
CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Parent:
    """Fans out once and releases what its last child released."""

    def __init__(self, children):
        self.children = tuple(children)
        self.outcomes = None

    def begin(self):
        return Fan(self.children)

    def receive(self, result):
        assert not isinstance(result, Reply)
        self.outcomes = result
        return result[-1]

    def fail(self, error):
        return Refusal(ModelError("failed"), {})


def children(relay, count):
    return [relay.turn(f"{QUESTION} {n}", model="any/model") for n in range(count)]


def test_a_fans_children_play_together_and_come_back_in_order(relay):
    together = threading.Barrier(3, timeout=20)

    class Meeting(ScriptedModel):
        def call(self, call):
            # Each child waits for the others here: one after another would never pass.
            together.wait()
            assert CALLER.get() == "me"
            return Reply(text=call.messages[-1].content)

    CALLER.set("me")
    parent = Parent(children(relay, 3))
    assert isinstance(drive(parent, Meeting("")), Release)
    assert [o.answer.text for o in parent.outcomes] == [f"{QUESTION} {n}" for n in range(3)]


async def test_a_fans_children_are_awaited_together(relay):
    waiting = 0
    all_in = asyncio.Event()

    class Meeting(ScriptedModel):
        async def acall(self, call):
            nonlocal waiting
            waiting += 1
            if waiting == 3:
                all_in.set()
            await asyncio.wait_for(all_in.wait(), 20)
            return Reply(text=call.messages[-1].content)

    parent = Parent(children(relay, 3))
    await adrive(parent, Meeting(""))
    assert [o.answer.text for o in parent.outcomes] == [f"{QUESTION} {n}" for n in range(3)]


async def test_streams_play_fans_too(relay):
    model = ScriptedModel(FACTS[0])
    assert isinstance(list(drive_stream(Parent(children(relay, 2)), model))[-1], Release)
    parts = [part async for part in adrive_stream(Parent(children(relay, 2)), model)]
    assert isinstance(parts[-1], Release)


async def test_a_cancelled_task_seals_its_window(relay):
    class Slow(ScriptedModel):
        async def acall(self, call):
            await asyncio.sleep(60)

    turn = relay.turn(QUESTION, model="any/model")
    task = asyncio.create_task(adrive(turn, Slow("")))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(turn.session_id).outcome == "cancelled"


def test_an_error_that_is_not_ours_is_sealed_and_passed_on(relay):
    class Broken(ScriptedModel):
        def call(self, call):
            raise ZeroDivisionError("1/0")

    turn = relay.turn(QUESTION, model="any/model")
    with pytest.raises(ZeroDivisionError):
        drive(turn, Broken(""))
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(turn.session_id).outcome == "failed"


def test_a_stream_that_is_cut_off_gives_nothing_out(relay):
    class Cut(ScriptedModel):
        def stream(self, call):
            yield "The Meridian"
            raise ModelError("the stream broke off")

    parts = list(drive_stream(relay.turn(QUESTION, model="any/model"), Cut("")))
    assert len(parts) == 1
    assert isinstance(parts[0], Refusal)


def test_a_stream_that_is_abandoned_is_sealed_as_cancelled(relay):
    class Endless(ScriptedModel):
        def stream(self, call):
            raise GeneratorExit

    turn = relay.turn(QUESTION, model="any/model")
    with pytest.raises((GeneratorExit, RuntimeError)):
        list(drive_stream(turn, Endless("")))
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(turn.session_id).outcome == "cancelled"
