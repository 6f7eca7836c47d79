"""Checks of arguments that are easily confused: a name where an object is wanted.

A text in the place of an object is the usual slip: the name of a model, the id of an item. It would
be found later, by the name of a method that it lacks. An error names the argument, what was given
and what to give instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from crp_integrations.errors import ConfigError, RequestError

Kind = TypeVar("Kind")
Several = TypeVar("Several", bound=Sequence[object])


class Wanted(NamedTuple):
    """What a part is known by, and what to give instead of something else."""

    attribute: str
    fix: str


def of_kind(value: object, kind: type[Kind], name: str, fix: str) -> Kind:
    """Return a value that must be of a kind."""
    if not isinstance(value, kind):
        raise RequestError(f"{name} is {seen(value, hidden=True)}; give {fix}")
    return value


def several(values: Several, name: str, fix: str) -> Several:
    """Return a value that must be a sequence of several.

    A single text would be read letter by letter, a set has an order of its own, and an iterator is
    empty afterwards.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        what = "one text" if isinstance(values, str) else seen(values, hidden=True)
        raise RequestError(f"{name} is {what}; give {fix}")
    return values


def aware_moment(value: object, name: str) -> datetime:
    """A moment with a time zone; one without could not be compared with stored moments."""
    moment = of_kind(value, datetime, name, "a datetime, as in datetime.now(UTC)")
    if moment.tzinfo is None:
        raise RequestError(f"{name} {moment.isoformat()} has no time zone; give it one")
    return moment


def refuse_part(name: str, part: object, wanted: Wanted, *, hidden: Collection[str] = ()) -> None:
    """Refuse a part that lacks the attribute its kind is known by."""
    # A class given instead of an object has the methods, but they cannot be called.
    if isinstance(part, type) or not hasattr(part, wanted.attribute):
        raise odd_part(name, part, wanted, hidden=hidden)


def odd_part(name: str, part: Any, wanted: Wanted, *, hidden: Collection[str] = ()) -> ConfigError:
    """The error for a part of the wrong kind."""
    return ConfigError(f"{name} is {seen(part, hidden=name in hidden)}; give {wanted.fix}")


def seen(value: object, *, hidden: bool) -> str:
    """What was given, in the words of an error."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str) and not hidden:
        return f"the text {value!r:.60}"
    return f"of type {type(value).__name__}"
