"""The JSON schema of a memory item, as it is published in `docs/schemas/`."""

from __future__ import annotations

import json
from typing import Any

from crp_integrations.governance.items import MemoryItem


def memory_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `MemoryItem` as it is written.

    Spec: Summit §Backlog Write 1
    """
    made = MemoryItem.model_json_schema()
    properties = {"schema": {"const": MemoryItem.SCHEMA}, **made.pop("properties")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": MemoryItem.SCHEMA,
        **made,
        "properties": properties,
    }


def written() -> str:
    """The published file's text."""
    return json.dumps(memory_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
