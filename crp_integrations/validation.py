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


def of_kind(given: object, kind: type[Kind], name: str, fix: str) -> Kind:
    """Return a value that must be of a kind."""
    if not isinstance(given, kind):
        raise RequestError(f"{name} is {seen(given, hidden=True)}; give {fix}")
    return given


def several(given: Several, name: str, fix: str) -> Several:
    """Return a value that must be a sequence of several.

    A single text would be read letter by letter, a set has an order of its own, and an iterator is
    empty afterwards.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        what = "one text" if isinstance(given, str) else seen(given, hidden=True)
        raise RequestError(f"{name} is {what}; give {fix}")
    return given


def aware_moment(given: object, name: str) -> datetime:
    """A moment with a time zone; one without could not be compared with stored moments."""
    moment = of_kind(given, datetime, name, "a datetime, as in datetime.now(UTC)")
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


def seen(given: object, *, hidden: bool) -> str:
    """What was given, in the words of an error."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if isinstance(given, str) and not hidden:
        return f"the text {given!r:.60}"
    return f"of type {type(given).__name__}"
