"""The envelope packed again for each attempt: retries, fallbacks, other deployments.

LiteLLM calls the hook once per attempt with the deployment's real model. A context variable links
an attempt to its call, so metadata contains no id that could leak.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import ReferenceType

from litellm.integrations.custom_logger import CustomLogger

from crp_integrations.engines.litellm import ARGUMENTS, message_json, refuse_crp, tells_end
from crp_integrations.engines.litellm_versions import (
    callback_lists,
    entries_of,
    library,
    plain_tools,
    synchronous_callbacks,
)
from crp_integrations.errors import ConfigError, ModelContextExceeded, RequestError
from crp_integrations.messages import Message
from crp_integrations.ports import share_in_copies
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.steps import Dispatch, FittedDispatch
from crp_integrations.vocabulary import Purpose

TOOL_ARGUMENTS: Final = frozenset(
    {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
)
_FUNCTION_ARGUMENTS: Final = frozenset({"functions", "function_call"})
# Arguments that shape an answer; left out of calls that prepare, check or join answers.
ANSWER_FIELDS: Final = TOOL_ARGUMENTS | frozenset(
    {"response_format", "stop", "logit_bias", "logprobs", "top_logprobs", "modalities"}
    | {"presence_penalty", "frequency_penalty", "prediction", "audio", "verbosity", "n"}
    | {"max_tokens", "max_completion_tokens", "stream_options", "top_p", "_skip_mcp_handler"}
)
# Fields of a question that the router takes from LiteLLM's arguments.
ROUTER_FIELDS: Final = frozenset(
    {"model", "system_prompt", "history", "results", "max_tokens", "temperature", "seed", "tools"}
    | {"compact", "compaction"}
)


def message_list(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the OpenAI format."""
    return [message_json(message) for message in messages]


def is_answer(step: Dispatch) -> bool:
    """Whether a call's reply is an answer to the question, the first or a mended one."""
    return step.envelope is not None and step.purpose is Purpose.ANSWER


