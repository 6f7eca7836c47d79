"""A LangChain chat model as the model of a turn."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from crp_integrations.langchain.silence import silent, unheard
from crp_integrations.langchain.wire import langchain_of, reply_of
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.foreign import ForeignModel


class LangChainModel(ForeignModel):
    """Any `BaseChatModel` behind the `Model` port.

    No handler that streams sees its calls: an answer that is withheld shows in none of LangChain's
    streams.

    Args:
        model: the chat model; its own settings hold where a call sets none.
        callbacks: of the run that the calls belong to; None for none.
    """

    def __init__(self, model: BaseChatModel, callbacks: Callbacks = None) -> None:
        self._model = silent(model)
        self._config: RunnableConfig = {"callbacks": unheard(callbacks)}

    def said(self, call: ModelCall) -> Reply:
        """Answer a call, with whatever LangChain raises."""
        return reply_of(self._bound(call).invoke(_sent(call), self._config), call.model)

    async def asaid(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `said`."""
        said = await self._bound(call).ainvoke(_sent(call), self._config)
        return reply_of(said, call.model)

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
