"""The emitter: makes memory items of what an agent reports and hands them to a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from pydantic import JsonValue

from crp_integrations.fabric.records import ID_SPACE
from crp_integrations.governance.memory_items import (
    MemoryItem,
    MemoryItemRef,
    MemoryType,
    Provenance,
    Scope,
)
from crp_integrations.governance.memory_items import item as made
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext
from crp_integrations.ports import Clock, Ids
from crp_integrations.seals import canonical

Content = str | dict[str, JsonValue] | list[JsonValue]
# How long a memory of each type counts in full, when the caller says nothing else.
DECAYS: dict[MemoryType, str | None] = {
    "episodic": "half-life@1:P7D",
    "procedural": "plateau@1:P180D",
    "semantic": None,
}


@dataclass(frozen=True, slots=True)
class Emitter:
    """Makes items of one scope and hands each to a sink.

    Attributes:
        scope: whose memories they are.
        labels: access labels of every item.
        source_uri: where what is said comes from, such as `session://s1`.
        clock: dates items.
        ids: makes their ids unique.
        sink: gets each item; `written` gives one that writes.
        confidence: of an item that says nothing else, [0, 1].
    """

    scope: Scope
    labels: tuple[str, ...]
    source_uri: str
    clock: Clock
    ids: Ids
    sink: Callable[[MemoryItem], Any]
    confidence: float = 0.6

    def episodic(self, content: Content, category: str = "user-action", **more: Any) -> MemoryItem:
        """Something that happened: a turn of a conversation, an action, what a tool gave.

        Spec: Summit §Memory Taxonomy
        """
        return self._emit("episodic", content, category, more)

    def procedural(self, content: Content, category: str = "playbook", **more: Any) -> MemoryItem:
        """How something is done: a playbook, how a tool is called, a step of a policy.

        Spec: Summit §Memory Taxonomy
        """
        return self._emit("procedural", content, category, more)

    def semantic(self, content: Content, category: str = "document", **more: Any) -> MemoryItem:
        """What is so: a passage, a node or an edge of a graph, a tool's specification.

        Spec: Summit §Memory Taxonomy
        """
        return self._emit("semantic", content, category, more)

    def _emit(
        self, kind: MemoryType, content: Content, category: str, more: dict[str, Any]
    ) -> MemoryItem:
        now = self.clock.now()
        said = content if isinstance(content, str) else canonical(content).decode()
        unique = "\u241f".join((self.ids.new("mem_"), self.source_uri, kind, said))
        one = made(
            {
                "id": str(uuid5(ID_SPACE, unique)),
                "type": kind,
                "category": category,
                "scope": self.scope,
                "created_at": now,
                "updated_at": now,
                "decay_fn": DECAYS[kind],
                "confidence": self.confidence,
                "provenance": Provenance(source_uri=self.source_uri),
                "security_label": self.labels,
                "content": content,
                **more,
            }
        )
        self.sink(one)
        return one


def make_sink(
    writer: MemoryWriter, context: PolicyContext
) -> Callable[[MemoryItem], MemoryItemRef]:
    """A sink that writes each item."""
    return lambda one: writer.write(one, context)
