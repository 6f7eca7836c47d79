"""The envelope packed again for each attempt: retries, fallbacks, other deployments.

LiteLLM calls the hook once per attempt with the deployment's real model. The call behind an
attempt is found through a context variable, so no id travels in metadata, and none can leak.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import ReferenceType

from litellm.integrations.custom_logger import CustomLogger

from crp_integrations.engines.litellm import ARGUMENTS, refuse_crp
from crp_integrations.engines.litellm_replies import tells_end
from crp_integrations.engines.litellm_versions import library
from crp_integrations.litellm.messages import is_answer, message_list
from crp_integrations.relay.steps import Dispatch, FittedDispatch

litellm = library()


# Sampling values that a turn may set by itself, and that not every model takes.
SAMPLING: Final = ("temperature", "seed")


class ContextPacker(Protocol):
    """A turn, as far as an attempt needs it."""

    def fit(self, model: str, *, context_limit: int | None = None) -> FittedDispatch:
        """Pack for a model; the last fit is what counts."""
        ...


@dataclass(slots=True, weakref_slot=True)
class CallAttempts:
    """One call of the router while it runs.

    Attributes:
        step: the dispatch that is played.
        messages: what the router was called with; a call with other messages is not ours.
        base: how many messages the turn's last fit before this call had; what a call for the answer
            has beyond them (an earlier draft, what to mend) goes behind those fitted again.
        packed: what goes out, and for which model and limit that was packed.
        own: sampling values that the turn chose, and not the caller.
        proxied: the call is a proxy's own, which needs a stream where it asked for one.
        model: model last tried.
        tried: models tried, in order.
        refused: our own error of the last attempt's packing, None after one that was packed.
    """

    turn: ContextPacker
    step: Dispatch
    messages: list[dict[str, Any]]
    base: int = 0
    packed: tuple[str, int | None] | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)
    own: frozenset[str] = frozenset()
    proxied: bool = False
    model: str = ""
    tried: list[str] = field(default_factory=list)
    refused: Exception | None = None

    @property
    def fits(self) -> bool:
        """Whether the call carries facts that are packed for its model.

        A call that judges a draft stays as it is: the draft was written from these very facts.
        """
        return is_answer(self.step)

    def fit(self, model: str, limit: int | None) -> None:
        """Pack for an attempt, unless that was done for the very same one."""
        if not self.fits or self.packed == (model, limit):
            return
        fitted = self.turn.fit(model, context_limit=limit)
        further = () if isinstance(self.step, FittedDispatch) else self.step.messages[self.base :]
        self.sent = message_list((*fitted.messages, *further))
        self.packed = (model, limit)


# Held by whoever makes the call alone. A context lives longer: an event loop keeps that of each
# timer, also of a cancelled one, and those of a connection are set for hours.
CURRENT_ATTEMPTS: Final[ContextVar[ReferenceType[CallAttempts] | None]] = ContextVar(
    "crp_litellm_attempts", default=None
)


class AttemptPacking(CustomLogger):
    """Replaces the messages of an attempt with those packed for its model."""

    # LiteLLM calls this with these parameter names.
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """The attempt's arguments with its own messages, None for calls of others."""
        held = CURRENT_ATTEMPTS.get()
        running = held() if held else None
        if running is None or kwargs.get("messages") != running.messages:
            return None
        model, limit = deployment_model(kwargs)
        running.tried.append(model)
        running.model = model
        try:
            for name in ARGUMENTS:
                refuse_crp(kwargs.get(name))
            refuse_crp(litellm.headers)
            if running.fits and running.packed != (model, limit):
                await asyncio.to_thread(running.fit, model, limit)
        except Exception as error:
            running.refused = error
            raise
        running.refused = None
        # The router starts every attempt from the messages that it was called with.
        taken = _supported_arguments(kwargs, running.own)
        return {**(taken if running.proxied else _without_stream(taken)), "messages": running.sent}


def deployment_model(kwargs: dict[str, Any]) -> tuple[str, int | None]:
    """The model behind a deployment, and the input tokens that its list entry states."""
    info = kwargs.get("model_info") or {}
    model = info.get("base_model") or kwargs["model"]
    limit = info.get("max_input_tokens")
    return str(model), limit if isinstance(limit, int) and limit > 0 else None


def _supported_arguments(kwargs: dict[str, Any], own: frozenset[str]) -> dict[str, Any]:
    """The arguments without those of a turn's own sampling values that the model does not take.

    A caller's own values stay, and are refused by LiteLLM where they are not taken.
    """
    given = own & kwargs.keys()
    if not given:
        return kwargs
    taken = litellm.get_supported_openai_params(
        model=kwargs["model"], custom_llm_provider=kwargs.get("custom_llm_provider")
    )
    if taken is None:
        return kwargs
    left = {name: value for name, value in kwargs.items() if name not in given or name in taken}
    # A model may take a parameter and not every value of it. Tools are never left out silently.
    tools_stay = not kwargs.get("tools") or "tools" in taken
    return {**left, "drop_params": True} if tools_stay else left


def _without_stream(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments, for a whole answer where a stream's end could not be told."""
    if not kwargs.get("stream") or tells_end(
        litellm, kwargs["model"], kwargs.get("custom_llm_provider")
    ):
        return kwargs
    return {**{k: v for k, v in kwargs.items() if k != "stream_options"}, "stream": False}


_HOOK: Final = AttemptPacking()


def install_hook() -> None:
    """Make LiteLLM call the hook; again has no effect."""
    if _HOOK not in litellm.callbacks:
        litellm.callbacks.append(_HOOK)
