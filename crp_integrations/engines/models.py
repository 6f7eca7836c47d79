"""Models by name or object: the relay's own, those of the frameworks' chat models, and a judge's.

Objects of LangChain and LlamaIndex are recognised by their methods, so neither is imported here. A
judge is called without the surrounding callbacks: a handler that examines answers must not
examine those of its judge.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import ValidationError

from crp_integrations.engines.extractive import EXTRACTIVE, ExtractiveModel
from crp_integrations.engines.litellm import LiteLLMModel, message_json
from crp_integrations.errors import (
    ConfigError,
    CRPError,
    ModelError,
    ModelTimeout,
    RequestError,
    provider_error,
    provider_refusal,
)
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall, Usage
from crp_integrations.ports import Model
from crp_integrations.vocabulary import Purpose

if TYPE_CHECKING:
    from crp_integrations.engines.openai_server import OpenAIModels


def named_models(
    *, timeout_s: float, options: Mapping[str, Any] | None = None
) -> LiteLLMModel | OpenAIModels:
    """The client that calls models by name: LiteLLM if it is installed, else OpenAI's format."""
    if find_spec("litellm") is None:
        # Imported here, since its httpx takes longer to load than a store to open.
        from crp_integrations.engines.openai_server import OpenAIModels

        return OpenAIModels(timeout_s=timeout_s, options=options)
    return LiteLLMModel(timeout_s=timeout_s, options=options)


class Models:
    """The extractive model for `extractive` and `extractive/…`, a client for every other name."""

    def __init__(self, *, timeout_s: float, options: Mapping[str, Any] | None = None) -> None:
        self._extractive = ExtractiveModel()
        self._named = named_models(timeout_s=timeout_s, options=options)

    def known(self, model: str) -> None:
        """Raise `ModelError` if a model's name cannot be called."""
        if not _is_extractive(model):
            self._named.known(model)

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        return self._engine(call).call(call)

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call without blocking the event loop."""
        return await self._engine(call).acall(call)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text, then the reply."""
        return self._engine(call).stream(call)

    def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        return self._engine(call).astream(call)

    def _engine(self, call: ModelCall) -> Model:
        return self._extractive if _is_extractive(call.model) else self._named


def _is_extractive(model: str) -> bool:
    return model.partition("/")[0] == EXTRACTIVE


# Options that are fields of `ModelCall` and not further arguments for LiteLLM.
_OF_CALL: Final = ("model", "temperature", "max_tokens", "seed", "tools")
_CHOICES: Final = ("auto", "none")
_ANY: Final = ("any", "required", True)


class SecretText(Protocol):
    """A secret whose text representation hides its value."""

    def get_secret_value(self) -> str:
        """The value."""
        ...


class ChatFields(Protocol):
    """The fields that the chat models of all frameworks have."""

    stop: list[str] | None
    timeout: float
    max_retries: int
    api_base: str | None
    headers: dict[str, str]
    options: dict[str, Any]

    @property
    def api_key(self) -> SecretText | None:
        """The provider's key."""
        ...


def client_of(fields: ChatFields, further: Mapping[str, Any]) -> LiteLLMModel:
    """A client with the settings of a chat model's fields."""
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


def answerer(client: Model, call: ModelCall) -> Model:
    """The model that answers a call: the extractive model for its name, else the client.

    LiteLLM knows the name `extractive` only after `register_extractive`.
    """
    return ExtractiveModel() if _is_extractive(call.model) else client


def call_of(
    fields: ChatFields,
    messages: Iterable[Message],
    options: Mapping[str, Any],
    *,
    aside: Sequence[str] = (),
) -> tuple[ModelCall, dict[str, Any]]:
    """A call, and further arguments for LiteLLM; options in `aside` are left out."""
    of_call = {
        name: options[name] if options.get(name) is not None else getattr(fields, name, None)
        for name in _OF_CALL
    }
    further = {
        name: value
        for name, value in options.items()
        if name not in (*_OF_CALL, *aside) and value is not None
    }
    if fields.stop:
        further.setdefault("stop", fields.stop)
    tools = of_call["tools"] or ()
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise RequestError(f"tools is {type(tools).__name__}, wanted a list of definitions")
    conversation = tuple(messages)
    try:
        call = ModelCall(**{**of_call, "tools": tuple(tools)}, messages=conversation)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise RequestError(f"{name} of the call is not usable: {first['msg']}") from None
    return call, further


def tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    """A tool choice in the format of the provider."""
    if choice is None or isinstance(choice, dict) or choice in _CHOICES:
        return choice
    if choice in _ANY:
        return "required"
    names = [tool.get("function", {}).get("name") for tool in tools]
    if choice not in names:
        raise RequestError(
            f"tool_choice {str(choice)!r:.60} is not a tool's name; give auto, none, any or one of "
            f"{', '.join(str(name) for name in names)}"
        )
    return {"type": "function", "function": {"name": choice}}


# Where frameworks keep the most tokens of a reply, and a model's name.
_MOST_OUTPUT: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
_NAMES: Final = ("model_name", "model", "model_id", "deployment_name")


def judge_model(source: object, *, timeout_s: float, options: Mapping[str, Any]) -> Model:
    """The model that a judge calls."""
    if isinstance(source, str):
        model = named_models(timeout_s=timeout_s, options=options)
        model.known(source)
        return model
    if options:
        named = ", ".join(sorted(options))
        raise ConfigError(f"{named} need a model's name; set them on the model object itself")
    return model_object(source, "judge", quiet=True)


def model_object(source: object, name: str, *, quiet: bool = False) -> Model:
    """Adapt a model object of this package, LangChain or LlamaIndex to `Model`.

    Without `stream` and `astream`, an object with `call` and `acall` streams in one piece.

    Args:
        name: name of the argument that it was given as, for messages.
        quiet: call it without the surrounding callbacks.
    """
    made: Any = source
    if _can(made, "call", "acall"):
        if quiet or _can(made, "stream", "astream"):
            return made  # type: ignore[no-any-return]
        return ModelObject(made.call, made.acall, lambda reply, _: reply)
    if _can(made, "invoke", "ainvoke"):
        config: Any = {"callbacks": []} if quiet else None
        return ModelObject(
            lambda call: _bound(made, call).invoke(_openai_messages(call), config=config),
            lambda call: _bound(made, call).ainvoke(_openai_messages(call), config=config),
            _of_message,
        )
    if _can(made, "complete", "acomplete"):
        return ModelObject(
            lambda call: made.complete(_text(call)),
            lambda call: made.acomplete(_text(call)),
            _of_completion,
        )
    own = ", or True for the component's own model" if name == "judge" else ""
    named = "" if name == "models" else "a LiteLLM name such as 'openai/gpt-4o-mini', "
    raise ConfigError(
        f"{name} is {type(source).__name__}; give {named}a LangChain chat model, a LlamaIndex LLM, "
        f"an object with call and acall{own}"
    )


def _can(source: object, *verbs: str) -> bool:
    return all(callable(getattr(source, verb, None)) for verb in verbs)


def model_object_name(source: object) -> str:
    """The name of the model that an object calls; a name is returned as it is."""
    if isinstance(source, str):
        return source
    inner = _inner(source)
    metadata = getattr(inner, "metadata", None)
    named = [getattr(inner, name, None) for name in _NAMES]
    named.append(getattr(metadata, "model_name", None))
    return next((n for n in named if isinstance(n, str) and n), type(source).__name__)


def most_output_of(source: object) -> int | None:
    """The most tokens of a reply that a model object states; None if it states none."""
    own, inner = getattr(source, "__dict__", {}), _inner(source)
    if isinstance(others := own.get("fallbacks"), list | tuple):
        each = [most_output_of(model) for model in (own.get("runnable"), *others)]
        return None if None in each else max(most or 0 for most in each)
    if inner is not source:
        bound = own.get("kwargs") or {}
        stated = [*(bound.get(name) for name in _MOST_OUTPUT), most_output_of(inner)]
    else:
        profile = getattr(source, "profile", None)
        stated = [getattr(source, name, None) for name in _MOST_OUTPUT]
        stated.append(profile.get("max_output_tokens") if isinstance(profile, Mapping) else None)
    return next((most for most in stated if isinstance(most, int) and most > 0), None)


def _inner(source: object) -> object:
    """The model inside a LangChain binding; any other object is returned as it is."""
    inner = getattr(source, "bound", None)
    return inner if callable(getattr(inner, "invoke", None)) else source


def model_error(error: Exception, model: str) -> ModelError:
    """Convert a framework's error, with the provider's words if it holds any."""
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    kind = provider_error(status, str(error))
    if isinstance(error, TimeoutError) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        kind = ModelTimeout
    made = kind(f"the chat model {model!r:.80} failed with {type(error).__name__}")
    made.provider_status = status if isinstance(status, int) else None
    made.refusal = provider_refusal(getattr(error, "body", None) or getattr(error, "message", None))
    made.tried = (model,)
    return made


@contextmanager
def own_errors(model: str) -> Iterator[None]:
    """Turn errors that a framework raises into this package's errors."""
    try:
        yield
    except CRPError:
        raise
    except Exception as error:
        raise model_error(error, model) from error


