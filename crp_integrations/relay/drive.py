"""The drivers: they run a Turn against a model until it ends. Turns are synchronous.

If an error ends a turn before its verdict, including a cancellation or a reply that cannot be
examined, its window is sealed, and the error is raised to the caller unchanged.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, closing, nullcontext, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, TypeGuard, TypeVar, cast

from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.errors import CRPError
from crp_integrations.messages import Reply
from crp_integrations.ports import Model, Tracer
from crp_integrations.relay.steps import (
    JUDGED,
    Dispatch,
    Drivable,
    Fan,
    JudgeDispatch,
    Outcome,
    Release,
    Result,
    Step,
)
from crp_integrations.vocabulary import Purpose

FAN_THREADS = 10
# Names of trace steps around a question; a stream's step lasts until its reader ends or stops.
ASK: Final = "ask"
STREAM: Final = "stream"
StreamPart = TypeVar("StreamPart")


def drive(turn: Drivable, model: Model) -> Outcome:
    """Run a turn to its end in the calling thread; a Fan's turns run in a thread pool."""
    step = turn.begin()
    while isinstance(step, Dispatch | Fan):
        try:
            result = _result(step, model)
        except CRPError as error:
            return turn.fail(error)
        except BaseException as error:
            _seal(turn, error)
            raise
        step = _receive(turn, result)
    return step


async def adrive(turn: Drivable, model: Model) -> Outcome:
    """Run a turn to its end; reading, examining and closing run off the event loop."""
    step = await _in_thread(turn, turn.begin)
    while isinstance(step, Dispatch | Fan):
        try:
            result = await _aresult(step, model)
        except CRPError as error:
            return await asyncio.to_thread(turn.fail, error)
        except BaseException as error:
            await _aseal(turn, error)
            raise
        step = await _in_thread(turn, _receive, turn, result)
    return step


def drive_stream(
    turn: Drivable, model: Model, *, shows: Callable[[], bool] | None = None
) -> Generator[str | Outcome]:
    """Run a turn with a streaming model call, and yield its answer; the outcome comes last, once.

    The pieces come after the verdict (CRP-SPEC-005 §1.2), unless `shows` permits them before.
    Text that was shown cannot be taken back, so it may permit them only if nothing can change the
    answer.

    Spec: related facts §7

    Args:
        shows: whether the pieces may come before the verdict, asked once the turn has begun; None
            for no.
    """
    step, pieces = turn.begin(), list[str]()
    live = shows is not None and shows()
    while isinstance(step, Dispatch | Fan):
        try:
            result: Result
            if not _answers(step):
                result = _result(step, model)
            else:
                whole: Reply | None = None
                pieces.clear()
                for part in model.stream(step.call):
                    if isinstance(part, Reply):
                        whole = part
                        continue
                    pieces.append(part)
                    if live:
                        yield part
                result = _whole_reply(whole, pieces, step.model)
        except CRPError as error:
            step = turn.fail(error)
            break
        except BaseException as error:
            # Includes GeneratorExit: a reader that stops has seen a part, so the window is sealed.
            _seal(turn, error)
            raise
        step = _receive(turn, result)
    yield from () if live else _released(step, pieces)
    yield step


async def adrive_stream(
    turn: Drivable, model: Model, *, shows: Callable[[], bool] | None = None
) -> AsyncGenerator[str | Outcome]:
    """The asynchronous twin of `drive_stream`."""
    step, pieces = await _in_thread(turn, turn.begin), list[str]()
    live = shows is not None and shows()
    while isinstance(step, Dispatch | Fan):
        try:
            result: Result
            if not _answers(step):
                result = await _aresult(step, model)
            else:
                whole: Reply | None = None
                pieces.clear()
                async with _closing(model.astream(step.call)) as stream:
                    async for part in stream:
                        if isinstance(part, Reply):
                            whole = part
                            continue
                        pieces.append(part)
                        if live:
                            yield part
                result = _whole_reply(whole, pieces, step.model)
        except CRPError as error:
            step = await asyncio.to_thread(turn.fail, error)
            break
        except BaseException as error:
            await _aseal(turn, error)
            raise
        step = await _in_thread(turn, _receive, turn, result)
    for piece in () if live else _released(step, pieces):
        yield piece
    yield step


def _answers(step: Dispatch | Fan) -> TypeGuard[Dispatch]:
    """Whether a step is a call for the answer, the only one whose pieces may be shown."""
    return (
        isinstance(step, Dispatch)
        and not isinstance(step, JudgeDispatch)
        and step.purpose is Purpose.ANSWER
    )


def _result(step: Dispatch | Fan, model: Model) -> Result:
    """The result of a step: a judge's or a model's reply, or the outcomes of a Fan's turns."""
    match step:
        case JudgeDispatch():
            return _judged(step, model)
        case Dispatch(call=call):
            return model.call(call)
        case Fan(turns=turns):
            return _play_together(turns, model)


async def _aresult(step: Dispatch | Fan, model: Model) -> Result:
    match step:
        case JudgeDispatch():
            return await _ajudged(step, model)
        case Dispatch(call=call):
            return await model.acall(call)
        case Fan(turns=turns):
            return await _await_together(turns, model)


def _judged(step: JudgeDispatch, model: Model) -> JudgeReply:
    """The judge's reply; a failure is returned as a value, so that no answer is lost by it."""
    assert step.judge is not None
    with step.tracer.step(JUDGED):
        return step.judge.reply(step.call, model, step.payer, keep=step.keep)


async def _ajudged(step: JudgeDispatch, model: Model) -> JudgeReply:
    assert step.judge is not None
    with step.tracer.step(JUDGED):
        return await step.judge.areply(step.call, model, step.payer, keep=step.keep)


