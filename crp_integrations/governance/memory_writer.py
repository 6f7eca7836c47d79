"""The memory writer and the emitter: they check, write, correct and retract memory items."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any
from uuid import uuid5

from pydantic import JsonValue, ValidationError

from crp_integrations.dpe.actions.records import ActionReport
from crp_integrations.errors import AccessDenied, FactRejected, RequestError
from crp_integrations.fabric.ingest.fact_preparation import check_length
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import ID_SPACE, Edge, Fact, Where
from crp_integrations.governance.memory_items import (
    MemoryItem,
    MemoryItemRef,
    MemoryType,
    Provenance,
    Scope,
    as_fact,
    fact_of,
    item_error,
    of_fact,
    valid_at,
)
from crp_integrations.governance.memory_items import item as made
from crp_integrations.guard.decisions import LabelFilter, Subject
from crp_integrations.ports import Clock, Ids
from crp_integrations.records import Part
from crp_integrations.seals import canonical, sha256
from crp_integrations.validation import aware_moment, of_kind, seen
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

_LOG = logging.getLogger("crp_integrations.governance")
_STORED = (FactStatus.ACTIVE, FactStatus.STALE)


class PolicyContext(Part):
    """Who writes or reads, and why.

    Attributes:
        subject: must be the subject that the namespace is bound to.
        labels: filter for selected items, in addition to the guard; writing asks only the guard.
        tool_tags: safety tags that tools must have and must not have.
    """

    subject: Subject
    session_id: str = ""
    purpose: str = ""
    labels: LabelFilter = LabelFilter()
    tool_tags: LabelFilter = LabelFilter()


def check_subject(context: PolicyContext, subject: Subject, purpose: str) -> Subject:
    """The context's subject if it is the bound one, else raise; the error names `purpose`."""
    wanted = "a PolicyContext, such as PolicyContext(subject=relay.fabric.subject)"
    if not of_kind(context, PolicyContext, "context", wanted).subject.tenant.strip():
        raise AccessDenied(f"the context names no tenant, so {purpose} is denied")
    if context.subject != subject:
        raise AccessDenied(
            f"the namespace is bound to subject {subject.name!r}, but the context has "
            f"{context.subject.name!r}"
        )
    return subject


