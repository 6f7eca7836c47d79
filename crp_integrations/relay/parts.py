"""What a relay is put together from, looked at before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.given import Wanted, odd_part, refuse_part

_PARTS: Final[Mapping[str, Wanted]] = MappingProxyType(
    {
        "store": Wanted("begin", "a folder, a postgresql:// address or a store object"),
        "subject": Wanted("tenant", "a Subject, such as Subject(tenant='acme')"),
        "guard": Wanted("decide", "a guard, or its settings as in guard={'policy': True}"),
        "embedder": Wanted("embed_passages", "an Embedder; without one MiniLM is used"),
        "verifier": Wanted(
            "judge", "a Verifier; one that ships is named as in dpe={'verifier': 'alignment'}"
        ),
        "reranker": Wanted("scores", "a Reranker"),
        "injections": Wanted("score", "an InjectionModel"),
        "policy": Wanted("decide", "a PolicyEngine, or a safety policy as a text"),
        "models": Wanted("call", "a Model; the name of one is given as in model='gpt-4o-mini'"),
        "tracer": Wanted("step", "a Tracer or an Observer"),
        "clock": Wanted("now", "a Clock, or the moment at which it stands still"),
        "ids": Wanted("new", "an Ids"),
        "keyring": Wanted(
            "master", "a KeyRing; a key by itself is given as key= with 64 hexadecimal digits"
        ),
        "reviewer": Wanted("__call__", "a function of a report and a text"),
        "violations": Wanted("take", "a ViolationSink"),
        "receiver": Wanted("__call__", "a function of a report"),
        "artifacts": Wanted(
            "create", "an ObjectStore, or its settings as in artifacts={'place': 's3://bucket'}"
        ),
        "settings": Wanted(
            "digest", "Settings; single settings are given by their names, as in model='extractive'"
        ),
    }
)
# What stands for one of these by mistake may hold a key or a password; its type alone is told.
_SECRET: Final = frozenset({"artifacts", "keyring", "receiver", "settings", "store", "violations"})
_RECOGNISERS: Final = Wanted("kinds", "a list of Recognisers")


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
            refuse_part(name, part, _PARTS[name], hidden=_SECRET)
    if isinstance(recognisers, str) or not isinstance(recognisers, Sequence):
        raise odd_part("recognisers", recognisers, _RECOGNISERS)
    for one in recognisers:
        refuse_part("recognisers", one, _RECOGNISERS)
