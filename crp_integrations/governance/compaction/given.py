"""What a compactor is given, looked at before anything is shortened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.governance.packs import ContextPack
from crp_integrations.messages import Message

# By argument: what a part is known by, and what to give in the place of another thing.
_PARTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "counter": ("count_messages", "a TokenCounter, such as counter_for('gpt-4o')"),
        "settings": ("trigger_share", "CompactionSettings, as in CompactionSettings(enabled=True)"),
        "artifacts": ("put", "a store of artifacts, such as relay.sandbox(session_id='s1')"),
        "summariser": ("summarise", "a Summariser, such as ModelSummariser(model, 'name')"),
        "embedder": ("embed_passages", "an Embedder"),
    }
)


def refuse_odd(counter: Any, **parts: Any) -> None:
    """Refuse a part that is none.

    Args:
        counter: it must be there.
        parts: by the names of the compactor's arguments; None for one that is not given.

    Raises:
        ConfigError: names the argument, what was given and what to give.
    """
    for name, part in {"counter": counter, **parts}.items():
        attribute, fix = _PARTS[name]
        if not hasattr(part, attribute) and (part is not None or name == "counter"):
            seen = f"the text {part!r:.60}" if isinstance(part, str) else type(part).__name__
            raise ConfigError(f"{name} is {seen}; give {fix}")


def messages_of(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of a history.

    Raises:
        RequestError: one of them is none, or one stands in the place of a list.
    """
    # A message is a sequence of its own fields, and a mapping one of its keys.
    if isinstance(messages, (Message, str, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(f"messages is of type {type(messages).__name__}, wanted a list of them")
    given = tuple(messages)
    for number, one in enumerate(given):
        if not isinstance(one, Message):
            raise RequestError(
                f"message {number} is of type {type(one).__name__}; give a Message, or take "
                "crp_integrations.compact, which reads the OpenAI shape"
            )
    return given


def refuse_other(pack: object) -> None:
    """Refuse what is no pack.

    Raises:
        RequestError: names its type.
    """
    if not isinstance(pack, ContextPack):
        kind = type(pack).__name__
        raise RequestError(f"pack is of type {kind}; give a ContextPack, such as pack_of(…)")


def refuse_bounds(budget: Any, now: Any) -> None:
    """Refuse a budget that is no number of tokens, and a moment without a time zone.

    Raises:
        RequestError: names the one that is wrong.
    """
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise RequestError(f"budget is of type {type(budget).__name__}, wanted whole tokens")
    if not isinstance(now, datetime):
        kind = type(now).__name__
        raise RequestError(f"now is of type {kind}; give a datetime, as in datetime.now(UTC)")
    if now.tzinfo is None:
        raise RequestError(f"now {now.isoformat()} has no time zone; give it one")
