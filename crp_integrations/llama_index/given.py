"""Fields of LlamaIndex's components, which pass over what they do not know."""

from __future__ import annotations

from typing import Any, Final

from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.llm import LLM

from crp_integrations.errors import RequestError

# What LlamaIndex writes beside a component's fields, to find its class again.
_WRITTEN: Final = "class_name"


def check_fields(component: type[BaseModel], given: Any) -> Any:
    """What was given, without LlamaIndex's own name of the class.

    Raises:
        RequestError: the component has no such field.
    """
    if not isinstance(given, dict):
        return given
    known = sorted(component.model_fields)
    for name in given:
        if name not in known and name != _WRITTEN:
            raise RequestError(
                f"{component.__name__} has no field {str(name)!r:.40}; it takes {', '.join(known)}"
            )
    return {name: value for name, value in given.items() if name != _WRITTEN}


def check_llm(given: object) -> None:
    """Check that an LLM of LlamaIndex was given.

    Raises:
        RequestError: it is something else, such as a model's name.
    """
    if not isinstance(given, LLM):
        raise RequestError(f"llm is {type(given).__name__}, wanted an LLM of LlamaIndex")
