"""What is asked in an odd way: misspelt words, one text for many, an answer for its receipt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import crp_integrations
from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.messages import Message

QUESTION = "How high is the fee?"


@pytest.fixture(scope="module")
def relay() -> Relay:
    relay = Relay.open(model="extractive")
    relay.add(["The fee is 90 EUR a month for each of the cranes that stand in the harbour."])
    return relay


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        ({"stategy": "push"}, "'stategy' is no argument of a question; did you mean 'strategy'?"),
        ({"colour": "red"}, "'colour' is no argument of a question"),
        ({"strategy": "pusch"}, "strategy 'pusch' is not usable: wanted 'push', "),
        ({"accept_quality": ["X"]}, "accept_quality.0 'X' is not usable: wanted 'S', "),
        ({"model": ""}, "model is not usable: it is empty"),
        ({"policy": 5}, "policy is not usable: wanted a text"),
        ({"k": "x"}, "k is not usable: wanted a whole number"),
        ({"prior": ["x"]}, "prior.0 is not usable: wanted PriorWindow"),
    ],
)
def test_a_refusal_names_the_argument_and_what_is_wanted(
    relay: Relay, asking: dict[str, Any], said: str
) -> None:
    for door in (relay.ask, relay.preview, relay.turn):
        with pytest.raises(RequestError) as caught:
            door(QUESTION, **asking)
        assert str(caught.value).startswith(said)


def test_a_text_that_is_no_word_of_a_list_is_not_told(relay: Relay) -> None:
    told: Any = ["The patient is John Doe."]
    with pytest.raises(RequestError) as caught:
        relay.ask(told)
    assert "Doe" not in str(caught.value)


@pytest.mark.parametrize("odd", [QUESTION, None, b"why", 5, {QUESTION}], ids=type)
def test_one_text_is_no_batch(relay: Relay, odd: Any) -> None:
    # Each letter of it was a question, and a call of the model.
    before = relay.verify().windows
    for ask in (relay.batch, lambda one: asyncio.run(relay.abatch(one))):
        with pytest.raises(RequestError, match=r"queries is .*; give a list"):
            ask(odd)
    assert relay.verify().windows == before
    assert len(relay.batch((QUESTION,)).answers) == 1


def test_a_receipt_is_asked_for_by_a_text(relay: Relay) -> None:
    answer: Any = relay.ask(QUESTION)
    for odd in (answer, None, 5):
        with pytest.raises(RequestError, match=r"is of type .*; give a text, such as answer\.rec"):
            relay.receipt(odd)
    assert relay.receipt(answer.receipt_id) is not None
    assert relay.receipt("nobody") is None


@pytest.mark.parametrize(
    "odd",
    [{"role": "user", "content": "x"}, "x", None, Message(role="user", content="x")],
    ids=type,
)
def test_one_message_is_no_conversation(relay: Relay, odd: Any) -> None:
    wanted = f"messages is of type {type(odd).__name__}, wanted a list of them"
    with pytest.raises(RequestError, match=wanted):
        relay.compact(odd)
    with pytest.raises(RequestError, match=wanted):
        crp_integrations.compact(odd, model="gpt-4o", budget_tokens=100)
