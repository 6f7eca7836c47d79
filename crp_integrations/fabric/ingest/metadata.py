"""Metadata of other libraries as plain JSON, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from crp_integrations.errors import CRPError

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def plain(
    metadata: Mapping[Any, Any], *, name: str, refusal: type[CRPError]
) -> dict[str, JsonValue]:
    """Metadata as plain JSON that shares nothing with what was given.

    What would come back as something else than what went in, such as a tuple or a date, is
    refused rather than changed.

    Args:
        name: what it belongs to, for messages.
        refusal: what to raise.

    Raises:
        CRPError: of the class given; a key is no text or a value is no JSON, and the key is named.
    """
    made: dict[str, JsonValue] = {}
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise refusal(f"{name} has a metadata key of type {type(key).__name__}, wanted text")
        try:
            text = json.dumps(_JSON.validate_python(value), allow_nan=False, ensure_ascii=False)
            (key + text).encode()
            made[key] = json.loads(text)
        except (ValidationError, TypeError, ValueError, RecursionError):
            raise refusal(
                f"{name} has metadata {key!r:.40} of type {type(value).__name__} that is not plain "
                "JSON; wanted text, finite number, true, false, null, or lists and objects of them"
            ) from None
    return made
