"""A LangChain chat model as the model of a turn."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from crp_integrations.adapters.chat_model import FrameworkChatModel
from crp_integrations.errors import RequestError
from crp_integrations.langchain.silence import silence, silent, unheard
from crp_integrations.langchain.wire import langchain_of, reply_of
from crp_integrations.messages import ModelCall, Reply


class LangChainModel(FrameworkChatModel):
    """Any `BaseChatModel`, bare or wrapped by LangChain, behind the `Model` port.

    No handler that streams sees its calls: an answer that is withheld shows in none of LangChain's
    streams.

    Args:
        model: the chat model; its own settings hold where a call sets none.
        callbacks: of the run that the calls belong to; None for none.
    """

    def __init__(self, model: Runnable[Any, Any], callbacks: Callbacks = None) -> None:
        self._model = silent(model)
        self._chat = chat_model_in(model)
        self._config: RunnableConfig = {"callbacks": unheard(callbacks)}

    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call, with whatever LangChain raises."""
        # A wrapper adds the handlers of the run around it to those that it is given.
        with silence():
            said = self._bound(call).invoke(_sent(call), self._config)
        return reply_of(said, call.model)

    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""
        with silence():
            said = await self._bound(call).ainvoke(_sent(call), self._config)
        return reply_of(said, call.model)

    def _bound(self, call: ModelCall) -> Runnable[LanguageModelInput, BaseMessage]:
        given = sampling(self._chat, call)
        model = self._model.bind(**given) if given else self._model
        if not call.tools:
            return model
        # A wrapper with an attribute of its own for it knows what else is bound.
        bind_tools = getattr(self._model, "bind_tools", None)
        if bind_tools is None:
            wanted = "bind them to the chat model inside, or give that one"
            raise RequestError(f"{type(self._model).__name__} takes no tools; {wanted}")
        bound: Runnable[LanguageModelInput, BaseMessage] = bind_tools(list(call.tools), **given)
        return bound


def chat_model_in(model: object) -> BaseChatModel:
    """The chat model that answers, inside of what LangChain puts around one; the first of several.

    Raises:
        RequestError: there is none.
    """
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
