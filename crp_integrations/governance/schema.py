"""The JSON schemas of memory items and runtime states, as published in `docs/schemas/`."""

from __future__ import annotations

import json
from typing import Any

from crp_integrations.governance.items import MemoryItem
from crp_integrations.governance.state import RuntimeState
from crp_integrations.records import Record


def memory_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `MemoryItem` as it is written.

    Spec: Summit §Backlog Write 1
    """
    return _schema(MemoryItem)


def state_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `RuntimeState` as it is written.

    Spec: Summit §Isolation Strategy
    """
    return _schema(RuntimeState)


def written(schema: dict[str, Any] | None = None) -> str:
    """The published file's text; None for a memory item's."""
    said = memory_schema() if schema is None else schema
    return json.dumps(said, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _schema(record: type[Record]) -> dict[str, Any]:
    made = record.model_json_schema()
    properties = {"schema": {"const": record.SCHEMA}, **made.pop("properties")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": record.SCHEMA,
        **made,
        "properties": properties,
    }
