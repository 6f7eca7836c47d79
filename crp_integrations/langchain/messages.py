"""Conversion between LangChain's messages and documents and a turn's messages and facts.

A provider never receives CRP metadata: metadata of earlier answers is removed first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    UsageMetadata,
    convert_to_messages,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatResult, Generation, LLMResult
from pydantic import ValidationError

from crp_integrations.adapters import evidence
from crp_integrations.adapters.conversations import Conversation, replace_text, turn_metadata
from crp_integrations.adapters.evidence import FACT_KEY, OfferedFact, fact_metadata
from crp_integrations.adapters.observed_answers import Attachment, attached_report, attachment_of
from crp_integrations.adapters.vector_stores import item_metadata
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.dpe.repair import Edit
from crp_integrations.engines.models import text_pieces
from crp_integrations.envelope.prompt import render
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.governance.compaction.history import find_last_question
from crp_integrations.messages import Message, Reply, ToolCall, Usage
from crp_integrations.relay.evidence import answer_text
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary.safety import Role

METADATA_KEY = "crp"
RECEIPT_KEY = "crp_receipt"
# Key on a tool message: claims flagged in the sub-agent's answer that it contains.
FLAGGED_KEY = "crp_flagged"


def envelope_text(documents: Iterable[Document]) -> str:
    """The documents as one text for the prompt, formatted like an envelope, without metadata.

    Use it after a retriever: `{"context": retriever | envelope_text, …}`. Formatting
    documents in other ways can print their metadata into the prompt.

    Spec: CRP-SPEC-003 §7.4

    Raises:
        RequestError: `documents` does not contain Documents.
    """
    return render([document.page_content for document in _checked(documents)])


def documents_of(envelope: Envelope, originals: Mapping[str, Document]) -> list[Document]:
    """An envelope's facts as documents, in the same order."""
    made = []
    for place, fact in enumerate(envelope.facts):
        original = originals.get(fact.fact_id)
        own = original.metadata if original is not None else {}
        made.append(
            Document(
                id=original.id if original is not None else fact.fact_id,
                page_content=fact.content,
                metadata={**own, FACT_KEY: fact_metadata(envelope, place)},
            )
        )
    return made


def stored_document(fact: Fact) -> Document:
    """A stored fact as a document, with the id and metadata it was added with.

    A fact not added by a vector-store view has its fact id, and its source id as `source`.
    """
    id_, metadata = item_metadata(fact)
    return Document(id=id_, page_content=fact.content, metadata=metadata)


def offers(documents: Iterable[Document]) -> Iterator[OfferedFact[Document]]:
    """Documents of a retriever as offers, with source and position from the loader's metadata."""
    for document in _checked(documents):
        source = document.metadata.get("source")
        start = document.metadata.get("start_index")
        yield OfferedFact(
            document,
            document.page_content,
            fact_id=document.id or "",
            source_id=str(source or "user"),
            source_location=_location(start, document.page_content),
        )


def _location(start: Any, text: str) -> str:
    """Position of a document in its source, as a character range where the start is known."""
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return f"{start}-{start + len(text)}"
    return "" if start is None else str(start)


def facts_of(documents: Iterable[Document]) -> tuple[list[Fact], dict[str, Document]]:
    """Documents of a retriever as facts, and the documents by fact id."""
    return evidence.facts_of(offers(documents), noun="document")


def _checked(documents: object) -> Iterator[Document]:
    # A single Document is iterable too, over its fields.
    if isinstance(documents, str | Document) or not isinstance(documents, Iterable):
        raise RequestError(f"documents is {type(documents).__name__}; give a list of Documents")
    for number, document in enumerate(documents, 1):
        if not isinstance(document, Document):
            raise RequestError(
                f"document {number} is {type(document).__name__}; give a Document, such as "
                "Document(page_content=text)"
            )
        yield document


_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "tool": "tool",
}


def read_conversation(messages: Sequence[Any], *, results: bool = False) -> Conversation:
    """Split a conversation into its last question, system prompt and other messages."""
    chat_messages = _messages(messages)
    read = [message_of(message) for message in chat_messages]
    if not results:
        # Checked because question and messages are rebuilt from their text alone.
        check_text_only(chat_messages)
    last = find_last_question(read)
    if last < 0:
        raise RequestError("the messages contain no user question; give one, as the last message")
    system = "\n\n".join(
        message.content for message in read if message.role == "system" and message.content
    )
    before = [message for message in read[:last] if message.role != "system"]
    after = [message for message in read[last + 1 :] if message.role != "system"]
    if after and not results:
        raise RequestError(
            f"the last message is of the {after[-1].role}; wanted the user's question"
        )
    return Conversation(read[last].content, system, (*before, *after), len(after))


def check_text_only(messages: Sequence[BaseMessage]) -> None:
    """Check that user and system messages contain only text."""
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            kind = "text" if isinstance(block, str) else block.get("type")
            if message.type in ("human", "system") and kind != "text":
                raise RequestError(f"a message contains {str(kind)!r:.40}; give only text")


