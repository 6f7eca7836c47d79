"""A router's deployments as the model that a turn calls."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar
from weakref import ref

from crp_integrations.adapters.conversations import context_value
from crp_integrations.engines.litellm import StreamedReply, as_chunk, reply_of
from crp_integrations.engines.litellm_versions import (
    catchable,
    checks_before_calls,
    close_stream,
    entries_of,
    fallbacks_of,
    groups_of,
    library,
    notes_of,
    retries_of,
    translate,
)
from crp_integrations.engines.models import WholeReplies
from crp_integrations.errors import CRPError, EngineError, ModelError, ModelNotFound, RequestError
from crp_integrations.litellm.attempt_packing import (
    CURRENT_ATTEMPTS,
    FUNCTION_CALLBACKS,
    SAMPLING,
    CallAttempts,
    call_arguments,
    is_answer,
    message_list,
)
from crp_integrations.messages import ModelCall, Reply, with_forced_calls
from crp_integrations.relay.steps import (
    Dispatch,
    Drivable,
    Fan,
    FittedDispatch,
    Outcome,
    Result,
    Step,
)

T = TypeVar("T")
# Time limit at the end of the process for cancelling open calls.
STOP_SECONDS: Final = 5.0


def run_blocking(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine in another loop and wait for its result; None is this module's loop."""
    loop = loop or own_loop()
    if running_loop() is loop or not loop.is_running():
        work.close()
        raise RequestError(
            "a stream of acompletion is read outside the event loop that made it, or blocks it; "
            "read it there with async for"
            if loop is not own_loop()
            else "completion was called from within a call of the router; await acompletion there"
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def make_in_loop(make: Callable[[], T]) -> T:
    """Call a function inside a running loop: a router with budgets starts a task when created."""
    if running_loop() is not None:
        return make()

    async def made() -> T:
        return make()

    return run_blocking(made())


@cache
def own_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this module, which runs until the process ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run_loop, args=(loop,), name="crp-litellm", daemon=True)
    thread.start()
    atexit.register(_stop_loop, loop, thread)
    return loop


# A forked process inherits the loop without its thread, and would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=own_loop.cache_clear)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    # LiteLLM's logging worker must be cancelled, or asyncio warns about a pending task.
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=STOP_SECONDS)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


