"""What LangGraph's store is given, looked at: names, paths and times to live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, cast

from langgraph.store.base import TTLConfig

from crp_integrations.errors import RequestError
from crp_integrations.langchain.values import Labels


def labels_of(path: Any) -> Labels:
    """A namespace or a prefix of one; a text in its place would be read letter by letter.

    Raises:
        RequestError: it is no list of texts.
    """
    if isinstance(path, str):
        raise RequestError(f"namespace is the text {path!r:.60}; give a tuple, as ({path!r:.60},)")
    if not isinstance(path, Iterable):
        raise RequestError(f"namespace is {type(path).__name__}, wanted a tuple of names")
    labels = tuple(path)
    for label in labels:
        if not isinstance(label, str):
            raise RequestError(f"namespace {labels!r:.80} holds {label!r:.40}, wanted names alone")
    return labels


def paths_of(name: str, given: Any) -> tuple[str, ...]:
    """Paths of a value by which a query finds it; none where nothing is given.

    Args:
        name: of the argument.

    Raises:
        RequestError: it is no list of texts.
    """
    if given is None and name == "index":
        return ()
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        shown = f"the text {given!r:.40}" if isinstance(given, str) else type(given).__name__
        rest = ", or False for a value that no query finds" if name == "index" else ""
        raise RequestError(f"{name} is {shown}; give a list of paths, as {name}=['text']{rest}")
    paths = tuple(given)
    for path in paths:
        if not isinstance(path, str):
            raise RequestError(f"{name} holds {path!r:.40}, wanted paths as texts")
    return paths


def minutes_of(ttl: Any) -> float | None:
    """How long an item lives; None for ever.

    Raises:
        RequestError: it is no number.
    """
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, Real):
        raise RequestError(f"ttl is {ttl!r:.40}, wanted a number of minutes")
    return float(ttl)


def checked_ttl(given: Any) -> TTLConfig | None:
    """How long items live where `put` does not say it.

    Raises:
        RequestError: it is no such dict; a misspelt key would let items live for ever.
    """
    if given is None:
        return None
    known = sorted(TTLConfig.__annotations__)
    if not isinstance(given, Mapping):
        raise RequestError(
            f"ttl is {type(given).__name__}; give a dict, as ttl={{'default_ttl': 60}}, in minutes"
        )
    for name in given:
        if name not in known:
            raise RequestError(f"ttl has no key {name!r:.40}; it takes {', '.join(known)}")
    minutes_of(given.get("default_ttl"))
    return cast(TTLConfig, dict(given))
