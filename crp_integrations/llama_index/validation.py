"""Checks of arguments that LlamaIndex's components pass over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.llm import LLM
from llama_index.core.schema import NodeWithScore

from crp_integrations.errors import RequestError

# What LlamaIndex writes beside a component's fields, to find its class again.
_WRITTEN: Final = "class_name"


def check_fields(component: type[BaseModel], given: Any) -> Any:
    """What was given, without LlamaIndex's own name of the class."""
    if not isinstance(given, dict):
        return given
    known = sorted(component.model_fields)
    for name in given:
        if name not in known and name != _WRITTEN:
            raise RequestError(
                f"{component.__name__} has no field {str(name)!r:.40}; it takes {', '.join(known)}"
            )
    return {name: value for name, value in given.items() if name != _WRITTEN}


def check_nodes(given: object) -> list[NodeWithScore]:
    """Check that nodes as a retriever finds them were given."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise RequestError(f"nodes is {type(given).__name__}, wanted a list of NodeWithScore")
    for number, one in enumerate(given, 1):
        if not isinstance(one, NodeWithScore):
            raise RequestError(f"node {number} is {type(one).__name__}; give NodeWithScore(node=…)")
    return list(given)


def check_llm(given: object) -> None:
    """Check that an LLM of LlamaIndex was given."""
    if not isinstance(given, LLM):
        raise RequestError(f"llm is {type(given).__name__}, wanted an LLM of LlamaIndex")
