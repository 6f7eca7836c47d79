"""An agent's messages as context entries, and the messages that are left after a compaction.

A message of the user or model stays whole or is quoted in a summary; only results of tools are
shortened in place. Calls are never rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction.records import Summary
from crp_integrations.governance.compaction.stages import (
    ContextEntry,
    Firmness,
    TokenCosts,
    WorkingContext,
)
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import digest


def group_turns(messages: Sequence[Message]) -> list[list[int]]:
    """Group messages by turns: a call with all its results, or a single message.

    Results belong to the call just before them, because some models reuse ids. Only the last turn
    may still wait for results.
    """
    turns: list[list[int]] = []
    for place, message in enumerate(messages):
        if message.role != "tool":
            turns.append([place])
        elif turns and messages[turns[-1][0]].tool_calls:
            turns[-1].append(place)
        else:
            raise RequestError(
                f"message {place} is the result of call {message.tool_call_id!r:.60}, and the "
                "message before the results makes no such call; leave it out or give the call"
            )
    for turn in turns:
        _check_turn(messages, turn, last=turn is turns[-1])
    return turns


def _check_turn(messages: Sequence[Message], turn: Sequence[int], *, last: bool) -> None:
    asked = [call.id for call in messages[turn[0]].tool_calls]
    if len(set(asked)) < len(asked):
        raise RequestError(f"message {turn[0]} makes two calls with one id; give each its own")
    answered: set[str] = set()
    for place in turn[1:]:
        name = messages[place].tool_call_id or ""
        if name not in asked:
            raise RequestError(
                f"message {place} is the result of call {name!r:.60}, and message {turn[0]} makes "
                "no such call; leave it out or give the call"
            )
        if name in answered:
            raise RequestError(f"call {name!r:.60} of message {turn[0]} has two results; give one")
        answered.add(name)
    waiting = [name for name in asked if name not in answered]
    if waiting and not last:
        raise RequestError(
            f"call {waiting[0]!r:.60} of message {turn[0]} has no result, and the history goes on; "
            "give it one, if only that it was given up"
        )


HEAD: Final = "Earlier in this conversation, quoted in part:"
# Maximum length of a call's arguments that a summary repeats.
_MAX_ARGUMENTS: Final = 120


def make_ids(messages: Sequence[Message]) -> tuple[str, ...]:
    """An id for each message, derived from its content; equal messages get a number."""
    seen: Counter[str] = Counter()
    ids = []
    for message in messages:
        name = "msg:" + digest(message.model_dump(mode="json")).removeprefix("sha256:")[:16]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return tuple(ids)


def check_ids(ids: Sequence[str], messages: Sequence[Message]) -> tuple[str, ...]:
    """The caller's ids, checked to be unique and not empty."""
    if len(ids) != len(messages):
        raise RequestError(f"{len(ids)} ids are given for {len(messages)} messages; give each one")
    repeated = next((name for name, count in Counter(ids).items() if count > 1 or not name), None)
    if repeated is not None:
        raise RequestError(f"id {repeated!r:.60} is empty or names two messages")
    return tuple(ids)


def find_question(messages: Sequence[Message]) -> str:
    """The content of the user's last message; empty without one."""
    place = find_last_question(messages)
    return messages[place].content if place >= 0 else ""


def find_last_question(messages: Sequence[Message]) -> int:
    """Position of the user's last message that is not a summary, else of a summary, else -1."""
    asked = [place for place, message in enumerate(messages) if message.role == "user"]
    own = [place for place in asked if not is_summary(messages[place])]
    return max(own or asked, default=-1)


def is_summary(message: Message) -> bool:
    """Whether a message begins as the summary of an earlier compaction does."""
    return message.role == "user" and message.content.startswith(f"{HEAD}\n")


def name_speakers(messages: Sequence[Message]) -> list[str]:
    """A speaker for each message, as a summary names it; for a tool's result, the call."""
    speakers: list[str] = []
    calls: dict[str, str] = {}
    for message in messages:
        if message.tool_calls:
            calls = {
                call.id: call.name
                + (f" {call.arguments}" if 2 < len(call.arguments) <= _MAX_ARGUMENTS else "")
                for call in message.tool_calls
            }
        speaker: str = message.role
        if message.role == "tool":
            speaker = f"tool {calls.get(message.tool_call_id or '', message.name or '')}".rstrip()
        elif is_summary(message):
            speaker = "earlier"
        speakers.append(speaker)
    return speakers


def make_history_entries(
    messages: Sequence[Message], ids: Sequence[str], recent: int, pinned: Collection[str] = ()
) -> list[ContextEntry]:
    """The messages as entries."""
    turns = group_turns(messages)
    question = find_last_question(messages)
    speakers = name_speakers(messages)
    made: list[ContextEntry] = []
    turn_of_user = 0
    for number, turn in enumerate(turns):
        first = messages[turn[0]]
        turn_of_user += first.role == "user" and not is_summary(first)
        waits = number == len(turns) - 1 and bool(first.tool_calls)
        firmness = Firmness.RECENT if number >= len(turns) - recent else Firmness.FREE
        if first.role == "system" or question in turn:
            firmness = Firmness.PINNED
        elif waits:
            firmness = Firmness.OPEN
        made += [
            ContextEntry(
                id=ids[place],
                text=messages[place].content,
                unit=number,
                firmness=Firmness.PINNED if ids[place] in pinned else firmness,
                cuttable=messages[place].role == "tool",
                droppable=bool(first.tool_calls),
                cluster=str(turn_of_user),
                speaker=speakers[place],
            )
            for place in turn
        ]
    return made


def message_costs(messages: Sequence[Message], counter: TokenCounter, tools: int) -> TokenCosts:
    """Token counts of messages with their formatting; `base` includes the tool definitions."""
    empty = counter.count_messages([])

    def count(message: Message) -> int:
        return max(0, counter.count_messages([message]) - empty)

    return TokenCosts(
        entries=lambda at, texts: [
            count(with_text(messages[place], text)) for place, text in zip(at, texts, strict=True)
        ],
        summaries=lambda texts: [count(Message(role="user", content=text)) for text in texts],
        base=empty + tools,
    )


def with_text(message: Message, text: str) -> Message:
    """The message with this content; the message itself if that is its content."""
    return message if message.content == text else message.model_copy(update={"content": text})


def write_history(
    messages: Sequence[Message], context: WorkingContext, summary: Summary | None
) -> tuple[list[Message], list[str]]:
    """The messages that are left, with the summary at the position of the first it summarises."""
    left: list[Message] = []
    names: list[str] = []
    first = min(context.folded.get("", {}), default=-1)
    for place, message in enumerate(messages):
        if summary is not None and place == first:
            left.append(Message(role="user", content=summary.text))
            names.append(summary.id)
        cut = context.cuts[place]
        if cut is not None:
            left.append(with_text(message, cut.text))
            names.append(context.entries[place].id)
    return left, names


def check_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages as a tuple, with their types checked."""
    # A message and a mapping are iterable too, but give field names and keys.
    if isinstance(messages, (Message, str, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(f"messages is of type {type(messages).__name__}, wanted a list of them")
    history = tuple(messages)
    for number, message in enumerate(history):
        if not isinstance(message, Message):
            raise RequestError(
                f"message {number} is of type {type(message).__name__}; give a Message, or take "
                "crp_integrations.compact, which reads the OpenAI shape"
            )
    return history