class MemoryWriter:
    """Writes, corrects and retracts memory items of one namespace; nothing is overwritten.

    The fabric's journal is the event log: every version is a fact, and its chained event names the
    signer. Vector and text index change in the same transaction.

    Spec: Summit §Key APIs
    """

    def __init__(
        self, namespace: Namespace, *, check: Callable[[MemoryItem], ActionReport] | None = None
    ) -> None:
        """Keep the namespace to write to; it is bound to a tenant, a subject and a guard.

        Args:
            check: called with each new item before it is written, such as with `check_call`; an
                item whose report does not let it be written is refused. None for no check.
        """
        if not hasattr(namespace, "put"):
            kind = seen(namespace, hidden=True)
            raise RequestError(f"namespace is {kind}; give a Namespace, as in relay.fabric")
        if check is not None and not callable(check):
            raise RequestError(f"check is {seen(check, hidden=True)}; give a function of an item")
        if iscoroutinefunction(check):
            raise RequestError(
                "check is a coroutine function, which is not awaited; give a plain one"
            )
        self._namespace = namespace
        self._checks = check

    def write(self, item: MemoryItem, context: PolicyContext) -> MemoryItemRef:
        """Append an item.

        Writing the same item again changes nothing. Other content under a known id is refused: it
        is a correction and needs its own id. An item of category `graph-edge` connects the two
        stored items or facts in its `graph_refs`: its kind is `relation` in a JSON content, else
        `related`; its weight is the confidence.

        Args:
            item: its scope's tenant must be the subject's. Its signer must be the subject or empty;
                an empty one becomes the subject.

        Raises:
            AccessDenied: tenant or signer differ, or the guard denies writing these labels.
            FactRejected: the id has other content, the content is too short or long, or the check
                does not let it be written.
            RequestError: an edge does not name two ends that are stored here, or the check returns
                no report.
        """
        self._check(item, context)
        signed = self._signed(item, context)
        stored = self._stored(item.id)
        if stored is not None:
            if sha256(stored.text) != sha256(signed.text):
                raise FactRejected(
                    f"memory item {item.id} is stored with other content; write the correction "
                    "under an id of its own with `supersedes`"
                )
            if stored == signed:
                return self._ref(signed, "", written=False)
        ends = self._ends(signed)
        if self._checks is not None:
            wanted = "an ActionReport, as check_call returns it"
            checked = of_kind(self._checks(item), ActionReport, "the check's result", wanted)
            if checked.may_run is not True:
                # What is missing is a judge's text, which may quote the item.
                checked = checked.model_copy(update={"missing": ""})
                raise FactRejected(f"memory item {item.id} is not written: {checked.summary()}")
        fact, namespace = as_fact(signed), self._namespace
        # A memory is extracted, so the minimum length binds it.
        tokens = namespace.counter.count(fact.content)
        check_length(f"memory item {item.id} has", tokens, namespace.settings.chunking)
        uris = {fact.source_id: signed.provenance.source_uri}
        report = namespace.put([fact], uris=uris)
        if ends:
            self._link(signed, ends)
        return self._ref(signed, report.state_hash, written=True)

    def correct(
        self, old_id: str, item: MemoryItem, context: PolicyContext, *, since: datetime
    ) -> MemoryItemRef:
        """Replace an item with another from a time on; both stay in the log.

        If a call was interrupted, the same call again completes it.

        Args:
            old_id: id of the item that was wrong or is no longer valid.
            item: the correct item, with its own id.
            since: time with a time zone; `valid_from` of the new and `valid_to` of the old item.

        Raises:
            RequestError: no such item is stored, it became valid after `since`, or it is the
                correction itself; nothing is written.
            AccessDenied, FactRejected: as for `write`.
        """
        self._check(item, context)
        aware_moment(since, "since")
        if old_id == item.id:
            raise RequestError(
                f"memory item {old_id} cannot correct itself; give the correction an id of its own"
            )
        old = self._known(old_id)
        _check_begun(old, since)
        if item.scope.tenant != old.scope.tenant:
            raise AccessDenied(f"memory item {old_id} is of another tenant than its correction")
        try:
            new = item.changed(supersedes=old_id, valid_from=since)
        except ValidationError as error:
            raise item_error(error) from None
        reference = self.write(new, context)
        self._close(old, since)
        return reference

    def retract(
        self, item_id: str, context: PolicyContext, *, since: datetime | None = None
    ) -> MemoryItem:
        """Retract an item: it is not selected any more, but stays in the log.

        Args:
            since: time from which it is invalid; None if it was never valid.

        Raises:
            RequestError: no such item is stored, or it became valid after `since`.
        """
        self._subject(context)
        if since is not None:
            aware_moment(since, "since")
        old = self._known(item_id)
        if since is not None:
            _check_begun(old, since)
        return self._close(old, since if since is not None else old.valid_from or old.created_at)

    def as_of(self, moment: datetime, context: PolicyContext) -> tuple[MemoryItem, ...]:
        """The items that were valid at a time, including corrected and retracted ones, by id.

        Reads every memory of the namespace that the guard lets the subject see.
        """
        self._subject(context)
        aware_moment(moment, "moment")
        unread: list[Fact] = []
        items = list(self._items(unread.append))
        # An unreadable item still corrects another, which must not become valid again.
        corrected = {
            fact.supersedes
            for fact in unread
            if fact.valid_from is None or fact.valid_from <= moment
        }
        held = valid_at(items, moment)
        return tuple(item for item in held if item.fact_id not in corrected)

    def items(self, *, strict: bool = False) -> Iterator[MemoryItem]:
        """Every stored item that the subject may see, including corrected and retracted ones.

        A fact that was changed and is no longer a valid item is left out and logged; with `strict`
        it raises FactRejected.
        """

        def unread(fact: Fact) -> None:
            if strict:
                raise FactRejected(f"fact {fact.fact_id} no longer stores a memory item")

        return self._items(unread)

    # --- within ------------------------------------------------------------------------

    def _items(self, unread: Callable[[Fact], object]) -> Iterator[MemoryItem]:
        """The items; facts that are not valid items are passed to `unread`."""
        for record in self._namespace.export(Where(statuses=_STORED)):
            if not isinstance(record, Fact):
                continue
            try:
                item = of_fact(record)
            except FactRejected:
                _LOG.warning("fact %s stores no valid memory item and is left out", record.fact_id)
                unread(record)
                continue
            if item is not None:
                yield item

    def _subject(self, context: PolicyContext) -> Subject:
        return check_subject(context, self._namespace.subject, "writing memory")

    def _check(self, item: MemoryItem, context: PolicyContext) -> None:
        subject = self._subject(context)
        of_kind(item, MemoryItem, "item", "a MemoryItem, such as item(fields)")
        if item.scope.tenant != subject.tenant:
            raise AccessDenied(f"memory item {item.id} is not of the subject's tenant")
        if item.provenance.signer not in ("", subject.name):
            raise AccessDenied(
                f"memory item {item.id} is signed by another than subject {subject.name!r}"
            )

    def _signed(self, item: MemoryItem, context: PolicyContext) -> MemoryItem:
        provenance = item.provenance.model_copy(
            update={"signer": context.subject.name, "checksum": sha256(item.text)}
        )
        return item.changed(provenance=provenance, embedding_ref=item.embedding_ref or item.fact_id)

    def _ends(self, item: MemoryItem) -> list[str]:
        """The facts that an edge connects; empty for any other item."""
        if item.category != "graph-edge":
            return []
        if len(item.graph_refs) != 2:
            raise RequestError(
                f"edge {item.id} has {len(item.graph_refs)} graph_refs, wanted its two ends"
            )
        ends = []
        for ref in item.graph_refs:
            stored = next((i for i in (fact_of(ref), ref) if self._namespace.facts([i])), None)
            if stored is None:
                raise RequestError(
                    f"edge {item.id} names {ref!r:.80}, which is not stored here, or withheld"
                )
            ends.append(stored)
        return ends

    def _link(self, item: MemoryItem, ends: Sequence[str]) -> None:
        relation = item.content.get("relation") if isinstance(item.content, dict) else None
        kind = relation if isinstance(relation, str) and relation else "related"
        between = item.fact_id
        self._namespace.link(
            Edge(source_fact=source, target_fact=target, kind=kind, weight=item.confidence)
            for source, target in ((ends[0], between), (between, ends[1]))
        )

    def _stored(self, item_id: str) -> MemoryItem | None:
        wanted = fact_of(item_id)
        facts = self._namespace.facts([wanted])
        if facts:
            return of_fact(facts[0])
        # A corrected or retracted item is archived.
        for record in self._namespace.export(Where(statuses=_STORED, archived=True)):
            if isinstance(record, Fact) and record.fact_id == wanted:
                return of_fact(record)
        return None

    def _known(self, item_id: str) -> MemoryItem:
        of_kind(item_id, str, "the id of a memory item", "a text")
        item = self._stored(item_id)
        if item is None:
            raise RequestError(f"memory item {item_id!r:.60} is not stored here, or withheld")
        return item

    def _close(self, old: MemoryItem, moment: datetime) -> MemoryItem:
        if old.valid_to is None or old.valid_to > moment:
            self._namespace.update(old.fact_id, valid_to=moment)
        facts = self._namespace.facts([old.fact_id])
        if facts and facts[0].status in RETRIEVABLE:
            self._namespace.archive([old.fact_id])
        return old.changed(valid_to=moment)

    def _ref(self, item: MemoryItem, state_hash: str, *, written: bool) -> MemoryItemRef:
        return MemoryItemRef(
            id=item.id,
            fact_id=item.fact_id,
            checksum=item.provenance.checksum,
            signer=item.provenance.signer,
            state_hash=state_hash,
            written=written,
        )


