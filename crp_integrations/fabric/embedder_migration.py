"""The migration of a namespace to another embedder while others read and write it.

New vectors are made slice by slice and stored in addition to those in use, each slice in its own
transaction; if interrupted, the next call continues from there. When every fact has one, a single
transaction replaces the old vectors. Until then all processes read and write with the old
embedder, and a fabric with the new embedder reads the facts prepared so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import JournalFacet
from crp_integrations.errors import ConfigError, StoreBusy
from crp_integrations.fabric import state_hash
from crp_integrations.fabric.ingest.fact_preparation import Slice, embed_texts
from crp_integrations.fabric.ports import FactBrief, FactOutline, FactsFacet, LogMark, Transaction
from crp_integrations.fabric.ports.engines import Progress, ProgressCount
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.fabric.state_hash import EMBEDDER_SETTING, RECLUSTERED_SETTING, advance_epoch
from crp_integrations.ports import Clock, Embedder, Tracer
from crp_integrations.records import Record
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType

# The embedder that a namespace is migrating to, and a counter that changes whenever readers with
# that embedder should see more of the prepared vectors.
NEXT_SETTING = "embedder_next"
STEP_SETTING = "embedder_next_step"


class MigratedFacts:
    """The facts of a read transaction that already have a vector of the new embedder.

    All methods that do not depend on vectors are passed on to the wrapped facet.
    """

    # No search in the store: its own index covers only the vectors in use.
    searching = None

    def __init__(self, facts: FactsFacet, embedder: str) -> None:
        self._facts = facts
        self._embedder = embedder
        self._step = facts.setting(STEP_SETTING) or ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)

    @cached_property
    def _prepared(self) -> frozenset[str]:
        return frozenset(self._facts.prepared_ids(self._embedder))

    def setting(self, name: str) -> str | None:
        """Return a stored value; for the embedder, the new one."""
        return self._embedder if name == EMBEDDER_SETTING else self._facts.setting(name)

    def mark(self) -> LogMark:
        """A mark that changes whenever facts change or more of them have vectors."""
        mark = self._facts.mark()
        return LogMark(mark.sequence, f"{mark.token}|{self._embedder}|{self._step}")

    def changes(self, since: LogMark) -> list[str] | None:
        """No changes since the current mark; None for any other, so that all is read again."""
        return [] if since == self.mark() else None

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows of the new embedder in the order of the ids."""
        return self._facts.vectors(ids, prepared_for=prepared_for or self._embedder)

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of the facts that are already prepared."""
        return [entry for entry in self._facts.retrievable(ids) if entry[0] in self._prepared]

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of the facts that are already prepared."""
        return (entry for entry in self._facts.state(ids) if entry[0] in self._prepared)

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """Briefs of the facts that are already prepared."""
        return [brief for brief in self._facts.briefs(ids) if brief.fact_id in self._prepared]

    def outline(self) -> Iterator[FactOutline]:
        """Outlines of the facts that are already prepared, by id; no texts are read."""
        return (fact for fact in self._facts.outline() if fact.fact_id in self._prepared)

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that match; without `statuses`, only those already prepared."""
        ids = self._facts.find(where)
        if where.statuses is not None:
            return ids
        return [id_ for id_ in ids if id_ in self._prepared]


@dataclass(frozen=True)
class _MigratedTransaction:
    """A read transaction whose facts are those prepared for the new embedder.

    All other facets are those of the wrapped transaction.
    """

    facts: FactsFacet
    begun: Transaction

    @property
    def journal(self) -> JournalFacet:
        return self.begun.journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.begun, name)


def migration_target(facts: FactsFacet, embedder: str) -> bool:
    """Whether a namespace is being migrated to this embedder and not yet switched."""
    return facts.setting(NEXT_SETTING) == embedder and facts.setting(EMBEDDER_SETTING) != embedder


@contextmanager
def migration_transaction(
    begun: AbstractContextManager[Transaction], embedder: str
) -> Iterator[Transaction]:
    """Wrap a read transaction as a fabric with this embedder sees it."""
    with begun as transaction:
        if not migration_target(transaction.facts, embedder):
            yield transaction
        else:
            facts = cast("FactsFacet", MigratedFacts(transaction.facts, embedder))
            yield _MigratedTransaction(facts, transaction)


# Attempts to switch while other writers keep adding facts; in the last one, the few missing texts
# are embedded within the write transaction.
_TRIES = 8
# Number of slices read from the store at once.
_ASKED_SLICES = 16
# Number of slices after which readers with the new embedder see more prepared facts.
_SHOWN_AFTER = 16


class ReembedReport(Record):
    """The result of a change of embedder.

    Spec: CRP-SPEC-009 §3.4

    Attributes:
        before, embedder: identities of the old and the new embedder.
        facts: number of facts with new vectors, of any status.
        embedded: number of texts embedded by this call; fewer than facts if some were prepared by
            an interrupted call, or if several facts have the same text.
        state_before, state_hash: state hash of the namespace before and after the switch.
    """

    SCHEMA = "reembed-report/1"

    before: str
    embedder: str
    facts: int = 0
    embedded: int = 0
    state_before: str
    state_hash: str


@dataclass(frozen=True, slots=True)
class EmbedderMigration:
    """Moves one namespace to another embedder.

    Attributes:
        begin: opens a transaction of the namespace; true for a write transaction.
        key: returns the journal's key; called only if there is something to write.
        embedder: the new embedder; must be thread-safe if `settings.embed_workers` is above 1.
        hash_in: returns the state hash as a transaction sees it.
    """

    begin: Callable[[bool], AbstractContextManager[Transaction]]
    embedder: Embedder
    clock: Clock
    key: Callable[[], bytes]
    settings: FabricSettings
    tracer: Tracer
    hash_in: Callable[[FactsFacet], str]

    def carry_out(self, progress: Progress) -> ReembedReport:
        """Embed every fact with the new embedder, and switch.

        Spec: CRP-SPEC-009 §3.4
        """
        new = self.embedder.identity
        with self.begin(False) as transaction:
            facts = transaction.facts
            old = facts.setting(EMBEDDER_SETTING)
            state = self.hash_in(facts)
            total = sum(facts.tally().values())
        if old in (None, new):
            # Nothing is stored, or the namespace already has this embedder.
            return ReembedReport(
                before=old or new, embedder=new, state_before=state, state_hash=state
            )
        key = self.key()
        self._announce()
        progress_count = ProgressCount("embed", progress, total)
        done = 0
        with self.tracer.step("fabric.reembed"):
            for attempt in range(_TRIES):
                done += self._prepare(progress_count)
                with self.begin(True) as transaction:
                    facts = transaction.facts
                    self._check(facts)
                    missing = facts.unprepared(new, self.settings.embed_slice)
                    if missing and attempt + 1 < _TRIES:
                        # Another writer added facts: embed them without the write lock.
                        continue
                    done += self._last(facts, missing)
                    state, after, count = self._switch(transaction, key)
                progress_count.end()
                return ReembedReport(
                    before=old or "",
                    embedder=new,
                    facts=count,
                    embedded=done,
                    state_before=state,
                    state_hash=after,
                )
        raise StoreBusy("other writers kept adding facts; the vectors made so far are kept")

    def _announce(self) -> None:
        """Record the target embedder; remove vectors prepared for another target."""
        new = self.embedder.identity
        with self.begin(True) as transaction:
            facts = transaction.facts
            going = facts.setting(NEXT_SETTING)
            if going == new:
                return
            if going is not None:
                facts.clear_prepared(going)
            facts.set_setting(NEXT_SETTING, new)
            facts.set_setting(STEP_SETTING, "0")

    def _check(self, facts: FactsFacet) -> None:
        """Raise unless the namespace is still being moved to this embedder."""
        going, new = facts.setting(NEXT_SETTING), self.embedder.identity
        if going != new:
            raise ConfigError(
                f"the namespace is now being moved to embedder {going!r}, not to {new!r}; "
                "nothing was switched"
            )

    def _prepare(self, progress: ProgressCount) -> int:
        """Embed the texts without a new vector, slice by slice; returns their number."""
        done = 0
        workers = self.settings.embed_workers
        waiting: deque[tuple[LogMark, Slice]] = deque()
        for number, (part, rows) in enumerate(
            embed_texts(self.embedder, self._missing(waiting), workers=workers), 1
        ):
            with self.begin(True) as transaction:
                facts = transaction.facts
                self._check(facts)
                mark, _ = waiting.popleft()
                left = list(range(len(part)))
                if facts.mark() != mark:
                    # Facts have changed: store no vector for a fact that was erased meanwhile.
                    there = self._still(facts, part)
                    left = [place for place in left if part[place][0] in there]
                if left:
                    hashes = [part[place][0] for place in left]
                    facts.prepare(self.embedder.identity, hashes, rows[left])
                if number % _SHOWN_AFTER == 1:
                    step = state_hash.stored_number(facts, STEP_SETTING)
                    facts.set_setting(STEP_SETTING, str(step + 1))
            done += len(part)
            progress.more(len(part))
        return done

    def _still(self, facts: FactsFacet, part: Slice) -> set[str]:
        """Content hashes in the range of a slice whose facts exist and still lack a vector."""
        there: set[str] = set()
        # A prefix of a hash sorts before it, so this starts with the slice's first hash.
        after, last = part[0][0][:-1], part[-1][0]
        while after < last:
            unprepared = facts.unprepared(self.embedder.identity, len(part), after=after)
            if not unprepared:
                break
            there |= {content_hash for content_hash, _ in unprepared}
            after = unprepared[-1][0]
        return there

    def _missing(self, waiting: deque[tuple[LogMark, Slice]]) -> Iterator[Slice]:
        """Yield slices of texts without a vector, by hash; texts in progress are not repeated."""
        size = self.settings.embed_slice
        after, gave = "", False
        while True:
            with self.begin(False) as transaction:
                facts = transaction.facts
                unprepared = facts.unprepared(
                    self.embedder.identity, size * _ASKED_SLICES, after=after
                )
                mark = facts.mark()
            if not unprepared and not gave:
                return
            if not unprepared:
                after, gave = "", False
                continue
            after = unprepared[-1][0]
            under_way = {content_hash for _, part in waiting for content_hash, _ in part}
            fresh = [item for item in unprepared if item[0] not in under_way]
            for start in range(0, len(fresh), size):
                gave = True
                waiting.append((mark, fresh[start : start + size]))
                yield waiting[-1][1]

    def _last(self, facts: FactsFacet, missing: Slice) -> int:
        """Embed the rest within the switching transaction; returns the number of texts."""
        done = 0
        while missing:
            for part, rows in embed_texts(self.embedder, [missing], workers=1):
                facts.prepare(
                    self.embedder.identity, [content_hash for content_hash, _ in part], rows
                )
            done += len(missing)
            missing = facts.unprepared(self.embedder.identity, self.settings.embed_slice)
        return done

    def _switch(self, transaction: Transaction, key: bytes) -> tuple[str, str, int]:
        """Replace the old vectors; returns old and new state hash, and the number of facts."""
        facts, new = transaction.facts, self.embedder.identity
        before = self.hash_in(facts)
        facts.use_prepared(new)
        facts.set_setting(EMBEDDER_SETTING, new)
        # Communities are based on the old vectors: without a date, maintenance recomputes them.
        for name in (NEXT_SETTING, STEP_SETTING, RECLUSTERED_SETTING):
            facts.remove_setting(name)
        number = advance_epoch(facts)
        after = self.hash_in(facts)
        data = {
            "before": before,
            "after": after,
            "cause": "embedder",
            "epoch": number,
            "embedder": new,
        }
        draft = EventDraft(EventType.CKF_ETAG_CHANGED, data)
        append_events(transaction.journal, key, [draft], iso(self.clock.now()))
        return before, after, sum(facts.tally().values())
