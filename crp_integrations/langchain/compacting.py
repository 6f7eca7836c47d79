"""An agent's messages, shortened before its model is asked.

The run's state keeps every message. What a model was shown in their place is noted on its answer,
and the next call goes on from there: so a prompt's beginning stays the same until a trigger fires
again, and what was shortened once does not come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from crp_integrations.governance.compaction.history import make_ids
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.langchain.wire import message_of
from crp_integrations.messages import Message
from crp_integrations.relay.relay import Relay

COMPACTION_KEY: Final = "crp_compaction"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a model is sent of an agent's messages.

    Attributes:
        told: for the answer's metadata, plain JSON: the account, and by `shown` what stands for
            the messages so far; empty where nothing has changed since it was last told.
    """

    messages: list[BaseMessage]
    account: CompactionAccount
    told: dict[str, Any]


def compacted(
    relay: Relay,
    messages: Sequence[BaseMessage],
    *,
    system: BaseMessage | None,
    tools: Sequence[Mapping[str, Any]],
    model: str | None,
    session_id: str,
) -> Compacted:
    """The messages of a call, shortened if a trigger fires.

    Args:
        system: sent before them; it counts and stays.
        session_id: whose artifacts large results become, where the settings say so; empty keeps
            none.

    Raises:
        RequestError: a call has no result, or a result no call.
    """
    read = [message_of(message) for message in messages]
    given = dict(zip(make_ids(read), zip(messages, read, strict=True), strict=True))
    names, sent = _going_on(messages, given)
    own = [message_of(message) for message in ([system] if system is not None else []) + sent]
    ids = ("system", *names) if system is not None else names
    compact = relay.compact(
        own,
        model=model,
        tools=tools,
        ids=ids,
        pinned=[name for name, one in zip(names, sent, strict=True) if not _text_alone(one)],
        session_id=session_id,
    )
    if compact.messages == tuple(own):
        return Compacted(sent, compact.account, {})
    current = dict(zip(names, sent, strict=True))
    left: list[BaseMessage] = []
    shown: list[list[str | None]] = []
    for name, message in zip(compact.ids, compact.messages, strict=True):
        if system is not None and name == "system":
            continue
        left.append(_with(current.get(name), message))
        same = name in given and given[name][1].content == message.content
        shown.append([name, None if same else message.content])
    account = compact.account
    return Compacted(left, account, {"account": account.model_dump(mode="json"), "shown": shown})


def _going_on(
    messages: Sequence[BaseMessage], given: Mapping[str, tuple[BaseMessage, Message]]
) -> tuple[tuple[str, ...], list[BaseMessage]]:
    """The messages with what the last compaction showed in the place of those before it."""
    names = tuple(given)
    places = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, AIMessage) and COMPACTION_KEY in message.response_metadata
    ]
    if not places:
        return names, list(messages)
    place = places[-1]
    shown = messages[place].response_metadata[COMPACTION_KEY]["shown"]
    before = frozenset(names[:place])
    # An application may have taken messages out since; then everything is looked at anew.
    if any(text is None and name not in before for name, text in shown):
        return names, list(messages)
    told = [
        given[name][0] if text is None else _spoken(given.get(name), text) for name, text in shown
    ]
    return (*(name for name, _ in shown), *names[place:]), [*told, *messages[place:]]


def _spoken(source: tuple[BaseMessage, Message] | None, text: str) -> BaseMessage:
    return HumanMessage(text) if source is None else source[0].model_copy(update={"content": text})


def _with(source: BaseMessage | None, message: Message) -> BaseMessage:
    """A message as LangChain's; its own one, with another text where that has changed."""
    if source is None:
        return HumanMessage(message.content)
    if str(source.text) == message.content:
        return source
    return source.model_copy(update={"content": message.content})


def _text_alone(message: BaseMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else ()
    return all(isinstance(block, str) or block.get("type") == "text" for block in blocks)
