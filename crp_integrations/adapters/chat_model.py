"""A chat model of a framework behind the `Model` port: called whole, its errors as our own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator

from crp_integrations.errors import CRPError, ModelError, ModelTimeout, provider_error
from crp_integrations.messages import ModelCall, Reply


def model_error(error: Exception, model: str) -> ModelError:
    """A chat model's error as one of this package; without its words."""
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    kind = provider_error(status, str(error))
    if isinstance(error, TimeoutError) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        kind = ModelTimeout
    made = kind(f"the chat model behind {model!r} failed with {type(error).__name__}")
    made.provider_status = status if isinstance(status, int) else None
    made.tried = (model,)
    return made


class FrameworkChatModel(ABC):
    """What the frameworks' chat models have in common as models of a turn.

    They are called whole, also where a stream is asked for, so that nothing of an answer that is
    withheld shows in a framework's own streams.
    """

    @abstractmethod
    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call, with whatever the framework raises."""

    @abstractmethod
    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        try:
            return self.reply_to(call)
        except CRPError:
            raise
        except Exception as error:
            raise model_error(error, call.model) from error

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        try:
            return await self.areply_to(call)
        except CRPError:
            raise
        except Exception as error:
            raise model_error(error, call.model) from error

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
