"""Carrying out an ingestion within one writing transaction, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.communities.schedule import note_new_facts
from crp_integrations.fabric.epoch import EMBEDDER_SETTING
from crp_integrations.fabric.ingest.changes import Change
from crp_integrations.fabric.ingest.importance import importance
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.records import Fact, Source
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType, FactStatus

Row = npt.NDArray[np.float32]
# Facts written, or read, at once; and the most ids in one event of the journal.
_STEP = 512
_EVENT_IDS = 10_000


class OvertakenError(StoreBusy):
    """Another writer changed what an ingestion had read or prepared."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """A change and what it adds.

    Attributes:
        ids: of the new facts, in order.
        facts: makes the new facts in that order, anew at every call.
    """

    change: Change
    ids: Sequence[str]
    facts: Callable[[], Iterator[Fact]]


@dataclass(frozen=True, slots=True)
class Insert:
    """One writing transaction of an ingestion.

    Attributes:
        embedder: identity of the embedder.
        rows: vectors by content hash; where one is missing it lies prepared in the store.
        allow: raises AccessDenied when things with these labels may not be written.
        stored: is told how many more facts were written.
    """

    transaction: Transaction
    embedder: str
    rows: Mapping[str, Row]
    settings: FabricSettings
    allow: Callable[[tuple[str, ...]], None]
    now: datetime
    stored: Callable[[int], None]

    def carry_out(self, insertions: Sequence[Insertion]) -> None:
        """Write sources, facts, vectors and statuses.

        Raises:
            OvertakenError: a prepared vector is no longer there.
        """
        facts = self.transaction.facts
        for insertion in insertions:
            change = insertion.change
            facts.add_source(change.source)
            if insertion.ids and facts.setting(EMBEDDER_SETTING) is None:
                facts.set_setting(EMBEDDER_SETTING, self.embedder)
            made = insertion.facts()
            while part := list(islice(made, _STEP)):
                self._add(facts, part, change)
                self.stored(len(part))
            for start in range(0, len(change.restored), _STEP):
                # As `restore`: the moment of return is kept, or disuse would archive them again.
                back = facts.get(change.restored[start : start + _STEP])
                facts.replace(
                    [fact.changed(archived_at=None, modified_at=self.now) for fact in back]
                )
            for status, ids in (
                (FactStatus.STALE, change.vanished),
                (FactStatus.ACTIVE, change.returned),
            ):
                for start in range(0, len(ids), _STEP):
                    facts.set_status(ids[start : start + _STEP], status, self.now)
            self._relabel(facts, change)
            note_new_facts(facts, len(insertion.ids))

    def _add(self, facts: FactsFacet, part: Sequence[Fact], change: Change) -> None:
        rows = self._vectors(facts, part, change)
        buried = [fact.fact_id for fact in part if fact.fact_id in change.revived]
        if buried:
            # There is no way out of DELETED: the row goes and another one comes.
            facts.remove(buried)
        facts.add(part, rows)

    def _vectors(self, facts: FactsFacet, part: Sequence[Fact], change: Change) -> FloatRows:
        """The rows of some facts: from memory, from facts of equal text, or prepared ones."""
        hashes = dict.fromkeys(fact.content_hash for fact in part)
        copied = [said for said in hashes if said not in self.rows and said in change.known]
        prepared = [said for said in hashes if said not in self.rows and said not in change.known]
        rows: dict[str, Row] = {said: self.rows[said] for said in hashes if said in self.rows}
        if copied:
            block = facts.vectors([change.known[said] for said in copied])
            rows.update(zip(copied, block, strict=True))
        if prepared:
            rows.update(facts.prepared(self.embedder, prepared))
        missing = len(hashes) - len(rows)
        if missing:
            raise OvertakenError(f"{missing} prepared vectors were used up by another writer")
        return np.stack([rows[fact.content_hash] for fact in part])

    def _relabel(self, facts: FactsFacet, change: Change) -> None:
        """Give the facts of a source its new kind, labels, metadata, ttl; texts stay.

        What a fact's metadata say that its source did not stays as well.
        """
        source, ids = change.source, change.relabelled
        for start in range(0, len(ids), _STEP):
            old = facts.get(ids[start : start + _STEP])
            for labels in sorted({fact.labels for fact in old}):
                self.allow(labels)
            before = change.metadata
            described = {
                fact.fact_id: {
                    **{
                        name: value
                        for name, value in fact.metadata.items()
                        if name not in before or before[name] != value
                    },
                    **source.metadata,
                }
                for fact in old
            }
            again = [
                fact.changed(
                    labels=source.labels,
                    kind=source.kind,
                    importance_weight=fact.importance_weight
                    if fact.kind is source.kind
                    else weighed(source, fact.content, heading_of(fact), self.settings),
                    metadata=described[fact.fact_id],
                    ttl=change.ttl or fact.ttl,
                    modified_at=self.now,
                )
                for fact in old
                if (fact.labels, fact.kind, fact.metadata, fact.ttl)
                != (
                    source.labels,
                    source.kind,
                    described[fact.fact_id],
                    change.ttl or fact.ttl,
                )
            ]
            if again:
                facts.replace(again)

    def tell(self, insertions: Sequence[Insertion], before: str, after: str, key: bytes) -> None:
        """Put into the journal what every source brought: ids, hashes and counts alone."""
        for insertion in insertions:
            # One by one, since each may hold thousands of ids.
            for data in _events(insertion.change, insertion.ids):
                draft = EventDraft(EventType.FACT_INGESTED, data)
                append_events(self.transaction.journal, key, [draft], iso(self.now))
        if after != before:
            told = {"before": before, "after": after, "cause": "ingested"}
            draft = EventDraft(EventType.CKF_ETAG_CHANGED, told)
            append_events(self.transaction.journal, key, [draft], iso(self.now))


def weighed(source: Source, content: str, heading: str, settings: FabricSettings) -> float:
    """The importance weight of a passage of a source.

    Spec: CRP-SPEC-009 §4.4
    """
    return importance(
        source.kind,
        content=content,
        settings=settings.importance,
        heading=heading,
        title=source.title,
        uri=source.uri,
        metadata=source.metadata,
    )


def heading_of(fact: Fact) -> str:
    """The headings in a location as chunking writes it, pages and offsets left out."""
    parts = fact.source_location.split(" · ")[:-1]
    if parts and parts[0].startswith("p. "):
        del parts[0]
    return " · ".join(parts)


def _events(change: Change, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the journal is told of one source; a long list of ids goes on in further events."""
    base = {
        "source": change.source.source_id,
        "document_hash": change.source.document_hash,
    }
    rest = {
        "active_again": tuple(sorted({*change.returned, *change.restored})),
        "stale": change.vanished,
        "relabelled": change.relabelled,
    }
    longest = max(len(ids), *(len(told) for told in rest.values()))
    for start in range(0, max(1, longest), _EVENT_IDS):
        part = slice(start, start + _EVENT_IDS)
        data: dict[str, Any] = {**base, "facts": list(ids[part])}
        for name, told in rest.items():
            # The facts that came and went are always listed, so that a reader need not ask.
            if told[part] or (start == 0 and name != "relabelled"):
                data[name] = list(told[part])
        yield data
