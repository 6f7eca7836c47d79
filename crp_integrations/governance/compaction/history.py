"""An agent's messages as entries, and what is left of them as messages.

Nobody's words are shown shortened as if they had said so: a person's or a model's message stays
whole, or is quoted in a summary. Only results of tools are shortened in their place. Calls are
never rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction.board import Board, Entry, Standing
from crp_integrations.governance.compaction.orphans import turns
from crp_integrations.governance.compaction.records import Summary
from crp_integrations.governance.compaction.stages import HANDLE
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import digest

HEAD: Final = "Earlier in this conversation, quoted in part:"
# Characters of a call's arguments that a summary repeats.
_ARGUMENTS: Final = 120


def ids_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """An id for each message from what it says; equal ones are told apart by their order."""
    seen: Counter[str] = Counter()
    found = []
    for message in messages:
        name = "msg:" + digest(message.model_dump(mode="json")).removeprefix("sha256:")[:16]
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return tuple(found)


def given_ids(ids: Sequence[str], messages: Sequence[Message]) -> tuple[str, ...]:
    """Ids that a caller gives.

    Raises:
        RequestError: they are not one for each message, or not each once.
    """
    if len(ids) != len(messages):
        raise RequestError(f"{len(ids)} ids are given for {len(messages)} messages; give each one")
    repeated = next((name for name, count in Counter(ids).items() if count > 1 or not name), None)
    if repeated is not None:
        raise RequestError(f"id {repeated!r:.60} is empty or stands for two messages")
    return tuple(ids)


def question_of(messages: Sequence[Message]) -> str:
    """The last message of the user; empty without one."""
    place = last_asked(messages)
    return messages[place].content if place >= 0 else ""


def last_asked(messages: Sequence[Message]) -> int:
    """Where the user's last message stands, -1 without one; an earlier summary is none."""
    asked = [place for place, message in enumerate(messages) if message.role == "user"]
    own = [place for place in asked if not is_summary(messages[place])]
    return max(own or asked, default=-1)


def is_summary(message: Message) -> bool:
    """Whether a message begins as the summary of an earlier compaction does."""
    return message.role == "user" and message.content.startswith(f"{HEAD}\n")


def speakers(messages: Sequence[Message]) -> list[str]:
    """How a summary tells who says each message; of a result, what was called."""
    found: list[str] = []
    calls: dict[str, str] = {}
    for message in messages:
        if message.tool_calls:
            calls = {
                call.id: call.name
                + (f" {call.arguments}" if 2 < len(call.arguments) <= _ARGUMENTS else "")
                for call in message.tool_calls
            }
        said: str = message.role
        if message.role == "tool":
            said = f"tool {calls.get(message.tool_call_id or '', message.name or '')}".rstrip()
        elif is_summary(message):
            said = "earlier"
        found.append(said)
    return found


def entries(
    messages: Sequence[Message], ids: Sequence[str], recent: int, pinned: Collection[str] = ()
) -> list[Entry]:
    """The messages as entries.

    Args:
        recent: last turns that stay whole unless the budget is too small for them.
        pinned: ids of messages that stay whole.

    Raises:
        RequestError: a call and its results do not agree.
    """
    found = turns(messages)
    question = last_asked(messages)
    said = speakers(messages)
    made: list[Entry] = []
    turn_of_user = 0
    for number, turn in enumerate(found):
        first = messages[turn[0]]
        turn_of_user += first.role == "user" and not is_summary(first)
        waits = number == len(found) - 1 and bool(first.tool_calls)
        standing = Standing.RECENT if number >= len(found) - recent else Standing.FREE
        if first.role == "system" or question in turn:
            standing = Standing.PINNED
        elif waits:
            standing = Standing.OPEN
        made += [
            Entry(
                id=ids[place],
                text=messages[place].content,
                unit=number,
                standing=Standing.PINNED if ids[place] in pinned else standing,
                cuttable=messages[place].role == "tool",
                droppable=bool(first.tool_calls),
                cluster=str(turn_of_user),
                speaker=said[place],
            )
            for place in turn
        ]
    return made


class MessageCosts:
    """Tokens of messages in a conversation, with the format around each."""

    def __init__(self, messages: Sequence[Message], counter: TokenCounter, tools: int) -> None:
        """Take the tokens of the tool definitions, which are there whatever is shown."""
        self._messages = messages
        self._counter = counter
        self._empty = counter.count_messages([])
        self.base = self._empty + tools

    def entries(self, at: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Tokens of messages with these contents."""
        return [
            self._one(with_text(self._messages[place], text))
            for place, text in zip(at, texts, strict=True)
        ]

    def summaries(self, texts: Sequence[str]) -> list[int]:
        """Tokens of summaries, each as a message."""
        return [self._one(told(text)) for text in texts]

    def _one(self, message: Message) -> int:
        return max(0, self._counter.count_messages([message]) - self._empty)


def with_text(message: Message, text: str) -> Message:
    """A message with another content, the same one where that is its own."""
    return message if message.content == text else message.model_copy(update={"content": text})


def told(text: str) -> Message:
    """A summary as the message that the model is shown."""
    return Message(role="user", content=text)


def line(mark: int, speaker: str, quoted: str) -> str:
    """One line of a summary."""
    # A fence opens a line.
    gap = "\n" if quoted.startswith(("```", "~~~")) else " "
    return f"[{mark}] {speaker}:{gap}{quoted}"


def written(
    messages: Sequence[Message], board: Board, shown: Mapping[str, Summary]
) -> tuple[list[Message], list[str]]:
    """The messages that are left, with the summary where the first that it sums up stood."""
    found: list[Message] = []
    names: list[str] = []
    summary = shown.get("")
    first = min(board.folded.get("", {}), default=-1)
    for place, message in enumerate(messages):
        if summary is not None and place == first:
            found.append(told(summary.text))
            names.append(summary.id)
        cut = board.cuts[place]
        if cut is not None:
            found.append(with_text(message, cut.text))
            names.append(board.entries[place].id)
    return found, names


def handle_of(ref: str) -> str:
    """What stands in a message for a text that is kept elsewhere."""
    return HANDLE.format(ref=ref)
