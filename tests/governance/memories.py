"""Memory items for tests, over a fabric that needs no model."""

from __future__ import annotations

from typing import Any

from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.memory_items import MemoryItem, item
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext
from crp_integrations.guard.decisions import AllowAll, Subject
from tests.doubles import NOON

ANNA = Subject(tenant="acme", name="anna")
CONTEXT = PolicyContext(subject=ANNA, session_id="s1", purpose="support")
TEXT = "The pump in hall four was replaced after the inspection of the boiler in spring."


def fields(number: int = 1, **more: Any) -> dict[str, Any]:
    """The least that an item has, as an agent would write it."""
    return {
        "id": f"0190a5b0-0000-7000-8000-{number:012d}",
        "type": "episodic",
        "scope": {"tenant": "acme", "session": "s1"},
        "created_at": NOON.isoformat(),
        "updated_at": NOON.isoformat(),
        "confidence": 0.8,
        "provenance": {"source_uri": "session://s1"},
        "security_label": ["tenant:acme", "pii:low"],
        "content": TEXT,
        **more,
    }


def memory(number: int = 1, **more: Any) -> MemoryItem:
    return item(fields(number, **more))


def bound(made: Fabric, subject: Subject = ANNA) -> Namespace:
    return made.bind(subject, AllowAll())


def writer(made: Fabric, subject: Subject = ANNA) -> MemoryWriter:
    return MemoryWriter(bound(made, subject))
