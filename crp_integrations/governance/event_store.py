"""The event log of memories, and other stores made anew from it.

A version of an item is a fact that is never written over, and the journal's chained event of each
names its signer, its content's hash and its provenance's. Vectors, the text index and the graph's
communities follow from the items; so a log that is read back makes all of them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from crp_integrations.audit.records import Event, Stub
from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.records import Fact, IngestReport
from crp_integrations.governance.items import MemoryItem, MemoryItemRef, as_fact, fact_of
from crp_integrations.governance.validity import Rebuilt, rebuild
from crp_integrations.governance.writing import MemoryWriter, PolicyContext


class Emptied(Protocol):
    """What a log is replayed into: a namespace that holds none of its items."""

    def put(self, facts: list[Fact], *, uris: dict[str, str] | None = None) -> IngestReport:
        """Add facts under their own ids."""
        ...

    def archive(self, ids: list[str]) -> object:
        """Put facts aside."""
        ...

    def state_hash(self) -> str:
        """Of what can be retrieved."""
        ...


class MemoryEventStore:
    """The append-only truth about one subject's memories.

    Spec: Summit §Storage Interfaces
    """

    def __init__(self, writer: MemoryWriter, context: PolicyContext) -> None:
        """Take the door that is written through, and who writes."""
        self._writer = writer
        self._context = context

    def append(self, item: MemoryItem) -> MemoryItemRef:
        """Append an item; nothing that was appended is ever changed.

        Spec: Summit §Storage Interfaces

        Raises:
            AccessDenied: tenant or signer are another's, or the guard denies writing these labels.
            FactRejected: the id is taken by another content; a correction has an id of its own.
        """
        return self._writer.write(item, self._context)

    def log(self, events: Iterable[Event | Stub]) -> Rebuilt:
        """Every item with its signed events, laid beside the journal, which decides.

        Args:
            events: the tenant's whole journal in its order, verified before.

        Raises:
            FactRejected: a memory was changed so that it makes no item any more; names the fact.
        """
        return rebuild(tuple(self._writer.items(strict=True)), events)


def replay(log: Rebuilt, into: Emptied) -> str:
    """Make a namespace anew from a log: its items with their signers, in the log's order.

    Spec: Summit §Storage Interfaces

    Returns:
        The state hash, which is the one of the namespace that the log is of, as far as that holds
        nothing but memories.

    Raises:
        StoreDamaged: an item has another content than the log names, or no signed event.
    """
    if log.unwitnessed:
        count = len(log.unwitnessed)
        raise StoreDamaged(
            f"memory item {log.unwitnessed[0]} is not what the event log names ({count} such); "
            "take what the log witnesses alone"
        )
    # One transaction, as one source each: nobody sees a half of it.
    facts = [as_fact(one) for one in _in_order(log)]
    uris = {as_fact(one).source_id: one.provenance.source_uri for one in log.items}
    if facts:
        into.put(facts, uris=uris)
    aside = [fact_of(name) for name in log.aside]
    if aside:
        into.archive(aside)
    return into.state_hash()


def _in_order(log: Rebuilt) -> Iterator[MemoryItem]:
    yield from sorted(log.items, key=lambda one: log.versions[one.id][0].seq)
