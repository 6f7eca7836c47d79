"""An agent's model calls as windows: its conversation as a question, and its kept responses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary.safety import Purpose

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as a question.

    Attributes:
        system: the system messages joined by an empty line.
        history: all other messages in order.
        results: how many messages at the history's end follow the question: tool calls with what
            the tools answered.
    """

    question: str
    system: str = ""
    history: tuple[Message, ...] = ()
    results: int = 0


class AgentModelCalls(ABC, Generic[Response]):
    """The model behind an agent, as the model of a turn.

    The agent's own messages go out as they are; what the turn adds is the system message with the
    envelope, and behind them what a remedy asks for.

    Args:
        conversation: the agent's messages as a question.
        model: the name by which tokens are counted.
    """

    def __init__(self, conversation: Conversation, model: str) -> None:
        self._conversation = conversation
        self._model = model
        self._answers: list[tuple[Reply, Response]] = []

    @abstractmethod
    def call(self, call: ModelCall) -> Reply:
        """Answer a call; the model's own errors go on unchanged."""

    @abstractmethod
    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The whole reply; no piece of it is to be had before the verdict."""
        yield self.call(call)

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        yield await self.acall(call)

    def _keep(self, call: ModelCall, reply: Reply, response: Response) -> Reply:
        """Keep the response of a reply that may become the answer."""
        if call.purpose is not Purpose.JUDGE:
            self._answers.append((reply, response))
        return reply

    def _response_of(self, answer: Answer) -> Response:
        """The response whose text was examined."""
        same = [
            response
            for reply, response in self._answers
            if (reply.text, reply.tool_calls) == (answer.reply.text, answer.reply.tool_calls)
        ]
        return same[-1] if same else self._answers[-1][1]

    def _split(self, messages: Sequence[Message]) -> tuple[str, Sequence[Message] | None]:
        """The system message, and what follows the agent's messages; None for a call of its own."""
        system = messages[0].content if messages[0].role == "system" else ""
        conversation = self._conversation
        place = int(bool(system)) + len(conversation.history) - conversation.results
        if len(messages) <= place or messages[place].content != conversation.question:
            return system, None
        if messages[place].role != "user":
            return system, None
        return system, messages[place + 1 + conversation.results :]


def sampling(model: Any, call: ModelCall) -> dict[str, Any]:
    """The sampling values that a call sets, as far as a framework's model has a field for them.

    Others would reach the provider as they are, which may refuse them.
    """
    return {
        name: getattr(call, name)
        for name in ("temperature", "max_tokens", "seed")
        if getattr(call, name) is not None and name in type(model).model_fields
    }


def turn_metadata(answer: Answer) -> dict[str, Any]:
    """What stands beside the report in an answer's metadata, plain JSON."""
    return {
        "crp_envelope": answer.envelope.model_dump(mode="json"),
        "crp_headers": dict(answer.headers),
        "crp_session": {
            "session_id": answer.session_id,
            "window_id": answer.window_id,
            "window_number": answer.window_number,
            "continuation_id": answer.continuation_id,
        },
    }
