"""What goes to a model and what comes back, provider neutral."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import Purpose, Role


class ToolCall(Part):
    """A tool call that a model asked for.

    Attributes:
        id: the id that the provider gave the call.
        name: the tool's name.
        arguments: the arguments as the JSON text that the model wrote, unchanged.
    """

    id: str
    name: str
    arguments: str = "{}"


class Message(Record):
    """One message of a conversation.

    Attributes:
        failed: for a tool's message: the tool failed, or the framework wrote the message instead
            of the tool; it is not used as evidence.
        observation: a tool's answer that an agent writes into a user message, as a `ReActAgent`
            does; it is evidence like a tool's message.
    """

    SCHEMA = "message/1"

    role: Role
    content: str = ""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    failed: bool = False
    observation: str = ""


class Usage(Part):
    """Tokens and cost of one model call as the provider reported them."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = None

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The highest price of a model's tokens, in US dollars each.

    Attributes:
        most_output: most tokens of one reply; None if that is not known.
    """

    input: float
    output: float
    most_output: int | None = None


class Reply(Record):
    """A model's answer; only a repair alters its text.

    Attributes:
        text: the text exactly as the model wrote it, unless it was repaired.
        model: the model that answered, which after a fallback is not the one asked for.
        finish_reason: the provider's reason, such as `stop`, `length` or `tool_calls`.
        answers_by_call: whether the tool calls are the answer, as the caller forced a named tool.
        parsed: whether other code has parsed the answer already, so that it cannot be repaired.
    """

    SCHEMA = "reply/1"

    text: str
    model: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = "stop"
    answers_by_call: bool = False
    parsed: bool = False

    @property
    def answer(self) -> str:
        """The text to examine: the reply's text, or the arguments of calls that are the answer."""
        if self.text.strip() or not self.answers_by_call:
            return self.text
        return "\n".join(call.arguments for call in self.tool_calls)

    def with_answer(self, answer: str) -> Reply | None:
        """The reply with another answer; None if its form permits none."""
        if self.parsed:
            return None
        if self.text.strip() or not self.answers_by_call:
            return self.changed(text=answer)
        if len(self.tool_calls) > 1:
            return None
        call = self.tool_calls[0].model_copy(update={"arguments": answer})
        return self.changed(tool_calls=(call,))


def with_forced_calls(reply: Reply, tool_choice: object) -> Reply:
    """The reply with its tool calls as its answer, if `tool_choice` names the tool to call.

    Structured-output wrappers name one. Where the model chooses the tool, a call is only a step.
    """
    named = isinstance(tool_choice, Mapping) and bool(tool_choice.get("function"))
    if not named or not reply.tool_calls or reply.text.strip():
        return reply
    return reply.changed(answers_by_call=True)


class ModelCall(Record):
    """One request to a model, with everything that determines the bytes sent.

    Attributes:
        model: model name as LiteLLM takes it, such as `gpt-4o-mini`, or `extractive`.
        messages: the conversation; it contains no CRP metadata.
        max_tokens: maximum tokens of the answer, None for the provider's default.
        tools: tool definitions in the OpenAI JSON format.
        response_format: format of the reply in the OpenAI JSON format, for models that take one.
    """

    SCHEMA = "model-call/1"

    model: str
    messages: tuple[Message, ...]
    purpose: Purpose = Purpose.ANSWER
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    seed: int | None = None
    tools: tuple[dict[str, Any], ...] = ()
    response_format: dict[str, Any] | None = None
