"""What facts are brought into: one namespace, on behalf of one subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from crp_integrations.fabric.ports import FactsFacet, Notify, Transaction
from crp_integrations.fabric.ports.scratch import Scratch
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.ports import Clock, Embedder, TokenCounter, Tracer


@dataclass(frozen=True, slots=True)
class Into:
    """Where facts go to and what that needs, in whichever way they come.

    Attributes:
        begin: opens a transaction of the namespace; true for a writing one.
        key: gives the journal's key, 32 bytes; asked for when there is something to write, since
            a key that is not there yet is made.
        allow: raises AccessDenied when things with these labels may not be written.
        check: raises ConfigError when the stored vectors are of another embedder.
        hash_in: the state hash as a transaction sees it.
        notify: is told which facts of a source that was stored before have changed or came back.
        check_shared: raises AccessDenied for facts, given and stored, that say something else than
            a shared fact of their id.
        scratch: gives a place for passages of long documents; None for a store without one.
    """

    namespace: str
    begin: Callable[[bool], AbstractContextManager[Transaction]]
    embedder: Embedder
    counter: TokenCounter
    clock: Clock
    key: Callable[[], bytes]
    settings: FabricSettings
    tracer: Tracer
    allow: Callable[[tuple[str, ...]], None]
    check: Callable[[FactsFacet], None]
    hash_in: Callable[[FactsFacet], str]
    notify: Notify
    check_shared: Callable[[Iterable[Fact], Iterable[Fact]], None]
    scratch: Callable[[], Scratch | None]
