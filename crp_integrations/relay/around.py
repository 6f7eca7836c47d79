"""A step around a stream, which its reader leaves and enters again with every piece.

What is around code, such as OpenTelemetry's current span, is a context variable, and a generator
runs in the context of whoever asks it for the next piece. So a stream gets a context of its own in
which every piece of it is made: what happens within has the step around it, and the reader, who
may stop at any piece, has not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from crp_integrations.ports import Tracer

Part = TypeVar("Part")


def around(tracer: Tracer, name: str, parts: Generator[Part]) -> Generator[Part]:
    """The same pieces, made within a step that ends with the last of them.

    It ends with an error too, and where nobody listens any more.
    """
    own = copy_context()
    inner = _within(tracer, name, parts)
    try:
        while True:
            try:
                part = own.run(next, inner)
            except StopIteration:
                return
            yield part
    finally:
        own.run(inner.close)


async def aaround(tracer: Tracer, name: str, parts: AsyncGenerator[Part]) -> AsyncGenerator[Part]:
    """The asynchronous twin of `around`."""
    own = copy_context()
    inner = _awithin(tracer, name, parts)
    try:
        while True:
            try:
                part = await _In(own, anext(inner))
            except StopAsyncIteration:
                return
            yield part
    finally:
        await _In(own, inner.aclose())


def _within(tracer: Tracer, name: str, parts: Generator[Part]) -> Generator[Part]:
    with closing(parts), tracer.step(name):
        yield from parts


async def _awithin(tracer: Tracer, name: str, parts: AsyncGenerator[Part]) -> AsyncGenerator[Part]:
    with tracer.step(name):
        async with aclosing(parts):
            async for part in parts:
                yield part


class _In(Generic[Part]):
    """Something awaited in a context; a task of its own would be cancelled by itself."""

    def __init__(self, own: Context, awaited: Awaitable[Part]) -> None:
        self._own = own
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Part]:
        coming: Any = self._awaited.__await__()
        go_on: Callable[[], Any] = partial(coming.send, None)
        while True:
            try:
                waits_for = self._own.run(go_on)
            except StopIteration as done:
                found: Part = done.value
                return found
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the awaited one's to handle
                go_on = partial(coming.throw, error)
            else:
                go_on = partial(coming.send, sent)
