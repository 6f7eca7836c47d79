"""Validity of memory items at a date, and the items as the event log has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from crp_integrations.audit.records import Event, Stub
from crp_integrations.governance.memory_items import MemoryItem
from crp_integrations.records import Part
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType


def holds_at(one: MemoryItem, moment: datetime) -> bool:
    """Whether an item by itself holds at a moment; the end of its validity is not in it."""
    begun = one.valid_from is None or one.valid_from <= moment
    return begun and (one.valid_to is None or moment < one.valid_to)


def valid_at(items: Iterable[MemoryItem], moment: datetime) -> tuple[MemoryItem, ...]:
    """The items that hold at a moment, by id.

    An item gives way to one that supersedes it wherever that one holds or was ever meant to: from
    its `valid_from` on. So an answer is right even where a writer was stopped between the new item
    and the end of the old one.

    Spec: Summit §Failure Modes & Mitigations
    """
    held = {one.id: one for one in items}
    replaced: set[str] = set()
    for one in held.values():
        if one.supersedes is not None and (one.valid_from is None or one.valid_from <= moment):
            replaced.add(one.supersedes)
    return tuple(
        held[id_] for id_ in sorted(held) if id_ not in replaced and holds_at(held[id_], moment)
    )


class ItemVersion(Part):
    """One event of the log about one item.

    Attributes:
        seq: place in the journal.
        signer: who wrote it; empty in an event that names no signer.
        content_hash: of what was written.
    """

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
    """Lay the journal's signed events beside what is stored: the log decides.

    Spec: Summit §Storage Interfaces
    """
    by_fact = {one.fact_id: one for one in items}
    found: dict[str, list[ItemVersion]] = {one.id: [] for one in items}
    aside: set[str] = set()
    for event in events:
        if not isinstance(event, Event):
            continue
        cause, named = event.data.get("cause"), event.data.get("facts", ())
        if cause == "archived":
            aside |= {by_fact[name].id for name in named if name in by_fact}
        back = named if cause == "restored" else event.data.get("active_again", ())
        aside -= {by_fact[name].id for name in back if name in by_fact}
        if event.event_type is not EventType.FACT_INGESTED:
            continue
        if "signer" not in event.data:
            continue
        for fact_id in named:
            if fact_id in by_fact:
                found[by_fact[fact_id].id].append(
                    ItemVersion(
                        seq=event.seq,
                        timestamp=event.timestamp,
                        signer=event.data["signer"],
                        content_hash=event.data.get("content_hash", ""),
                    )
                )
    witnessed, not_so = [], []
    for one in sorted(items, key=lambda one: one.id):
        versions = found[one.id]
        if versions and versions[-1].content_hash == sha256(one.text):
            witnessed.append(one)
        else:
            not_so.append(one.id)
    return RebuiltItems(
        items=tuple(witnessed),
        versions={id_: tuple(log) for id_, log in sorted(found.items())},
        unwitnessed=tuple(not_so),
        aside=tuple(sorted(aside)),
    )
