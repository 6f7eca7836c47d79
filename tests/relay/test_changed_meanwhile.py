"""A fabric that changes while a window reads it, and what a failed window leaves in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from crp_integrations import Relay
from crp_integrations.envelope.retrieval import gather
from crp_integrations.errors import RequestError
from crp_integrations.fabric.view import FabricView
from crp_integrations.language.lexical_overlap import profile
from crp_integrations.messages import Reply
from crp_integrations.relay.steps import Dispatch
from tests.envelope.builders import SETTINGS, LetterCounter
from tests.relay.conftest import FACTS, Opener

QUESTION = "When was the Meridian reactor commissioned?"
SESSION = "crp_sess_7f3a9bc2d4e1f083"


def test_a_fabric_that_fills_while_it_is_read_is_not_taken_for_empty(open_relay: Opener) -> None:
    relay = open_relay()
    view = relay.fabric.view()
    empty = relay.fabric.state_hash()
    moment = view.moment

    @contextmanager
    def meanwhile() -> Iterator[FabricView]:
        with moment() as bound:
            if not relay.fabric.size():
                relay.fabric.add(list(FACTS))
            yield bound

    view.moment = meanwhile  # type: ignore[method-assign]
    found = gather(view, QUESTION, counter=LetterCounter(), settings=SETTINGS)
    # What was read is the state before, and says so; the next question reads the one after.
    assert (found.state_hash, found.facts) == (empty, ())
    found = gather(view, QUESTION, counter=LetterCounter(), settings=SETTINGS)
    assert found.state_hash == relay.fabric.state_hash() != empty
    assert len(found.facts) == len(FACTS)


def test_a_turn_that_failed_while_a_model_decomposed_is_not_answered_from_memory(
    relay: Relay,
) -> None:
    asked = {"session_id": SESSION, "decompose": "model"}
    reply = Reply(text='["Meridian reactor commissioned", "Meridian reactor date"]')
    turn = relay.turn(QUESTION, **asked)
    turn.begin()
    step = turn.receive(reply)
    assert isinstance(step, Dispatch)
    etag = turn.receive(Reply(text="On 4 March 2019.")).answer.envelope.etag
    late = relay.turn(QUESTION, if_match=etag, **asked)
    late.begin()
    failed = late.fail(TimeoutError())
    with pytest.raises(RequestError, match="has ended"):
        late.receive(reply)
    assert late.fail(TimeoutError()) is failed


@pytest.mark.parametrize("how", ["erase", "end_session"])
def test_what_is_gone_is_not_remembered_as_text_that_was_read(relay: Relay, how: str) -> None:
    held = "The held fact says that Ada Lovelace wrote about the Analytical Engine in 1843."
    relay.add([held], session_id=SESSION, cache="no-store")
    before = profile(FACTS[0])
    assert profile(FACTS[0]) is before
    gone: Callable[[], object] = (
        (lambda: relay.fabric.erase("user"))
        if how == "erase"
        else (lambda: relay.end_session(SESSION))
    )
    gone()
    assert profile(FACTS[0]) is not before


def test_a_turn_in_flight_during_an_erasure_leaves_no_erased_text(relay: Relay) -> None:
    turn = relay.turn(QUESTION, session_id=SESSION)
    turn.begin()
    relay.fabric.erase("user")
    etag = turn.receive(Reply(text="On 4 March 2019.")).answer.envelope.etag
    assert relay._world.known.bytes == 0
    # That it was known stays.
    late = relay.preview(QUESTION, session_id=SESSION, if_match=etag)
    assert late.facts_included == 0
    assert len(relay._world.known) == 2
