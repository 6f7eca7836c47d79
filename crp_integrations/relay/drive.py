"""The drivers: they play a Turn against a model until it ends. Only this file awaits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from crp_integrations.errors import CRPError
from crp_integrations.messages import Reply
from crp_integrations.ports import Model
from crp_integrations.relay.steps import Dispatch, Fan, Outcome, Playable, Release, Step

FAN_THREADS = 10


def drive(turn: Playable, model: Model) -> Outcome:
    """Play a turn to its end in the calling thread; a Fan's turns play in threads."""
    step = turn.begin()
    while True:
        match step:
            case Dispatch(call=call):
                try:
                    reply = model.call(call)
                except CRPError as error:
                    return turn.fail(error)
                except BaseException as error:
                    turn.fail(error)
                    raise
                step = turn.receive(reply)
            case Fan(turns=turns):
                step = turn.receive(_play_together(turns, model))
            case _:
                return step


async def adrive(turn: Playable, model: Model) -> Outcome:
    """Play a turn to its end; reading, examining and closing run off the event loop."""
    step: Step = await asyncio.to_thread(turn.begin)
    while True:
        match step:
            case Dispatch(call=call):
                try:
                    reply = await model.acall(call)
                except CRPError as error:
                    return await asyncio.to_thread(turn.fail, error)
                except BaseException as error:
                    # A cancelled task cannot await any more, so the window is sealed here.
                    turn.fail(error)
                    raise
                step = await asyncio.to_thread(turn.receive, reply)
            case Fan(turns=turns):
                outcomes = await asyncio.gather(*(adrive(child, model) for child in turns))
                step = await asyncio.to_thread(turn.receive, tuple(outcomes))
            case _:
                return step


def drive_stream(turn: Playable, model: Model) -> Iterator[str | Outcome]:
    """Play a turn whose answer is called as a stream, and give the text out after the verdict.

    The verdict exists before any piece is yielded (CRP-SPEC-005 §1.2); the pieces are those
    in which the model sent its text. The outcome comes last, once.
    """
    step = turn.begin()
    pieces: list[str] = []
    while True:
        match step:
            case Dispatch(call=call):
                pieces.clear()
                reply: Reply | None = None
                try:
                    for part in model.stream(call):
                        if isinstance(part, Reply):
                            reply = part
                        else:
                            pieces.append(part)
                    whole = _whole(reply, pieces, call.model)
                except CRPError as error:
                    step = turn.fail(error)
                    continue
                except BaseException as error:
                    turn.fail(error)
                    raise
                step = turn.receive(whole)
            case Fan(turns=turns):
                step = turn.receive(_play_together(turns, model))
            case _:
                yield from _released(step, pieces)
                return


async def adrive_stream(turn: Playable, model: Model) -> AsyncIterator[str | Outcome]:
    """The asynchronous twin of `drive_stream`."""
    step: Step = await asyncio.to_thread(turn.begin)
    pieces: list[str] = []
    while True:
        match step:
            case Dispatch(call=call):
                pieces.clear()
                reply: Reply | None = None
                try:
                    async for part in model.astream(call):
                        if isinstance(part, Reply):
                            reply = part
                        else:
                            pieces.append(part)
                    whole = _whole(reply, pieces, call.model)
                except CRPError as error:
                    step = await asyncio.to_thread(turn.fail, error)
                    continue
                except BaseException as error:
                    turn.fail(error)
                    raise
                step = await asyncio.to_thread(turn.receive, whole)
            case Fan(turns=turns):
                outcomes = await asyncio.gather(*(adrive(child, model) for child in turns))
                step = await asyncio.to_thread(turn.receive, tuple(outcomes))
            case _:
                for piece in _released(step, pieces):
                    yield piece
                return


def _play_together(turns: tuple[Playable, ...], model: Model) -> tuple[Outcome, ...]:
    with ThreadPoolExecutor(max_workers=min(FAN_THREADS, max(1, len(turns)))) as pool:
        # Each child gets the caller's context variables, as asyncio tasks do by themselves.
        running = [pool.submit(copy_context().run, drive, child, model) for child in turns]
        return tuple(future.result() for future in running)


def _whole(reply: Reply | None, pieces: list[str], model: str) -> Reply:
    return reply if reply is not None else Reply(text="".join(pieces), model=model)


def _released(outcome: Outcome, pieces: list[str]) -> Iterator[str | Outcome]:
    if isinstance(outcome, Release):
        yield from pieces or ([outcome.answer.text] if outcome.answer.text else [])
    yield outcome
