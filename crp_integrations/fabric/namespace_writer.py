"""Shared operations for all changes of one namespace, on behalf of one subject.

A change reads and decides within its write transaction, so nothing can change in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import Event
from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.fact_preparation import (
    TextEmbedding,
    check_fact_list,
    check_length,
    filled_fact,
    with_own_source,
)
from crp_integrations.fabric.namespace_reader import (
    NamespaceReader,
    SharedNamespaceReader,
    refuse_other_text,
    refuse_shared,
)
from crp_integrations.fabric.ports import Cache, FactsFacet, Transaction
from crp_integrations.fabric.records import USER_SOURCE, Fact, Source
from crp_integrations.fabric.region import PREFIX
from crp_integrations.guard.decisions import Action, Guard, Subject, require
from crp_integrations.language import memo
from crp_integrations.ports import embedder_of_tenant
from crp_integrations.seals import iso, sha256
from crp_integrations.vocabulary import EventType, FactStatus, SourceKind

# Maximum number of ids in one journal event.
_EVENT_IDS = 10_000


@dataclass(frozen=True, slots=True)
class NamespaceScrub:
    """A namespace whose sessions may have used facts of another namespace.

    Attributes:
        begin: opens a write transaction of the namespace.
        scrub: scrubs removed bytes of it from disk; False if an open reader prevents it.
    """

    begin: Callable[[], AbstractContextManager[Transaction]]
    scrub: Callable[[], bool]


class NamespaceWriter:
    """Gives changes of a namespace access checks, the stored facts, and the journal.

    Attributes:
        namespace: name of the namespace in the store.
        region: region of the namespace.
        allow: raises AccessDenied if facts with these labels may not be written.
        require: raises AccessDenied if an action on facts with these labels is denied.
        may_read: whether the subject may read facts with exactly these labels.
        check: raises ConfigError if the stored vectors are of another embedder.
        check_shared: raises AccessDenied if a new or stored fact has another text than the shared
            fact with the same id.
        refuse_shared: raises AccessDenied for facts, or a source, of a shared namespace.
    """

    def __init__(
        self,
        own: NamespaceReader,
        shared: Sequence[SharedNamespaceReader],
        subject: Subject,
        guard: Guard,
    ) -> None:
        region = own.region
        self.namespace = own.name
        self.region = region
        self.embedder = embedder_of_tenant(region.embedder, own.name)
        self.counter = region.counter
        self.clock = region.clock
        self.settings = region.settings
        self.tracer = region.tracer
        self.notify = region.notify
        self.check = region.check_embedder
        self.require = partial(require, guard, subject)
        self.allow = partial(require, guard, subject, "write")
        self.may_read = own.gate().may_read
        self.check_shared = partial(refuse_other_text, shared)
        self.refuse_shared = partial(refuse_shared, shared)

    def begin(self, write: bool) -> AbstractContextManager[Transaction]:
        """Begin a transaction of the namespace."""
        return self.region.begin(self.namespace, write=write)

    def key(self) -> bytes:
        """The journal's key; call it only before a write, since a missing key is created."""
        return self.region.key(self.namespace)

    def hash_in(self, facts: FactsFacet) -> str:
        """The state hash as a transaction sees it."""
        return self.region.namespace_state(self.namespace).hash_in(facts)

    def cache(self) -> Cache | None:
        """The cache for derived files; None for a store without files."""
        return self.region.store.cache(self.namespace)

    def scrub(self) -> bool:
        """Scrub removed bytes from disk; False if an open reader prevents it."""
        return self.region.store.scrub(self.namespace)

    @property
    def embedding(self) -> TextEmbedding:
        """The embedding of texts for the namespace."""
        return TextEmbedding(self.begin, self.check, self.embedder, self.clock, self.settings)

    def prepared(self, facts: Sequence[Fact | str], kind: SourceKind | None) -> list[Fact]:
        """Check facts and return them as they would be stored, each id once.

        Spec: CRP-SPEC-009 §2.1, §4.5
        """
        check_fact_list(facts)
        now, prepared = self.clock.now(), dict[str, Fact]()
        filled = [
            filled_fact(item, number, self.namespace, kind, now, self.settings)
            for number, item in enumerate(facts, 1)
        ]
        counts = self.counter.count_many([fact.content for fact in filled])
        for number, (fact, tokens) in enumerate(zip(filled, counts, strict=True), 1):
            check_length(f"fact {number} has", tokens, self.settings.chunking)
            self.allow(fact.labels)
            prepared.setdefault(fact.fact_id, fact)
        return with_own_source(list(prepared.values()))

    # --- beyond the namespace ----------------------------------------------------------

    def readers(self) -> Iterator[NamespaceScrub]:
        """For a shared namespace: all tenants' namespaces, whose sessions may have used it."""
        store = self.region.store
        if self.namespace.startswith(PREFIX):
            for name in store.namespaces():
                if not name.startswith(PREFIX):
                    yield NamespaceScrub(
                        begin=partial(self.region.begin, name, write=True),
                        scrub=partial(store.scrub, name),
                    )

    def forget_held(self, source_id: str) -> None:
        """Remove an erased source's content from the memory of the process."""
        # Recent uses contain community labels made of facts' words. Every tenant reads a shared
        # namespace, so for one they are cleared for all.
        shared = self.namespace.startswith(PREFIX)
        self.region.recent_uses.clear(None if shared else self.namespace)
        memo.forget()
        self.region.session_memory.forget_source(self.namespace, source_id)

    def erase_elsewhere(self, ids: Sequence[str]) -> None:
        """Erase derived content outside of the store; for shared facts, that of all tenants."""
        region = self.region
        if region.elsewhere is not None:
            shared = self.namespace.startswith(PREFIX)
            for name in region.store.namespaces() if shared else [self.namespace]:
                region.elsewhere.erase(name, ids, region.clock.now())

    # --- what is there -----------------------------------------------------------------

    def stored(self, facts: FactsFacet, ids: Sequence[str], action: Action) -> list[Fact]:
        """Return the facts of a batch by id, whatever their status; refuse unknown ids."""
        _check_ids(ids)
        wanted = sorted(set(ids))
        stored = {fact.fact_id: fact for fact in facts.get(wanted)}
        seen = {id_ for id_, fact in stored.items() if self.may_read(fact.labels)}
        unknown = [id_ for id_ in wanted if id_ not in seen]
        if unknown:
            self.refuse_shared(unknown, "")
            more = f" (the first of {len(unknown)} like it)" if len(unknown) > 1 else ""
            raise RequestError(
                f"fact {unknown[0]!r:.60} is not in namespace {self.namespace!r}{more}; "
                "nothing was changed"
            )
        chosen = [stored[id_] for id_ in wanted]
        self.require_each(action, (fact.labels for fact in chosen))
        return chosen

    def source(self, facts: FactsFacet, source_id: str, action: Action) -> Source:
        """Return a registry entry; refuse an unknown source."""
        source = facts.source(source_id)
        if source is None or not self.may_read(source.labels):
            self.refuse_shared((), source_id)
            raise RequestError(
                f"source {source_id!r:.60} is not in namespace {self.namespace!r}; "
                "nothing was changed"
            )
        self.require(action, source.labels)
        return source

    def require_each(self, action: Action, labels: Iterable[tuple[str, ...]]) -> None:
        """Require access to each distinct label set; the guard is asked once for each."""
        for label_set in sorted(set(labels)):
            self.require(action, label_set)

    # --- journal -----------------------------------------------------------------------

    def journal_changes(
        self,
        transaction: Transaction,
        drafts: Sequence[tuple[EventType, dict[str, Any]]],
        *,
        before: str,
        cause: str,
        now: datetime,
        key: bytes,
        facts: Sequence[str] = (),
    ) -> tuple[str, list[Event]]:
        """Append events to the journal, and one more event if the state hash has changed."""
        after = self.hash_in(transaction.facts)
        event_drafts = [EventDraft(kind, part) for kind, data in drafts for part in _parts(data)]
        if after != before:
            data: dict[str, Any] = {"before": before, "after": after, "cause": cause}
            if facts:
                data["count"] = len(facts)
                if len(facts) <= _EVENT_IDS:
                    data["facts"] = sorted(facts)
            event_drafts.append(EventDraft(EventType.CKF_ETAG_CHANGED, data))
        events = (
            append_events(transaction.journal, key, event_drafts, iso(now)) if event_drafts else []
        )
        return after, events


