"""The JSON schema of a receipt's content, as published in `docs/schemas/`."""

from __future__ import annotations

import json
from typing import Any

from crp_integrations.receipt.predicate import SCHEMA, Content


def content_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the predicate's `content` as it is signed."""
    made = Content.model_json_schema()
    made["properties"]["schema"] = {"const": SCHEMA}
    # What a reader refuses to be without: every key is written, also where it says nothing.
    made["required"] = sorted(made["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **made}


def written() -> str:
    """The published file's text."""
    return json.dumps(content_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
