"""What was asked and sent, as content: messages by the leaves of their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.envelope.prompt import BETWEEN, CONTEXT_CLOSE, CONTEXT_OPEN, system_parts
from crp_integrations.messages import Message, ToolCall
from crp_integrations.receipt.leaves import Part
from crp_integrations.receipt.texts import Texts, as_json, small
from crp_integrations.receipt.told import Asked, Told


def request_told(asked: Asked, texts: Texts, question: int, told: Told) -> dict[str, Any]:
    """The request; its texts get leaves."""
    needs: tuple[str, ...] = ()
    if told.envelope is not None and told.envelope.sub_queries != (asked.query,):
        needs = told.envelope.sub_queries
    tools = [dict(tool) for tool in asked.tools]
    return {
        "question": question,
        "needs": [texts.add(f"need/{n}", need) for n, need in enumerate(needs, start=1)],
        "system_prompt": texts.add("system-prompt", asked.system_prompt)
        if asked.system_prompt
        else None,
        "instructions": [
            # The words of a remedy quote claims of the answer before.
            texts.add(f"instruction/{n}", words, of=texts.of, follows=True)
            for n, words in enumerate(asked.instructions, start=1)
        ],
        "history": [
            _message(message, texts, f"history/{n}")
            for n, message in enumerate(asked.history, start=1)
        ],
        "results": asked.results,
        "tools": texts.add("tools", as_json(tools)) if tools else None,
        "grounding": asked.grounding.value,
        "strategy": asked.strategy.value,
        "oversight": None if asked.oversight is None else asked.oversight.value,
        "max_tokens": small(asked.max_tokens),
        "temperature": None if asked.temperature is None else repr(asked.temperature),
        # A provider takes seeds that canonical JSON has no number for.
        "seed": None if asked.seed is None else str(asked.seed),
        "shaped": asked.shaped,
    }


def _message(
    message: Message, texts: Texts, name: str, parts: Sequence[Part] = (), leaf: int | None = None
) -> dict[str, Any]:
    if leaf is None:
        leaf = texts.add(name, message.content, of=texts.of, follows=not parts, parts=parts)
    told: dict[str, Any] = {"role": str(message.role), "leaf": leaf}
    frame: dict[str, Any] = {}
    if message.name is not None:
        frame["name"] = message.name
    if message.tool_call_id is not None:
        frame["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        frame["tool_calls"] = [_tool_call(one) for one in message.tool_calls]
    if frame:
        told["frame"] = texts.add(f"{name}/frame", as_json(frame), of=texts.of, follows=True)
    return told


def _tool_call(one: ToolCall) -> dict[str, str]:
    return {"id": one.id, "name": one.name, "arguments": one.arguments}


def calls_told(
    told: Told, texts: Texts, question: int, parts: Sequence[Part]
) -> list[dict[str, Any]]:
    """The calls of the answer; what a later one repeats of the first is told once."""
    found = []
    first: tuple[Message, ...] = ()
    earlier: dict[Message, int] = {}
    for place, message in enumerate(told.asked.history, start=1):
        earlier.setdefault(message, place)
    for number, call in enumerate(told.calls):
        follows = number > 0 and call.messages[: len(first)] == first
        own = call.messages[len(first) :] if follows else call.messages
        sent = [
            _sent(message, texts, f"call/{number + 1}/{at}", told, earlier, question, parts)
            for at, message in enumerate(own, start=1)
        ]
        found.append(
            {
                "purpose": str(call.purpose),
                "model": call.model,
                "follows": follows,
                "messages": sent,
            }
        )
        first = first or call.messages
    return found


def _sent(
    message: Message,
    texts: Texts,
    name: str,
    told: Told,
    earlier: Mapping[Message, int],
    question: int,
    parts: Sequence[Part],
) -> dict[str, Any]:
    """A message as it was sent; the question and the context have leaves of their own."""
    if message.role == "user" and message.content == told.asked.query:
        return _message(message, texts, name, leaf=question)
    if place := earlier.get(message):
        return _message(message, texts, name, leaf=texts.number(f"history/{place}"))
    if message.role == "system" and told.asked.shaped:
        return _message(message, texts, name, _system(told.asked, texts, parts))
    rendered_text = texts.composed(parts)
    if not rendered_text or rendered_text not in message.content:
        return _message(message, texts, name)
    ahead, _, behind = message.content.partition(rendered_text)
    return _message(message, texts, name, _around(ahead, behind, texts, name, parts))


def _system(asked: Asked, texts: Texts, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The system message of `prompt@1` as parts: the caller's own words are in leaves."""
    own, rules, strategy, *_ = system_parts(asked.system_prompt, asked.grounding, asked.strategy)
    pieces: list[tuple[Part, ...]] = []
    if own:
        pieces.append((texts.number("system-prompt"),))
    pieces += [(words,) for words in (rules, strategy) if words]
    for number, words in enumerate(asked.instructions, start=1):
        if words:
            pieces.append((texts.number(f"instruction/{number}"),))
    if parts:
        pieces.append((CONTEXT_OPEN, *parts, CONTEXT_CLOSE))
    joined: list[Part] = []
    for piece in pieces:
        joined += (BETWEEN, *piece) if joined else piece
    return tuple(joined)


def _around(before: str, after: str, texts: Texts, name: str, parts: Sequence[Part]) -> list[Part]:
    """A caller's own message around a context, as parts."""
    found: list[Part] = list(parts)
    if before:
        found.insert(0, texts.add(f"{name}/before", before, of=texts.of, follows=True))
    if after:
        found.append(texts.add(f"{name}/after", after, of=texts.of, follows=True))
    return found
