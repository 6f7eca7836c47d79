"""Which engine answers for which model name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from crp_integrations.engines.extractive import EXTRACTIVE, ExtractiveModel
from crp_integrations.engines.litellm import LiteLLMModel
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model


class Models:
    """The extractive model for `extractive` and `extractive/…`, LiteLLM for every other name."""

    def __init__(self, *, timeout_s: float) -> None:
        self._extractive = ExtractiveModel()
        self._litellm = LiteLLMModel(timeout_s=timeout_s)

    def known(self, model: str) -> None:
        """Check a name before anything is read or written.

        Raises:
            ModelNotFound: LiteLLM knows no provider for the name.
            MissingExtra: LiteLLM is needed for the name and not installed.
        """
        if not _extractive(model):
            self._litellm.known(model)

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
        """The asynchronous twin of `stream`."""
        return self._engine(call).astream(call)

    def _engine(self, call: ModelCall) -> Model:
        return self._extractive if _extractive(call.model) else self._litellm


def _extractive(model: str) -> bool:
    return model.partition("/")[0] == EXTRACTIVE
