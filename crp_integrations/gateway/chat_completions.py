"""`/v1/chat/completions`, `/v1/preview` and `/v1/models`: turns of the tenant's relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Final

from crp_integrations.envelope.assemble import preview as previewed
from crp_integrations.errors import CRPError
from crp_integrations.gateway.records import (
    Choice,
    Completion,
    ListedModel,
    ModelList,
    Proof,
    ResponseFunction,
    ResponseMessage,
    ResponseToolCall,
    ResponseUsage,
)
from crp_integrations.gateway.request_bodies import ChatQuestion, check_model, read_question
from crp_integrations.gateway.responses import (
    GatewayRequest,
    GatewayResponse,
    error_response,
    json_response,
    log_failure,
    outcome_response,
)
from crp_integrations.gateway.tenants import QuestionModel
from crp_integrations.headers import names
from crp_integrations.headers.codec import write_response
from crp_integrations.headers.records import ResponseHeaders
from crp_integrations.headers.response_headers import envelope_fields
from crp_integrations.observability.observers import observe_model
from crp_integrations.ports import Model
from crp_integrations.relay.drive import ASK, STREAM, adrive, adrive_stream, atrace_stream
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import Outcome, Release

EVENTS: Final = "text/event-stream; charset=utf-8"
DONE: Final = b"data: [DONE]\n\n"
# Finish reasons that OpenAI clients know.
FINISHES: Final = frozenset({"stop", "length", "tool_calls", "content_filter"})


def proof_of(answer: Answer) -> Proof:
    """The CRP ids and headers of a window, for the response body."""
    return Proof(
        session_id=answer.session_id,
        window_id=answer.window_id,
        continuation_id=answer.continuation_id,
        receipt_id=answer.receipt_id,
        headers=answer.headers,
    )


def completion_of(answer: Answer, id_: str, created: int) -> Completion:
    """The complete response; its text is the model's, or a repaired one."""
    tools = _tools(answer)
    return Completion(
        id=id_,
        created=created,
        model=answer.reply.model or answer.envelope.model,
        choices=(
            Choice(
                message=ResponseMessage(
                    content=None if tools and not answer.text else answer.text, tool_calls=tools
                ),
                finish_reason=_finish(answer),
            ),
        ),
        usage=_usage(answer),
        crp=proof_of(answer),
    )


class Chunks:
    """Builds the server-sent events of one answer."""

    def __init__(self, id_: str, created: int, model: str, *, usage: bool) -> None:
        """Store the fields that all events share."""
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
        """Tool calls, the finish reason with `crp`, the usage if requested, and `[DONE]`."""
        for place, call in enumerate(_tools(answer) or ()):
            yield self._chunk({"tool_calls": [{"index": place, **call.model_dump()}]})
        yield self._chunk({}, _finish(answer), crp=proof_of(answer).model_dump(mode="json"))
        if self._usage:
            yield _event({**self._frame, "choices": [], "usage": _usage(answer).model_dump()})
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._usage else {}
        return _event({**self._frame, "choices": [choice], **usage, **more})


def refusal_event(body: bytes) -> bytes:
    """The event of a refusal after the first text; OpenAI clients raise it as an error."""
    return b"data: " + body + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _finish(answer: Answer) -> str:
    if answer.reply.tool_calls:
        return "tool_calls"
    reason = answer.reply.finish_reason
    return reason if reason in FINISHES else "stop"


def _tools(answer: Answer) -> tuple[ResponseToolCall, ...] | None:
    calls = tuple(
        ResponseToolCall(
            id=call.id, function=ResponseFunction(name=call.name, arguments=call.arguments)
        )
        for call in answer.reply.tool_calls
    )
    return calls or None


def _usage(answer: Answer) -> ResponseUsage:
    used = answer.reply.usage
    return ResponseUsage(
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        total_tokens=used.total_tokens,
    )


async def complete_chat(call: GatewayRequest) -> GatewayResponse:
    """Answer a conversation's last question from the tenant's facts, examined and sealed."""
    asked = await _admitted_question(call)
    most = call.settings.answer_characters
    upstream = QuestionModel(call.upstream, asked.arguments, most, call.log_entry.pay)
    model = observe_model(upstream, call.relay.observer)
    if asked.stream:
        return await _stream(call, asked, model)
    played = call.relay.play(asked.query, **asked.asking)
    with call.relay.tracer.step(ASK):
        outcome = await adrive(played, model)
    call.note(outcome)
    if not isinstance(outcome, Release):
        return outcome_response(outcome, paid=call.log_entry.paid)
    completion = completion_of(outcome.answer, _completion_id(call), call.created)
    limit = await _limit_header(call, asked.model)
    return json_response(completion, headers={**outcome.answer.headers, **limit})


