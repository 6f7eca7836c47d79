"""The model client: calls any LiteLLM model, whole or streamed, and reports the cost.

LiteLLM is imported at the first call, since that takes seconds. No CRP data is sent: a call
contains the model, the messages, the sampling values that were set, the tools and the headers
that an operator listed. LiteLLM leaves out a sampling value that a model does not take (such as
`seed` or `temperature`); tools that a model does not take are an error.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final

from crp_integrations.engines.extractive import EXTRACTIVE, ExtractiveModel
from crp_integrations.engines.litellm_versions import (
    ended,
    library,
    note,
    notes_of,
    plain_tools,
    register_provider,
    translate,
    unknown,
)
from crp_integrations.errors import ConfigError, CRPError, ModelError
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall, Usage

_PRICE: Final = ("input_cost_per_", "output_cost_per_")


def usage_of(response: Any, library: Any, names: Iterable[str] = ()) -> Usage:
    """Usage that the provider reported in a response, or in the chunk of a stream that has it."""
    used = getattr(response, "usage", None)
    return Usage(
        prompt_tokens=getattr(used, "prompt_tokens", None) or 0,
        completion_tokens=getattr(used, "completion_tokens", None) or 0,
        cost_usd=_cost(response, used, library, names),
    )


def _cost(response: Any, used: Any, library: Any, names: Iterable[str]) -> float | None:
    notes = notes_of(response)
    stated_cost = notes.get("response_cost")
    if isinstance(stated_cost, int | float) and stated_cost > 0:
        return float(stated_cost)
    if used is None:
        return None
    # A deployment's own price comes before that of its model.
    asked = (notes.get("model_id"), *names, notes.get("litellm_model_name"))
    known = [str(name) for name in asked if name]
    for name in known:
        for spelled in (name, name.partition("/")[2]):
            row = library.model_cost.get(spelled) if spelled else None
            if row and any(k.startswith(_PRICE) and v is not None for k, v in row.items()):
                return _priced(library, spelled, row.get("litellm_provider"), known, used)
    return None


def _priced(
    library: Any, name: str, provider: str | None, known: Sequence[str], used: Any
) -> float | None:
    """LiteLLM's price of the tokens used; None if LiteLLM cannot compute it."""
    prefixes = (model_name.partition("/")[0] for model_name in known if "/" in model_name)
    try:
        paid = library.cost_per_token(
            model=name, custom_llm_provider=provider or next(prefixes, None), usage_object=used
        )
    except Exception:  # noqa: BLE001 - any error means that the cost is not known
        return None
    return float(sum(paid))


# LiteLLM marks every piece from these providers as the last, so a stream that was cut off looks
# complete. Therefore they are called for whole answers.
TELL_NO_END: Final = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})


def tells_end(library: Any, model: str, provider: str | None = None) -> bool:
    """Whether LiteLLM can tell a stream that a model's provider ended from one cut off."""
    if provider is None:
        try:
            provider = library.get_llm_provider(model)[1]
        except library.exceptions.BadRequestError:
            return True
    return provider not in TELL_NO_END


def as_chunk(response: Any) -> Any:
    """A whole response as the only chunk of a stream."""
    from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

    chunk = ModelResponseStream(
        id=response.id,
        created=response.created,
        model=response.model,
        choices=[
            StreamingChoices(
                index=choice.index,
                delta=Delta(**_delta(choice.message)),
                finish_reason=choice.finish_reason,
            )
            for choice in response.choices
        ],
        usage=getattr(response, "usage", None),
    )
    note(chunk, notes_of(response))
    return chunk


def _delta(message: Any) -> dict[str, Any]:
    delta: dict[str, Any] = message.model_dump(exclude_none=True)
    for place, call in enumerate(delta.get("tool_calls") or ()):
        call.setdefault("index", place)
    return delta


class StreamedReply:
    """Assembles a reply from a stream's chunks."""

    def __init__(self, model: str, library: Any, priced_as: Sequence[str] = ()) -> None:
        """Begin without chunks."""
        self._model = self._called = model
        self._library = library
        self._priced_as = tuple(priced_as)
        self._pieces: list[str] = []
        self._tools: dict[int, dict[str, str]] = {}
        self._finish = ""
        self._usage = Usage()

    def add(self, chunk: Any) -> str:
        """Add one chunk and return its text, empty when it has none."""
        if getattr(chunk, "usage", None):
            self._usage = usage_of(chunk, self._library, (*self._priced_as, self._called))
        if not chunk.choices:
            return ""
        self._model = chunk.model or self._model
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        for call in choice.delta.tool_calls or ():
            known = self._tools.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
            known["id"] = call.id or known["id"]
            known["name"] = call.function.name or known["name"]
            known["arguments"] += call.function.arguments or ""
        piece: str = choice.delta.content or ""
        if piece:
            self._pieces.append(piece)
        return piece

    @property
    def finished(self) -> bool:
        """Whether a chunk with a finish reason, the last of an answer, was added."""
        return bool(self._finish)

    def reply(self, chunks: Any) -> Reply:
        """The whole reply; raises `ModelError` for a stream that broke off."""
        if not self._finish or not ended(chunks):
            raise ModelError(f"the stream of model {self._model!r} broke off before its end")
        calls = tuple(
            ToolCall(id=tool["id"], name=tool["name"], arguments=tool["arguments"] or "{}")
            for _, tool in sorted(self._tools.items())
        )
        return Reply(
            text="".join(self._pieces),
            model=self._model,
            tool_calls=calls,
            usage=self._usage,
            finish_reason=self._finish,
        )


