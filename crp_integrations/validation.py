"""Checks of arguments that are easily confused: a name where an object is expected.

The usual slip is a text instead of an object, such as the name of a model or the id of an item.
Unchecked, it would fail later as a missing method. An error names the argument, the value given
and what to give instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from crp_integrations.errors import ConfigError, RequestError

Kind = TypeVar("Kind")
Several = TypeVar("Several", bound=Sequence[object])


class Wanted(NamedTuple):
    """The attribute by which a valid part is recognised, and what to give instead."""

    attribute: str
    fix: str


def of_kind(value: object, kind: type[Kind], name: str, fix: str) -> Kind:
    """Return the value; raise `RequestError` unless it is of this type."""
    if not isinstance(value, kind):
        raise RequestError(f"{name} is {seen(value, hidden=True)}; give {fix}")
    return value


def require_settings(
    settings: object, kind: type[Kind], default: Callable[[], Kind] | None = None
) -> Kind:
    """Return the settings, or the default for None; raise `ConfigError` unless of this type."""
    if settings is None:
        return (default or kind)()
    if not isinstance(settings, kind):
        what = f"{kind.__name__} of {kind.__module__}"
        raise ConfigError(f"settings is {seen(settings, hidden=True)}; give {what}, or nothing")
    return settings


def several(values: Several, name: str, fix: str) -> Several:
    """Return the values; raise `RequestError` unless they are a sequence other than a text.

    A single text would be read letter by letter, a set has no fixed order, and an iterator can be
    read only once.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        what = "one text" if isinstance(values, str) else seen(values, hidden=True)
        raise RequestError(f"{name} is {what}; give {fix}")
    return values


def aware_moment(value: object, name: str) -> datetime:
    """Return the moment; raise without a time zone, as stored moments have one to compare with."""
    moment = of_kind(value, datetime, name, "a datetime, as in datetime.now(UTC)")
    if moment.tzinfo is None:
        raise RequestError(f"{name} {moment.isoformat()} has no time zone; give it one")
    return moment


def refuse_part(name: str, part: object, wanted: Wanted, *, hidden: Collection[str] = ()) -> None:
    """Raise `ConfigError` if a part lacks the attribute by which its kind is recognised."""
    # A class given instead of an instance has the attribute, but its methods cannot be called.
    if isinstance(part, type) or not hasattr(part, wanted.attribute):
        raise odd_part(name, part, wanted, hidden=hidden)


def odd_part(name: str, part: Any, wanted: Wanted, *, hidden: Collection[str] = ()) -> ConfigError:
    """The error for a part of the wrong kind."""
    return ConfigError(f"{name} is {seen(part, hidden=name in hidden)}; give {wanted.fix}")


def seen(value: object, *, hidden: bool) -> str:
    """Describe a value for an error message; `hidden` leaves its text out."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str) and not hidden:
        return f"the text {value!r:.60}"
    return f"of type {type(value).__name__}"
