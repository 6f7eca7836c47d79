"""Conversion between LlamaIndex messages and a turn's messages and answers.

A provider never receives CRP metadata: messages do not contain any. A `ReActAgent` writes its
thoughts and, as user messages, tool results after the question. LlamaIndex does not mark them, so
they are recognised by their position at the end of a conversation and by the words that
`ActionReasoningStep` and `ObservationReasoningStep` begin with.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole, TextBlock
from llama_index.core.llms.llm import ToolSelection

from crp_integrations.adapters.conversations import Conversation, turn_metadata
from crp_integrations.adapters.observed_answers import Attachment, attached_report, attachment_of
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.nodes import METADATA_KEY, RECEIPT_KEY
from crp_integrations.messages import Message, Reply, ToolCall, Usage
from crp_integrations.relay.evidence import without_echoes
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary.safety import Role

_OBSERVED: Final = "Observation: "
# How the agent's message begins if it could not parse the model's output.
_PARSE_ERRORS: Final = (
    "Error while parsing the output: ",
    "FAILURE: Your previous response was empty.",
)
_ACTION: Final = re.compile(r"(?:^|\n)Action: (?P<tool>[^\n]+)\nAction Input: (?P<input>.*)", re.S)


def count_reasoning(messages: Sequence[ChatMessage]) -> int:
    r"""Number of messages at the end that are an agent's reasoning, not a user's question.

    >>> said = ["When?", "Thought: I look.\nAction: look\nAction Input: {}", "Observation: 1957"]
    >>> roles = ["user", "assistant", "user"]
    >>> count_reasoning([ChatMessage(role=role, content=text) for role, text in zip(roles, said)])
    2
    """
    end = len(messages)
    while end >= 2 and _is_answered(messages[end - 2], messages[end - 1]):
        end -= 2
    return len(messages) - end


def read_observations(
    reasoning: Sequence[ChatMessage],
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The tool results in an agent's reasoning: tool, arguments and result."""
    for asked, answered in zip(reasoning[::2], reasoning[1::2], strict=True):
        action = _ACTION.search(asked.content or "")
        text = answered.content or ""
        if action and text.startswith(_OBSERVED):
            yield action["tool"].strip(), _arguments(action["input"]), text.removeprefix(_OBSERVED)


def _is_answered(asked: ChatMessage, answered: ChatMessage) -> bool:
    if (str(asked.role.value), str(answered.role.value)) != ("assistant", "user"):
        return False
    text = answered.content or ""
    observed = text.startswith(_OBSERVED) and _ACTION.search(asked.content or "") is not None
    return observed or text.startswith(_PARSE_ERRORS)


def _arguments(written: str) -> dict[str, Any]:
    """Arguments written by LlamaIndex as a Python dict literal; empty for anything else."""
    try:
        read = ast.literal_eval(written.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}

# Possible keys of the id, name and arguments of a tool call on a message.
_CALL_FIELDS: Final = (
    ("tool_id", "id"),
    ("tool_name", "name"),
    ("tool_kwargs", "arguments", "input", "args"),
)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool result in a conversation, with the arguments of the call."""

    name: str
    text: str
    asked: Mapping[str, Any] = field(default_factory=dict)


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Split a conversation into its last question, system prompt and other messages."""
    read = read_messages(messages)
    until = len(messages) - count_reasoning(messages)
    places = [place for place, message in enumerate(read[:until]) if message.role == "user"]
    if not places:
        raise RequestError("the messages contain no user question; give one")
    system = "\n\n".join(
        message.content for message in read if message.role == "system" and message.content
    )
    before = [message for message in read[: places[-1]] if message.role != "system"]
    after = [message for message in read[places[-1] + 1 :] if message.role != "system"]
    return Conversation(read[places[-1]].content, system, (*before, *after), len(after))


def read_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """All messages of a conversation; tool results in an agent's reasoning are marked."""
    read = [message_of(message) for message in messages]
    until = len(messages) - count_reasoning(messages)
    for place in range(until + 1, len(messages), 2):
        # A parsing error and a result that only repeats the call are no words of the user either.
        observed = ""
        for _, asked, text in read_observations(messages[place - 1 : place + 1]):
            observed = without_echoes(text, asked)
        content = observed or read[place].content
        read[place] = read[place].changed(observation=content, failed=not observed)
    return read


def message_of(message: ChatMessage) -> Message:
    """A LlamaIndex message as a Message, with its text and tool calls only."""
    kind = str(getattr(message.role, "value", message.role))
    role = _ROLES.get(kind)
    if role is None:
        raise RequestError(f"role {kind!r:.40} is not one of system, user, assistant, tool")
    return Message(
        role=role,
        content=message.content or "",
        tool_calls=tuple(calls_in(message)) if role == "assistant" else (),
        tool_call_id=message.additional_kwargs.get("tool_call_id") if role == "tool" else None,
    )


def messages_of(
    sent: Sequence[ChatMessage], unfounded: Collection[tuple[str, str]] = ()
) -> tuple[Message, ...]:
    """The messages sent, reduced to text; empty if one has an unknown role."""
    try:
        return with_failures(map(message_of, sent), unfounded)
    except RequestError:
        return ()


def with_failures(
    messages: Iterable[Message], unfounded: Collection[tuple[str, str]]
) -> tuple[Message, ...]:
    """Mark the messages of failed tools, which LlamaIndex itself does not mark.

    Args:
        unfounded: call id and text of each message of a failed tool.
    """
    # An observation has no call id, so its text alone is compared.
    wrong = {text for _, text in unfounded}
    return tuple(
        message.changed(failed=True)
        if (message.role == "tool" and (message.tool_call_id or "", message.content) in unfounded)
        or (message.observation and message.content.removeprefix(_OBSERVED) in wrong)
        else message
        for message in messages
    )