def _messages(messages: Sequence[Any]) -> list[BaseMessage]:
    try:
        return convert_to_messages(messages)
    except (ValueError, NotImplementedError, KeyError) as error:
        raise RequestError("the messages are not in a form that LangChain reads") from error


def message_of(message: BaseMessage) -> Message:
    """A LangChain message as a Message, with its text and tool calls only."""
    kind = message.role if isinstance(message, ChatMessage) else message.type
    role = _ROLES.get(kind)
    if role is None:
        raise RequestError(f"role {kind!r:.40} is not one of system, user, assistant, tool")
    calls: tuple[ToolCall, ...] = ()
    if isinstance(message, AIMessage):
        calls = tuple(
            ToolCall(id=call["id"] or "", name=call["name"], arguments=json.dumps(call["args"]))
            for call in message.tool_calls
        )
    return Message(
        role=role,
        content=str(message.text),
        name=message.name,
        tool_calls=calls,
        tool_call_id=message.tool_call_id if isinstance(message, ToolMessage) else None,
        failed=isinstance(message, ToolMessage) and _answers_nothing(message),
    )


# How LangChain's agent begins the tool message for a tool call that was the model's answer.
_STRUCTURED: Final = "Returning structured response: "


def _answers_nothing(message: ToolMessage) -> bool:
    """Whether a tool message is no evidence: the tool failed, or no tool ran."""
    return message.status == "error" or str(message.text).startswith(_STRUCTURED)


def rejected_in(messages: Iterable[BaseMessage]) -> tuple[RejectedClaim, ...]:
    """Flagged claims of sub-agents' answers, from the metadata of tool messages."""
    rejected = []
    for message in messages:
        flagged = message.response_metadata.get(FLAGGED_KEY, ())
        for claim in flagged if isinstance(message, ToolMessage) else ():
            try:
                rejected.append(RejectedClaim.model_validate(claim))
            except ValidationError:
                # Other code may write checkpoints; an entry in another form is ignored.
                continue
    return tuple(rejected)


def attach_rejected(result: Any, rejected: Sequence[RejectedClaim]) -> None:
    """Attach a sub-agent's flagged claims to the message of the tool that ran it."""
    for message in tool_messages(result) if rejected else ():
        flagged = [claim.model_dump(mode="json") for claim in rejected]
        message.response_metadata = {**message.response_metadata, FLAGGED_KEY: flagged}


def tool_messages(result: Any) -> Iterator[ToolMessage]:
    """The tool messages in a tool's result, which is a message or a command."""
    update = getattr(result, "update", None)
    messages = update.get("messages", ()) if isinstance(update, Mapping) else (result,)
    for message in messages if isinstance(messages, list | tuple) else (messages,):
        if isinstance(message, ToolMessage):
            yield message


def langchain_of(message: Message) -> BaseMessage:
    """A Message as a LangChain message."""
    match message.role:
        case "system":
            return SystemMessage(message.content, name=message.name)
        case "user":
            return HumanMessage(message.content, name=message.name)
        case "tool":
            return ToolMessage(
                message.content,
                tool_call_id=message.tool_call_id or "",
                name=message.name,
                status="error" if message.failed else "success",
            )
        case _:
            return AIMessage(message.content, name=message.name, **calls_of(message.tool_calls))


