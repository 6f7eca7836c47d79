"""Packs the envelope again for each attempt: retries, fallbacks, other deployments.

LiteLLM calls the hook once per attempt with the deployment's real model. The turn behind a
call is found through a context variable, so no id travels in metadata, and none can leak.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from crp_integrations.engines.litellm import library
from crp_integrations.litellm.wire import sent
from crp_integrations.relay.turn import Turn

litellm = library()

from litellm.integrations.custom_logger import CustomLogger  # noqa: E402 - after library()


@dataclass(slots=True)
class Attempts:
    """One call of the router while it runs.

    Attributes:
        messages: what was last put into an attempt; a call with other messages is not ours.
        model: model last tried.
    """

    turn: Turn
    messages: list[dict[str, Any]]
    model: str
    tried: list[str] = field(default_factory=list)


RUNNING: Final[ContextVar[Attempts | None]] = ContextVar("crp_litellm_attempts", default=None)


class PackForDeployment(CustomLogger):
    """Replaces the messages of an attempt with those packed for its model."""

    # LiteLLM calls this with these parameter names.
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """The attempt's arguments with its own messages, None for calls of others."""
        running = RUNNING.get()
        if running is None or kwargs.get("messages") != running.messages:
            return None
        model, limit = deployed(kwargs)
        running.tried.append(model)
        running.model = model
        fitted = await asyncio.to_thread(running.turn.fit, model, context_limit=limit)
        packed = sent(fitted.messages)
        # The router starts every attempt from the messages that it was called with.
        return {**kwargs, "messages": packed}


def deployed(kwargs: dict[str, Any]) -> tuple[str, int | None]:
    """The model behind a deployment, and the input tokens that its list entry states."""
    info = kwargs.get("model_info") or {}
    model = info.get("base_model") or kwargs["model"]
    limit = info.get("max_input_tokens")
    return str(model), limit if isinstance(limit, int) and limit > 0 else None


_HOOK: Final = PackForDeployment()


def install() -> None:
    """Make LiteLLM call the hook; again has no effect."""
    if _HOOK not in litellm.callbacks:
        litellm.callbacks.append(_HOOK)
