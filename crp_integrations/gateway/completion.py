"""A released answer as an OpenAI completion, whole or in chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from crp_integrations.gateway.records import (
    Choice,
    Completion,
    Proof,
    SaidFunction,
    SaidMessage,
    SaidTool,
    SaidUsage,
)
from crp_integrations.relay.records import Answer

EVENTS: Final = "text/event-stream; charset=utf-8"
DONE: Final = b"data: [DONE]\n\n"
# What OpenAI's clients know as the end of an answer.
FINISHES: Final = frozenset({"stop", "length", "tool_calls", "content_filter"})


def proof(answer: Answer) -> Proof:
    """What a response says of its window in its body."""
    return Proof(
        session_id=answer.session_id,
        window_id=answer.window_id,
        continuation_id=answer.continuation_id,
        receipt_id=answer.receipt_id,
        headers=answer.headers,
    )


def completion(answer: Answer, id_: str, created: int) -> Completion:
    """The whole answer; its text is the model's, unaltered."""
    tools = _tools(answer)
    return Completion(
        id=id_,
        created=created,
        model=_model(answer),
        choices=(
            Choice(
                message=SaidMessage(
                    content=None if tools and not answer.text else answer.text, tool_calls=tools
                ),
                finish_reason=_finish(answer),
            ),
        ),
        usage=_usage(answer),
        crp=proof(answer),
    )


class Chunks:
    """The events of one answer."""

    def __init__(self, id_: str, created: int, model: str, *, usage: bool) -> None:
        """Know what every event says.

        Args:
            usage: whether the caller asked for a last event with the tokens.
        """
        self._frame: dict[str, Any] = {
            "id": id_,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._usage = usage

    def begin(self) -> bytes:
        """The event before the first text."""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """A piece of the text."""
        return self._chunk({"content": piece})

    def end(self, answer: Answer) -> Iterator[bytes]:
        """Tool calls, the finish with the proof in `crp`, the tokens where asked for, the end."""
        for place, call in enumerate(_tools(answer) or ()):
            yield self._chunk({"tool_calls": [{"index": place, **call.model_dump()}]})
        yield self._chunk({}, _finish(answer), crp=proof(answer).model_dump(mode="json"))
        if self._usage:
            yield _event({**self._frame, "choices": [], "usage": _usage(answer).model_dump()})
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._usage else {}
        return _event({**self._frame, "choices": [choice], **usage, **more})


def failed(body: bytes) -> bytes:
    """The event of a refusal after the first text; OpenAI's clients raise it."""
    return b"data: " + body + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _model(answer: Answer) -> str:
    return answer.reply.model or answer.envelope.model


def _finish(answer: Answer) -> str:
    if answer.reply.tool_calls:
        return "tool_calls"
    said = answer.reply.finish_reason
    return said if said in FINISHES else "stop"


def _tools(answer: Answer) -> tuple[SaidTool, ...] | None:
    calls = tuple(
        SaidTool(id=call.id, function=SaidFunction(name=call.name, arguments=call.arguments))
        for call in answer.reply.tool_calls
    )
    return calls or None


def _usage(answer: Answer) -> SaidUsage:
    used = answer.reply.usage
    return SaidUsage(
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        total_tokens=used.total_tokens,
    )