async def preview_envelope(call: GatewayRequest) -> GatewayResponse:
    """Preview the envelope of a question; no model is called and nothing is sealed.

    Spec: CRP-SPEC-003 §12.1, §12.3
    """
    asked = await _admitted_question(call)
    turn = call.relay.play(asked.query, **asked.asking).preview_window()
    envelope = await asyncio.to_thread(turn.preview)
    call.log_entry.session_id = turn.session_id
    call.log_entry.envelope(envelope)
    fields = envelope_fields(envelope, call.relay.settings.headers)
    headers = write_response(ResponseHeaders(session_id=turn.session_id, **fields))
    limit = await _limit_header(call, asked.model)
    return json_response(previewed(envelope, turn.awaits), headers={**headers, **limit})


async def list_models(call: GatewayRequest) -> GatewayResponse:
    """The models that callers may use; an empty list if any name is passed to the upstream."""
    call.only()
    return json_response(ModelList(data=tuple(ListedModel(id=name) for name in call.models)))


async def get_model(call: GatewayRequest) -> GatewayResponse:
    """A model that callers may use; any name if every name is passed to the upstream."""
    call.only()
    check_model(call.path["model_id"], call.models)
    return json_response(ListedModel(id=call.path["model_id"]))


async def _admitted_question(call: GatewayRequest) -> ChatQuestion:
    """The question, after checking that its model may be used here."""
    asked = await asyncio.to_thread(read_question, call.body, call.headers, call.settings)
    check_model(asked.model, call.models)
    await asyncio.to_thread(call.upstream.known, asked.model)
    call.log_entry.session_id = str(asked.asking.get("session_id") or "")
    return asked


async def _limit_header(call: GatewayRequest, model: str) -> dict[str, str]:
    """The model's assumed context limit, which can explain an empty envelope."""
    tokens, source = await asyncio.to_thread(call.relay.context_limit, model)
    return {names.CONTEXT_LIMIT: f"{tokens};source={source.partition(' ')[0]}"}


async def _stream(call: GatewayRequest, asked: ChatQuestion, model: Model) -> GatewayResponse:
    """The answer in events: as it arrives or, if it may be withheld, after the verdict.

    Spec: related facts §7
    """
    turn, shown = call.relay.play(asked.query, **asked.asking), False

    def shows() -> bool:
        nonlocal shown
        shown = call.settings.live_streams and turn.show_at_once()
        return shown

    parts = adrive_stream(turn, model, shows=shows)
    parts = atrace_stream(call.relay.tracer, STREAM, parts)
    chunks = Chunks(_completion_id(call), call.created, asked.model, usage=asked.usage)
    try:
        first = await anext(parts)
        if isinstance(first, str) and shown:
            limit = await _limit_header(call, asked.model)
            live_headers = {names.SESSION_ID: turn.session_id, **limit}
            # Set now, so that the log has it even if the caller disconnects before the end.
            call.log_entry.session_id = turn.session_id
            events = _live_events(call, chunks, first, parts)
            return GatewayResponse(
                200, live_headers, media_type=EVENTS, events=events, close=parts.aclose
            )
        pieces, outcome = [], first
        if isinstance(first, str):
            pieces.append(first)
        async for part in parts:
            if isinstance(part, str):
                pieces.append(part)
            else:
                outcome = part
    except BaseException:
        await parts.aclose()
        raise
    if isinstance(outcome, str):
        raise TypeError("a stream ended without an outcome")
    call.note(outcome)
    if not isinstance(outcome, Release):
        return outcome_response(outcome, paid=call.log_entry.paid)
    headers = {**outcome.answer.headers, **await _limit_header(call, asked.model)}
    events = _released_events(chunks, pieces, outcome)
    return GatewayResponse(200, headers, media_type=EVENTS, events=events)


async def _live_events(
    call: GatewayRequest, chunks: Chunks, first: str, parts: AsyncGenerator[str | Outcome]
) -> AsyncIterator[bytes]:
    yield chunks.begin()
    yield chunks.text(first)
    try:
        async for part in parts:
            if isinstance(part, str):
                yield chunks.text(part)
                continue
            call.note(part)
            if isinstance(part, Release):
                for event in chunks.end(part.answer):
                    yield event
            else:
                # The status and part of the text are sent already, so the refusal is an event.
                yield refusal_event(outcome_response(part).body)
    except CRPError as error:
        log_failure(call.request_id, error)
        yield refusal_event(error_response(error).body)


async def _released_events(
    chunks: Chunks, pieces: list[str], outcome: Release
) -> AsyncIterator[bytes]:
    yield chunks.begin()
    for piece in pieces:
        yield chunks.text(piece)
    for event in chunks.end(outcome.answer):
        yield event


def _completion_id(call: GatewayRequest) -> str:
    return f"chatcmpl-{call.request_id}"