def _receive(turn: Drivable, result: Result) -> Step:
    """The step after a result; a window whose reply cannot be examined is sealed as failed."""
    try:
        return turn.receive(result)
    except BaseException as error:
        _seal(turn, error)
        raise


async def _in_thread(turn: Drivable, work: Callable[..., Step], *arguments: object) -> Step:
    """Do a step of a turn off the event loop.

    A thread is not cancelled with the task that waits for it. If the task is cancelled and the
    step needs a call, the turn is ended.
    """
    cancelled: list[BaseException] = []
    finished: list[Step] = []
    lock = threading.Lock()

    def stepped() -> Step:
        step = work(*arguments)
        with lock:
            finished.append(step)
        if cancelled and isinstance(step, Dispatch | Fan):
            _seal(turn, cancelled[0])
        return step

    loop = asyncio.get_running_loop()
    running: asyncio.Future[Step | None] = loop.run_in_executor(None, copy_context().run, stepped)
    try:
        return cast("Step", await asyncio.shield(running))
    except asyncio.CancelledError as error:
        with lock:
            late = bool(finished)
            if not late:
                cancelled.append(error)
        if late and isinstance(finished[0], Dispatch | Fan):
            running = loop.run_in_executor(None, copy_context().run, _seal, turn, error)
        with suppress(Exception):
            await asyncio.shield(running)
        raise


def _seal(turn: Drivable, error: BaseException) -> None:
    """End a turn after an error; a failure of doing so only adds a note to that error."""
    try:
        turn.fail(error)
    except Exception as failure:  # noqa: BLE001 - the caller gets the error that came first
        error.add_note(f"the window could not be sealed: {type(failure).__name__}")


async def _aseal(turn: Drivable, error: BaseException) -> None:
    # Runs in a thread, not in a task of the loop, so that neither a second cancellation nor the
    # loop's end stops the sealing.
    loop = asyncio.get_running_loop()
    await asyncio.shield(loop.run_in_executor(None, copy_context().run, _seal, turn, error))


def _play_together(turns: tuple[Drivable, ...], model: Model) -> tuple[Outcome, ...]:
    with ThreadPoolExecutor(max_workers=min(FAN_THREADS, max(1, len(turns)))) as pool:
        # Each child gets the caller's context variables, as asyncio tasks do by themselves.
        running = [pool.submit(copy_context().run, drive, child, model) for child in turns]
        return tuple(future.result() for future in running)


async def _await_together(turns: tuple[Drivable, ...], model: Model) -> tuple[Outcome, ...]:
    running = [asyncio.ensure_future(adrive(child, model)) for child in turns]
    try:
        return tuple(await asyncio.gather(*running))
    except BaseException:
        # None of them continues without its parent.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise


def _closing(stream: AsyncIterator[str | Reply]) -> AbstractAsyncContextManager[Any]:
    """A context manager that closes a model's stream when it is no longer read."""
    # Not a wrapping generator: an event loop that stops closes each generator separately.
    return aclosing(stream) if isinstance(stream, AsyncGenerator) else nullcontext(stream)


def _whole_reply(reply: Reply | None, pieces: list[str], model: str) -> Reply:
    return reply if reply is not None else Reply(text="".join(pieces), model=model)


def _released(outcome: Outcome, pieces: list[str]) -> list[str]:
    if not isinstance(outcome, Release):
        return []
    text = outcome.answer.text
    # Only the examined text is yielded, even if the model sent other pieces.
    return pieces if "".join(pieces) == text else [text] if text else []


def trace_stream(tracer: Tracer, name: str, parts: Generator[StreamPart]) -> Generator[StreamPart]:
    """Yield the parts within a trace step that ends after the last of them.

    The step also ends after an error, and when the reader stops.
    """
    own = copy_context()
    inner = _in_step(tracer, name, parts)
    try:
        while True:
            try:
                part = own.run(next, inner)
            except StopIteration:
                return
            yield part
    finally:
        own.run(inner.close)


async def atrace_stream(
    tracer: Tracer, name: str, parts: AsyncGenerator[StreamPart]
) -> AsyncGenerator[StreamPart]:
    """The asynchronous twin of `trace_stream`."""
    own = copy_context()
    inner = _ain_step(tracer, name, parts)
    try:
        while True:
            try:
                part = await _AwaitedInContext(own, anext(inner))
            except StopAsyncIteration:
                return
            yield part
    finally:
        await _AwaitedInContext(own, inner.aclose())


def _in_step(tracer: Tracer, name: str, parts: Generator[StreamPart]) -> Generator[StreamPart]:
    with closing(parts), tracer.step(name):
        yield from parts


async def _ain_step(
    tracer: Tracer, name: str, parts: AsyncGenerator[StreamPart]
) -> AsyncGenerator[StreamPart]:
    with tracer.step(name):
        async with aclosing(parts):
            async for part in parts:
                yield part


class _AwaitedInContext(Generic[StreamPart]):
    """Awaits something in a given context, without a new task, which could be cancelled alone."""

    def __init__(self, own: Context, awaited: Awaitable[StreamPart]) -> None:
        self._own = own
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, StreamPart]:
        coming: Any = self._awaited.__await__()
        go_on: Callable[[], Any] = partial(coming.send, None)
        while True:
            try:
                waits_for = self._own.run(go_on)
            except StopIteration as done:
                part: StreamPart = done.value
                return part
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - the awaited object handles it
                go_on = partial(coming.throw, error)
            else:
                go_on = partial(coming.send, sent)
