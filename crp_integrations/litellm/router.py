"""`CRPRouter`: a LiteLLM router, an envelope for every attempt, a verdict on every answer."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from crp_integrations.engines.litellm import (
    Assembly,
    library,
    plain_tools,
    refuse_crp,
    reply_of,
)
from crp_integrations.engines.litellm_errors import translate
from crp_integrations.engines.litellm_provider import register_extractive
from crp_integrations.errors import CRPError, ModelNotFound, RequestError
from crp_integrations.litellm.hook import RUNNING, Attempts, install
from crp_integrations.litellm.wire import asked, proof, sent
from crp_integrations.messages import Reply
from crp_integrations.relay import outcomes
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import Dispatch
from crp_integrations.relay.turn import Turn
from crp_integrations.vocabulary import GroundingMode

litellm = library()

T = TypeVar("T")
# LiteLLM's names for headers that a call adds.
HEADERS: Final = ("headers", "extra_headers")
# At the end of the process: how long open calls get to be cancelled.
END_SECONDS: Final = 5.0


class CRPStream:
    """The checked chunks of an answer, to be read with `for` or `async for`.

    Attributes:
        crp, crp_envelope, crp_headers: as on a response that is not a stream; the last chunk
            has them too.
    """

    def __init__(self, chunks: Sequence[Any], proven: Mapping[str, Any]) -> None:
        self.crp: dict[str, Any] = proven["crp"]
        self.crp_envelope: dict[str, Any] = proven["crp_envelope"]
        self.crp_headers: dict[str, str] = proven["crp_headers"]
        self._chunks = tuple(chunks)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._chunks)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk


class CRPRouter:
    """A LiteLLM router over deployments, with the fabric's facts in every call.

    Each attempt gets the envelope packed for its own model: its tokenizer, its window, or the
    `max_input_tokens` of its entry. The answer is examined against the envelope of the attempt
    that answered. `extractive/best` may stand in the list and needs no key.

    Attributes:
        router: the `litellm.Router` underneath.
    """

    def __init__(
        self, model_list: Sequence[Mapping[str, Any]], *, relay: Relay, **router_kwargs: Any
    ) -> None:
        """Make the router.

        Args:
            model_list: LiteLLM's list of deployments.
            relay: where the facts come from and the windows are sealed.
            router_kwargs: anything that `litellm.Router` takes, such as `fallbacks`.

        Raises:
            ConfigError: a deployment sends a header named `CRP-…`.
        """
        for entry in model_list:
            for name in HEADERS:
                refuse_crp((entry.get("litellm_params") or {}).get(name))
        register_extractive()
        self.router = litellm.Router(
            model_list=[dict(entry) for entry in model_list], **router_kwargs
        )
        self._relay = relay

    async def acompletion(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        stream: bool = False,
        budget_tokens: int | None = None,
        grounding: GroundingMode | str | None = None,
        session_id: str | None = None,
        k: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Answer the last message from the fabric.

        The last message alone is what the fabric is asked; those before it go along as they
        are, system messages in front. A tool's result cannot be the last message.

        Spec: CRP-SPEC-005 §1.2

        Args:
            model: name of a group in the model list.
            messages: OpenAI shape, text alone; the last one is the user's question.
            stream: whether chunks are wanted; they come after the verdict.
            budget_tokens: cap on the envelope.
            session_id: `crp_sess_…` of the session to go on with.
            k: cap on the number of facts.
            kwargs: LiteLLM's arguments, such as `max_tokens` or `tools`.

        Returns:
            LiteLLM's response with the report in `response.crp`, the envelope in
            `response.crp_envelope` and the headers in `response.crp_headers`, all plain JSON;
            a `CRPStream` with the same when `stream` is set.

        Raises:
            RequestError: a message or argument has no usable value.
            ConfigError: a header is named `CRP-…`.
            ModelNotFound: no group of the list has this name.
            ModelError: no deployment answered; the window is sealed as failed.
        """
        if kwargs.get("n") not in (None, 1):
            raise RequestError(f"n is {kwargs['n']}; one answer is examined, so ask for one")
        for name in HEADERS:
            refuse_crp(kwargs.get(name))
        question, system, history = asked(messages)
        # Each time, since an application may have set its own list of callbacks since.
        install()
        turn = self._relay.turn(
            question,
            model=self._first(model),
            system_prompt=system,
            history=history,
            budget_tokens=budget_tokens,
            grounding=grounding,
            session_id=session_id,
            k=k,
            max_tokens=kwargs.get("max_completion_tokens") or kwargs.get("max_tokens"),
            tools=_tools(kwargs),
        )
        if kwargs.get("tools"):
            kwargs = {**plain_tools(), **kwargs}
        step = await asyncio.to_thread(turn.begin)
        if not isinstance(step, Dispatch):
            outcomes.answer(step)  # type: ignore[arg-type]
            raise RequestError("a turn of the router begins with a call")
        running = Attempts(turn, sent(step.messages), step.model)
        token = RUNNING.set(running)
        try:
            response, reply = await self._called(model, running, stream, kwargs)
        except Exception as error:
            own = self._translated(error, model)
            await asyncio.to_thread(turn.fail, own)
            if own is error:
                raise
            raise own from error
        except BaseException as error:
            # A cancelled task cannot await any more, so the window is sealed here.
            turn.fail(error)
            raise
        finally:
            RUNNING.reset(token)
        return _attached(response, proof(await asyncio.to_thread(_released, turn, reply)))

    def completion(self, model: str, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> Any:
        """The synchronous twin of `acompletion`; it drives that one in a loop of its own.

        LiteLLM's own synchronous path never asks what an attempt should carry.

        Raises:
            RequestError: it is called from within a call of a router, which it would block.
        """
        return _wait(self.acompletion(model, messages, **kwargs))

    async def _called(
        self, model: str, running: Attempts, stream: bool, kwargs: Mapping[str, Any]
    ) -> tuple[Any, Reply]:
        if not stream:
            response = await self.router.acompletion(
                model=model, messages=running.messages, **kwargs
            )
            return response, reply_of(response, running.model)
        options = {"include_usage": True, **(kwargs.get("stream_options") or {})}
        chunks = await self.router.acompletion(
            model=model,
            messages=running.messages,
            stream=True,
            **{**kwargs, "stream_options": options},
        )
        assembly = Assembly(running.model)
        kept = []
        async for chunk in chunks:
            assembly.add(chunk)
            kept.append(chunk)
        return kept, assembly.reply(chunks)

    def _translated(self, error: Exception, group: str) -> CRPError:
        # A wildcard or a deployment's id is no group by name, so only a refusal is looked at.
        if getattr(error, "status_code", None) == 400 and not self._entries(group):
            listed = ", ".join(sorted(set(self.router.get_model_names())))
            return ModelNotFound(f"no deployment is named {group!r:.120}; the list has {listed}")
        return translate(error, group, litellm)

    def _entries(self, group: str) -> Sequence[Mapping[str, Any]]:
        return self.router.get_model_list(model_name=group) or ()

    def _first(self, group: str) -> str:
        """The model of the group's first deployment, which the hook replaces by the real one."""
        for entry in self._entries(group):
            info = entry.get("model_info") or {}
            return str(info.get("base_model") or entry["litellm_params"]["model"])
        return group


def _tools(kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tools whose definitions take room in the model's context, those of the old form too."""
    functions = kwargs.get("functions") or ()
    old = [{"type": "function", "function": function} for function in functions]
    return [*(kwargs.get("tools") or ()), *old]


def _released(turn: Turn, reply: Reply) -> Answer:
    return outcomes.answer(turn.receive(reply))  # type: ignore[arg-type]


def _attached(response: Any, proven: Mapping[str, Any]) -> Any:
    # LiteLLM's responses keep further fields, also through `model_dump()`.
    carrier = response[-1] if isinstance(response, list) else response
    for name, value in proven.items():
        setattr(carrier, name, value)
    return CRPStream(response, proven) if isinstance(response, list) else response


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop behind the synchronous calls, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop,), name="crp-litellm", daemon=True)
    thread.start()
    atexit.register(_end, loop, thread)
    return loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    # LiteLLM leaves a worker for its logs in every loop; unfinished, it would complain.
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=END_SECONDS)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wait(work: Coroutine[Any, Any, T]) -> T:
    loop = _loop()
    if _running() is loop:
        work.close()
        raise RequestError(
            "completion was called from within a call of the router; await acompletion there"
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