# LiteLLM's arguments for additional headers of a call.
ARGUMENTS: Final = ("headers", "extra_headers")

# Headers that providers document for their callers, and tracing headers.
PASSED: Final = frozenset(
    {"anthropic-beta", "anthropic-version", "openai-beta", "openai-organization"}
    | {"openai-project", "x-goog-user-project", "http-referer", "x-title"}
    | {"idempotency-key", "x-request-id", "traceparent", "tracestate"}
)
PREFIX: Final = "crp-"


def refuse_crp(headers: Mapping[str, Any] | None) -> None:
    """Raise `ConfigError` if a header for a provider is a CRP header."""
    for name in headers or {}:
        if _plain(name).startswith(PREFIX):
            raise ConfigError(f"header {name!r:.80} is CRP metadata, which no provider may get")


def refuse_unlisted(headers: Mapping[str, Any] | None, listed: Iterable[str] = ()) -> None:
    """Raise `ConfigError` unless every header of a call may be sent to a provider."""
    refuse_crp(headers)
    allowed = PASSED | {_plain(name) for name in listed}
    for name in headers or {}:
        if _plain(name) not in allowed:
            raise ConfigError(
                f"header {name!r:.80} is not on the list of those that go to providers; name it "
                "in allow_headers, or in the deployment's entry, to send it"
            )


def _plain(name: object) -> str:
    return str(name).strip().lower()


DEFAULT_TIMEOUT_S: Final = 60.0
# Arguments that each call sets itself; an operator's options cannot replace them.
RESERVED: Final = frozenset(
    {"model", "messages", "stream", "tools", "metadata", "litellm_metadata", "headers"}
    | {"extra_headers", "extra_body", "temperature", "max_tokens", "seed", "timeout"}
)


