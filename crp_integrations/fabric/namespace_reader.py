"""The reads of one stored namespace, filtered by the guard's decisions for one subject.

A shared namespace is written by the operator, and every tenant may read it.

Spec: CRP-SPEC-009 §9.2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Self, TypeVar
from unicodedata import normalize

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError

from crp_integrations.errors import (
    AccessDenied,
    EngineError,
    RequestError,
    StoreDamaged,
    StoreError,
    StoreNewer,
)
from crp_integrations.fabric.lifecycle import has_outlived
from crp_integrations.fabric.ports import FactBrief, Transaction
from crp_integrations.fabric.ports.store import FaultCounts, fault_counts_of
from crp_integrations.fabric.records import Edge, Fact, Source, Where
from crp_integrations.fabric.region import PREFIX, FabricRegion
from crp_integrations.fabric.search.namespace_state import Snapshot
from crp_integrations.fabric.search.store_index import StoreIndex, store_index
from crp_integrations.fabric.search.vector_index import Hit, VectorIndex
from crp_integrations.fabric.search.word_search import merge_by_rank, search_redacted, search_words
from crp_integrations.guard.decisions import Decision, Guard, Subject
from crp_integrations.guard.ports import Redactor
from crp_integrations.language.words import STOP_WORDS, stems_of, words
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus, SourceStatus

Read = TypeVar("Read", Fact, FactBrief)


class AccessFilter:
    """Applies the guard's decisions to a subject's reads; thread-safe.

    Lasting decisions are cached as long as the filter exists. Other decisions are cached for one
    pass of reads, so that the use of an exception is reported once per pass and label set.
    """

    __slots__ = ("_guard", "_lasting", "_of_pass", "_redactor", "_subject")

    def __init__(self, guard: Guard, subject: Subject, redactor: Redactor | None = None) -> None:
        self._guard = guard
        self._subject = subject
        self._redactor = redactor
        self._lasting: dict[tuple[str, ...], Decision] = {}
        self._of_pass: dict[tuple[str, ...], Decision] | None = None

    def passing(self) -> AccessFilter:
        """Return a filter for one pass of reads, in which each decision is made only once."""
        gate = AccessFilter(self._guard, self._subject, self._redactor)
        gate._lasting, gate._of_pass = self._lasting, {}
        return gate

    def decision(self, labels: tuple[str, ...]) -> Decision:
        """The guard's decision on reading facts that carry exactly these labels."""
        known = self._lasting.get(labels)
        if known is None and self._of_pass:
            known = self._of_pass.get(labels)
        if known is not None:
            return known
        decision = self._guard.decide(self._subject, "read", labels)
        if decision.failed:
            raise AccessDenied(f"guard {decision.guard!r} denies read: {decision.reason}")
        if decision.allowed and decision.redact and self._redactor is None:
            decision = decision.model_copy(
                update={
                    "allowed": False,
                    "reason": "personal data must be redacted, and there is no redactor",
                }
            )
        if decision.lasting:
            self._lasting[labels] = decision
        elif self._of_pass is not None:
            self._of_pass[labels] = decision
        return decision

    def may_read(self, labels: tuple[str, ...]) -> bool:
        """Whether the subject may read facts with exactly these labels."""
        return self.decision(labels).allowed

    def briefs(self, briefs: Iterable[FactBrief]) -> list[FactBrief]:
        """Return the briefs that may be read, in their order, redacted where required."""
        shown = []
        for brief in briefs:
            decision = self.decision(brief.labels)
            if decision.redact and decision.allowed:
                brief = replace(brief, content=self._redacted(brief.content, decision))
            if decision.allowed:
                shown.append(brief)
        return shown

    def facts(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return the facts that may be read, in their order, redacted where required."""
        shown = []
        for fact in facts:
            decision = self.decision(fact.labels)
            if decision.redact and decision.allowed:
                text = self._redacted(fact.content, decision)
                shown_as: dict[str, object] = {"content": text, "content_hash": sha256(text)}
                if fact.metadata and text != fact.content:
                    shown_as["metadata"] = _without(fact.metadata, sha256(fact.content))
                fact = fact.model_copy(update=shown_as)
            if decision.allowed:
                shown.append(fact)
        return shown

    def _redacted(self, text: str, decision: Decision) -> str:
        """Remove from a text the kinds of personal data that the decision lists."""
        try:
            if self._redactor is not None:
                return self._redactor.redacted(text, decision.redact)
        except EngineError as error:
            raise AccessDenied(
                f"personal data must be redacted (decision {decision.id}) and could not be "
                f"({type(error).__name__}), so read is denied"
            ) from error
        raise AccessDenied("personal data must be redacted, and there is no redactor")


def _without(value: JsonValue, text: str) -> JsonValue:
    """Return a copy of a JSON value in which every string equal to `text` is empty."""
    if isinstance(value, dict):
        return {name: _without(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, text) for item in value]
    return "" if value == text else value


def _stale(fact: Read) -> Read:
    if fact.status is not FactStatus.ACTIVE:
        return fact
    if isinstance(fact, Fact):
        return fact.changed(status=FactStatus.STALE)
    return replace(fact, status=FactStatus.STALE)


@dataclass(slots=True)
class _ReadMoment:
    """State shared by the reads of one transaction.

    Attributes:
        begun: number of erasures before the transaction began (`FactCache.begun`).
        gate: access filter of this pass of reads.
        counted: new token counts by key and id, to be stored afterwards.
    """

    transaction: Transaction
    begun: int
    gate: AccessFilter
    snapshot: Snapshot | StoreIndex | None = None
    counted: dict[str, dict[str, int]] = field(default_factory=dict)


class NamespaceReader:
    """One namespace of the store, for a subject and a guard; thread-safe.

    Only used by `Namespace`, which combines the tenant's own namespace with the shared ones.

    Attributes:
        region: region of the namespace.
        name: the namespace's name in the store.
    """

    def __init__(self, region: FabricRegion, name: str, subject: Subject, guard: Guard) -> None:
        self.region = region
        self._gate = AccessFilter(guard, subject, region.redactor)
        self._moment: _ReadMoment | None = None
        self.name = name

    @contextmanager
    def moment(self) -> Iterator[Self]:
        """Yield a reader whose reads share one transaction and see one committed state."""
        begun = self.region.fact_cache.begun()
        with self.region.begin(self.name, write=False) as transaction:
            bound = copy(self)
            bound._moment = made = _ReadMoment(transaction, begun, self._gate.passing())
            yield bound
            generation = transaction.facts.generation() if made.counted else 0
        for key, counts in made.counted.items():
            self._save_counts(key, counts, generation)

    def seen_facts(self) -> bool:
        """Whether the most recently read state contained facts; reads nothing."""
        return self.region.namespace_state(self.name).seen_facts()

    def generation(self) -> int:
        """A number that grows with every committed change of the retrievable facts."""
        with self._begun() as transaction:
            return transaction.facts.generation()

    def state_hash(self) -> str:
        """The hash of all retrievable facts of the namespace, whoever may read them.

        Spec: CRP-SPEC-009 §6.1
        """
        with self._begun() as transaction:
            return self.region.namespace_state(self.name).state_hash(transaction.facts)

    def size(self) -> int:
        """Number of facts that the subject may retrieve."""
        with self._begun() as transaction:
            index = self._index(transaction)
            return index.count(self._allowed(index))

    def find(self, where: Where) -> list[str]:
        """Ids of the retrievable facts that match the filter, ascending."""
        with self._begun() as transaction:
            labelled_ids = transaction.facts.retrievable(transaction.facts.find(self.as_of(where)))
        gate = self.gate()
        return [id_ for id_, labels in labelled_ids if gate.may_read(labels)]

    def nearest(self, vector: FloatRows, k: int, where: Where | None = None) -> list[Hit]:
        """The k facts whose vectors are nearest; ties by id.

        Spec: CRP-SPEC-009 §3.1
        """
        with self._begun() as transaction:
            snapshot = self._snapshot(transaction)
            meant = None if where is None else transaction.facts.find(self.as_of(where))
            if isinstance(snapshot, StoreIndex):
                return snapshot.nearest(vector, k, self._allowed(snapshot), meant)
            index = snapshot.index
            among = None if meant is None else index.select(meant)
        return index.nearest(vector, k, allowed=self._allowed(index), among=among)

    def search_text(self, query: str, k: int, where: Where | None = None) -> list[Hit]:
        """The k best facts that contain any word of a query; ties by id."""
        terms = self._terms(query)
        if not terms or k <= 0:
            return []
        with self.region.tracer.step("fabric.words"), self._begun() as transaction:
            facts = transaction.facts
            index = self._index(transaction)
            gate = self.gate()
            decided = [gate.decision(labels) for labels in index.label_sets]
            whole = [decision.allowed and not decision.redact for decision in decided]
            cut = [decision.allowed and bool(decision.redact) for decision in decided]
            meant = None if where is None else set(facts.find(self.as_of(where)))

            def passing(allowed: list[bool], ids: Sequence[str]) -> set[str]:
                asked = ids if meant is None else [id_ for id_ in ids if id_ in meant]
                return index.seen(asked, allowed)

            hits = search_words(facts.search_text, terms, k, partial(passing, whole))
            if not any(cut):
                return hits
            most = self.region.settings.redacted_hits
            redacted = search_redacted(
                facts.search_text,
                terms,
                k,
                partial(passing, cut),
                lambda ids: {
                    brief.fact_id: brief.content for brief in gate.briefs(facts.briefs(ids))
                },
                most,
            )
            return merge_by_rank((hits, redacted), k)

    def holds(
        self, ids: Sequence[str], *, aside: bool = True, within: Transaction | None = None
    ) -> set[str]:
        """The ids stored here, whatever their labels; archived ones only with `aside`."""
        with self._begun() if within is None else nullcontext(within) as transaction:
            retrievable = self.region.namespace_state(self.name).retrievable(transaction.facts, ids)
            others = transaction.facts.get(left) if (left := [*{*ids} - retrievable]) else []
            return retrievable | {f.fact_id for f in others if aside or f.status not in RETRIEVABLE}

    def withdrawn(self, ids: Sequence[str]) -> set[str]:
        """The ids whose facts were deleted or are in quarantine; the guard is not asked."""
        with self._begun() as transaction:
            facts = transaction.facts
            status = {fact.fact_id: fact.status for fact in facts.get(ids)}
            gone = {id_ for id_, own in status.items() if own not in RETRIEVABLE}
            for id_ in {*ids} - status.keys():
                source = facts.source(id_)
                if source is None:
                    continue
                quarantined = Where(sources=(id_,), statuses=(FactStatus.QUARANTINED,))
                if source.status is SourceStatus.REMOVED or facts.find(quarantined):
                    gone.add(id_)
        return gone

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order of the ids; facts that may not be retrieved are left out."""
        with self._begun() as transaction:
            facts = transaction.facts.get(ids)
        return self.gate().facts(fact for fact in facts if fact.retrievable)

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """Return what selection reads of facts, in the requested order; cached ones first."""
        cache, begun = self.region.fact_cache, self.region.fact_cache.begun()
        with self._begun() as transaction:
            facts = transaction.facts
            if self._moment is not None:
                begun = self._moment.begun
            state = facts.mark(), facts.generation()
            briefs = cache.briefs(self.name, state, ids)
            if unknown := [id_ for id_ in ids if id_ not in briefs]:
                stored = facts.briefs(unknown)
                cache.put(self.name, state, stored, begun)
                briefs |= {brief.fact_id: brief for brief in stored}
        return self.gate().briefs(brief for id_ in ids if (brief := briefs.get(id_)) is not None)

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order of the ids, shape (len(ids), dimensions)."""
        with self._begun() as transaction:
            index = self._index(transaction)
            return index.rows(ids, allowed=self._allowed(index))

    def token_counts(
        self,
        key: str,
        ids: Sequence[str],
        count: Callable[[list[str]], list[int]],
        *,
        keep: bool = True,
    ) -> dict[str, int]:
        """Token counts of facts; only facts not yet counted under this key are counted now."""
        cache = self.region.fact_cache
        with self._begun() as transaction:
            facts = transaction.facts
            index = self._index(transaction)
            places = index.places(ids, self._allowed(index))
            seen = [id_ for id_, at in zip(ids, places, strict=True) if at is not None]
            # A text redacted for this subject has another length, which is not stored.
            cut = self._redacted_ids(index, seen)
            seen = [id_ for id_ in seen if id_ not in cut]
            state = facts.mark(), (generation := facts.generation())
            counts = cache.tokens(self.name, state, key, seen)
            if unknown := [id_ for id_ in seen if id_ not in counts]:
                stored = facts.token_counts(key, unknown)
                cache.put_tokens(self.name, state, key, stored)
                counts |= stored
        # Texts are read only for facts that were never counted.
        missing = self.briefs([id_ for id_ in dict.fromkeys(seen) if id_ not in counts])
        if missing:
            new = _counted(missing, count)
            counts |= new
            if keep and self._moment is not None:
                self._moment.counted.setdefault(key, {}).update(new)
            elif keep:
                self._save_counts(key, new, generation)
        if cut:
            counts |= _counted(self.briefs(sorted(cut)), count)
        return {id_: counts[id_] for id_ in ids if id_ in counts}

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Edges from any of the facts to facts that the subject may retrieve, as stored."""
        with self._begun() as transaction:
            edges = transaction.facts.edges(ids)
            reached = transaction.facts.retrievable(
                sorted({id_ for edge in edges for id_ in (edge.source_fact, edge.target_fact)})
            )
        gate = self.gate()
        seen = {id_ for id_, labels in reached if gate.may_read(labels)}
        return [edge for edge in edges if edge.source_fact in seen and edge.target_fact in seen]

    def sources(self, ids: Collection[str] | None = None) -> list[Source]:
        """Registry entries of the sources that the subject may see, by id.

        Spec: CRP-SPEC-009 §4.5
        """
        with self._begun() as transaction:
            facts = transaction.facts
            if ids is None:
                sources = list(facts.sources())
            else:
                looked_up = (facts.source(id_) for id_ in sorted(set(ids)))
                sources = [source for source in looked_up if source is not None]
        gate = self.gate()
        return [source for source in sources if gate.may_read(source.labels)]

    def as_of(self, where: Where) -> Where:
        """Set the filter's `as_of` to now if it distinguishes ACTIVE from STALE facts."""
        try:
            where.model_dump_json()
        except PydanticSerializationError:
            raise RequestError(
                "a filter contains half of a surrogate pair, which is not a character; remove it"
            ) from None
        if where.as_of is not None or len(RETRIEVABLE.intersection(where.statuses or ())) != 1:
            return where
        return where.model_copy(update={"as_of": self.region.clock.now()})

    def aged(self, facts: Iterable[Read]) -> list[Read]:
        """Facts with their current status: STALE if the ttl has ended; nothing is written.

        Spec: CRP-SPEC-009 §8.1
        """
        now = self.region.clock.now()
        return [_stale(fact) if has_outlived(fact, now) else fact for fact in facts]

    def gate(self) -> AccessFilter:
        """The access filter of the current moment, or a new one for one pass of reads."""
        return self._gate.passing() if self._moment is None else self._moment.gate

    def may_read(self, labels: tuple[str, ...]) -> bool:
        """Whether the guard lets the subject read facts with exactly these labels."""
        return self.gate().may_read(labels)

    def decision(self, labels: tuple[str, ...]) -> Decision:
        """The guard's decision on reading facts that carry exactly these labels."""
        return self.gate().decision(labels)

    def _begun(self) -> AbstractContextManager[Transaction]:
        """The shared transaction of the moment, or else a new one."""
        if self._moment is not None:
            return nullcontext(self._moment.transaction)
        return self.region.begin(self.name, write=False)

    def _snapshot(self, transaction: Transaction) -> Snapshot | StoreIndex:
        moment = self._moment
        if moment is not None and moment.snapshot is not None:
            return moment.snapshot
        fabric, facts = self.region, transaction.facts
        stored = store_index(facts, fabric.settings.graph.exact_up_to, fabric.check_embedder)
        snapshot = stored or fabric.namespace_state(self.name).snapshot(facts)
        if moment is not None:
            moment.snapshot = snapshot
        return snapshot

    def _index(self, transaction: Transaction) -> VectorIndex | StoreIndex:
        snapshot = self._snapshot(transaction)
        return snapshot if isinstance(snapshot, StoreIndex) else snapshot.index

    def _allowed(self, index: VectorIndex | StoreIndex) -> list[bool]:
        gate = self.gate()
        return [gate.may_read(labels) for labels in index.label_sets]

    def _redacted_ids(self, index: VectorIndex | StoreIndex, ids: Sequence[str]) -> set[str]:
        """The ids whose texts are redacted for the subject."""
        gate = self.gate()
        # Usually no label set requires redaction; then no fact is read.
        if not any(gate.decision(labels).redact for labels in index.label_sets):
            return set()
        with self._begun() as transaction:
            labelled_ids = transaction.facts.retrievable(ids)
        return {id_ for id_, labels in labelled_ids if gate.decision(labels).redact}

    def _terms(self, query: str) -> list[str]:
        """The telling words of a query, each also as written where folding changed its stems."""
        every = words(normalize("NFC", query))
        telling = [word for word in every if word.lower not in STOP_WORDS] or every
        terms: dict[str, None] = {}
        for word in telling:
            terms[word.lower] = None
            # A text is searched as it is written, and there `й` is another letter than `и`.
            written = word.text.lower()
            if not written.isascii() and stems_of(written) != stems_of(word.lower):
                terms[written] = None
        return list(terms)[: self.region.settings.query_terms]

    def _save_counts(self, key: str, counts: dict[str, int], generation: int) -> None:
        """Store counts if no fact has changed; ignore failures, since counts only save time."""
        try:
            with self.region.begin(self.name, write=True) as transaction:
                if transaction.facts.generation() == generation:
                    transaction.facts.save_token_counts(key, counts)
        except (StoreError, AccessDenied) as error:
            if isinstance(error, StoreDamaged | StoreNewer):
                raise


def _counted(
    briefs: Sequence[FactBrief], count: Callable[[list[str]], list[int]]
) -> dict[str, int]:
    counts = count([brief.content for brief in briefs])
    return dict(zip((brief.fact_id for brief in briefs), counts, strict=True))


class SharedNamespaceReader(NamespaceReader):
    """A shared namespace as a tenant sees it, without any trace of its use by others."""

    def nearest(self, vector: FloatRows, k: int, where: Where | None = None) -> list[Hit]:
        """Like `NamespaceReader.nearest`, but the filter treats every fact as never used."""
        return super().nearest(vector, k, where and _for_tenants(where))

    def search_text(self, query: str, k: int, where: Where | None = None) -> list[Hit]:
        """Like `NamespaceReader.search_text`, but the filter treats every fact as never used."""
        return super().search_text(query, k, where and _for_tenants(where))

    def find(self, where: Where) -> list[str]:
        """Ids of retrievable facts; the filter treats every fact as never used."""
        return super().find(_for_tenants(where))

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order of the ids, as if they had never been used."""
        return [
            fact.model_copy(update={"access_count": 0, "last_accessed_at": None})
            for fact in super().facts(ids)
        ]

    def content_hashes(self, ids: Sequence[str]) -> dict[str, str]:
        """Content hashes by id of the facts that are not deleted, whoever may read them."""
        with self._begun() as transaction:
            return {
                fact.fact_id: fact.content_hash
                for fact in transaction.facts.get(ids)
                if fact.status is not FactStatus.DELETED
            }

    def note_use(self, ids: Sequence[str], now: datetime) -> None:
        """Record for the operator that facts were in an envelope; unknown ids are ignored."""
        try:
            with self.region.begin(self.name, write=True) as transaction:
                transaction.facts.touch(ids, now)
        except StoreError:
            return

    def note_findings(self, ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count for the operator that an answer distorted facts; unknown ids are ignored.

        Spec: CRP-SPEC-009 §8.4
        """
        try:
            with self.region.begin(self.name, write=True) as transaction:
                facet = fault_counts_of(transaction)
                return facet.count(ids) if facet is not None else {}
        except StoreError:
            return {}


def refuse_shared(
    shared: Iterable[SharedNamespaceReader], ids: Sequence[str], source_id: str
) -> None:
    """Refuse a tenant's write to facts or sources of a shared namespace that it may read."""
    for reading in shared:
        what = [f"fact {fact.fact_id}" for fact in reading.facts(ids)]
        what += [f"source {s.source_id!r}" for s in reading.sources() if s.source_id == source_id]
        if what:
            raise AccessDenied(
                f"{what[0]} is of shared namespace {reading.name.removeprefix(PREFIX)!r}, which "
                "only the operator may change; nothing was changed"
            )


def refuse_other_text(
    shared: Sequence[SharedNamespaceReader], facts: Iterable[Fact], own: Iterable[Fact]
) -> None:
    """Refuse a tenant's fact whose text differs from that of a shared fact with the same id.

    Spec: CRP-SPEC-009 §9.2
    """
    if not shared:
        return
    wanted = {fact.fact_id: fact.content_hash for fact in facts}
    before = {f.fact_id: f.content_hash for f in own if f.status is not FactStatus.DELETED}
    for reading in shared:
        for id_, content_hash in reading.content_hashes(sorted(wanted)).items():
            if wanted[id_] != content_hash and before.get(id_, content_hash) == content_hash:
                raise AccessDenied(
                    f"fact {id_} is of shared namespace {reading.name.removeprefix(PREFIX)!r} and "
                    "has another text there, which only the operator may change; give the text "
                    "another id; nothing was changed"
                )


def _for_tenants(where: Where) -> Where:
    """Rewrite the filter for facts that count as never used and are retrievable."""
    fields: dict[str, object] = {"unused_since": None}
    if where.unused_since is not None:
        # A fact never used is unused since any moment after its ingestion.
        bounds = [at for at in (where.ingested_before, where.unused_since) if at is not None]
        fields["ingested_before"] = min(bounds)
    if where.statuses is not None:
        fields["statuses"] = tuple(status for status in where.statuses if status in RETRIEVABLE)
        fields["archived"] = False
    return where.model_copy(update=fields)
