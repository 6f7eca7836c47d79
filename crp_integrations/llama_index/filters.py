"""Whether LlamaIndex's metadata filters hold, the same in every version of LlamaIndex.

Up to 0.14.20 at least, LlamaIndex's own check lacks operators and the condition NOT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)


def holds(filters: MetadataFilters | None, metadata: Mapping[str, Any]) -> bool:
    """Whether filters hold for metadata; a key that is missing equals nothing.

    Raises:
        TypeError: a filter's value and the metadata's cannot be compared.
        ValueError: filters are nested, or an operator or condition is not known.
    """
    if filters is None or not filters.filters:
        return True
    found = [_one(one, metadata) for one in filters.filters]
    condition = filters.condition or FilterCondition.AND
    if condition is FilterCondition.AND:
        return all(found)
    if condition is FilterCondition.OR:
        return any(found)
    if condition is FilterCondition.NOT:
        return not any(found)
    raise ValueError(f"condition {str(condition)!r:.40} is not known")


def _one(one: MetadataFilter | MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    if isinstance(one, MetadataFilters):
        raise ValueError("Nested filters are not supported")
    value, operator = metadata.get(one.key), one.operator
    if operator is FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return operator in (FilterOperator.NE, FilterOperator.NIN)
    if operator not in _CHECKS:
        raise ValueError(f"operator {str(operator)!r:.40} is not known")
    return bool(_CHECKS[operator](value, one.value))


def _text(name: str, fold: Callable[[str], str]) -> Callable[[Any, Any], bool]:
    def check(value: Any, wanted: Any) -> bool:
        if not isinstance(value, str) or not isinstance(wanted, str):
            raise TypeError(f"{name} compares texts, and one of the two is none")
        return fold(wanted) in fold(value)

    return check


_CHECKS: Final[dict[FilterOperator, Callable[[Any, Any], bool]]] = {
    FilterOperator.EQ: eq,
    FilterOperator.NE: ne,
    FilterOperator.GT: gt,
    FilterOperator.GTE: ge,
    FilterOperator.LT: lt,
    FilterOperator.LTE: le,
    FilterOperator.IN: lambda value, wanted: value in wanted,
    FilterOperator.NIN: lambda value, wanted: value not in wanted,
    FilterOperator.CONTAINS: lambda value, wanted: wanted in value,
    FilterOperator.ALL: lambda value, wanted: all(one in value for one in wanted),
    FilterOperator.ANY: lambda value, wanted: any(one in value for one in wanted),
    FilterOperator.TEXT_MATCH: _text("TEXT_MATCH", str),
    FilterOperator.TEXT_MATCH_INSENSITIVE: _text("TEXT_MATCH_INSENSITIVE", str.lower),
}
