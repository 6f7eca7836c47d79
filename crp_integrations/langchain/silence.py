"""Calls of chat models that no stream of the caller can see before the verdict.

LangChain has three ways by which a model's tokens get to a caller before whoever asked the model
has them: handlers that stream (`astream_events`, `astream_log`, LangGraph's stream modes),
`on_llm_new_token` of any handler, and the finished message in `on_llm_end` of the first kind. The
first are left out of the call, the second needs a model that is called whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from langchain_core.callbacks import BaseCallbackManager, Callbacks
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableSerializable,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

# LangGraph passes over the messages of a model with this tag.
NO_STREAM: Final = "nostream"

Manager = TypeVar("Manager", bound=BaseCallbackManager)


@runtime_checkable
class TapsOutput(Protocol):
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


def unheard(callbacks: Callbacks) -> Callbacks:
    """Callbacks without the handlers that stream to a caller; on a copy."""
    if isinstance(callbacks, BaseCallbackManager):
        made = callbacks.copy()
        made.handlers = [one for one in made.handlers if not _streams(one)]
        made.inheritable_handlers = [one for one in made.inheritable_handlers if not _streams(one)]
        return made
    if callbacks:
        return [one for one in callbacks if not _streams(one)]
    return callbacks


def silent(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The model, called whole and passed over by LangGraph's streams; on a copy.

    What LangChain put around it (bound values, retries, fallbacks) is around the copy.
    """
    if isinstance(model, RunnableBindingBase):
        return model.model_copy(update={"bound": silent(model.bound)})
    if isinstance(model, RunnableWithFallbacks):
        others = [silent(one) for one in model.fallbacks]
        return model.model_copy(update={"runnable": silent(model.runnable), "fallbacks": others})
    if not isinstance(model, BaseChatModel):
        return model
    tags = [*(model.tags or ()), NO_STREAM]
    return model.model_copy(update={"tags": tags, "disable_streaming": True, **_whole(model)})


@contextmanager
def silence() -> Iterator[None]:
    """Within it, what is called without a config of its own has no handlers that stream."""
    config = ensure_config()
    token = var_child_runnable_config.set(
        cast(RunnableConfig, {**config, "callbacks": unheard(config.get("callbacks"))})
    )
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _streams(handler: Any) -> bool:
    return isinstance(handler, TapsOutput)


def _whole(model: RunnableSerializable[Any, Any]) -> dict[str, Any]:
    # Some models look at this field alone.
    return {"streaming": False} if "streaming" in type(model).model_fields else {}
