"""Where questions go: an OpenAI-compatible server, or wherever LiteLLM routes a name to.

One object stands for the whole gateway; `shaped` gives the model of one question, which knows what
the caller's request asks of the answer besides its messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from crp_integrations.engines.extractive import EXTRACTIVE, ExtractiveModel
from crp_integrations.engines.litellm import LiteLLMModel
from crp_integrations.engines.openai_server import OpenAIServer
from crp_integrations.errors import ModelError
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model
from crp_integrations.vocabulary import Purpose

__all__ = ["Asked", "OpenAIServer", "Routed", "Upstream"]

# Fields that providers refuse in a call without tools.
TOOLS: Final = frozenset({"tool_choice", "parallel_tool_calls"})
# LiteLLM writes a call's `max_tokens` under the name that its provider takes.
LIMIT: Final = "max_completion_tokens"


class Upstream(Protocol):
    """Answers questions of all tenants."""

    def known(self, model: str) -> None:
        """Check a name before anything is read; raises ModelNotFound."""
        ...

    def shaped(self, arguments: Mapping[str, Any]) -> Model:
        """The model with further fields of the OpenAI request."""
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


class Routed:
    """The extractive model for `extractive`, LiteLLM for every other name."""

    def __init__(
        self, *, timeout_s: float = 60.0, options: Mapping[str, Any] | None = None
    ) -> None:
        """Choose what is the same for every question."""
        self._timeout_s = timeout_s
        self._options = dict(options or {})
        self._plain = LiteLLMModel(timeout_s=timeout_s, options=self._options)

    def known(self, model: str) -> None:
        """Check that a provider follows from a name.

        Raises:
            ModelNotFound: none does.
        """
        if not _extractive(model):
            self._plain.known(model)

    def shaped(self, arguments: Mapping[str, Any]) -> Model:
        """The model of one question."""
        given = {name: value for name, value in arguments.items() if name != LIMIT}
        if not given:
            return _Either(self._plain)
        options = {**self._options, **given}
        return _Either(LiteLLMModel(timeout_s=self._timeout_s, options=options))

    async def aclose(self) -> None:
        """Close nothing: LiteLLM keeps its own clients."""


class _Either:
    """The extractive model or LiteLLM's, by the call's name."""

    def __init__(self, routed: Model) -> None:
        self._routed = routed

    def call(self, call: ModelCall) -> Reply:
        return self._of(call).call(call)

    async def acall(self, call: ModelCall) -> Reply:
        return await self._of(call).acall(call)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        return self._of(call).stream(call)

    def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        return self._of(call).astream(call)

    def _of(self, call: ModelCall) -> Model:
        return ExtractiveModel() if _extractive(call.model) else self._routed


@dataclass(frozen=True, slots=True)
class Asked:
    """The model of one question: calls for its answer have the caller's fields, others have none.

    Attributes:
        arguments: the caller's fields. A call that prepares, checks or joins answers has none of
            them, which a `response_format` or a stop word would spoil.
        most_characters: of an answer; what is longer is none.
    """

    upstream: Upstream
    arguments: Mapping[str, Any]
    most_characters: int

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        return self._short(self._of(call).call(call))

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call without blocking the event loop."""
        return self._short(await self._of(call).acall(call))

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they come, then the whole reply."""
        length = 0
        for part in self._of(call).stream(call):
            length = self._counted(length, part)
            yield part

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        length = 0
        async for part in self._of(call).astream(call):
            length = self._counted(length, part)
            yield part

    def _short(self, reply: Reply) -> Reply:
        self._counted(0, reply)
        return reply

    def _counted(self, length: int, part: str | Reply) -> int:
        """The characters so far; a reply has all of them once more."""
        length = len(part.text) if isinstance(part, Reply) else length + len(part)
        if length > self.most_characters:
            raise ModelError(
                f"the model's answer has more than {self.most_characters} characters, the most "
                "that are examined here; ask for a shorter one, as by max_tokens"
            )
        return length

    def _of(self, call: ModelCall) -> Model:
        given = self.arguments if call.purpose is Purpose.ANSWER else {}
        if not call.tools:
            given = {name: value for name, value in given.items() if name not in TOOLS}
        return self.upstream.shaped(given)


def _extractive(model: str) -> bool:
    return model.partition("/")[0] == EXTRACTIVE
