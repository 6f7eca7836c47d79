"""The reads of one stored namespace, filtered by the guard's decisions for one subject."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

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
from crp_integrations.fabric.life.lifecycle import has_outlived
from crp_integrations.fabric.ports import FactBrief, Transaction
from crp_integrations.fabric.ports.facts import search_each
from crp_integrations.fabric.records import Edge, Fact, Source, Where
from crp_integrations.fabric.search.namespace_state import Snapshot
from crp_integrations.fabric.search.store_index import StoreIndex, store_index
from crp_integrations.fabric.search.vector_index import Hit, VectorIndex
from crp_integrations.fabric.search.word_search import (
    merge_by_rank,
    search_one_by_one,
    search_redacted,
    search_words,
)
from crp_integrations.guard.decisions import Decision, Guard, Subject
from crp_integrations.guard.ports import Redactor
from crp_integrations.language.words import STOP_WORDS, words
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus, SourceStatus

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric

Read = TypeVar("Read", Fact, FactBrief)


class AccessFilter:
    """Lets a subject's reads through, or not; safe between threads.

    Lasting decisions are kept as long as the gate. The others are kept for one pass of reads, so
    that a use of an exception is told of once for each pass and class of labels.
    """

    __slots__ = ("_guard", "_lasting", "_of_pass", "_redactor", "_subject")

    def __init__(self, guard: Guard, subject: Subject, redactor: Redactor | None = None) -> None:
        self._guard = guard
        self._subject = subject
        self._redactor = redactor
        self._lasting: dict[tuple[str, ...], Decision] = {}
        self._of_pass: dict[tuple[str, ...], Decision] | None = None

    def passing(self) -> AccessFilter:
        """The same gate for one pass of reads, which sees one answer to each question."""
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
        """Whether the subject may read what carries exactly these labels."""
        return self.decision(labels).allowed

    def briefs(self, found: Iterable[FactBrief]) -> list[FactBrief]:
        """Those that may be read, in their order, without what must be redacted."""
        shown = []
        for brief in found:
            decision = self.decision(brief.labels)
            if decision.redact and decision.allowed:
                brief = replace(brief, content=self._redacted(brief.content, decision))
            if decision.allowed:
                shown.append(brief)
        return shown

    def facts(self, found: Iterable[Fact]) -> list[Fact]:
        """Those that may be read, in their order, without what must be redacted."""
        shown = []
        for fact in found:
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
        """The text without the kinds of personal data that the decision names."""
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
    """The same value, with an empty text in place of every text that equals this one."""
    if isinstance(value, dict):
        return {name: _without(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, text) for item in value]
    return "" if value == text else value


def _stale(one: Read) -> Read:
    if one.status is not FactStatus.ACTIVE:
        return one
    if isinstance(one, Fact):
        return one.changed(status=FactStatus.STALE)
    return replace(one, status=FactStatus.STALE)


@dataclass(slots=True)
class _ReadMoment:
    """What the reads of one transaction share.

    Attributes:
        begun: what `FactCache` said before the transaction began.
        gate: what the guard said during it.
        counted: new token counts by key and id, to be stored afterwards.
    """

    transaction: Transaction
    begun: int
    gate: AccessFilter
    snapshot: Snapshot | StoreIndex | None = None
    counted: dict[str, dict[str, int]] = field(default_factory=dict)


class NamespaceReader:
    """One namespace of the store, for a subject and a guard; safe between threads.

    For `Namespace` alone, which puts the tenant's own and the shared ones together.

    Attributes:
        name: the namespace's name in the store.
    """

    def __init__(self, fabric: Fabric, name: str, subject: Subject, guard: Guard) -> None:
        self._fabric = fabric
        self._gate = AccessFilter(guard, subject, fabric.redactor)
        self._moment: _ReadMoment | None = None
        self.name = name

    @contextmanager
    def moment(self) -> Iterator[Self]:
        """The same reads within one transaction, so all of them see one committed state."""
        begun = self._fabric.fact_cache.begun()
        with self._fabric.begin(self.name, write=False) as transaction:
            bound = copy(self)
            bound._moment = made = _ReadMoment(transaction, begun, self._gate.passing())
            yield bound
            generation = transaction.facts.generation() if made.counted else 0
        for key, counts in made.counted.items():
            self._save_counts(key, counts, generation)

    def seen_facts(self) -> bool:
        """Whether the state that was read last, if any was, held facts; reads nothing."""
        return self._fabric.namespace_state(self.name).seen_facts()

    def generation(self) -> int:
        """A number that grows with every committed change of what can be retrieved."""
        with self._begun() as transaction:
            return transaction.facts.generation()

    def state_hash(self) -> str:
        """One value for everything that can be retrieved in the namespace, by anybody.

        Spec: CRP-SPEC-009 §6.1
        """
        with self._begun() as transaction:
            return self._fabric.namespace_state(self.name).state_hash(transaction.facts)

    def size(self) -> int:
        """How many facts the subject may retrieve."""
        with self._begun() as transaction:
            index = self._index(transaction)
        return index.count(self._allowed(index))

    def find(self, where: Where) -> list[str]:
        """Ids of the retrievable facts that are meant, ascending."""
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
            if isinstance(snapshot, StoreIndex):
                allowed, last = self._allowed(snapshot), self._moment is None
                if where is not None:
                    meant = self.as_of(where)
                    return snapshot.nearest_where(vector, k, meant, allowed, last=last)
                return snapshot.nearest(vector, k, allowed=allowed, last=last)
            allowed = self._allowed(snapshot.index)
            among = None
            if where is not None:
                among = snapshot.index.select(transaction.facts.find(self.as_of(where)))
        return snapshot.index.nearest(vector, k, allowed=allowed, among=among)

    def foresee(self, vector: FloatRows, k: int, query: str, k_words: int) -> None:
        """Tell that `nearest` and `search_text` come next, for a store that does both at once."""
        if self._moment is None or not (terms := self._terms(query)):
            return
        snapshot = self._snapshot(self._moment.transaction)
        # Words that are searched in memory ask the store for nothing.
        if isinstance(snapshot, StoreIndex) and not self._fabric.words(self.name, len(snapshot)):
            snapshot.foresee(vector, k, terms, k_words, self._allowed(snapshot))

    def search_text(self, query: str, k: int, where: Where | None = None) -> list[Hit]:
        """The k best facts that hold any word of a query; ties by id."""
        terms = self._terms(query)
        if not terms or k <= 0:
            return []
        with self._fabric.tracer.step("fabric.words"), self._begun() as transaction:
            facts = transaction.facts
            index = self._index(transaction)
            gate = self.gate()
            decided = [gate.decision(labels) for labels in index.label_sets]
            whole = [decision.allowed and not decision.redact for decision in decided]
            cut = [decision.allowed and bool(decision.redact) for decision in decided]
            meant = None if where is None else set(facts.find(self.as_of(where)))
            words = self._fabric.words(self.name, len(index))
            search = facts.search_text if words is None else partial(words.search, facts)

            def passing(allowed: list[bool], ids: Sequence[str]) -> set[str]:
                asked = ids if meant is None else [id_ for id_ in ids if id_ in meant]
                return index.seen(asked, allowed)

            hits = search_words(search, terms, k, partial(passing, whole))
            if not any(cut):
                return hits
            most = self._fabric.settings.redacted_hits
            redacted = search_redacted(
                partial(search_each, facts) if words is None else search_one_by_one(search),
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
        """Those of the ids that are stored here, whatever their labels; with `aside` archived."""
        with self._begun() if within is None else nullcontext(within) as transaction:
            retrievable = self._fabric.namespace_state(self.name).retrievable(
                transaction.facts, ids
            )
            others = transaction.facts.get(left) if (left := [*{*ids} - retrievable]) else []
            return retrievable | {f.fact_id for f in others if aside or f.status not in RETRIEVABLE}

    def withdrawn(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids whose facts were deleted or are in quarantine; nobody is asked."""
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
        """Facts in the order asked for; what may not be retrieved is left out."""
        with self._begun() as transaction:
            facts = transaction.facts.get(ids)
        return self.gate().facts(fact for fact in facts if fact.retrievable)

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """What selection reads of facts, in the order asked for; cached ones are not read again."""
        ready, begun = self._fabric.fact_cache, self._fabric.fact_cache.begun()
        with self._begun() as transaction:
            facts = transaction.facts
            if self._moment is not None:
                begun = self._moment.begun
            state = facts.mark(), facts.generation()
            briefs = ready.briefs(self.name, state, ids)
            if len(briefs) < len(ids):
                missing = [id_ for id_ in ids if id_ not in briefs]
                new = facts.briefs(missing)
                ready.put(self.name, state, new, begun)
                briefs |= {brief.fact_id: brief for brief in new}
        return self.gate().briefs(brief for id_ in ids if (brief := briefs.get(id_)) is not None)

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order asked for, shape (len(ids), dimensions)."""
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
        """Token counts of facts, counting only those never counted under this key."""
        ready = self._fabric.fact_cache
        with self._begun() as transaction:
            facts = transaction.facts
            index = self._index(transaction)
            allowed = self._allowed(index)
            places = index.places(ids, allowed)
            seen = [id_ for id_, at in zip(ids, places, strict=True) if at is not None]
            # A text that is redacted for this subject has a length of its own, which nobody keeps.
            cut = self._redacted(index, seen)
            seen = [id_ for id_ in seen if id_ not in cut]
            state = facts.mark(), (generation := facts.generation())
            stored = ready.tokens(self.name, state, key, seen)
            if len(stored) < len(seen):
                left = [id_ for id_ in seen if id_ not in stored]
                read = facts.token_counts(key, left)
                ready.put_tokens(self.name, state, key, read)
                stored |= read
        # Texts are read for what was never counted alone.
        missing = self.briefs([id_ for id_ in dict.fromkeys(seen) if id_ not in stored])
        if missing:
            counted = count([fact.content for fact in missing])
            new = dict(zip((fact.fact_id for fact in missing), counted, strict=True))
            stored |= new
            if keep and self._moment is not None:
                self._moment.counted.setdefault(key, {}).update(new)
            elif keep:
                self._save_counts(key, new, generation)
        if cut:
            shown = self.briefs(sorted(cut))
            counted = count([fact.content for fact in shown])
            stored |= dict(zip((fact.fact_id for fact in shown), counted, strict=True))
        return {id_: stored[id_] for id_ in ids if id_ in stored}

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
        """The registry's entries that the subject may see, by id.

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
        """The filter as it is meant now, where it tells ACTIVE facts from STALE ones."""
        try:
            where.model_dump_json()
        except PydanticSerializationError:
            raise RequestError(
                "a filter holds half of a surrogate pair, which is no character; remove it"
            ) from None
        if where.as_of is not None or len(RETRIEVABLE.intersection(where.statuses or ())) != 1:
            return where
        return where.model_copy(update={"as_of": self._fabric.clock.now()})

    def aged(self, found: Iterable[Read]) -> list[Read]:
        """Facts as they stand now: one whose ttl has run out is STALE, and nothing is written.

        Spec: CRP-SPEC-009 §8.1
        """
        now = self._fabric.clock.now()
        return [_stale(fact) if has_outlived(fact, now) else fact for fact in found]

    def gate(self) -> AccessFilter:
        """What lets things of one pass of reads through: of the moment, or one of its own."""
        return self._gate.passing() if self._moment is None else self._moment.gate

    def may_read(self, labels: tuple[str, ...]) -> bool:
        """Whether the guard lets the subject read what carries exactly these labels."""
        return self.gate().may_read(labels)

    def decision(self, labels: tuple[str, ...]) -> Decision:
        """The guard's decision on reading facts that carry exactly these labels."""
        return self.gate().decision(labels)

    def _begun(self) -> AbstractContextManager[Transaction]:
        """The transaction that all reads share, or one of their own."""
        if self._moment is not None:
            return nullcontext(self._moment.transaction)
        return self._fabric.begin(self.name, write=False)

    def _snapshot(self, transaction: Transaction) -> Snapshot | StoreIndex:
        moment = self._moment
        if moment is not None and moment.snapshot is not None:
            return moment.snapshot
        fabric, facts = self._fabric, transaction.facts
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

    def _redacted(self, index: VectorIndex | StoreIndex, ids: Sequence[str]) -> set[str]:
        """Those of the ids whose texts the subject is shown without personal data."""
        gate = self.gate()
        # Most often no set of labels asks for redaction, and then no fact is looked at.
        if not any(gate.decision(labels).redact for labels in index.label_sets):
            return set()
        with self._begun() as transaction:
            labelled_ids = transaction.facts.retrievable(ids)
        return {id_ for id_, labels in labelled_ids if gate.decision(labels).redact}

    def _terms(self, query: str) -> list[str]:
        terms = list(dict.fromkeys(word.lower for word in words(query)))
        telling = [word for word in terms if word not in STOP_WORDS] or terms
        return telling[: self._fabric.settings.query_terms]

    def _save_counts(self, key: str, counts: dict[str, int], generation: int) -> None:
        """Store counts of facts as they were in a state; a count is only a saving."""
        try:
            with self._fabric.begin(self.name, write=True) as transaction:
                if transaction.facts.generation() == generation:
                    transaction.facts.save_token_counts(key, counts)
        except (StoreError, AccessDenied) as error:
            if isinstance(error, StoreDamaged | StoreNewer):
                raise
