"""A model whose calls are told to an observer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator

from crp_integrations.governance.tracing import Observer
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model


def observed(models: Model, observer: Observer | None) -> Model:
    """A model whose calls an observer is told, if there is one."""
    return models if observer is None else Observed(models, observer)


class Observed:
    """A model with an observer; replies and errors go through unchanged."""

    def __init__(self, model: Model, observer: Observer) -> None:
        self._model = model
        self._observer = observer

    def call(self, call: ModelCall) -> Reply:
        """The whole reply."""
        with self._observer.calling(call) as told:
            reply = self._model.call(call)
            told(reply)
        return reply

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        with self._observer.calling(call) as told:
            reply = await self._model.acall(call)
            told(reply)
        return reply

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they come, then the whole `Reply` once, last."""
        parts = self._model.stream(call)
        with self._observer.calling(call) as told:
            try:
                for part in parts:
                    if isinstance(part, Reply):
                        told(part)
                    yield part
            finally:
                # Who stops listening lets go of the model's stream too.
                if isinstance(parts, Generator):
                    parts.close()

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        parts = self._model.astream(call)
        with self._observer.calling(call) as told:
            try:
                async for part in parts:
                    if isinstance(part, Reply):
                        told(part)
                    yield part
            finally:
                if isinstance(parts, AsyncGenerator):
                    await parts.aclose()