def _check_begun(old: MemoryItem, since: datetime) -> None:
    """Refuse an end before the beginning, so that nothing is written."""
    if old.valid_from is not None and since < old.valid_from:
        raise RequestError(
            f"memory item {old.id} holds from {old.valid_from.isoformat()} on, "
            f"which is after {since.isoformat()}"
        )


Content = str | dict[str, JsonValue] | list[JsonValue]
# Default decay of a memory's weight, by type.
DECAYS: dict[MemoryType, str | None] = {
    "episodic": "half-life@1:P7D",
    "procedural": "plateau@1:P180D",
    "semantic": None,
}


@dataclass(frozen=True, slots=True)
class Emitter:
    """Creates items of one scope and passes each to a sink.

    Attributes:
        source_uri: URI of the items' origin, such as `session://s1`.
        sink: called with each item; `make_sink` returns one that writes.
        confidence: default confidence of an item, [0, 1].
    """

    scope: Scope
    labels: tuple[str, ...]
    source_uri: str
    clock: Clock
    ids: Ids
    sink: Callable[[MemoryItem], Any]
    confidence: float = 0.6

    def episodic(self, content: Content, category: str = "user-action", **more: Any) -> MemoryItem:
        """Something that happened: a turn of a conversation, an action, the output of a tool.

        Spec: Summit §Memory Taxonomy
        """
        return self._emit("episodic", content, category, more)

    def procedural(self, content: Content, category: str = "playbook", **more: Any) -> MemoryItem:
        """How something is done: a playbook, how to call a tool, a step of a policy."""
        return self._emit("procedural", content, category, more)

    def semantic(self, content: Content, category: str = "document", **more: Any) -> MemoryItem:
        """A piece of knowledge: a passage, a node or edge of a graph, a tool's specification."""
        return self._emit("semantic", content, category, more)

    def _emit(
        self, kind: MemoryType, content: Content, category: str, more: dict[str, Any]
    ) -> MemoryItem:
        now = self.clock.now()
        text = content if isinstance(content, str) else canonical(content).decode()
        unique = "\u241f".join((self.ids.new("mem_"), self.source_uri, kind, text))
        item = made(
            {
                "id": str(uuid5(ID_SPACE, unique)),
                "type": kind,
                "category": category,
                "scope": self.scope,
                "created_at": now,
                "updated_at": now,
                "decay_fn": DECAYS[kind],
                "confidence": self.confidence,
                "provenance": Provenance(source_uri=self.source_uri),
                "security_label": self.labels,
                "content": content,
                **more,
            }
        )
        self.sink(item)
        return item


def make_sink(
    writer: MemoryWriter, context: PolicyContext
) -> Callable[[MemoryItem], MemoryItemRef]:
    """A sink that writes each item."""
    return lambda item: writer.write(item, context)
