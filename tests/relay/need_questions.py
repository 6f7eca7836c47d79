"""What the tests of strategies share: facts on several needs, a relay, and what it left behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crp_integrations import Relay
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall, Usage
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.vocabulary import EventType
from tests.relay.conftest import FACTS, Opener

MODEL = "any/model"
COMMISSIONED, LICENCE, REVENUE, COOLING, GARDENS = FACTS
# Three needs, by rules.
QUESTION = (
    "When was the Meridian reactor commissioned? What revenue did Northfield Energy report? "
    "Does the cooling system draw water from the river?"
)
NEEDS = (
    "When was the Meridian reactor commissioned",
    "What revenue did Northfield Energy report",
    "Does the cooling system draw water from the river",
)
WHOLE = f"{COMMISSIONED} {REVENUE} {COOLING}"
# What nothing supports, with numbers and names of its own.
INVENTED = (
    "The Larkspur dam was sold to Brightwater Holdings for $97 million on 2 June 1987. "
    "Its 512 turbines were replaced by Castellan Works in 1994."
)
# The same, and a date that the facts have otherwise.
WORSE = f"{INVENTED} The Meridian reactor was commissioned on 9 May 2011."
COST = Usage(prompt_tokens=100, completion_tokens=10, cost_usd=0.01)


def made(open_relay: Opener, model: Any, **options: Any) -> Relay:
    relay = open_relay(models=model, **options)
    relay.fabric.add(list(FACTS))
    return relay


def said(call: ModelCall) -> str:
    """Everything that a call says."""
    return "\n".join(message.content for message in call.messages)


def system(call: ModelCall) -> str:
    return call.messages[0].content


def question(call: ModelCall) -> str:
    return next(m.content for m in reversed(call.messages) if m.role == "user")


def looks_up(*queries: str, text: str = "", other: Sequence[str] = ()) -> Reply:
    """A reply that searches, and calls tools of others."""
    searches = [("search_context", json.dumps({"query": query})) for query in queries]
    calls = [*searches, *((name, "{}") for name in other)]
    return Reply(
        text=text,
        tool_calls=tuple(
            ToolCall(id=f"t{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(calls)
        ),
        finish_reason="tool_calls",
    )


def event_data(relay: Relay, session_id: str, *types: EventType) -> list[dict[str, Any]]:
    """Data of a session's events in their order, with their type."""
    with relay.fabric.begin(write=False) as transaction:
        return [
            {"event": event.event_type, **event.data}
            for event in transaction.journal.events()
            if event.session_id == session_id and (not types or event.event_type in types)
        ]


def windows(relay: Relay, session_id: str) -> list[WindowNode]:
    with relay.fabric.begin(write=False) as transaction:
        return sessions_of(transaction).windows(session_id)


def session(relay: Relay, session_id: str) -> Session:
    with relay.fabric.begin(write=False) as transaction:
        found = sessions_of(transaction).session(session_id)
    assert found is not None
    return found


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]