litellm = library()


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call with its response.

    Attributes:
        response: LiteLLM's response; a list of chunks if it was a stream.
        tried: models tried; the last one answered.
        deployment: id of the deployment that answered; empty if LiteLLM does not report it.
        shown: number of chunks that the caller has already received.
    """

    step: Dispatch
    response: Any
    reply: Reply
    tried: tuple[str, ...]
    deployment: str
    shown: int = 0


class Deployments(WholeReplies):
    """A `Model` that answers the calls of one request through a `litellm.Router`.

    Attributes:
        spent: answered calls, in order.
        tried: all models tried, in order.
        live: whether the answer's chunks are shown as they arrive.
    """

    def __init__(
        self,
        router: Any,
        group: str,
        arguments: Mapping[str, Any],
        *,
        streams: bool = False,
    ) -> None:
        """Create the model for one request."""
        self.spent: list[AnsweredCall] = []
        self.tried: list[str] = []
        self.live = False
        self._router = router
        self._group = group
        self._arguments = dict(arguments)
        self._streams = streams
        self._functions = FUNCTION_CALLBACKS.get()
        self._made: dict[int, tuple[WatchedTurn, Dispatch]] = {}

    def watched(self, turn: Drivable) -> WatchedTurn:
        """Wrap a turn so that its calls are registered here."""
        return WatchedTurn(turn, self)

    def register(self, turn: WatchedTurn, step: Dispatch) -> None:
        """Register the turn that a dispatch belongs to."""
        self._made[id(step.call)] = (turn, step)

    def answers(self, call: ModelCall) -> bool:
        """Whether a call's reply is an answer to the question."""
        return is_answer(self._made[id(call)][1])

    def proxied_call(self, call: ModelCall) -> CallAttempts:
        """The record of a call that the proxy makes, for the hook to pack each attempt."""
        running = self._attempts(*self._made.pop(id(call)))
        running.proxied = True
        return running

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call through the group's deployments and their fallbacks."""
        [reply] = [part async for part in self._answer(call, live=False)]
        return reply  # type: ignore[no-any-return]

    def call(self, call: ModelCall) -> Reply:
        """Answer a call from outside an event loop."""
        return run_blocking(self.acall(call))

    def astream(self, call: ModelCall) -> AsyncGenerator[Any]:
        """LiteLLM's chunks as they arrive if `live` is set; then the reply."""
        return self._answer(call, live=self.live)

    def _attempts(self, turn: WatchedTurn, step: Dispatch) -> CallAttempts:
        base = turn.base if step.envelope is not None else len(step.messages)
        messages = message_list(step.messages)
        call = step.call
        running = CallAttempts(
            turn=turn,
            step=step,
            messages=messages,
            base=base,
            sent=messages,
            functions=self._functions,
            own=frozenset(
                name
                for name in SAMPLING
                if getattr(call, name) is not None
                and getattr(call, name) != self._arguments.get(name)
            ),
        )
        running.packed = turn.packed
        if running.fits and step.envelope and checks_before_calls(self._router):
            # LiteLLM skips deployments too small for these messages, but fewer facts may fit.
            running.messages = _without_envelope(messages, step.envelope.text)
        return running

    async def _answer(self, call: ModelCall, *, live: bool) -> AsyncGenerator[Any]:
        """Call the group, and retry if the response is not an answer.

        When a call returns, LiteLLM has done its own retries and fallbacks, but it does not treat
        a response without choices, or a stream that breaks off after its first chunk, as failures.
        Here both count as failures, unless chunks have already been shown.
        """
        # Not removed: a judge's call may be repeated. This object lives as long as the request.
        turn, step = self._made[id(call)]
        running = self._attempts(turn, step)
        arguments = call_arguments(step, self._arguments)
        streams = self._streams and is_answer(step)
        if streams:
            options = {**(arguments.get("stream_options") or {}), "include_usage": True}
            arguments = {**arguments, "stream": True, "stream_options": options}
        groups, shown = self._groups(arguments), False
        try:
            while True:
                response = await _await_in_call(
                    running,
                    self._router.acompletion(
                        model=groups.pop(0), messages=running.messages, **arguments
                    ),
                )
                _check_hook_ran(running)
                try:
                    async with aclosing(read_answer(response, running, streams=streams)) as parts:
                        while not isinstance(
                            part := await _await_in_call(running, anext(parts)), AnsweredCall
                        ):
                            if live:
                                shown = True
                                yield part
                    break
                except Exception:
                    if not groups or shown:
                        raise
        except Exception as error:
            raise self.translated(error, running) from error
        finally:
            self.tried += running.tried
        self.spent.append(part if live else replace(part, shown=0))
        reply = with_forced_calls(part.reply, arguments.get("tool_choice"))
        # A repair cannot change the chunks of a streamed call.
        yield reply.changed(parsed=True) if streams and reply.answers_by_call else reply

    def _groups(self, arguments: Mapping[str, Any]) -> list[str]:
        """The groups to call in order: retries, then fallbacks."""
        retries = (
            arguments["num_retries"] if "num_retries" in arguments else retries_of(self._router)
        )
        groups = [self._group] * (1 + int(retries or 0))
        if arguments.get("disable_fallbacks"):
            return groups
        fallbacks: Sequence[Any] = ()
        for entry in (
            arguments["fallbacks"] if "fallbacks" in arguments else fallbacks_of(self._router)
        ) or ():
            if isinstance(entry, str):
                fallbacks = (*fallbacks, entry)
            elif self._group in entry:
                fallbacks = entry[self._group]
                break
            elif "*" in entry:
                fallbacks = entry["*"]
        return [*groups, *(group for group in fallbacks if isinstance(group, str))]

    def translated(self, error: Exception, running: CallAttempts) -> CRPError:
        """This package's error for a failed call, with the models tried."""
        own: CRPError
        if isinstance(error, CRPError):
            own = error
        elif isinstance(running.refused, CRPError):
            own = running.refused
        # Only after LiteLLM refused: a wildcard or a deployment's id is valid without a group.
        elif getattr(error, "status_code", None) == 400 and not entries_of(
            self._router, self._group
        ):
            listed = ", ".join(groups_of(self._router))
            own = ModelNotFound(
                f"no deployment is named {self._group!r:.120}; the list has {listed or 'none'}"
            )
        else:
            own = translate(error, self._group, litellm)
        if isinstance(own, ModelError):
            own.tried = own.tried or tuple(running.tried)
            status = None if error is own else getattr(error, "status_code", None)
            own.provider_status = status if running.tried and isinstance(status, int) else None
            return catchable(own, error, self._group, litellm)
        return own


