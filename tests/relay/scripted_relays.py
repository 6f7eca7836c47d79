"""Relays over scripted models, and what their journals and calls say."""

from __future__ import annotations

from typing import Any

from crp_integrations import Relay
from crp_integrations.audit.records import Event
from crp_integrations.errors import CRPError
from crp_integrations.messages import ModelCall, Reply, Usage
from crp_integrations.relay.drive import drive
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import Outcome, Release
from crp_integrations.vocabulary import EventType, Purpose, RiskLevel
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS, Opener

SESSION = "crp_sess_" + "a" * 16
QUESTION = "How many megawatts does the Meridian reactor deliver?"
OPERATOR = "Who operates the Meridian reactor?"
# Answers by their risk: by the document's arithmetic, and LOW and HIGH by a comparison too.
LOW = FACTS[0]
CHANGED = "The Meridian reactor delivers 900 megawatts."
CRITICAL = f"{CHANGED} The reactor was designed by Hans Gruber in 1998 and cost $88 billion."
HIGH = f"{FACTS[0]} {FACTS[1]} {FACTS[2]} {CHANGED} It was designed by Hans Gruber."
# What a verification of a reflexive answer says when it finds nothing.
SOUND = "NONE"


def opened(open_relay: Opener, *script: Any, **options: Any) -> tuple[Relay, ScriptedModel]:
    """A relay over the usual facts, and the model behind it."""
    model = ScriptedModel(*script)
    relay = open_relay(models=model, **options)
    relay.fabric.add(list(FACTS))
    return relay, model


def medium(open_relay: Opener) -> str:
    """An answer of medium risk by the document's arithmetic: one figure is another."""
    relay, _ = opened(open_relay, CHANGED)
    assert answered(relay).report.risk_level is RiskLevel.MEDIUM
    return CHANGED


def priced(text: str, prompt: int = 10, completion: int = 5) -> Reply:
    """A reply with a usage."""
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cost_usd=0.25)
    return Reply(text=text, usage=usage)


def outcome(relay: Relay, question: str = QUESTION, **asking: Any) -> Outcome:
    """What asking comes to, halts and refusals too."""
    return drive(relay.play(question, **{"session_id": SESSION, **asking}), relay._models)


def answered(relay: Relay, question: str = QUESTION, **asking: Any) -> Answer:
    """A released answer."""
    ended = outcome(relay, question, **asking)
    assert isinstance(ended, Release), ended
    return ended.answer


def continued(relay: Relay, before: Answer, question: str = OPERATOR, **asking: Any) -> Answer:
    """A released answer of a window that continues another one."""
    return answered(relay, question, continuation_ids=[before.continuation_id], **asking)


def refusal(relay: Relay, question: str = QUESTION, **asking: Any) -> CRPError:
    """The error that asking raises."""
    try:
        relay.ask(question, **{"session_id": SESSION, **asking})
    except CRPError as error:
        return error
    raise AssertionError("nothing was refused")


def session_events(
    relay: Relay, *kinds: EventType, window: str = "", residency: str | None = None
) -> list[Event]:
    """The journal's events of sessions, of some types, of a window."""
    with relay.region(residency).begin(write=False) as transaction:
        found = list(transaction.journal.events())
    return [
        event
        for event in found
        if (event.event_type in kinds if kinds else event.session_id)
        and window in ("", event.window_id)
    ]


def answers_asked(model: ScriptedModel) -> list[ModelCall]:
    """The calls for an answer, without those that verify one or prepare it."""
    return [call for call in model.calls if call.purpose is Purpose.ANSWER]


def system(call: ModelCall) -> str:
    """The system message of a call."""
    assert call.messages[0].role == "system"
    return call.messages[0].content
