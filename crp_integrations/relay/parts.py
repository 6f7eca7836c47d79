"""What a relay is put together from, looked at before anything is opened.

A text in the place of an object is the usual slip: the name of a model, a verifier or a tenant. It
would be found at the first call, by the name of a method that it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from crp_integrations.errors import ConfigError


class _Wanted(NamedTuple):
    """What a part is known by, and what to give in the place of another thing."""

    attribute: str
    fix: str


_PARTS: Final[Mapping[str, _Wanted]] = MappingProxyType(
    {
        "store": _Wanted("begin", "a folder, a postgresql:// address or a store object"),
        "subject": _Wanted("tenant", "a Subject, such as Subject(tenant='acme')"),
        "guard": _Wanted("decide", "a guard, or its settings as in guard={'policy': True}"),
        "embedder": _Wanted("embed_passages", "an Embedder; without one MiniLM is used"),
        "verifier": _Wanted(
            "judge", "a Verifier; one that ships is named as in dpe={'verifier': 'alignment'}"
        ),
        "reranker": _Wanted("scores", "a Reranker"),
        "injections": _Wanted("score", "an InjectionModel"),
        "policy": _Wanted("decide", "a PolicyEngine, or a safety policy as a text"),
        "models": _Wanted("call", "a Model; the name of one is given as in model='gpt-4o-mini'"),
        "tracer": _Wanted("step", "a Tracer or an Observer"),
        "clock": _Wanted("now", "a Clock, or the moment at which it stands still"),
        "ids": _Wanted("new", "an Ids"),
        "keyring": _Wanted(
            "master", "a KeyRing; a key by itself is given as key= with 64 hexadecimal digits"
        ),
        "reviewer": _Wanted("__call__", "a function of a report and a text"),
        "violations": _Wanted("take", "a ViolationSink"),
        "receiver": _Wanted("__call__", "a function of a report"),
        "artifacts": _Wanted(
            "create", "an ObjectStore, or its settings as in artifacts={'place': 's3://bucket'}"
        ),
        "settings": _Wanted(
            "digest", "Settings; single settings are given by their names, as in model='extractive'"
        ),
    }
)
# What stands for one of these by mistake may hold a key or a password; its type alone is told.
_SECRET: Final = frozenset({"artifacts", "keyring", "receiver", "settings", "store", "violations"})
_RECOGNISERS: Final = _Wanted("kinds", "a list of Recognisers")


def refuse_odd(*, recognisers: Any = (), **parts: Any) -> None:
    """Refuse a part that is none.

    Args:
        recognisers: wanted is a sequence of them.
        parts: by the names of `open_relay`'s arguments; None for one that is not given.

    Raises:
        ConfigError: names the argument, what was given and what to give.
    """
    for name, part in parts.items():
        if part is not None:
            _refuse(name, part, _PARTS[name])
    if isinstance(recognisers, str) or not isinstance(recognisers, Sequence):
        raise _error("recognisers", recognisers, _RECOGNISERS)
    for one in recognisers:
        _refuse("recognisers", one, _RECOGNISERS)


def _refuse(name: str, part: Any, wanted: _Wanted) -> None:
    # A class in the place of an object has the methods and cannot be asked.
    if isinstance(part, type) or not hasattr(part, wanted.attribute):
        raise _error(name, part, wanted)


def _error(name: str, part: Any, wanted: _Wanted) -> ConfigError:
    if isinstance(part, type):
        seen = f"the class {part.__name__}"
    elif isinstance(part, str) and name not in _SECRET:
        seen = f"the text {part!r:.60}"
    else:
        seen = f"of type {type(part).__name__}"
    return ConfigError(f"{name} is {seen}; give {wanted.fix}")