def _check_ids(ids: object) -> None:
    """Refuse anything but a list of ids."""
    if isinstance(ids, str) or not isinstance(ids, Collection):
        raise RequestError(
            f"the fact ids are given as {type(ids).__name__}, wanted a list of texts; put one id "
            "into a list"
        )
    for number, id_ in enumerate(ids, 1):
        if not isinstance(id_, str):
            raise RequestError(
                f"fact id {number} is {id_!r:.60} of type {type(id_).__name__}, wanted text"
            )


def _parts(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Split the data of an event that lists very many facts into several events."""
    ids = data["facts"]
    if len(ids) <= _EVENT_IDS:
        return [data]
    slices = [ids[start : start + _EVENT_IDS] for start in range(0, len(ids), _EVENT_IDS)]
    counted = "count" in data
    return [{**data, "facts": part, **({"count": len(part)} if counted else {})} for part in slices]


def by_source(facts: Iterable[Fact]) -> dict[str, list[str]]:
    """Group the ids of facts by their source, both ascending."""
    grouped: dict[str, list[str]] = {}
    for fact in sorted(facts, key=lambda fact: (fact.source_id, fact.fact_id)):
        grouped.setdefault(fact.source_id, []).append(fact.fact_id)
    return grouped


def recount_sources(facts: FactsFacet, gone: Iterable[Fact]) -> None:
    """Subtract deleted facts from their sources' counts.

    Spec: CRP-SPEC-009 §4.5
    """
    taken: Counter[str] = Counter()
    for fact in gone:
        taken[fact.source_id] += fact.status is not FactStatus.STALE
    for source_id, count in sorted(taken.items()):
        source = facts.source(source_id)
        if source is not None:
            left = [
                passage
                for passage in facts.passages(source_id)
                if passage[2] is not FactStatus.DELETED
            ]
            count = min(max(0, source.fact_count - count), len(left))
            facts.add_source(with_own_hash(facts, source.changed(fact_count=count)))


def count_back(facts: FactsFacet, active: Iterable[Fact]) -> None:
    """Add facts that are ACTIVE again to their sources' counts.

    Spec: CRP-SPEC-009 §4.5
    """
    for source_id in sorted({fact.source_id for fact in active}):
        source = facts.source(source_id)
        if source is not None:
            held = sum(passage[2] is FactStatus.ACTIVE for passage in facts.passages(source_id))
            if held > source.fact_count:
                facts.add_source(source.changed(fact_count=held))


def with_own_hash(facts: FactsFacet, source: Source) -> Source:
    """Return the entry; without a document, its hash is recomputed from its facts' hashes."""
    if source.uri != f"{USER_SOURCE}:{source.source_id}":
        return source
    hashes = sorted(
        content_hash
        for _, content_hash, status in facts.passages(source.source_id)
        if status is not FactStatus.DELETED
    )
    return source.changed(document_hash=sha256("|".join(hashes)))
