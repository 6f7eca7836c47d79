"""What tools answered, as facts that one session holds in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import ToolMessage

from crp_integrations.adapters.evidence import hold_facts, result_facts
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.relay.relay import Relay


def held(relay: Relay, session_id: str, call: Mapping[str, Any], result: Any) -> int:
    """Hold a tool's result as facts of a session; nothing of it is stored.

    Errors of tools, and what is no text, are no facts.

    Args:
        call: name and args of the tool call.
        result: what the tool node got: a `ToolMessage`, or a `Command` that holds some.

    Returns:
        How many facts the session holds more, or held already.
    """
    facts = [
        fact
        for message in _messages(result)
        for fact in result_facts(
            relay,
            split_paragraphs,
            str(call.get("name") or message.name or "tool"),
            call.get("args") or {},
            str(message.text),
            str(call.get("id") or ""),
        )
    ]
    return hold_facts(relay, session_id, facts)


def _messages(result: Any) -> Iterator[ToolMessage]:
    update = getattr(result, "update", None)
    given = update.get("messages", ()) if isinstance(update, Mapping) else (result,)
    for message in given if isinstance(given, list | tuple) else (given,):
        if isinstance(message, ToolMessage) and message.status != "error":
            yield message
