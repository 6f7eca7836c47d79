"""A preview is the request that `ask` would make: its facts, text, tokens and ETag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import (
    CRPError,
    EnvelopeUnchanged,
    PolicyRelaxed,
    RequestError,
    SafetyHalt,
    UnknownContinuation,
)
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import Purpose
from tests.doubles import HashEmbedder, ScriptedModel

SESSION = "crp_sess_" + "7" * 16
QUESTION = "When was the Meridian reactor commissioned?"
PARTS = "When was reactor number 3 commissioned? Who operates the Meridian reactor?"
SHORT = "Number 1 was commissioned on 1 March 2019."
LONG = " ".join(f"Reactor number {n} was commissioned on {n} March 2019." for n in range(1, 60))
TURN = {"role": "user", "content": "We talked about reactors before. " * 40}

Asking = dict[str, Any]
# What is asked before, if anything, and what is previewed and then asked.
REQUESTS: dict[str, tuple[Asking | None, Asking]] = {
    "plain": (None, {}),
    "again": ({}, {}),
    "capped": (None, {"budget_tokens": 120}),
    "k": (None, {"k": 3}),
    "auto": (None, {"budget_tokens": "auto"}),
    "policy": (None, {"policy": "warn-on HIGH"}),
    "needs": (None, {"sub_queries": ["reactor number 3", "reactor number 4"]}),
    "own context": (None, {"history": [TURN], "system_prompt": "Be brief. " * 60}),
    "age": (None, {"cache": "max-age=60"}),
    "pull": (None, {"strategy": "pull"}),
    "reflexive": (None, {"strategy": "reflexive"}),
    "agentic": (None, {"strategy": "agentic"}),
    "one part": (None, {"strategy": "hierarchical"}),
    "continued": ({"budget_tokens": 120}, {"budget_tokens": 120, "continues": True}),
    "continued, one fact": ({"k": 1}, {"k": 1, "continues": True}),
    "continued under a policy": ({"k": 2, "policy": "warn-on HIGH"}, {"k": 2, "continues": True}),
    "continued, too long": ({"text": LONG}, {"budget_tokens": 200, "continues": True}),
    "no-store": ({"cache": "no-store", "k": 2}, {"cache": "no-store", "continues": True}),
}


class Reading(ScriptedModel):
    """Replies with a text, and an empty text to calls that precede the answer."""

    def call(self, call: ModelCall) -> Reply:
        reply = super().call(call)
        return reply if call.purpose is Purpose.ANSWER else Reply(text="NONE")


def opened(text: str = SHORT, **options: Any) -> Relay:
    relay = Relay.open(embedder=HashEmbedder(), models=Reading(text), model="gpt-4o", **options)
    relay.add(
        f"The Meridian reactor number {n} was commissioned on {n} March 2019 and delivers power."
        for n in range(1, 30)
    )
    return relay


def prepared(name: str) -> tuple[Relay, Asking]:
    """A relay where the first question was asked, and the fields of the second one."""
    before, asking = REQUESTS[name]
    fields = {"session_id": SESSION, **asking}
    if before is None:
        return opened(), fields
    asked_first = dict(before)
    relay = opened(asked_first.pop("text", SHORT))
    first = relay.ask(QUESTION, session_id=SESSION, **asked_first)
    if fields.pop("continues", False):
        fields["continuation_ids"] = [first.continuation_id]
    return relay, fields


def state(relay: Relay) -> list[object]:
    with relay.fabric.begin(write=False) as transaction:
        return [*transaction.journal.events(), *transaction.journal.seals(SESSION)]


def both(relay: Relay, question: str, fields: Asking) -> Answer:
    """The answer to a question whose preview is the envelope of it."""
    model, before = relay._models, state(relay)
    asked = len(model.calls)  # type: ignore[attr-defined]
    seen = relay.preview(question, **fields)
    assert len(model.calls) == asked  # type: ignore[attr-defined]
    assert state(relay) == before
    answer = relay.ask(question, **fields)
    envelope = answer.envelope
    scores = {"relevance_score", "freshness_score", "composite_score", "selection_score"}
    assert [fact.model_dump(exclude=scores) for fact in seen.facts] == [
        fact.model_dump(exclude=scores) for fact in envelope.facts
    ]
    assert seen.text == envelope.text
    assert (seen.estimated_tokens, seen.token_budget, seen.etag) == (
        envelope.token_count,
        envelope.token_budget,
        envelope.etag,
    )
    assert (seen.facts_included, seen.facts_available, seen.saturation) == (
        envelope.total_facts_included,
        envelope.total_facts_available,
        envelope.saturation,
    )
    return answer


@pytest.mark.requirement("003-12.1-1", "003-12.1-3", "003-14.2-1")
@pytest.mark.parametrize("name", REQUESTS)
def test_a_preview_is_the_request_that_is_asked_next(name: str) -> None:
    relay, fields = prepared(name)
    both(relay, QUESTION, fields)
    assert relay.preview(QUESTION, **fields).awaits == ()


@pytest.mark.requirement("003-12.1-3", "003-11.3-3")
# Without a store nothing is remembered, and the windows of parts are planned anew each time.
@pytest.mark.parametrize("name", sorted({*REQUESTS} - {"no-store", "one part"}))
def test_the_etag_of_a_preview_hits_for_the_same_envelope_alone(name: str) -> None:
    relay, fields = prepared(name)
    etag = relay.preview(QUESTION, **fields).etag
    answer = None
    try:
        answer = relay.ask(QUESTION, if_match=etag, **fields)
    except EnvelopeUnchanged:
        # The same question had an answer before.
        assert name == "again"
    if answer is not None:
        assert answer.headers["CRP-Context-Cache-Status"] == "HIT"
        assert answer.envelope.etag == etag
    for change in ({"policy": "warn-on MEDIUM"}, {"continuation_ids": ["*"]}, {"k": 4}):
        changed = {**fields, **change}
        if change == {"continuation_ids": ["*"]}:
            other = relay.ask(PARTS, session_id=SESSION)
            changed["continuation_ids"] = [other.continuation_id]
        try:
            again = relay.ask(QUESTION, if_match=etag, **changed)
        except PolicyRelaxed:
            continue
        assert again.headers["CRP-Context-Cache-Status"].startswith("MISS")


REFUSED: dict[str, tuple[type[CRPError], Asking, Asking]] = {
    "unknown": (UnknownContinuation, {}, {"continuation_ids": ["crp_cont_" + "a" * 32]}),
    "unreadable policy": (RequestError, {}, {"policy": "halt-on HIGH; require-grounding 0.9"}),
    "relaxed": (PolicyRelaxed, {"policy": "halt-on HIGH"}, {"policy": "halt-on CRITICAL"}),
    "halted": (SafetyHalt, {}, {"policy": "require-oversight halt"}),
    "nonce": (RequestError, {}, {"nonce": "base64:" + "QUJD" * 11}),
}


@pytest.mark.requirement("003-12.1-1")
@pytest.mark.parametrize("name", REFUSED)
def test_a_preview_is_refused_as_the_question_is(name: str) -> None:
    error, options, fields = REFUSED[name]
    relay = opened(**options)
    before = state(relay)
    doors: tuple[Callable[..., object], ...] = (relay.preview, relay.ask)
    messages = []
    for door in doors:
        with pytest.raises(error) as caught:
            door(QUESTION, session_id=SESSION, **fields)
        messages.append(str(caught.value))
        assert door == relay.ask or state(relay) == before
    assert messages[0] == messages[1]


@pytest.mark.requirement("003-12.1-1")
def test_a_preview_names_the_calls_that_it_does_without() -> None:
    relay = opened(LONG, sessions={"transfer": {"summaries": True}})
    first = relay.ask(QUESTION, session_id=SESSION)
    fields = {"session_id": SESSION, "continuation_ids": [first.continuation_id]}
    seen = relay.preview(QUESTION, budget_tokens=200, decompose="model", **fields)
    assert seen.awaits == ("decompose", "summarise")
    assert relay.preview(PARTS, strategy="hierarchical").awaits == ("parts",)
    # A summary makes another envelope, which the preview's ETag does not vouch for.
    answer = relay.ask(QUESTION, budget_tokens=200, if_match=seen.etag, **fields)
    hit = answer.headers["CRP-Context-Cache-Status"] == "HIT"
    assert hit == (answer.envelope.text == seen.text)
