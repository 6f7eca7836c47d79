"""How a judge's model is called: so many at a time, within a time, again after a passing failure.

A failure is a value: an answer is not lost by its judge.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final
from weakref import WeakKeyDictionary

from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.errors import ModelError
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model

# Seconds before the first further attempt; each one after waits twice as long.
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 8.0
TIMED_OUT: Final = "ModelTimeout"
_AGAIN: Final = frozenset({408, 409, 429})

# Whether a call is a judge's: what listens to models does not examine its reply.
JUDGING: Final[ContextVar[bool]] = ContextVar("crp_judging", default=False)


def separate_context() -> Context:
    """A context in which nothing is known but that a judge is asked."""
    context = Context()
    context.run(JUDGING.set, True)
    return context


def joined_context() -> Context:
    """The context around, in which it is known besides that a judge is asked."""
    context = copy_context()
    context.run(JUDGING.set, True)
    return context


class JudgeCaller:
    """Calls models for a judge. Safe under threads."""

    def __init__(self, *, timeout_s: float, retries: int, concurrency: int) -> None:
        """Choose what is the same for every call."""
        self._timeout_s = timeout_s
        self._retries = retries
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(concurrency)
        self._slots: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()

    def call(self, model: Model, call: ModelCall, context: Context, started: float) -> JudgeReply:
        """What a call comes to."""
        with self._room:
            until = time.perf_counter() + self._timeout_s
            for attempt in range(self._retries + 1):
                try:
                    left = max(0.0, until - time.perf_counter())
                    return _replied(_call_in_thread(context, model, call).result(left), started)
                except FutureTimeout:
                    return _failed(TIMED_OUT, started)
                except Exception as error:  # noqa: BLE001 - whatever it is, the answer stands
                    if self._given_up(error, attempt, until):
                        return _failed(_error_name(error), started)
                time.sleep(_wait(attempt))
        raise AssertionError

    async def acall(
        self, model: Model, call: ModelCall, context: Context, started: float
    ) -> JudgeReply:
        """The asynchronous twin of `call`."""
        loop = asyncio.get_running_loop()
        with self._lock:
            slots = self._slots.setdefault(loop, asyncio.Semaphore(self._concurrency))
        async with slots:
            until = time.perf_counter() + self._timeout_s
            for attempt in range(self._retries + 1):
                running = loop.create_task(_awaited(model, call), context=context)
                try:
                    async with asyncio.timeout(max(0.0, until - time.perf_counter())):
                        return _replied(await running, started)
                except TimeoutError:
                    return _failed(TIMED_OUT, started)
                except Exception as error:  # noqa: BLE001 - whatever it is, the answer stands
                    if self._given_up(error, attempt, until):
                        return _failed(_error_name(error), started)
                finally:
                    running.cancel()
                await asyncio.sleep(_wait(attempt))
        raise AssertionError

    def _given_up(self, error: Exception, attempt: int, until: float) -> bool:
        """Whether a model is asked no more after an error."""
        late = time.perf_counter() + _wait(attempt) >= until
        return late or attempt == self._retries or not _is_passing(error)


def _call_in_thread(context: Context, model: Model, call: ModelCall) -> Future[Reply]:
    """A call in a thread of its own: one that never returns holds up no other, and no exit."""
    future: Future[Reply] = Future()

    def made() -> None:
        try:
            future.set_result(context.run(model.call, call))
        except BaseException as error:  # noqa: BLE001 - who waits for the future raises it
            future.set_exception(error)

    threading.Thread(target=made, name="crp-judge", daemon=True).start()
    return future


async def _awaited(model: Model, call: ModelCall) -> Reply:
    return await model.acall(call)


def _replied(reply: Reply, started: float) -> JudgeReply:
    return JudgeReply(
        text=reply.text, model=reply.model, usage=reply.usage, milliseconds=_since(started)
    )


def _failed(error: str, started: float) -> JudgeReply:
    return JudgeReply(error=error, milliseconds=_since(started))


def _since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def _error_name(error: Exception) -> str:
    status = getattr(error, "provider_status", None)
    return f"{type(error).__name__} {status}" if status else type(error).__name__


def _is_passing(error: Exception) -> bool:
    """Whether a further attempt may help: the provider was busy, broken or not reached."""
    if not isinstance(error, ModelError):
        return False
    status = error.provider_status
    if status is None:
        return type(error).__name__ in ("ModelRateLimited", "ModelError")
    return status in _AGAIN or status >= 500


def _wait(attempt: int) -> float:
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**attempt)