# A few characters with the rest of the word; text without spaces is cut too.
_PIECE: Final = re.compile(r".{1,12}\S{0,16}\s*", re.DOTALL)


def text_pieces(text: str) -> list[str]:
    """Cut a complete text into pieces of a few words, as a stream would give it.

    >>> text_pieces("The reactor at Brenning delivers 412 MW.")
    ['The reactor at ', 'Brenning delivers ', '412 MW.']
    """
    return _PIECE.findall(text)


class WholeReplies(ABC):
    """A model that is always called for the whole answer, even where a stream is requested.

    So a framework's own streams never show parts of an answer that is withheld later.
    """

    @abstractmethod
    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""

    @abstractmethod
    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous version of `call`."""

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The whole text in one piece, then the reply."""
        reply = self.call(call)
        if reply.text:
            yield reply.text
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        reply = await self.acall(call)
        if reply.text:
            yield reply.text
        yield reply


class FrameworkChatModel(WholeReplies):
    """The common base of adapters for the frameworks' chat models.

    Where an answer may be withheld, the whole answer is requested even for a stream.
    """

    # Whether the answer is shown as it arrives; then nothing may withhold or change it.
    shows: Callable[[], bool] = staticmethod(lambda: False)

    @abstractmethod
    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call; errors are those of the framework."""

    @abstractmethod
    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous version of `reply_to`."""

    def parts_of(self, call: ModelCall) -> Iterator[str | Reply]:
        """Answer a call in the model's own pieces, then the reply."""
        yield from super().stream(call)

    async def aparts_of(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `parts_of`."""
        async for part in super().astream(call):
            yield part

    def shown(self, call: ModelCall) -> bool:
        """Whether a call's tokens are shown as they arrive."""
        return call.purpose is Purpose.ANSWER and self.shows()

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        with own_errors(call.model):
            return self.reply_to(call)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous version of `call`."""
        with own_errors(call.model):
            return await self.areply_to(call)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The text in pieces, then the reply."""
        with own_errors(call.model):
            if self.shown(call):
                yield from self.parts_of(call)
                return
            reply = self.reply_to(call)
        yield from text_pieces(reply.text)
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        with own_errors(call.model):
            if self.shown(call):
                async for part in self.aparts_of(call):
                    yield part
                return
            reply = await self.areply_to(call)
        for piece in text_pieces(reply.text):
            yield piece
        yield reply


class ModelObject(FrameworkChatModel):
    """Calls a model object of LangChain or LlamaIndex for whole answers.

    Args:
        ask, aask: functions from a call to the framework's answer.
        read: function from the framework's answer and the call to a reply.
    """

    def __init__(
        self, ask: Callable[[ModelCall], Any], aask: Callable[[ModelCall], Awaitable[Any]],
        read: Callable[[Any, ModelCall], Reply],
    ) -> None:  # fmt: skip
        self._ask, self._aask, self._read = ask, aask, read

    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call."""
        return self._read(self._ask(call), call)

    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous version of `reply_to`."""
        return self._read(await self._aask(call), call)


def _bound(model: Any, call: ModelCall) -> Any:
    """A LangChain model with the tools of a call, and with its response format if it takes one."""
    profile = getattr(_inner(model), "profile", None)
    if call.tools:
        model = model.bind_tools([dict(tool) for tool in call.tools])
    # LangChain's agents bind the same argument to the models that their profile says take it.
    if call.response_format and isinstance(profile, Mapping) and profile.get("structured_output"):
        return model.bind(response_format=call.response_format)
    return model


def _openai_messages(call: ModelCall) -> list[dict[str, Any]]:
    return [message_json(message) for message in call.messages]


def _text(call: ModelCall) -> str:
    if call.tools:
        raise ModelError(f"model {call.model!r:.80} is called with a text, which takes no tools")
    return "\n\n".join(message.content for message in call.messages)


def _of_message(message: Any, call: ModelCall) -> Reply:
    if isinstance(message, str):
        return Reply(text=message, model=call.model)
    text = message.text if isinstance(getattr(message, "text", None), str) else message.content
    metadata = getattr(message, "response_metadata", None) or {}
    used = getattr(message, "usage_metadata", None) or {}
    return Reply(
        text=str(text),
        model=str(metadata.get("model_name") or metadata.get("model") or call.model),
        tool_calls=tuple(
            ToolCall(
                id=tool_call.get("id") or "",
                name=tool_call["name"],
                arguments=json.dumps(tool_call["args"]),
            )
            for tool_call in getattr(message, "tool_calls", None) or ()
        ),
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
