"""What a relay is put together from, checked before it opens."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from crp_integrations import weights
from crp_integrations.errors import AccessDenied, EngineError, StoreDamaged, StoreError, StoreNewer
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.given import Wanted, odd_part, refuse_part
from crp_integrations.weights.manifest import PACKAGE, has_manifest, verify_code

_COMPONENTS: Final[Mapping[str, Wanted]] = MappingProxyType(
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


def check_components(*, recognisers: Any = (), **parts: Any) -> None:
    """Refuse a part that is none."""
    for name, part in parts.items():
        if part is not None:
            refuse_part(name, part, _COMPONENTS[name], hidden=_SECRET)
    if isinstance(recognisers, str) or not isinstance(recognisers, Sequence):
        raise odd_part("recognisers", recognisers, _RECOGNISERS)
    for one in recognisers:
        refuse_part("recognisers", one, _RECOGNISERS)


@cache
def verified_engine() -> bool:
    """Check the engine's code and every shipped weight, once a process.

    Spec: CRP-SPEC-005 §21.1 (decision D19)
    """
    root = Path(str(files(PACKAGE)))
    checked = verify_code(root, installed=has_manifest())
    for name in weights.names():
        weights.load(name)
    return checked


_LOG = logging.getLogger("crp_integrations.relay")


def maintain_due(namespace: Namespace) -> None:
    """Do what is due; what stands in the way of it keeps nobody out.

    A standby, a login or a file that is only read can still be looked into.

    Spec: CRP-SPEC-009 §8
    """
    try:
        # Opening does not wait for a graph; writing builds it, and so does `crp fabric maintain`.
        namespace.maintain(graph=False)
    except (StoreDamaged, StoreNewer):
        raise
    except (StoreError, AccessDenied, EngineError) as error:
        _LOG.warning("maintenance on opening was put off: %s", error)
