"""An LLM of LlamaIndex as the model of a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM

from crp_integrations.errors import CRPError
from crp_integrations.llama_index.wire import chat_message_of, reply_of
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.translating import translated


class LlamaIndexModel:
    """Any `LLM` behind the `Model` port.

    It is called whole, also where a stream is asked for: no piece of an answer that is withheld is
    on LlamaIndex's dispatcher as a piece. Tools are not handed on.

    Args:
        llm: the model; its own settings hold where a call sets none.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def call(self, call: ModelCall) -> Reply:
        """Answer a call.

        Raises:
            ModelError: the model failed; its own error is the cause.
        """
        try:
            return reply_of(self._llm.chat(_sent(call), **sampling(self._llm, call)), call.model)
        except CRPError:
            raise
        except Exception as error:
            raise translated(error, call.model) from error

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        try:
            said = await self._llm.achat(_sent(call), **sampling(self._llm, call))
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


def model_name(llm: LLM) -> str:
    """The name under which a model's tokenizer and context limit are looked up; or empty."""
    named = llm.metadata.model_name
    return "" if named == "unknown" else named


def sampling(llm: LLM, call: ModelCall) -> dict[str, Any]:
    """The sampling values that a call sets, as far as a model has a field for them.

    Others would reach the provider as they are, which may refuse them.
    """
    return {
        name: getattr(call, name)
        for name in ("temperature", "max_tokens", "seed")
        if getattr(call, name) is not None and name in type(llm).model_fields
    }


def _sent(call: ModelCall) -> list[ChatMessage]:
    return [chat_message_of(message) for message in call.messages]
