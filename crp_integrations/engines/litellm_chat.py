"""What the frameworks' chat models are made of: fields, a client, and calls out of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import ValidationError

from crp_integrations.engines.extractive import EXTRACTIVE, ExtractiveModel
from crp_integrations.engines.litellm import LiteLLMModel
from crp_integrations.errors import RequestError
from crp_integrations.messages import Message, ModelCall
from crp_integrations.ports import Model

# Of a call, and not of LiteLLM's arguments.
_OF_CALL: Final = ("model", "temperature", "max_tokens", "seed", "tools")
_CHOICES: Final = ("auto", "none")
_ANY: Final = ("any", "required", True)


class Secret(Protocol):
    """A value that does not show itself."""

    def get_secret_value(self) -> str:
        """The value."""
        ...


class ChatFields(Protocol):
    """The fields of a chat model that are the same in every framework."""

    stop: list[str] | None
    timeout: float
    max_retries: int
    api_base: str | None
    headers: dict[str, str]
    options: dict[str, Any]

    @property
    def api_key(self) -> Secret | None:
        """The provider's key."""
        ...


def client_of(fields: ChatFields, further: Mapping[str, Any]) -> LiteLLMModel:
    """The client that calls with a chat model's fields.

    Args:
        further: LiteLLM's arguments of one call, which win over the fields' own.

    Raises:
        ConfigError: a header is named `CRP-…`, or an option belongs to the single call.
    """
    reached = {
        "api_base": fields.api_base,
        "api_key": fields.api_key.get_secret_value() if fields.api_key else None,
    }
    known = {name: value for name, value in reached.items() if value}
    return LiteLLMModel(
        timeout_s=fields.timeout,
        retries=fields.max_retries,
        headers=fields.headers,
        options={**fields.options, **known, **further},
    )


def answering(client: Model, call: ModelCall) -> Model:
    """Who answers a call: the extractive model by its name, the client every other one.

    LiteLLM knows that name only where something has taught it.
    """
    return ExtractiveModel() if call.model.partition("/")[0] == EXTRACTIVE else client


def call_of(
    fields: ChatFields,
    messages: Iterable[Message],
    given: Mapping[str, Any],
    *,
    aside: Sequence[str] = (),
) -> tuple[ModelCall, dict[str, Any]]:
    """A call, and LiteLLM's further arguments for it.

    Args:
        given: arguments of this call, which win over the fields.
        aside: names that the framework hands over and nobody else has a use for.

    Raises:
        RequestError: a value of the call has no use; names it.
    """
    of_call = {
        name: given[name] if given.get(name) is not None else getattr(fields, name, None)
        for name in _OF_CALL
    }
    further = {
        name: value
        for name, value in given.items()
        if name not in (*_OF_CALL, *aside) and value is not None
    }
    if fields.stop:
        further.setdefault("stop", fields.stop)
    tools = of_call["tools"] or ()
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise RequestError(f"tools is {type(tools).__name__}, wanted a list of definitions")
    said = tuple(messages)
    try:
        call = ModelCall(**{**of_call, "tools": tuple(tools)}, messages=said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise RequestError(f"{name} of the call is not usable: {first['msg']}") from None
    return call, further


def tool_choice(given: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    """Which tool must be called, in the provider's form.

    Args:
        given: `auto`, `none`, `any` (or `required`, True) for one of them, a tool's name, or the
            provider's own form; None for nothing said.
        tools: in the OpenAI shape.

    Raises:
        RequestError: no tool has the name.
    """
    if given is None or isinstance(given, dict) or given in _CHOICES:
        return given
    if given in _ANY:
        return "required"
    names = [tool.get("function", {}).get("name") for tool in tools]
    if given not in names:
        raise RequestError(
            f"tool_choice {str(given)!r:.60} is no tool's name; wanted auto, none, any or one of "
            f"{', '.join(str(name) for name in names)}"
        )
    return {"type": "function", "function": {"name": given}}
