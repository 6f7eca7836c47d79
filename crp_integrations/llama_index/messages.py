"""Conversion between LlamaIndex messages and a turn's messages and answers.

What a provider gets never holds CRP metadata: nothing of it is put on a message. What a
`ReActAgent` writes behind the question (thoughts, and results as a user's words) bears no mark of
LlamaIndex's, so it is known by its place at the end of a conversation and by the words that
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
from crp_integrations.adapters.observed_answers import (
    Attachment,
    attached_report,
    attachment_of,
)
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.nodes import METADATA_KEY, RECEIPT_KEY
from crp_integrations.messages import Message, Reply, ToolCall, Usage
from crp_integrations.relay.evidence import without_echoes
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary.safety import Role

_OBSERVED: Final = "Observation: "
# What the agent tells a model whose words it could not read.
_UNREAD: Final = (
    "Error while parsing the output: ",
    "FAILURE: Your previous response was empty.",
)
_ACTION: Final = re.compile(r"(?:^|\n)Action: (?P<tool>[^\n]+)\nAction Input: (?P<input>.*)", re.S)


def count_reasoning(messages: Sequence[ChatMessage]) -> int:
    r"""How many messages at the end are an agent's reasoning, and no question of a user.

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
    """The tools' results in an agent's reasoning: tool, arguments and what it answered."""
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
    return observed or text.startswith(_UNREAD)


def _arguments(written: str) -> dict[str, Any]:
    """The arguments as LlamaIndex writes them, a Python dictionary; empty for anything else."""
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

# Id, name and arguments of a tool call, as LLMs keep them beside a message.
_CALL_FIELDS: Final = (
    ("tool_id", "id"),
    ("tool_name", "name"),
    ("tool_kwargs", "arguments", "input", "args"),
)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as it stands in a conversation."""

    name: str
    text: str
    asked: Mapping[str, Any] = field(default_factory=dict)


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """The last question of a conversation, and what stands around it."""
    read = read_messages(messages)
    until = len(messages) - count_reasoning(messages)
    places = [place for place, message in enumerate(read[:until]) if message.role == "user"]
    if not places:
        raise RequestError("the messages hold no question of a user; give one")
    system = "\n\n".join(
        message.content for message in read if message.role == "system" and message.content
    )
    before = [message for message in read[: places[-1]] if message.role != "system"]
    after = [message for message in read[places[-1] + 1 :] if message.role != "system"]
    return Conversation(read[places[-1]].content, system, (*before, *after), len(after))


def read_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """All messages of a conversation; an agent's reasoning with what its tools answered."""
    read = [message_of(message) for message in messages]
    until = len(messages) - count_reasoning(messages)
    for place in range(until + 1, len(messages), 2):
        for _, asked, text in read_observations(messages[place - 1 : place + 1]):
            read[place] = read[place].changed(observation=without_echoes(text, asked))
    return read


def message_of(message: ChatMessage) -> Message:
    """A LlamaIndex message as one of this package: its text, its tool calls, nothing else."""
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
    """What is sent, as far as it is text; nothing of a conversation with a role of its own."""
    try:
        return with_failures(map(message_of, sent), unfounded)
    except RequestError:
        return ()


def with_failures(
    messages: Iterable[Message], unfounded: Collection[tuple[str, str]]
) -> tuple[Message, ...]:
    """Messages, where those of failed tools are marked; LlamaIndex itself has no mark for that.

    Args:
        unfounded: id and text of what failed tools answered.
    """
    # An observation bears no id of its call.
    wrong = {text for _, text in unfounded}
    return tuple(
        message.changed(failed=True)
        if (message.role == "tool" and (message.tool_call_id or "", message.content) in unfounded)
        or (message.observation and message.content.removeprefix(_OBSERVED) in wrong)
        else message
        for message in messages
    )


def check_text_only(messages: Sequence[ChatMessage]) -> None:
    """Check that people's and system messages hold text and nothing else."""
    for message in messages:
        for block in message.blocks:
            if message_of(message).role in ("user", "system") and not isinstance(block, TextBlock):
                raise RequestError(f"a message holds {type(block).__name__}; give text alone")


def chat_message_of(message: Message) -> ChatMessage:
    """A message of this package as LlamaIndex's."""
    more: dict[str, Any] = {}
    if message.tool_calls:
        more["tool_calls"] = calls_json(message.tool_calls)
    if message.tool_call_id is not None:
        more["tool_call_id"] = message.tool_call_id
    return ChatMessage(
        role=MessageRole(message.role), content=message.content, additional_kwargs=more
    )


def calls_json(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Tool calls in the OpenAI shape, as LlamaIndex keeps them on a message."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def calls_in(message: ChatMessage) -> Iterator[ToolCall]:
    """The tool calls of a message, in whichever of LlamaIndex's forms."""
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
    """Tool calls as LlamaIndex runs them; those whose arguments are no JSON object have none."""
    return [
        ToolSelection(tool_id=call.id, tool_name=call.name, tool_kwargs=arguments(call))
        for call in calls
    ]


def arguments(call: ToolCall) -> dict[str, Any]:
    """A tool call's arguments; empty where the model wrote no JSON object."""
    try:
        read = json.loads(call.arguments or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def tool_results(messages: Sequence[ChatMessage]) -> list[ToolResult]:
    """What tools answered in a conversation."""
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
    """The tokens that a response reports, in whichever place."""
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
    """The report on an answer in what LlamaIndex hands out, as much of it as is attached.

    Args:
        response: of a query or chat engine, an LLM or an agent, a stream of one once it was read,
            or a `ReportEvent`.

    Returns:
        Plain JSON; None where nothing is attached.
    """
    for name in ("metadata", "additional_kwargs"):
        attached = attached_report(getattr(response, name, None))
        if attached is not None:
            return attached
    report = getattr(response, "report", None)
    return attached_report({METADATA_KEY: report})


def answer_metadata(answer: Answer, attach: str) -> dict[str, Any]:
    """What stands in the metadata of an answer, plain JSON."""
    return {
        METADATA_KEY: attachment_of(answer.report, attach),
        **turn_metadata(answer),
        **receipt_metadata(answer.receipt_id),
    }


def receipt_metadata(receipt_id: str) -> dict[str, str]:
    """The id of the receipt on an answer, for its metadata; nothing where there is none."""
    return {RECEIPT_KEY: receipt_id} if receipt_id else {}


def _tool_call(id_: Any, name: Any, arguments: Any) -> ToolCall:
    encoded = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)
    return ToolCall(id=str(id_ or ""), name=str(name or ""), arguments=encoded or "{}")


def _part(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)
