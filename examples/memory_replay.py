"""The log of memories is the truth: a store is made anew from it, with the same state hash.

Run it as it stands: `python examples/memory_replay.py`. It needs no key. Every version of a memory
is a fact that is never overwritten, and its chained event in the journal names its signer and its
content's hash. Vectors, text index and communities follow from the items.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from crp_integrations import Relay
from crp_integrations.audit.records import Event, Stub
from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.memory_items import MemoryItem, as_fact, fact_of, item
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext
from crp_integrations.records import Part
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import EventType

MAY, JUNE = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
KEY = "ab" * 32
TEXTS = (
    "The pump in hall four was replaced after the inspection of the boiler.",
    "The boiler in hall four is inspected every second year in spring.",
    "The boiler in hall four is inspected every year in spring.",
)


class ItemVersion(Part):
    """One event of the log about one item."""

    seq: int
    timestamp: str
    signer: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class RebuiltItems:
    """Items as the log has them.

    Attributes:
        items: those whose stored content is what the last event about them names, by id.
        versions: the log of each item, oldest first.
        unwitnessed: ids of items that no signed event names, or another content than theirs.
        aside: ids of items that were corrected, retracted or put aside and not brought back.
    """

    items: tuple[MemoryItem, ...]
    versions: Mapping[str, tuple[ItemVersion, ...]]
    unwitnessed: tuple[str, ...]
    aside: tuple[str, ...] = ()


def rebuild(items: Sequence[MemoryItem], events: Iterable[Event | Stub]) -> RebuiltItems:
    """Lay the journal's signed events beside what is stored: the log decides."""
    by_fact = {each.fact_id: each for each in items}
    versions: dict[str, list[ItemVersion]] = {each.id: [] for each in items}
    aside: set[str] = set()
    for event in events:
        if not isinstance(event, Event):
            continue
        data, cause = event.data, event.data.get("cause")
        named = [by_fact[name].id for name in data.get("facts", ()) if name in by_fact]
        again = [by_fact[name].id for name in data.get("active_again", ()) if name in by_fact]
        if cause == "archived":
            aside |= set(named)
        aside -= set(named if cause == "restored" else again)
        if event.event_type is EventType.FACT_INGESTED and "signer" in data:
            version = ItemVersion(
                seq=event.seq,
                timestamp=event.timestamp,
                signer=data["signer"],
                content_hash=data.get("content_hash", ""),
            )
            for id_ in named:
                versions[id_].append(version)
    log = {id_: tuple(each) for id_, each in sorted(versions.items())}
    every = sorted(items, key=lambda each: each.id)
    witnessed = [
        each
        for each in every
        if log[each.id] and log[each.id][-1].content_hash == sha256(each.text)
    ]
    known = {each.id for each in witnessed}
    return RebuiltItems(
        items=tuple(witnessed),
        versions=log,
        unwitnessed=tuple(each.id for each in every if each.id not in known),
        aside=tuple(sorted(aside)),
    )


def replay(log: RebuiltItems, into: Namespace) -> str:
    """Make a namespace anew from a log: its items with their signers, in the log's order.

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
    items = sorted(log.items, key=lambda item: log.versions[item.id][0].seq)
    facts = [as_fact(item) for item in items]
    if facts:
        pairs = zip(facts, items, strict=True)
        into.put(facts, uris={fact.source_id: item.provenance.source_uri for fact, item in pairs})
    if log.aside:
        into.archive([fact_of(name) for name in log.aside])
    return into.state_hash()


def memory(text: str, tenant: str) -> MemoryItem:
    return item(
        {
            "id": str(uuid5(NAMESPACE_URL, text)),
            "type": "episodic",
            "scope": {"tenant": tenant},
            "created_at": MAY,
            "updated_at": MAY,
            "confidence": 0.9,
            "provenance": {"source_uri": "session://s1"},
            "security_label": ["class:internal"],
            "content": text,
        }
    )


def main() -> None:
    store = MemoryStore()
    with Relay.open(store, key=KEY) as relay, Relay.open(MemoryStore(), key=KEY) as other:
        subject = relay.fabric.subject
        writer, context = MemoryWriter(relay.fabric), PolicyContext(subject=subject)
        pump, wrong, right = (memory(text, subject.tenant) for text in TEXTS)
        writer.write(pump, context)
        writer.write(wrong, context)
        writer.correct(wrong.id, right, context, since=JUNE)
        with store.begin(subject.tenant, write=False) as transaction:
            log = rebuild(tuple(writer.items(strict=True)), transaction.journal.events())
        print(f"{len(log.items)} memories, {len(log.aside)} of them corrected")
        for name, versions in log.versions.items():
            print(f"  {name[:8]} signed by {versions[-1].signer}, event {versions[-1].seq}")
        same = replay(log, other.fabric) == relay.fabric.state_hash()
        print(f"made anew from the log, the same state: {same}")


if __name__ == "__main__":
    main()
