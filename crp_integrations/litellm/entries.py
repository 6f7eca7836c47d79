"""Entries of a model list: checked before LiteLLM takes them, read from its router afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.engines.litellm_versions import entries_of
from crp_integrations.errors import RequestError

_SHAPE = "{'model_name': …, 'litellm_params': {'model': …}}"


def check_entries(given: object) -> None:
    """Check the shape of a model list.

    Args:
        given: may be empty; then every call is refused by the name of its group.

    Raises:
        RequestError: it is no list of entries, or one lacks what LiteLLM needs; says which.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise RequestError(f"model_list is {type(given).__name__}, wanted a list of {_SHAPE}")
    for number, entry in enumerate(given, 1):
        params = entry.get("litellm_params") if isinstance(entry, Mapping) else None
        if not isinstance(params, Mapping):
            raise RequestError(f"entry {number} of model_list is not of the form {_SHAPE}")
        for name, value in (
            ("model_name", entry.get("model_name")),
            ("model", params.get("model")),
        ):
            if not isinstance(value, str) or not value:
                raise RequestError(f"entry {number} of model_list names no {name}; give {_SHAPE}")


def first_model(router: Any, group: str) -> str:
    """The model of a group's first deployment, which the hook replaces by the real one."""
    for entry in entries_of(router, group):
        info = entry.get("model_info") or {}
        return str(info.get("base_model") or entry["litellm_params"]["model"])
    return group