def calls_of(calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Tool calls as a message's fields; calls whose arguments are not a JSON object are invalid."""
    good, bad = [], []
    for call in calls:
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError:
            arguments = None
        if isinstance(arguments, dict):
            good.append(tool_call(name=call.name, args=arguments, id=call.id))
        else:
            bad.append(
                invalid_tool_call(
                    name=call.name,
                    args=call.arguments,
                    id=call.id,
                    error="the arguments are not a JSON object",
                )
            )
    return {"tool_calls": good, "invalid_tool_calls": bad}


def structured_text(message: object) -> str:
    """A model's tool calls as answer text: the arguments of each as one line of JSON."""
    calls = getattr(message, "tool_calls", None) or ()
    return "\n".join(answer_text(call["args"]) for call in calls)


def chunks_of(calls: Sequence[ToolCall]) -> list[Any]:
    """Tool calls in the form of a stream chunk."""
    return [
        tool_call_chunk(name=call.name, args=call.arguments, id=call.id, index=place)
        for place, call in enumerate(calls)
    ]


def reply_of(message: BaseMessage, model: str) -> Reply:
    """A chat model's message as a reply."""
    metadata = message.response_metadata
    usage = getattr(message, "usage_metadata", None)
    calls = message_of(message).tool_calls if isinstance(message, AIMessage) else ()
    finish = metadata.get("finish_reason") or metadata.get("stop_reason")
    return Reply(
        text=str(message.text),
        model=str(metadata.get("model_name") or metadata.get("model") or model),
        tool_calls=calls,
        usage=Usage(prompt_tokens=usage["input_tokens"], completion_tokens=usage["output_tokens"])
        if usage
        else Usage(),
        finish_reason=str(finish or ("tool_calls" if calls else "stop")),
        parsed=message.additional_kwargs.get("parsed") is not None,
    )


def strip_metadata(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Messages without metadata of this package; a message that has some is copied."""
    return [_strip_metadata(message) for message in messages]


def _strip_metadata(message: BaseMessage) -> BaseMessage:
    metadata = message.response_metadata
    if not any(name.startswith(METADATA_KEY) for name in metadata):
        return message
    remaining = {
        name: value for name, value in metadata.items() if not name.startswith(METADATA_KEY)
    }
    return message.model_copy(update={"response_metadata": remaining})


def answer_message(answer: Answer, attach: str) -> AIMessage:
    """An answer as a message."""
    usage = usage_of(answer.reply.usage)
    return AIMessage(
        answer.text,
        response_metadata=answer_metadata(answer, attach),
        **({"usage_metadata": usage} if usage else {}),
        **calls_of(answer.reply.tool_calls),
    )


def message_chunks(message: AIMessage) -> Iterator[AIMessageChunk]:
    """A message as a stream: its text in pieces, then all other fields."""
    whole = isinstance(message.content, list)
    for piece in () if whole else text_pieces(str(message.content)):
        yield AIMessageChunk(content=piece, id=message.id)
    yield last_chunk(message, message.content if whole else "")


def last_chunk(message: AIMessage, content: Any = "") -> AIMessageChunk:
    """The last chunk of a message's stream, after its text."""
    calls = [
        ToolCall(id=call["id"] or "", name=call["name"] or "", arguments=call["args"] or "")
        for call in message.invalid_tool_calls
    ]
    return AIMessageChunk(
        id=message.id,
        content=content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        tool_call_chunks=chunks_of([*message_of(message).tool_calls, *calls]),
        chunk_position="last",
    )


def answer_metadata(answer: Answer, attach: str) -> dict[str, Any]:
    """The `response_metadata` of an answer, plain JSON."""
    beside = {RECEIPT_KEY: answer.receipt_id, **turn_metadata(answer, attach)}
    return {
        "model_name": answer.reply.model,
        "finish_reason": answer.reply.finish_reason,
        METADATA_KEY: attachment_of(answer.report, attach),
        **beside,
    }


def usage_of(usage: Usage) -> UsageMetadata | None:
    """Usage in LangChain's form; None if the provider reported none."""
    if not usage.total_tokens:
        return None
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
    )


def report_of(run: object) -> Attachment | None:
    """The report, summary or id attached to the last answer in an output of LangChain.

    It is also found if a parser reduced the chain's answer to text: the run still contains the
    message.

    Args:
        run: a message or chunk, an `LLMResult` or `ChatResult`, the output of a chain, gate or
            agent, a `Run` of a tracer, the object that `collect_runs` yields, or events of
            `astream_events`.

    Returns:
        Plain JSON; None if there is no answer, or nothing is attached to the last one.
    """
    match run:
        case BaseMessage():
            return attached_report(run.response_metadata)
        case Generation():
            message = getattr(run, "message", None)
            return report_of(message) or attached_report(run.generation_info)
        case LLMResult() | ChatResult():
            return report_of(run.generations)
        case str():
            return None
        case Mapping():
            # The run's input is tried last: the input of a parser is the answer's message.
            values = [value for key, value in run.items() if key not in ("input", "inputs")]
            return attached_report(run) or report_of(values) or _report_on_input(run)
        case Sequence():
            answers = [item for item in run if isinstance(item, AIMessage)]
            # If the last answer has nothing attached, a report on an earlier one is not its report.
            reports = map(report_of, answers[-1:] or reversed(run))
            return next((report for report in reports if report is not None), None)
    collected = getattr(run, "traced_runs", None)
    if collected is not None:
        return report_of(collected)
    inner = getattr(run, "child_runs", None)
    if inner is None:
        return None
    report = report_of(getattr(run, "outputs", None)) or report_of(inner)
    return report or _report_on_input(getattr(run, "inputs", None) or {})


def _report_on_input(run: Mapping[str, Any]) -> Attachment | None:
    message = run.get("input")
    return report_of(message) if isinstance(message, AIMessage) else None


def repaired_content(message: BaseMessage, text: str, edits: Sequence[Edit]) -> Any:
    """The content of a message with a repaired text; its blocks stay."""
    if isinstance(message.content, str):
        return text

    def text_of(block: Any) -> str | None:
        if isinstance(block, str):
            return block
        return block["text"] if block.get("type") == "text" else None

    def make(new: str) -> Any:
        return {"type": "text", "text": new}

    return replace_text(message.content, text, edits, text_of, make)
