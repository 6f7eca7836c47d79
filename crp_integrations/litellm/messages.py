"""Messages, arguments and model lists, between LiteLLM and a question of the relay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crp_integrations.engines.litellm import message_json
from crp_integrations.engines.litellm_versions import entries_of, plain_tools
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.messages import Message
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.steps import Dispatch
from crp_integrations.vocabulary import Purpose

TOOL_ARGUMENTS: Final = frozenset(
    {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
)
_FUNCTION_ARGUMENTS: Final = frozenset({"functions", "function_call"})
# What shapes an answer, and has no place in a call that prepares, checks or joins answers.
ANSWER_FIELDS: Final = TOOL_ARGUMENTS | frozenset(
    {"response_format", "stop", "logit_bias", "logprobs", "top_logprobs", "modalities"}
    | {"presence_penalty", "frequency_penalty", "prediction", "audio", "verbosity", "n"}
    | {"max_tokens", "max_completion_tokens", "stream_options", "top_p", "_skip_mcp_handler"}
)
# Fields of a question that the router fills in from LiteLLM's arguments.
ROUTER_FIELDS: Final = frozenset(
    {"model", "system_prompt", "history", "results", "max_tokens", "temperature", "seed", "tools"}
    | {"compact", "compaction"}
)


def message_list(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the OpenAI shape."""
    return [message_json(message) for message in messages]


def is_answer(step: Dispatch) -> bool:
    """Whether a call's reply is an answer to the question, a first or a mended one."""
    return step.envelope is not None and step.purpose is Purpose.ANSWER


def call_arguments(step: Dispatch, given: Mapping[str, Any]) -> dict[str, Any]:
    """LiteLLM's arguments of one call, without model and messages."""
    call = step.call
    whole = is_answer(step)
    kept = {name: value for name, value in given.items() if whole or name not in ANSWER_FIELDS}
    if whole and any(tool not in tools_of(given) for tool in call.tools):
        # The turn has tools of its own, such as the search of the agentic strategy.
        kept = {name: value for name, value in kept.items() if name not in _FUNCTION_ARGUMENTS}
        kept |= {"tools": list(call.tools), **plain_tools()}
        if given.get("function_call"):
            kept["tool_choice"] = _tool_choice(given["function_call"])
    if not call.tools:
        kept = {name: value for name, value in kept.items() if name not in TOOL_ARGUMENTS}
    for name in ("temperature", "seed"):
        kept.pop(name, None)
        if getattr(call, name) is not None:
            kept[name] = getattr(call, name)
    if not whole and call.max_tokens is not None:
        kept["max_tokens"] = call.max_tokens
    return kept


def tools_of(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The caller's tools, those of the old form too; their definitions take room in a context."""
    functions = given.get("functions") or ()
    old = [{"type": "function", "function": function} for function in functions]
    return [*(given.get("tools") or ()), *old]


def question_fields(crp: Mapping[str, Any] | None, name: str = "crp") -> dict[str, Any]:
    """The fields of a question that a caller gave by their names."""
    if crp is not None and not isinstance(crp, Mapping):
        raise RequestError(f"crp is {type(crp).__name__}, wanted a dict of a question's fields")
    fields = dict(crp or {})
    known = sorted(QuestionFields.__annotations__.keys() - ROUTER_FIELDS)
    for field in fields:
        if field not in known:
            told = ", ".join(known)
            raise RequestError(f"{name} has no field {str(field)!r:.40}; it takes {told}")
    return fields


def refuse_question_fields(arguments: Mapping[str, Any]) -> None:
    """Check that no field of a question stands among LiteLLM's arguments.

    LiteLLM hands on what it does not know: a policy would be none, and go to the provider.
    """
    fields = QuestionFields.__annotations__.keys() - ROUTER_FIELDS
    for name, value in arguments.items():
        # LiteLLM has a switch of its own by the name of `cache`, which is a dict.
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
    """Check that no argument carries something of CRP into a provider's request.

    LiteLLM puts what it does not know, and `extra_body`, into the body.
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
    """The old form's choice of a function in the form that goes with tools."""
    if isinstance(function_call, Mapping):
        return {"type": "function", "function": dict(function_call)}
    return function_call


_SHAPE = "{'model_name': …, 'litellm_params': {'model': …}}"


def check_entries(given: object) -> None:
    """Check the shape of a model list."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise RequestError(f"model_list is {type(given).__name__}, wanted a list of {_SHAPE}")
    for number, entry in enumerate(given, 1):
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
    """The model of a group's first deployment, which the hook replaces by the real one."""
    for entry in entries_of(router, group):
        info = entry.get("model_info") or {}
        return str(info.get("base_model") or entry["litellm_params"]["model"])
    return group
