"""What a compactor is given, looked at before anything is shortened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.errors import RequestError
from crp_integrations.given import Wanted, aware_moment, refuse_part
from crp_integrations.messages import Message

# By argument: what a part is known by, and what to give in the place of another thing.
_PARTS: Final[Mapping[str, Wanted]] = MappingProxyType(
    {
        "counter": Wanted("count_messages", "a TokenCounter, such as counter_for('gpt-4o')"),
        "settings": Wanted(
            "trigger_share", "CompactionSettings, as in CompactionSettings(enabled=True)"
        ),
        "artifacts": Wanted("put", "a store of artifacts, such as relay.sandbox(session_id='s1')"),
        "summariser": Wanted("summarise", "a Summariser, such as ModelSummariser(model, 'name')"),
        "embedder": Wanted("embed_passages", "an Embedder"),
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
        if part is not None or name == "counter":
            refuse_part(name, part, _PARTS[name])


def messages_of(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of a history.

    Raises:
        RequestError: one of them is none, or one stands in the place of a list.
    """
    # A message is a sequence of its own fields, and a mapping one of its keys.
    if isinstance(messages, (Message, str, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(f"messages is of type {type(messages).__name__}, wanted a list of them")
    history = tuple(messages)
    for number, one in enumerate(history):
        if not isinstance(one, Message):
            raise RequestError(
                f"message {number} is of type {type(one).__name__}; give a Message, or take "
                "crp_integrations.compact, which reads the OpenAI shape"
            )
    return history


def refuse_bounds(budget: Any, now: Any) -> None:
    """Refuse a budget that is no number of tokens, and a moment without a time zone.

    Raises:
        RequestError: names the one that is wrong.
    """
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise RequestError(f"budget is of type {type(budget).__name__}, wanted whole tokens")
    aware_moment(now, "now")
