"""A LangChain chat model as the model of a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from crp_integrations.errors import CRPError
from crp_integrations.langchain.silence import silent, unheard
from crp_integrations.langchain.wire import langchain_of, reply_of
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.translating import translated


class LangChainModel:
    """Any `BaseChatModel` behind the `Model` port.

    It is called whole, also where a stream is asked for, and no handler that streams sees the call:
    an answer that is withheld shows in none of LangChain's streams.

    Args:
        model: the chat model; its own settings hold where a call sets none.
        callbacks: of the run that the calls belong to; None for none.
    """

    def __init__(self, model: BaseChatModel, callbacks: Callbacks = None) -> None:
        self._model = silent(model)
        self._config: RunnableConfig = {"callbacks": unheard(callbacks)}

    def call(self, call: ModelCall) -> Reply:
        """Answer a call.

        Raises:
            ModelError: the chat model failed; its own error is the cause.
        """
        try:
            return reply_of(self._bound(call).invoke(_sent(call), self._config), call.model)
        except CRPError:
            raise
        except Exception as error:
            raise translated(error, call.model) from error

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        try:
            said = await self._bound(call).ainvoke(_sent(call), self._config)
            return reply_of(said, call.model)
        except CRPError:
            raise
        except Exception as error:
            raise translated(error, call.model) from error

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The whole text, then the reply."""
        reply = self.call(call)
        if reply.text:
            yield reply.text
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        reply = await self.acall(call)
        if reply.text:
            yield reply.text
        yield reply

    def _bound(self, call: ModelCall) -> Runnable[LanguageModelInput, BaseMessage]:
        given = sampling(self._model, call)
        model = self._model.bind(**given) if given else self._model
        if not call.tools:
            return model
        return self._model.bind_tools(list(call.tools), **given)


def model_name(model: BaseChatModel) -> str:
    """The name under which a chat model's tokenizer and context limit are looked up; or empty."""
    for field in ("model_name", "model", "model_id", "deployment_name"):
        named = getattr(model, field, None)
        if isinstance(named, str) and named:
            return named.removeprefix("models/")
    return ""


def sampling(model: BaseChatModel, call: ModelCall) -> dict[str, Any]:
    """The sampling values that a call sets, as far as a chat model has a field for them.

    Others would reach the provider as they are, which may refuse them.
    """
    return {
        name: getattr(call, name)
        for name in ("temperature", "max_tokens", "seed")
        if getattr(call, name) is not None and name in type(model).model_fields
    }


def _sent(call: ModelCall) -> list[BaseMessage]:
    return [langchain_of(message) for message in call.messages]
