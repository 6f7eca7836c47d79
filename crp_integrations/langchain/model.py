"""A LangChain chat model as the model of a turn, hidden from the caller's streams.

LangChain has three ways by which a model's tokens get to a caller before whoever asked the model
has them: handlers that stream (`astream_events`, `astream_log`, LangGraph's stream modes),
`on_llm_new_token` of any handler, and the finished message in `on_llm_end` of the first kind. The
first are left out of the call, the second needs a model that is called whole.
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

# LangGraph passes over the messages of a model with this tag.
NO_STREAM: Final = "nostream"

Manager = TypeVar("Manager", bound=BaseCallbackManager)


@runtime_checkable
class StreamingHandler(Protocol):
    """A handler that streams: LangChain hands it what runs give out, by these two methods.

    LangChain's own protocol of them is private. It has methods alone, so that those who only look
    alike count too.
    """

    def tap_output_aiter(self, run_id: Any, output: Any) -> Any:
        """What an asynchronous run gives out, passed on."""
        ...

    def tap_output_iter(self, run_id: Any, output: Any) -> Any:
        """What a run gives out, passed on."""
        ...


def without_streaming(callbacks: Callbacks) -> Callbacks:
    """Callbacks without the handlers that stream to a caller; on a copy."""
    if isinstance(callbacks, BaseCallbackManager):
        return _with_handlers(callbacks, streaming=False)
    if callbacks:
        return [handler for handler in callbacks if not _streams(handler)]
    return callbacks


def _with_handlers(callbacks: Manager, *, streaming: bool) -> Manager:
    """A copy with only the handlers that stream, or only the others."""
    made = callbacks.copy()
    for name in ("handlers", "inheritable_handlers"):
        chosen = [handler for handler in getattr(made, name) if _streams(handler) is streaming]
        setattr(made, name, chosen)
    return made


def non_streaming(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The model, called whole and passed over by LangGraph's streams; on a copy.

    What LangChain put around it (bound values, retries, fallbacks) is around the copy.
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
    return model.model_copy(update={"tags": tags, "disable_streaming": True, **_whole(model)})


class ReleasedAnswer(BaseChatModel):
    """Gives a message that was held back to the handlers that stream, in pieces.

    Attributes:
        message: the one that was let through.
        cache: never one of LangChain's.
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
        """The config of a run that only handlers which stream hear; None where there is none."""
        config = ensure_config()
        callbacks = config.get("callbacks")
        if not isinstance(callbacks, BaseCallbackManager):
            return None
        streaming = _with_handlers(callbacks, streaming=True)
        named: RunnableConfig = {**config, "callbacks": streaming, "run_name": name}
        return named if streaming.handlers else None


def streaming_suppressed() -> AbstractContextManager[None]:
    """Within it, what is called without a config of its own has no handlers that stream."""
    config = ensure_config()
    hidden = without_streaming(config.get("callbacks"))
    return context_value(var_child_runnable_config, {**config, "callbacks": hidden})


def _streams(handler: Any) -> bool:
    return isinstance(handler, StreamingHandler)


def _whole(model: RunnableSerializable[Any, Any]) -> dict[str, Any]:
    # Some models look at this field alone.
    return {"streaming": False} if "streaming" in type(model).model_fields else {}


class LangChainModel(FrameworkChatModel):
    """Any `BaseChatModel`, bare or wrapped by LangChain, behind the `Model` port.

    Where an answer may be withheld, no handler that streams sees its calls, and it shows in none of
    LangChain's streams.

    Args:
        model: the chat model; its own settings hold where a call sets none.
        callbacks: of the run that the calls belong to; None for none.

    Attributes:
        handlers: those that heard the calls; they are given the answer's report.
    """

    def __init__(self, model: Runnable[Any, Any], callbacks: Callbacks = None) -> None:
        self._model = model
        self._chat = chat_model_in(model)
        self._callbacks = callbacks
        self.handlers: list[Any] = []

    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call, with whatever LangChain raises."""
        with self._hearing(call) as config:
            message = self._bound(call).invoke(_langchain_messages(call), config)
        return reply_of(message, call.model)

    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""
        with self._hearing(call) as config:
            message = await self._bound(call).ainvoke(_langchain_messages(call), config)
        return reply_of(message, call.model)

    def parts_of(self, call: ModelCall) -> Iterator[str | Reply]:
        """Answer a call in the model's own pieces, then the reply."""
        whole: Any = None
        chunks = self._bound(call).stream(_langchain_messages(call), self._config(call))
        while True:
            # Only while the model goes on: between two pieces others run in this context.
            with self._hearing(call):
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
            with self._hearing(call):
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
    def _hearing(self, call: ModelCall) -> Iterator[RunnableConfig]:
        # A wrapper adds the handlers of the run around it to those that it is given.
        hidden = nullcontext() if self.shown(call) else streaming_suppressed()
        with hidden, inside_window(self.handlers):
            yield self._config(call)

    def _bound(self, call: ModelCall) -> Runnable[LanguageModelInput, BaseMessage]:
        options = sampling(self._chat, call)
        own = self._model if self.shown(call) else non_streaming(self._model)
        model = own.bind(**options) if options else own
        if not call.tools:
            return model
        # A wrapper with an attribute of its own for it knows what else is bound.
        bind_tools = getattr(own, "bind_tools", None)
        if bind_tools is None:
            wanted = "bind them to the chat model inside, or give that one"
            raise RequestError(f"{type(own).__name__} takes no tools; {wanted}")
        bound: Runnable[LanguageModelInput, BaseMessage] = bind_tools(list(call.tools), **options)
        return bound


def _streamed_reply(whole: BaseMessageChunk | None, model: str) -> Reply:
    return reply_of(AIMessage("") if whole is None else message_chunk_to_message(whole), model)


def chat_model_in(model: object) -> BaseChatModel:
    """The chat model that answers, inside what LangChain puts around one; the first of several."""
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
    """The name under which a chat model's tokenizer and context limit are looked up; or empty."""
    for field in ("model_name", "model", "model_id", "deployment_name"):
        named = getattr(model, field, None)
        if isinstance(named, str) and named:
            return named.removeprefix("models/")
    return ""


def _langchain_messages(call: ModelCall) -> list[BaseMessage]:
    return [langchain_of(message) for message in call.messages]
