"""What the parts of the facts facet share: the draft, and copies that nobody else can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from crp_integrations.fabric.records import Fact, Source
from crp_integrations.stores.memory.state import Draft, State
from crp_integrations.stores.memory.text import TextIndex

Kept = TypeVar("Kept", Fact, Source)


class Part:
    """A part of the facts facet of one namespace."""

    def __init__(self, draft: Draft, index: Callable[[State], TextIndex]) -> None:
        self._draft = draft
        self._index = index


def own(record: Kept) -> Kept:
    """The record, with metadata that nobody else can change."""
    return record.model_copy(deep=True) if record.metadata else record