def call_arguments(step: Dispatch, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """LiteLLM's arguments for one call, without model and messages."""
    call = step.call
    whole = is_answer(step)
    arguments = {
        name: value for name, value in kwargs.items() if whole or name not in ANSWER_FIELDS
    }
    if whole and any(tool not in tools_of(kwargs) for tool in call.tools):
        # The turn added tools, such as the search of the agentic strategy.
        arguments = {
            name: value for name, value in arguments.items() if name not in _FUNCTION_ARGUMENTS
        }
        arguments |= {"tools": list(call.tools), **plain_tools()}
        if kwargs.get("function_call"):
            arguments["tool_choice"] = _tool_choice(kwargs["function_call"])
    if not call.tools:
        arguments = {name: value for name, value in arguments.items() if name not in TOOL_ARGUMENTS}
    for name in ("temperature", "seed"):
        arguments.pop(name, None)
        if getattr(call, name) is not None:
            arguments[name] = getattr(call, name)
    if not whole and call.max_tokens is not None:
        arguments["max_tokens"] = call.max_tokens
    return arguments


def tools_of(kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The caller's tools, also in the old form; their definitions count towards the context."""
    functions = kwargs.get("functions") or ()
    old = [{"type": "function", "function": function} for function in functions]
    return [*(kwargs.get("tools") or ()), *old]


def question_fields(crp: Mapping[str, Any] | None, name: str = "crp") -> dict[str, Any]:
    """Check the names of question fields given by a caller, and return the fields."""
    if crp is not None and not isinstance(crp, Mapping):
        raise RequestError(f"crp is {type(crp).__name__}, wanted a dict of a question's fields")
    fields = dict(crp or {})
    known = sorted(QuestionFields.__annotations__.keys() - ROUTER_FIELDS)
    for key in fields:
        if key not in known:
            names = ", ".join(known)
            raise RequestError(f"{name} has no field {str(key)!r:.40}; it takes {names}")
    return fields


def refuse_question_fields(arguments: Mapping[str, Any]) -> None:
    """Check that LiteLLM's arguments contain no field of a question.

    LiteLLM passes on unknown arguments: a policy would go to the provider and have no effect.
    """
    fields = QuestionFields.__annotations__.keys() - ROUTER_FIELDS
    for name, value in arguments.items():
        # LiteLLM has its own `cache` argument, which is a dict or a bool.
        if (
            name in fields
            and value is not None
            and not (name == "cache" and _is_cache_switch(value))
        ):
            raise RequestError(
                f"{name} is a field of the question; give it with each call, as crp={{{name!r}: …}}"
            )


def _is_cache_switch(value: Any) -> bool:
    return isinstance(value, Mapping | bool)


def refuse_metadata(arguments: Mapping[str, Any]) -> None:
    """Check that no argument puts CRP metadata into a provider's request.

    LiteLLM puts unknown arguments, and `extra_body`, into the request body.
    """
    body = arguments.get("extra_body")
    names = [*arguments, *(body if isinstance(body, Mapping) else ())]
    for name in names:
        if str(name).lower().startswith("crp"):
            raise ConfigError(
                f"argument {str(name)!r:.80} would send CRP metadata to a provider; fields of a "
                "question go into crp={…}"
            )


def _tool_choice(function_call: Any) -> Any:
    """Convert the old `function_call` argument to a `tool_choice`."""
    if isinstance(function_call, Mapping):
        return {"type": "function", "function": dict(function_call)}
    return function_call


_SHAPE = "{'model_name': …, 'litellm_params': {'model': …}}"


def check_entries(model_list: object) -> None:
    """Check the shape of a model list."""
    if isinstance(model_list, str | Mapping) or not isinstance(model_list, Sequence):
        raise RequestError(f"model_list is {type(model_list).__name__}, wanted a list of {_SHAPE}")
    for number, entry in enumerate(model_list, 1):
        params = entry.get("litellm_params") if isinstance(entry, Mapping) else None
        if not isinstance(params, Mapping):
            raise RequestError(f"entry {number} of model_list is not of the form {_SHAPE}")
        for name, value in (
            ("model_name", entry.get("model_name")),
            ("model", params.get("model")),
        ):
            if not isinstance(value, str) or not value:
                raise RequestError(f"entry {number} of model_list names no {name}; give {_SHAPE}")


def first_model(router: Any, group: str) -> str:
    """The model of a group's first deployment; at each attempt, the hook packs for the real one."""
    for entry in entries_of(router, group):
        info = entry.get("model_info") or {}
        return str(info.get("base_model") or entry["litellm_params"]["model"])
    return group


litellm = library()
log = logging.getLogger("crp_integrations.litellm")


# Sampling values that a turn may set and that not every model supports.
SAMPLING: Final = ("temperature", "seed")


class ContextPacker(Protocol):
    """The methods of a turn that an attempt needs.

    Attributes:
        crowded_out: True if the last fit left no tokens for the facts found.
    """

    crowded_out: bool

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack for a model; the last fit is taken to be the one that was sent."""
        ...


@dataclass(slots=True, weakref_slot=True)
class CallAttempts:
    """One call of the router while it runs.

    Attributes:
        step: the dispatch that the call executes.
        messages: messages passed to the router; they identify this call to the hook.
        base: number of messages in the turn's last fit before this call. Further messages of a call
            for an answer (a draft, a request to mend it) are appended after each new fit.
        packed: model and input limit that `sent` is packed for.
        sent: messages to send.
        own: names of the sampling values that the turn chose instead of the caller.
        proxied: True for a call that LiteLLM's proxy makes; it keeps a requested stream.
        functions: value of `FUNCTION_CALLBACKS` for this call.
        model: model of the last attempt.
        tried: models tried, in order.
        refused: error of this package in the last attempt's packing; None if it was packed.
    """

    turn: ContextPacker
    step: Dispatch
    messages: list[dict[str, Any]]
    base: int = 0
    packed: tuple[str, int | None] | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)
    own: frozenset[str] = frozenset()
    proxied: bool = False
    functions: tuple[Any, ...] | None = None
    model: str = ""
    tried: list[str] = field(default_factory=list)
    refused: Exception | None = None

    @property
    def fits(self) -> bool:
        """Whether the call contains facts to be packed again for each model.

        A call that judges a draft is not changed: the draft was written from these facts.
        """
        return is_answer(self.step)

    def fit(self, model: str, limit: int | None) -> None:
        """Pack for an attempt, unless `sent` is already packed for this model and limit."""
        if not self.fits or self.packed == (model, limit):
            return
        fitted = self.turn.fit(model, input_limit=limit)
        further = () if isinstance(self.step, FittedDispatch) else self.step.messages[self.base :]
        self.sent = message_list((*fitted.messages, *further))
        self.packed = (model, limit)


# A weak reference, so that only the code that makes the call keeps the record alive. A context
# lives longer: an event loop keeps the contexts of timers, some of them for hours.
CURRENT_ATTEMPTS: Final[ContextVar[ReferenceType[CallAttempts] | None]] = ContextVar(
    "crp_litellm_attempts", default=None
)
# Inside `CRPRouter.completion` the `success_callback` of the call; None in asynchronous calls.
FUNCTION_CALLBACKS: Final[ContextVar[tuple[Any, ...] | None]] = ContextVar(
    "crp_litellm_functions", default=None
)


class AttemptPacking(CustomLogger):
    """Replaces the messages of an attempt with those packed for its model."""

    __deepcopy__ = share_in_copies

    # LiteLLM calls this with these parameter names.
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """The attempt's arguments with its packed messages; None for calls of other code."""
        held = CURRENT_ATTEMPTS.get()
        running = held() if held else None
        if running is None or kwargs.get("messages") != running.messages:
            return None
        model, limit = deployment_model(kwargs)
        running.tried.append(model)
        running.model = model
        try:
            for name in ARGUMENTS:
                refuse_crp(kwargs.get(name))
            refuse_crp(litellm.headers)
            if running.fits and running.packed != (model, limit):
                await asyncio.to_thread(running.fit, model, limit)
            if running.fits and running.turn.crowded_out:
                own = "known for it" if limit is None else f"of max_input_tokens={limit}"
                raise ModelContextExceeded(
                    f"the context limit {own} leaves model {model!r} no room for context besides "
                    "the question; raise it, or ask with a shorter system prompt and history"
                )
        except ModelContextExceeded as error:
            running.refused = error
            # LiteLLM's own class, so that it tries the next deployment.
            raise litellm.ContextWindowExceededError(
                str(error), model, kwargs.get("custom_llm_provider") or ""
            ) from error
        except Exception as error:
            running.refused = error
            raise
        running.refused = None
        # Set at every attempt: the router starts each from the messages it was called with.
        taken = _supported_arguments(kwargs, running.own)
        return {**(taken if running.proxied else _without_stream(taken)), "messages": running.sent}

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Call what LiteLLM calls with an answer in its synchronous path, which packs nothing."""
        await self._call_synchronous("success", kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """The twin of `async_log_success_event` for a failure."""
        await self._call_synchronous("failure", kwargs, response_obj, start_time, end_time)

    async def _call_synchronous(self, event: str, kwargs: dict[str, Any], *about: Any) -> None:
        own, details = FUNCTION_CALLBACKS.get(), dict(kwargs)
        if own is None:
            return
        streams = bool(kwargs.get("stream"))
        if streams and event == "success":
            details["complete_streaming_response"] = about[0]
        for callback in synchronous_callbacks(own, event, streams=streams):
            arguments = (details, *about, log.debug, callback)
            await asyncio.to_thread(self.log_event, *arguments)


def deployment_model(kwargs: dict[str, Any]) -> tuple[str, int | None]:
    """The model of a deployment, and the input limit in its entry of the model list."""
    info = kwargs.get("model_info") or {}
    model = info.get("base_model") or kwargs["model"]
    limit = info.get("max_input_tokens")
    return str(model), limit if isinstance(limit, int) and limit > 0 else None


def _supported_arguments(kwargs: dict[str, Any], own: frozenset[str]) -> dict[str, Any]:
    """The arguments without the turn's sampling values that the model does not support.

    A caller's values stay; LiteLLM refuses those that are not supported.
    """
    own_names = own & kwargs.keys()
    if not own_names:
        return kwargs
    taken = litellm.get_supported_openai_params(
        model=kwargs["model"], custom_llm_provider=kwargs.get("custom_llm_provider")
    )
    if taken is None:
        return kwargs
    left = {name: value for name, value in kwargs.items() if name not in own_names or name in taken}
    # `drop_params` because a model may support a parameter but not all of its values. Not set if
    # it would silently drop tools.
    tools_stay = not kwargs.get("tools") or "tools" in taken
    return {**left, "drop_params": True} if tools_stay else left


def _without_stream(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments; without streaming if a stream's end cannot be detected, as for a mock."""
    end_known = kwargs.get("mock_response") is None and tells_end(
        litellm, kwargs["model"], kwargs.get("custom_llm_provider")
    )
    if not kwargs.get("stream") or end_known:
        return kwargs
    return {**{k: v for k, v in kwargs.items() if k != "stream_options"}, "stream": False}


_HOOK: Final = AttemptPacking()


def install_hook() -> None:
    """Make LiteLLM call the hook; a second call has no effect."""
    for callbacks in callback_lists():
        if _HOOK not in callbacks:
            callbacks.append(_HOOK)