def check_text_only(messages: Sequence[ChatMessage]) -> None:
    """Check that user and system messages contain only text."""
    for message in messages:
        for block in message.blocks:
            if message_of(message).role in ("user", "system") and not isinstance(block, TextBlock):
                raise RequestError(f"a message contains {type(block).__name__}; give only text")


def chat_message_of(message: Message) -> ChatMessage:
    """A Message as a LlamaIndex message."""
    more: dict[str, Any] = {}
    if message.tool_calls:
        more["tool_calls"] = calls_json(message.tool_calls)
    if message.tool_call_id is not None:
        more["tool_call_id"] = message.tool_call_id
    return ChatMessage(
        role=MessageRole(message.role), content=message.content, additional_kwargs=more
    )


def calls_json(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Tool calls in the OpenAI format, for a LlamaIndex message."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def calls_in(message: ChatMessage) -> Iterator[ToolCall]:
    """The tool calls of a message, in any of LlamaIndex's forms."""
    blocks = [block for block in message.blocks if getattr(block, "block_type", "") == "tool_call"]
    for block in blocks:
        yield _tool_call(block.tool_call_id, block.tool_name, block.tool_kwargs)  # type: ignore[union-attr]
    if blocks:
        return
    for call in message.additional_kwargs.get("tool_calls") or ():
        # OpenAI's form has name and arguments in `function`.
        holders = [holder for holder in (_part(call, "function"), call) if holder is not None]
        fields = (
            [part for holder in holders for name in names if (part := _part(holder, name))]
            for names in _CALL_FIELDS
        )
        yield _tool_call(*(next(iter(parts), None) for parts in fields))


def selections(calls: Sequence[ToolCall]) -> list[ToolSelection]:
    """Tool calls in LlamaIndex's form; arguments that are not a JSON object become empty."""
    return [
        ToolSelection(tool_id=call.id, tool_name=call.name, tool_kwargs=arguments(call))
        for call in calls
    ]


def arguments(call: ToolCall) -> dict[str, Any]:
    """A tool call's arguments; empty if they are not a JSON object."""
    try:
        read = json.loads(call.arguments or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def tool_results(messages: Sequence[ChatMessage]) -> list[ToolResult]:
    """The tool results in a conversation."""
    called = {call.id: call for message in messages for call in calls_in(message)}
    results: list[ToolResult] = []
    until = len(messages) - count_reasoning(messages)
    for message in messages[:until]:
        role = _ROLES.get(str(getattr(message.role, "value", message.role)))
        if role == "tool":
            id_ = str(message.additional_kwargs.get("tool_call_id") or "")
            call, named = called.get(id_), message.additional_kwargs.get("name")
            results.append(
                ToolResult(
                    name=call.name if call else str(named or "tool"),
                    text=message.content or "",
                    asked=arguments(call) if call else {},
                )
            )
    reasoning = read_observations(messages[until:])
    return [*results, *(ToolResult(name, text, asked) for name, asked, text in reasoning)]


def usage_of(response: ChatResponse) -> Usage:
    """The token counts of a response, from wherever it reports them."""
    raw = response.raw
    usage = _part(raw, "usage") if raw is not None else None
    counts = [
        _part(usage, name) if usage is not None else response.additional_kwargs.get(name)
        for name in ("prompt_tokens", "completion_tokens")
    ]
    known = [count if isinstance(count, int) and count >= 0 else 0 for count in counts]
    return Usage(prompt_tokens=known[0], completion_tokens=known[1])


def reply_of(response: ChatResponse, model: str, calls: Sequence[ToolCall] | None = None) -> Reply:
    """A model's response as a reply."""
    read = tuple(calls_in(response.message)) if calls is None else tuple(calls)
    raw = response.raw
    return Reply(
        text=response.message.content or "",
        model=str(_part(raw, "model") or model),
        tool_calls=read,
        usage=usage_of(response),
        finish_reason="tool_calls" if read else "stop",
    )


def report_of(response: object) -> Attachment | None:
    """The report, summary or id attached to an answer in an output of LlamaIndex.

    Args:
        response: response of a query or chat engine, an LLM or an agent, a stream that was read to
            its end, or a `ReportEvent`.

    Returns:
        Plain JSON; None if nothing is attached.
    """
    for name in ("metadata", "additional_kwargs"):
        attached = attached_report(getattr(response, name, None))
        if attached is not None:
            return attached
    report = getattr(response, "report", None)
    return attached_report({METADATA_KEY: report})


def answer_metadata(answer: Answer, attach: str) -> dict[str, Any]:
    """The metadata of an answer, plain JSON."""
    beside = {**turn_metadata(answer, attach), **receipt_metadata(answer.receipt_id)}
    return {METADATA_KEY: attachment_of(answer.report, attach), **beside}


def receipt_metadata(receipt_id: str) -> dict[str, str]:
    """An answer's receipt id for its metadata; empty if there is no receipt."""
    return {RECEIPT_KEY: receipt_id} if receipt_id else {}


def _tool_call(id_: Any, name: Any, arguments: Any) -> ToolCall:
    encoded = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)
    return ToolCall(id=str(id_ or ""), name=str(name or ""), arguments=encoded or "{}")


def _part(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)
