"""Streams of engines, whose model is often called when they are read, read in their own span."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Final

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.instrumentation.span import active_span_id

STREAMS: Final = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse)


def read_within(response: Any, span_id: str, done: Callable[[], None]) -> None:
    """Let a response be read in a span that has ended, however late.

    Chat engines read theirs in threads and tasks of their own, which have the span by themselves.

    Args:
        done: called when it is read to its end, or given up.
    """
    if isinstance(response, StreamingResponse):
        response.response_gen = _read(response.response_gen, span_id, done)
    elif isinstance(response, AsyncStreamingResponse):
        response.response_gen = _aread(response.response_gen, span_id, done)


def _read(given: Any, span_id: str, done: Callable[[], None]) -> Generator[str, None, None]:
    pieces = iter(given)
    try:
        while True:
            token = active_span_id.set(span_id)
            try:
                piece = next(pieces)
            except StopIteration:
                return
            finally:
                active_span_id.reset(token)
            yield piece
    finally:
        if isinstance(pieces, Generator):
            pieces.close()
        done()


async def _aread(given: Any, span_id: str, done: Callable[[], None]) -> AsyncGenerator[str, None]:
    pieces = aiter(given)
    try:
        while True:
            token = active_span_id.set(span_id)
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return
            finally:
                active_span_id.reset(token)
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
        done()