class WatchedTurn:
    """A turn whose dispatches are registered with `Deployments`.

    Attributes:
        base: number of messages in its last fit.
        packed: model and input limit of its last fit.
        crowded_out: True if the last fit left no tokens for the facts found.
    """

    def __init__(self, turn: Any, deployments: Deployments) -> None:
        self._turn = turn
        self._deployments = deployments
        self.base = 0
        self.crowded_out = False
        self.packed: tuple[str, int | None] | None = None

    def begin(self) -> Step:
        """The first step."""
        return self._register(self._turn.begin(), begins=True)

    def receive(self, result: Result) -> Step:
        """The step after a reply, or after the outcomes of a Fan's turns."""
        return self._register(self._turn.receive(result))

    def fail(self, error: BaseException) -> Outcome:
        """End the window because of an error or a cancellation."""
        outcome: Outcome = self._turn.fail(error)
        return outcome

    def show_at_once(self) -> bool:
        """Whether the answer may be shown as it arrives."""
        self._deployments.live = bool(self._turn.show_at_once())
        return self._deployments.live

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack for a model; the last fit is taken to be the one that was sent."""
        fitted: FittedDispatch = self._turn.fit(model, input_limit=input_limit)
        self.base, self.crowded_out = len(fitted.messages), fitted.crowded_out
        self.packed = (model, input_limit)
        return fitted

    def _register(self, step: Step, *, begins: bool = False) -> Step:
        if isinstance(step, Fan):
            return Fan(tuple(self._deployments.watched(turn) for turn in step.turns))
        if isinstance(step, Dispatch):
            if isinstance(step, FittedDispatch):
                self.base, self.crowded_out = len(step.messages), step.crowded_out
                # A turn packs by the model's known limit, not by that of a list entry.
                self.packed = (step.model, None)
            self._deployments.register(self, step)
        return step


async def _await_in_call(running: CallAttempts, awaited: Awaitable[T]) -> T:
    """Await something while the hook packs for this call."""
    # A stream's chunks are awaited in the context of their reader.
    with (
        context_value(CURRENT_ATTEMPTS, ref(running)),
        context_value(FUNCTION_CALLBACKS, running.functions),
    ):
        return await awaited


async def read_answer(
    response: Any, running: CallAttempts, *, streams: bool
) -> AsyncGenerator[Any]:
    """Yield a stream's chunks as they arrive, except those that end it; then the answered call.

    For a response that is not a stream, yield only the answered call.
    """
    tried, deployment = len(running.tried), str(notes_of(response).get("model_id") or "")
    priced_as, shown = (deployment, running.model), 0
    if not hasattr(response, "__aiter__"):
        reply = reply_of(response, running.model, priced_as)
        received = [as_chunk(response)] if streams else response
    else:
        assembly = StreamedReply(running.model, litellm, priced_as)
        received = []
        try:
            async for chunk in response:
                if len(running.tried) > tried:
                    # LiteLLM does not report whether a deployment that took over finished.
                    raise ModelError(f"the stream of model {running.model!r} was taken over")
                assembly.add(chunk)
                received.append(chunk)
                if _says_something(chunk) and not assembly.finished:
                    for pending in received[shown:]:
                        yield pending
                    shown = len(received)
            reply = assembly.reply(response)
        except BaseException:
            await close_stream(response)
            raise
    model_names = tuple(running.tried) or (running.model,)
    yield AnsweredCall(running.step, received, reply, model_names, deployment, shown)


def _says_something(chunk: Any) -> bool:
    """Whether a chunk contains a part of the answer, not only the role or usage."""
    delta = chunk.choices[0].delta if chunk.choices else None
    parts = ("content", "tool_calls", "reasoning_content")
    return any(getattr(delta, name, None) for name in parts)


def _check_hook_ran(running: CallAttempts) -> None:
    if not running.tried:
        raise EngineError(
            "LiteLLM answered without asking what the attempt should carry; use litellm>=1.95",
            engine="litellm",
        )


def _without_envelope(messages: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]]:
    """The messages without the envelope's text in the first one."""
    first, *rest = [dict(message) for message in messages]
    if text and first["role"] == "system":
        first["content"] = first["content"].replace(text, "", 1)
    return [first, *rest]
