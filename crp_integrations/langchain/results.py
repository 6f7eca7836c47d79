"""What tools answered, as facts that one session holds in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import ToolMessage

from crp_integrations.errors import FactRejected, LimitReached
from crp_integrations.fabric.ingest.chunking import cut
from crp_integrations.fabric.records import Fact
from crp_integrations.loaders.text import paragraphs
from crp_integrations.relay.relay import Relay

# Source of a result, before the tool's name.
SOURCE: Final = "tool:"


def held(relay: Relay, session_id: str, call: Mapping[str, Any], result: Any) -> int:
    """Hold a tool's result as facts of a session; nothing of it is stored.

    A result that is too short to be a fact gets what was asked in front of it; a long one is cut as
    documents are. Errors of tools, and what is no text, are no facts.

    Args:
        call: name and args of the tool call.
        result: what the tool node got: a `ToolMessage`, or a `Command` that holds some.

    Returns:
        How many facts the session holds more, or held already. 0 too where a session may hold no
        more of them; then what follows from the result shows as unsupported.
    """
    facts = [fact for message in _messages(result) for fact in _facts(relay, call, message)]
    if not facts:
        return 0
    try:
        report = relay.add(facts, session_id=session_id, cache="no-store")
    except (FactRejected, LimitReached):
        return 0
    return len(report.facts) + len(report.unchanged)


def _messages(result: Any) -> Iterator[ToolMessage]:
    update = getattr(result, "update", None)
    given = update.get("messages", ()) if isinstance(update, Mapping) else (result,)
    for message in given if isinstance(given, list | tuple) else (given,):
        if isinstance(message, ToolMessage) and message.status != "error":
            yield message


def _facts(relay: Relay, call: Mapping[str, Any], message: ToolMessage) -> Iterator[Fact]:
    text = str(message.text).strip()
    if not text:
        return
    name = str(call.get("name") or message.name or "tool")
    settings, counter = relay.settings.fabric.chunking, relay.fabric.counter
    if counter.count(text) < settings.min_fact_tokens:
        asked = json.dumps(call.get("args") or {}, ensure_ascii=False, default=str)
        text = f"The tool {name}, asked with {asked}, answered: {text}"
    for place, one in enumerate(cut(paragraphs(text), counter=counter, settings=settings), 1):
        yield Fact(
            content=one.content,
            source_id=SOURCE + name,
            source_location=f"{call.get('id') or ''}#{place}",
        )