class LiteLLMModel:
    """Answers calls through LiteLLM. Thread-safe."""

    def __init__(
        self,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = 0,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the arguments that are the same for every call."""
        refuse_crp(headers)
        for name in options or {}:
            if name in RESERVED:
                raise ConfigError(f"option {name!r} is set by each call; give another one")
            if str(name).lower().startswith("crp"):
                raise ConfigError(f"option {str(name)!r:.80} would send CRP metadata to a provider")
        self._common: dict[str, Any] = {
            **(options or {}),
            "timeout": timeout_s,
            "max_retries": retries,
            "drop_params": True,
        }
        if headers:
            self._common["extra_headers"] = dict(headers)

    def known(self, model: str) -> None:
        """Raise `ModelNotFound` unless LiteLLM can derive the provider from a name."""
        litellm = library()
        if self._provider:
            return
        try:
            litellm.get_llm_provider(model, api_base=self._common.get("api_base"))
        except litellm.exceptions.BadRequestError as error:
            raise unknown(model) from error

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        litellm = library()
        with _translated(call.model, litellm):
            response = litellm.completion(**self._arguments(call))
            return reply_of(response, call.model)

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call without blocking the event loop."""
        litellm = library()
        with _translated(call.model, litellm):
            response = await litellm.acompletion(**self._arguments(call))
            return reply_of(response, call.model)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they arrive, then the whole reply.

        From providers for whose streams LiteLLM cannot tell whether they were cut off, and from its
        `mock_response`, the whole text comes in one piece.
        """
        litellm = library()
        if not self._tells_end(call.model):
            reply = self.call(call)
            yield reply.text
            yield reply
            return
        assembly = StreamedReply(call.model, litellm)
        with _translated(call.model, litellm):
            chunks = litellm.completion(**self._arguments(call, stream=True))
            for chunk in chunks:
                if piece := assembly.add(chunk):
                    yield piece
            reply = assembly.reply(chunks)
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        litellm = library()
        if not self._tells_end(call.model):
            reply = await self.acall(call)
            yield reply.text
            yield reply
            return
        assembly = StreamedReply(call.model, litellm)
        with _translated(call.model, litellm):
            chunks = await litellm.acompletion(**self._arguments(call, stream=True))
            async for chunk in chunks:
                if piece := assembly.add(chunk):
                    yield piece
            reply = assembly.reply(chunks)
        yield reply

    def _arguments(self, call: ModelCall, *, stream: bool = False) -> dict[str, Any]:
        self.known(call.model)
        arguments = {
            **self._common,
            "model": call.model,
            "messages": [message_json(message) for message in call.messages],
        }
        for name in ("temperature", "max_tokens", "seed"):
            if getattr(call, name) is not None:
                arguments[name] = getattr(call, name)
        if call.tools:
            self._must_take_tools(call.model)
            arguments |= {"tools": [dict(tool) for tool in call.tools], **plain_tools()}
        if call.response_format is not None and self._takes_form(call.model):
            arguments["response_format"] = call.response_format
        if stream:
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        return arguments

    @property
    def _provider(self) -> str | None:
        named = self._common.get("custom_llm_provider")
        return str(named) if named else None

    def _tells_end(self, model: str) -> bool:
        mocked = self._common.get("mock_response") is not None
        return not mocked and tells_end(library(), model, self._provider)

    def _takes_form(self, model: str) -> bool:
        """Whether LiteLLM says that a model supports a response format."""
        try:
            return bool(
                library().supports_response_schema(model=model, custom_llm_provider=self._provider)
            )
        except Exception:  # noqa: BLE001 - LiteLLM raises for models that it does not know
            return False

    def _must_take_tools(self, model: str) -> None:
        taken = library().get_supported_openai_params(
            model=model, custom_llm_provider=self._provider
        )
        if taken is not None and "tools" not in taken:
            raise ModelError(f"model {model!r} takes no tools; ask without them or another model")


@contextmanager
def _translated(model: str, litellm: ModuleType) -> Iterator[None]:
    """Turn LiteLLM's errors into the package's; those of the package pass unchanged."""
    try:
        yield
    except CRPError:
        raise
    except Exception as error:
        raise translate(error, model, litellm) from error


def message_json(message: Message) -> dict[str, Any]:
    """A message in the OpenAI format, without empty fields."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        fields["name"] = message.name
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
        fields["content"] = message.content or None
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def reply_of(response: Any, model: str, priced_as: Sequence[str] = ()) -> Reply:
    """Convert a LiteLLM response to a reply."""
    if not getattr(response, "choices", None):
        raise ModelError(f"model {model!r} sent no choice in its answer")
    choice = response.choices[0]
    calls = tuple(
        ToolCall(id=call.id or "", name=call.function.name or "", arguments=call.function.arguments)
        for call in choice.message.tool_calls or ()
    )
    return Reply(
        text=choice.message.content or "",
        model=response.model or model,
        tool_calls=calls,
        usage=usage_of(response, library(), (*priced_as, model)),
        finish_reason=choice.finish_reason or "stop",
    )


_REGISTERING: Final = threading.Lock()


def register_extractive() -> None:
    """Make `extractive/NAME` callable through LiteLLM in this process; may be called again."""
    library()
    with _REGISTERING:
        if not register_provider(EXTRACTIVE, _handler()):
            raise ConfigError(f"LiteLLM already has another provider named {EXTRACTIVE!r}")


@cache
def _handler() -> Any:
    from litellm import CustomLLM, ModelResponse

    answerer = ExtractiveModel()

    def call_of(keywords: dict[str, Any]) -> ModelCall:
        return ModelCall(
            model=f"{EXTRACTIVE}/{keywords['model']}", messages=_text_messages(keywords["messages"])
        )

    def answered(keywords: dict[str, Any]) -> Any:
        call = call_of(keywords)
        response = keywords.get("model_response") or ModelResponse()
        response.model = call.model
        response.choices[0].message.content = answerer.call(call).text
        response.choices[0].finish_reason = "stop"
        return response

    def pieces(keywords: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for part in answerer.stream(call_of(keywords)):
            ended = isinstance(part, Reply)
            yield {
                "text": "" if ended else part,
                "is_finished": ended,
                "finish_reason": "stop" if ended else "",
                "index": 0,
                "tool_use": None,
                "usage": None,
            }

    class Extractive(CustomLLM):
        """Passes LiteLLM's calls to the extractive model."""

        def completion(self, *args: Any, **keywords: Any) -> Any:
            return answered(keywords)

        async def acompletion(self, *args: Any, **keywords: Any) -> Any:
            return answered(keywords)

        def streaming(self, *args: Any, **keywords: Any) -> Iterator[Any]:
            return pieces(keywords)

        # LiteLLM iterates over this without awaiting it first, unlike the base class's signature.
        async def astreaming(  # type: ignore[override]
            self, *args: Any, **keywords: Any
        ) -> AsyncIterator[Any]:
            for piece in pieces(keywords):
                yield piece

    return Extractive()


def _text_messages(messages: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """Convert messages in the OpenAI format; text parts are joined, other roles left out."""
    converted = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "".join(part.get("text") or "" for part in content)
        if message.get("role") in ("system", "user", "assistant", "tool"):
            converted.append(Message(role=message["role"], content=content))
    return tuple(converted)
