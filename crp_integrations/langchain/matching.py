"""Which values and which namespaces a search of LangGraph's store means."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langgraph.store.base import MatchCondition

from crp_integrations.errors import RequestError

_ANY: Final = "*"
_SIGN: Final = "$"
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def holds(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether every condition of a filter holds for a value.

    Args:
        wanted: keys with the values wanted, or with operators: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`,
            `$lte`. None means all.

    Raises:
        RequestError: there is no such operator, or the filter is no dict.
    """
    if wanted is not None and not isinstance(wanted, Mapping):
        raise RequestError(f"filter is {type(wanted).__name__}, wanted a dict of keys and values")
    return all(_same(value.get(key), one) for key, one in (wanted or {}).items())


def matches(path: Sequence[str], conditions: Sequence[MatchCondition] | None) -> bool:
    """Whether a namespace begins and ends as it is wanted; `*` stands for any one label.

    Raises:
        RequestError: a condition is neither a prefix nor a suffix.
    """
    return all(_fits(path, condition) for condition in conditions or ())


def _fits(path: Sequence[str], condition: MatchCondition) -> bool:
    wanted = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise RequestError(
            f"match type {str(condition.match_type)!r:.40} is neither prefix nor suffix"
        )
    if len(path) < len(wanted):
        return False
    begin = 0 if condition.match_type == "prefix" else len(path) - len(wanted)
    part = path[begin : begin + len(wanted)]
    return all(one in (_ANY, label) for one, label in zip(wanted, part, strict=True))


def _same(value: Any, wanted: Any) -> bool:
    """Equality as of JSON documents; an object wanted may leave keys out."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith(_SIGN) for key in wanted):
            return all(_compared(value, str(sign), bound) for sign, bound in wanted.items())
        return isinstance(value, Mapping) and all(
            _same(value.get(key), one) for key, one in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_same(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compared(value: Any, sign: str, bound: Any) -> bool:
    if sign == "$eq":
        return _same(value, bound)
    if sign == "$ne":
        return not _same(value, bound)
    order = _ORDERS.get(sign)
    if order is None:
        wanted = ", ".join(("$eq", "$ne", *_ORDERS))
        raise RequestError(f"operator {sign!r:.40} is not one of {wanted}")
    try:
        # Numbers in words are numbers, as in the stores of LangGraph.
        return order(float(value), float(bound))
    except (TypeError, ValueError):
        return isinstance(value, str) and isinstance(bound, str) and order(value, bound)
