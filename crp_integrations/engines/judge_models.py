"""The model behind a judge: a LiteLLM name, or a model object of LangChain or LlamaIndex.

Their objects are known by what they can do, so neither framework is imported here. A call is made
without the callbacks around it: a handler that examines answers must not examine its judge's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from crp_integrations.engines.litellm import LiteLLMModel
from crp_integrations.errors import ConfigError, CRPError, ModelError, provider_error
from crp_integrations.messages import ModelCall, Reply, Usage
from crp_integrations.ports import Model

# Where frameworks keep a model's name.
_NAMES: Final = ("model_name", "model", "model_id", "deployment_name")
_ROLES: Final = {"system": "system", "user": "human", "assistant": "ai"}


def judge_model(source: object, *, timeout_s: float, options: Mapping[str, Any]) -> Model:
    """The model that a judge asks.

    Args:
        source: a LiteLLM name, a `Model`, or a model of LangChain or LlamaIndex.
        options: LiteLLM's arguments for reaching a provider.

    Raises:
        ConfigError: what is given is no model, or an option has no use.
        ModelNotFound: no provider follows from the name.
    """
    if isinstance(source, str):
        model = LiteLLMModel(timeout_s=timeout_s, options=options)
        model.known(source)
        return model
    if options:
        named = ", ".join(sorted(options))
        raise ConfigError(f"{named} go with a judge's name; set them on the model object itself")
    if callable(getattr(source, "call", None)) and callable(getattr(source, "acall", None)):
        return source  # type: ignore[return-value]
    if callable(getattr(source, "invoke", None)) and callable(getattr(source, "ainvoke", None)):
        return LangChainJudge(source)
    if callable(getattr(source, "complete", None)) and callable(getattr(source, "acomplete", None)):
        return LlamaIndexJudge(source)
    raise ConfigError(
        f"judge is {type(source).__name__}; give a LiteLLM name such as 'openai/gpt-4o-mini', a "
        "LangChain chat model, a LlamaIndex LLM, or True for the component's own model"
    )


def judge_name(source: object) -> str:
    """A judge's name as reports show it."""
    if isinstance(source, str):
        return source
    inner = getattr(source, "bound", None)
    inner = inner if callable(getattr(inner, "invoke", None)) else source
    metadata = getattr(inner, "metadata", None)
    for holder, names in ((inner, _NAMES), (metadata, ("model_name",))):
        for name in names:
            found = getattr(holder, name, None)
            if isinstance(found, str) and found:
                return found
    return type(source).__name__


class _Whole:
    """A model that answers whole."""

    def call(self, call: ModelCall) -> Reply:
        raise NotImplementedError

    async def acall(self, call: ModelCall) -> Reply:
        raise NotImplementedError

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The text in one piece, then the reply."""
        reply = self.call(call)
        yield reply.text
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        reply = await self.acall(call)
        yield reply.text
        yield reply


class LangChainJudge(_Whole):
    """Asks a LangChain chat model, or a Runnable around one."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def call(self, call: ModelCall) -> Reply:
        """Answer a call.

        Raises:
            ModelError: the model did not.
        """
        try:
            return _of_message(self._model.invoke(_pairs(call), config={"callbacks": []}), call)
        except Exception as error:
            raise _failed(error, call.model) from error

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        try:
            message = await self._model.ainvoke(_pairs(call), config={"callbacks": []})
            return _of_message(message, call)
        except Exception as error:
            raise _failed(error, call.model) from error


class LlamaIndexJudge(_Whole):
    """Asks a LlamaIndex LLM."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def call(self, call: ModelCall) -> Reply:
        """Answer a call.

        Raises:
            ModelError: the model did not.
        """
        try:
            return _of_completion(self._model.complete(_text(call)), call)
        except Exception as error:
            raise _failed(error, call.model) from error

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        try:
            return _of_completion(await self._model.acomplete(_text(call)), call)
        except Exception as error:
            raise _failed(error, call.model) from error


def _pairs(call: ModelCall) -> list[tuple[str, str]]:
    return [(_ROLES[str(message.role)], message.content) for message in call.messages]


def _text(call: ModelCall) -> str:
    return "\n\n".join(message.content for message in call.messages)


def _of_message(message: Any, call: ModelCall) -> Reply:
    if isinstance(message, str):
        return Reply(text=message, model=call.model)
    text = message.text if isinstance(getattr(message, "text", None), str) else message.content
    told = getattr(message, "response_metadata", None) or {}
    used = getattr(message, "usage_metadata", None) or {}
    return Reply(
        text=str(text),
        model=str(told.get("model_name") or told.get("model") or call.model),
        usage=Usage(
            prompt_tokens=int(used.get("input_tokens") or 0),
            completion_tokens=int(used.get("output_tokens") or 0),
        ),
    )


def _of_completion(completion: Any, call: ModelCall) -> Reply:
    raw = getattr(completion, "raw", None)
    used = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)

    def tokens(name: str) -> int:
        value = used.get(name) if isinstance(used, Mapping) else getattr(used, name, 0)
        return value if isinstance(value, int) else 0

    return Reply(
        text=str(completion.text),
        model=call.model,
        usage=Usage(
            prompt_tokens=tokens("prompt_tokens"), completion_tokens=tokens("completion_tokens")
        ),
    )


def _failed(error: Exception, model: str) -> CRPError:
    """Our error of a framework's; its own words may quote the prompt, so they are not copied."""
    if isinstance(error, CRPError):
        return error
    status = getattr(error, "status_code", None)
    own: ModelError = provider_error(status)(
        f"the call to judge {model!r:.80} failed ({type(error).__name__})"
    )
    own.provider_status = status if isinstance(status, int) else None
    return own
