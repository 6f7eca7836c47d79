"""Windows of one session at once, and turns that are cancelled between their calls."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from crp_integrations.messages import Reply
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.relay import window_seal as closing
from crp_integrations.relay.steps import Release
from crp_integrations.relay.turn import Turn
from tests.relay.conftest import Opener
from tests.relay.scripted_relays import HIGH, LOW, QUESTION, SESSION, opened


def reply(text: str) -> Reply:
    """A model's reply."""
    return Reply(text=text, model="gpt-4o")


def test_a_window_that_began_before_a_stricter_policy_does_not_relax_it(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    lax = relay.turn(QUESTION, session_id=SESSION, policy="halt-on CRITICAL; block-pii")
    strict = relay.turn(QUESTION, session_id=SESSION, policy="halt-on HIGH; require-flow 0.10")
    lax.begin()
    strict.begin()
    assert isinstance(strict.receive(reply(LOW)), Release)
    assert isinstance(lax.receive(reply(LOW)), Release)
    with relay.fabric.begin(write=False) as transaction:
        session = transaction.sessions.session(SESSION)
    assert session is not None
    wanted = parse_policy("halt-on HIGH; require-flow 0.10; block-pii")
    assert parse_policy(session.policy) == wanted


def test_windows_that_are_kept_in_memory_are_each_charged(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, _ = opened(open_relay, HIGH)
    turns = [relay.turn(QUESTION, session_id=SESSION, cache="no-store") for _ in range(2)]
    for turn in turns:
        turn.begin()
    first_is_out, second_is_in = threading.Event(), threading.Event()
    ends = closing.quarantine

    def held_up(*given: Any) -> None:
        # The first window has committed, and is overtaken before it is held in memory.
        if not first_is_out.is_set():
            first_is_out.set()
            second_is_in.wait(1.0)
        ends(*given)

    monkeypatch.setattr(closing, "quarantine", held_up)
    first = threading.Thread(target=turns[0].receive, args=[reply(HIGH)])
    first.start()
    assert first_is_out.wait(10.0)
    second = threading.Thread(target=turns[1].receive, args=[reply(HIGH)])
    second.start()
    second.join(2.0)
    second_is_in.set()
    first.join()
    second.join()
    session = relay._world.memory.sessions.of(SESSION).session
    assert session is not None
    assert session.safety_budget == 0.7


@pytest.mark.parametrize("method", ["begin", "receive"])
def test_a_turn_that_is_cancelled_between_its_calls_is_sealed(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    relay, model = opened(open_relay, LOW)
    reached, cancelled = threading.Event(), threading.Event()
    plain = getattr(Turn, method)

    def slow(self: Turn, *given: Any) -> Any:
        reached.set()
        assert cancelled.wait(10.0)
        return plain(self, *given)

    monkeypatch.setattr(Turn, method, slow)

    async def play() -> None:
        asking = asyncio.ensure_future(
            relay.aask(QUESTION, session_id=SESSION, strategy="reflexive")
        )
        await asyncio.to_thread(reached.wait, 10.0)
        asking.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(play())
    with relay.fabric.begin(write=False) as transaction:
        seals = list(transaction.journal.seals(SESSION))
    assert [seal.outcome for seal in seals] == ["cancelled"]
    assert len(model.calls) == (0 if method == "begin" else 1)
