"""Context assembly through the front door."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from crp_integrations import Relay
from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.cfs.assembly import verify_properties
from crp_integrations.envelope.cfs.records import TokenBudget
from crp_integrations.errors import RequestError
from tests.doubles import NOON
from tests.relay.conftest import FACTS

QUESTION = "Who operates the Meridian reactor?"
SESSION = "crp_sess_7f3a9bc2d4e1f083"


def test_a_budget_in_tokens_keeps_the_reserves_free(relay: Relay) -> None:
    context = relay.assemble(QUESTION)
    assert context.budget == TokenBudget(total_tokens=2000)
    assert sorted(chunk.text for chunk in context.chunks) == sorted(FACTS)
    assert context.metadata.timestamp == NOON
    assert context.metadata.state_root == relay.fabric.state_hash()
    small = relay.assemble(QUESTION, budget=840)
    assert small.budget.available == 40
    assert small.total_tokens + small.overhead_tokens <= 40
    assert small.rendered_tokens <= 40
    assert relay.assemble(QUESTION, 300).chunks == ()
    own = TokenBudget(total_tokens=40, reserved_system=0, reserved_query=0, reserved_response=0)
    assert relay.assemble(QUESTION, own).text == small.text


def test_the_tokens_are_those_of_the_model(relay: Relay) -> None:
    for model in ("gpt-4o", "gpt-4"):
        context = relay.assemble(QUESTION, model=model)
        counter = counter_for(model)
        assert context.tokenizer == counter.identity
        assert context.rendered_tokens == counter.count(context.text)
    assert relay.assemble(QUESTION).tokenizer == counter_for("extractive").identity


def test_packing_and_other_choices_hold_for_one_call(relay: Relay) -> None:
    greedy = [chunk.chunk_id for chunk in relay.assemble(QUESTION, packing="greedy").chunks]
    scores = [chunk.score for chunk in relay.assemble(QUESTION, packing="score_weighted").chunks]
    assert len(greedy) == len(scores) == len(FACTS)
    assert scores == sorted(scores, reverse=True)
    assert relay.assemble(QUESTION, packing="interleaved").packing == "interleaved"
    assert len(relay.assemble(QUESTION, max_chunks_per_doc=1).chunks) == 1
    assert relay.assemble(QUESTION, include_metadata=True).chunks[0].metadata is not None
    assert relay.assemble(QUESTION).packing == "greedy"


def test_an_equal_question_comes_from_the_cache_until_something_changes(relay: Relay) -> None:
    first = relay.assemble(QUESTION)
    assert relay.assemble(QUESTION) is first
    assert relay.assemble(QUESTION, packing="greedy") is first
    relay.fabric.add(["Southfield Energy offered to operate the Meridian reactor from 2060 on."])
    assert len(relay.assemble(QUESTION).chunks) == len(first.chunks) + 1


def test_a_sessions_facts_are_found_in_that_session_alone(relay: Relay) -> None:
    held = "Southfield Energy offered to operate the Meridian reactor from 2060 on."
    relay.add([held], session_id=SESSION, cache="no-store")
    assert held not in relay.assemble(QUESTION).text
    assert held in relay.assemble(QUESTION, session_id=SESSION).text
    relay.end_session(SESSION)
    assert held not in relay.assemble(QUESTION, session_id=SESSION).text


def test_searching_at_once_gives_the_same_context(relay: Relay) -> None:
    settings = {"parallel_search": True}
    assert relay.assemble(QUESTION, **settings).text == relay.assemble(QUESTION).text
    with ThreadPoolExecutor(1) as pool:
        context = verify_properties(
            QUESTION, relay.fabric, TokenBudget.new(2000), now=NOON, pool=pool
        )
    assert context.properties.deterministic is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"budget": -1}, "budget is -1, wanted"),
        ({"budget": "many"}, "budget is 'many', wanted"),
        ({"packing": "random"}, "packing 'random' is not usable: .*'score_weighted'"),
        ({"max_chunks_per_doc": 0}, "max_chunks_per_doc 0 is not usable"),
        ({"colour": "red"}, "colour 'red' is not usable"),
        ({"session_id": 1.5}, "session_id is float"),
        ({"residency": "moon"}, "residency 'moon'"),
    ],
)
def test_what_is_wrong_is_named(relay: Relay, arguments: dict, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        relay.assemble(QUESTION, **arguments)
    with pytest.raises(RequestError, match="query is empty"):
        relay.assemble("  ")
