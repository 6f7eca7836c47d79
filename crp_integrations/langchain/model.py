"""A LangChain chat model as the model of a turn, hidden from the caller's streams.

In LangChain, tokens can reach a caller in three ways before the code that called the model has
them: through handlers that stream (`astream_events`, `astream_log`, LangGraph's stream modes),
through `on_llm_new_token` of any handler, and as the finished message in `on_llm_end` of a
streaming handler. So streaming handlers are removed from the call, and the model is called
without streaming.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from langchain_core.callbacks import BaseCallbackManager, Callbacks
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    message_chunk_to_message,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableSerializable,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from crp_integrations.adapters.conversations import context_value, sampling
from crp_integrations.engines.models import FrameworkChatModel
from crp_integrations.errors import RequestError
from crp_integrations.langchain.messages import langchain_of, message_chunks, reply_of
from crp_integrations.langchain.runs import inside_window
from crp_integrations.messages import ModelCall, Reply

# LangGraph does not stream the messages of a model with this tag.
NO_STREAM: Final = "nostream"

Manager = TypeVar("Manager", bound=BaseCallbackManager)


@runtime_checkable
class StreamingHandler(Protocol):
    """A handler that streams: LangChain passes it the output of runs through these two methods.

    LangChain's own protocol is private. A protocol with methods only also matches handlers that
    do not inherit from it.
    """

    def tap_output_aiter(self, run_id: Any, output: Any) -> Any:
        """Pass on the output of an asynchronous run."""
        ...

    def tap_output_iter(self, run_id: Any, output: Any) -> Any:
        """Pass on the output of a run."""
        ...


def without_streaming(callbacks: Callbacks) -> Callbacks:
    """A copy of callbacks without the handlers that stream to a caller."""
    if isinstance(callbacks, BaseCallbackManager):
        return _with_handlers(callbacks, streaming=False)
    if callbacks:
        return [handler for handler in callbacks if not _streams(handler)]
    return callbacks


def _with_handlers(callbacks: Manager, *, streaming: bool) -> Manager:
    """A copy with only the streaming handlers, or only the others."""
    made = callbacks.copy()
    for name in ("handlers", "inheritable_handlers"):
        chosen = [handler for handler in getattr(made, name) if _streams(handler) is streaming]
        setattr(made, name, chosen)
    return made


def non_streaming(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """A copy of the model that does not stream and is hidden from LangGraph's streams.

    Wrappers of LangChain (bound values, retries, fallbacks) are copied with it.
    """
    if isinstance(model, RunnableBindingBase):
        return model.model_copy(update={"bound": non_streaming(model.bound)})
    if isinstance(model, RunnableWithFallbacks):
        others = [non_streaming(fallback) for fallback in model.fallbacks]
        return model.model_copy(
            update={"runnable": non_streaming(model.runnable), "fallbacks": others}
        )
    if not isinstance(model, BaseChatModel):
        return model
    tags = [*(model.tags or ()), NO_STREAM]
    return model.model_copy(update={"tags": tags, "disable_streaming": True, **_unstream(model)})


class ReleasedAnswer(BaseChatModel):
    """Streams a message that was held back to the streaming handlers, in pieces.

    Attributes:
        message: the message that was released.
        cache: always False: LangChain must not cache it.
    """

    message: AIMessage
    cache: bool = False

    @property
    def _llm_type(self) -> str:
        return "crp-released-answer"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.message)])

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for chunk in message_chunks(self.message):
            yield ChatGenerationChunk(message=chunk)

    def config(self, name: str) -> RunnableConfig | None:
        """Config of a run with only the streaming handlers; None if there are none."""
        config = ensure_config()
        callbacks = config.get("callbacks")
        if not isinstance(callbacks, BaseCallbackManager):
            return None
        streaming = _with_handlers(callbacks, streaming=True)
        named: RunnableConfig = {**config, "callbacks": streaming, "run_name": name}
        return named if streaming.handlers else None


def streaming_suppressed() -> AbstractContextManager[None]:
    """Inside the `with` block, calls without their own config have no streaming handlers."""
    config = ensure_config()
    hidden = without_streaming(config.get("callbacks"))
    return context_value(var_child_runnable_config, {**config, "callbacks": hidden})


def _streams(handler: Any) -> bool:
    return isinstance(handler, StreamingHandler)


def _unstream(model: RunnableSerializable[Any, Any]) -> dict[str, Any]:
    # Some models check only this field and ignore `disable_streaming`.
    return {"streaming": False} if "streaming" in type(model).model_fields else {}


class LangChainModel(FrameworkChatModel):
    """Any `BaseChatModel`, bare or wrapped by LangChain, as a `Model`.

    If an answer may be withheld, no streaming handler sees its calls, and no stream of LangChain
    shows it.

    Args:
        model: the chat model; its own settings apply where a call sets none.
        callbacks: callbacks of the run that makes the calls.

    Attributes:
        handlers: handlers that observed the calls; they receive the answer's report.
    """

    def __init__(self, model: Runnable[Any, Any], callbacks: Callbacks = None) -> None:
        self._model = model
        self._chat = chat_model_in(model)
        self._callbacks = callbacks
        self.handlers: list[Any] = []

    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call; LangChain's errors are not wrapped."""
        with self._observed(call) as config:
            message = self._bound(call).invoke(_langchain_messages(call), config)
        return reply_of(message, call.model)

    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""
        with self._observed(call) as config:
            message = await self._bound(call).ainvoke(_langchain_messages(call), config)
        return reply_of(message, call.model)

    def parts_of(self, call: ModelCall) -> Iterator[str | Reply]:
        """Yield the model's chunks of an answer, then the reply."""
        whole: Any = None
        chunks = self._bound(call).stream(_langchain_messages(call), self._config(call))
        while True:
            # Only while the model runs: between two pieces, the caller runs in this context.
            with self._observed(call):
                chunk: Any = next(chunks, None)
            if chunk is None:
                break
            whole = chunk if whole is None else whole + chunk
            if chunk.text:
                yield str(chunk.text)
        yield _streamed_reply(whole, call.model)

    async def aparts_of(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `parts_of`."""
        whole: Any = None
        chunks = self._bound(call).astream(_langchain_messages(call), self._config(call))
        while True:
            with self._observed(call):
                chunk: Any = await anext(chunks, None)
            if chunk is None:
                break
            whole = chunk if whole is None else whole + chunk
            if chunk.text:
                yield str(chunk.text)
        yield _streamed_reply(whole, call.model)

    def _config(self, call: ModelCall) -> RunnableConfig:
        shown = self.shown(call)
        return {"callbacks": self._callbacks if shown else without_streaming(self._callbacks)}

    @contextmanager
    def _observed(self, call: ModelCall) -> Iterator[RunnableConfig]:
        # A wrapper adds the handlers of the surrounding run to the given ones.
        hidden = nullcontext() if self.shown(call) else streaming_suppressed()
        with hidden, inside_window(self.handlers):
            yield self._config(call)

    def _bound(self, call: ModelCall) -> Runnable[LanguageModelInput, BaseMessage]:
        options = sampling(self._chat, call)
        own = self._model if self.shown(call) else non_streaming(self._model)
        model = own.bind(**options) if options else own
        if not call.tools:
            return model
        # A wrapper with its own `bind_tools` keeps the other bound values.
        bind_tools = getattr(own, "bind_tools", None)
        if bind_tools is None:
            wanted = "bind them to the chat model inside, or give that one"
            raise RequestError(f"{type(own).__name__} takes no tools; {wanted}")
        bound: Runnable[LanguageModelInput, BaseMessage] = bind_tools(list(call.tools), **options)
        return bound


def _streamed_reply(whole: BaseMessageChunk | None, model: str) -> Reply:
    return reply_of(AIMessage("") if whole is None else message_chunk_to_message(whole), model)


def chat_model_in(model: object) -> BaseChatModel:
    """The chat model inside LangChain's wrappers; of several fallbacks, the first."""
    inside = model
    while not isinstance(inside, BaseChatModel):
        if isinstance(inside, RunnableBindingBase):
            inside = inside.bound
        elif isinstance(inside, RunnableWithFallbacks):
            inside = inside.runnable
        else:
            raise RequestError(f"llm is {type(inside).__name__}, wanted a chat model of LangChain")
    return inside


def model_name(model: BaseChatModel) -> str:
    """Model name for looking up the tokenizer and the context limit; empty if unknown."""
    for field in ("model_name", "model", "model_id", "deployment_name"):
        named = getattr(model, field, None)
        if isinstance(named, str) and named:
            return named.removeprefix("models/")
    return ""


def _langchain_messages(call: ModelCall) -> list[BaseMessage]:
    return [langchain_of(message) for message in call.messages]
