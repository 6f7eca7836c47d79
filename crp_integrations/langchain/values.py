"""Values under paths and keys, as stores keep them and give them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.fact_fields import plain_metadata

Labels = tuple[str, ...]
Place = tuple[Labels, str]


@dataclass(frozen=True, slots=True)
class Kept:
    """A value with where it stands.

    Attributes:
        path: the labels above its key.
        value: plain JSON.
        ttl_minutes: how long it lives after it was last read or written; None for ever.
        expires_at: when it is gone; None for never.
        parts: how many facts beside its head say its texts.
        found: whether a query may find it.
    """

    path: Labels
    key: str
    value: dict[str, JsonValue]
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None = None
    expires_at: datetime | None = None
    parts: int = 0
    found: bool = True

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.path, self.key

    def alive(self, now: datetime) -> bool:
        """Whether its time has not run out."""
        return self.expires_at is None or self.expires_at > now


@dataclass(frozen=True, slots=True)
class Written:
    """A value to be kept, under a path and a key.

    Attributes:
        value: plain JSON.
        texts: what a query finds it by; none for a value that no query finds.
    """

    path: Labels
    key: str
    value: dict[str, JsonValue]
    texts: tuple[str, ...] = ()
    ttl_minutes: float | None = None


def json_value(key: str, value: Mapping[Any, Any]) -> dict[str, JsonValue]:
    """A value as plain JSON that shares nothing with what was given.

    Raises:
        RequestError: it is none; names the key of it.
    """
    return plain_metadata(value, name=f"the value of {key!r:.40}", refusal=RequestError)
