"""Single values of rows read back. One that is not what was written is damage, and is named."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.namespace_counters import WAY_OUT
from crp_integrations.vocabulary import FactStatus

_Kind = TypeVar("_Kind")
STATUSES = {status.value: status for status in FactStatus}


def number(value: Any, what: str) -> int:
    """A number that was stored.

    Args:
        what: its name for the sentence.

    Raises:
        StoreDamaged: it is something else.
    """
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise damaged(f"the stored {what} is {value!r:.40}, wanted a number") from error


def status(word: Any, fact_id: str) -> FactStatus:
    """The status of a fact.

    Raises:
        StoreDamaged: it is no status.
    """
    found = STATUSES.get(word)
    if found is None:
        raise damaged(bogus_status(word, fact_id))
    return found


def bogus_status(word: Any, fact_id: str) -> str:
    """What is wrong with a fact whose status is none."""
    return f"fact {fact_id} has the status {word!r:.40}, wanted one of {', '.join(STATUSES)}"


def from_json(text: Any, kind: type[_Kind], what: str) -> _Kind:
    """What was stored as JSON.

    Args:
        kind: `list` or `dict`.

    Raises:
        StoreDamaged: it is no JSON, or of another kind. The text may be a fact's, so it is not
            shown.
    """
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise damaged(f"{what} are not JSON") from error
    if not isinstance(found, kind):
        raise damaged(f"{what} are a {type(found).__name__}, wanted a {kind.__name__}")
    return found


def damaged(sentence: str) -> StoreDamaged:
    """The error with the way out behind the sentence."""
    return StoreDamaged(f"{sentence}; {WAY_OUT}")
