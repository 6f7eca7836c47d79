"""The move of a namespace to another embedder while others read and write it.

New vectors are made slice by slice and kept beside those in use, each slice in a transaction of its
own; after a kill the next call goes on where this one ended. When no fact lacks one, a single
transaction puts them in the place of the old ones. Until then every process reads and writes with
the old embedder, and a fabric of the new one reads what is prepared.
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

# The embedder that a namespace is on its way to, and how far it is: another value for each state
# of the prepared vectors that a reader is to see.
NEXT_SETTING = "embedder_next"
STEP_SETTING = "embedder_next_step"


class MigratedFacts:
    """The facts of a reading transaction that have a vector of the coming embedder.

    Everything that is not about vectors is answered by the facet behind it.
    """

    # A store's own index is over the vectors in use.
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
        """A stored value; the embedder is the coming one here."""
        return self._embedder if name == EMBEDDER_SETTING else self._facts.setting(name)

    def mark(self) -> LogMark:
        """Another one whenever facts changed or more of them have vectors."""
        mark = self._facts.mark()
        return LogMark(mark.sequence, f"{mark.token}|{self._embedder}|{self._step}")

    def changes(self, since: LogMark) -> list[str] | None:
        """Nothing since this state; what was known of any other is to be read as a whole."""
        return [] if since == self.mark() else None

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows of the coming embedder in the order asked for."""
        return self._facts.vectors(ids, prepared_for=prepared_for or self._embedder)

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of the facts that can be found already."""
        return [entry for entry in self._facts.retrievable(ids) if entry[0] in self._prepared]

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of the facts that can be found already."""
        return (entry for entry in self._facts.state(ids) if entry[0] in self._prepared)

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """What selection reads of the facts that can be found already."""
        return [brief for brief in self._facts.briefs(ids) if brief.fact_id in self._prepared]

    def outline(self) -> Iterator[FactOutline]:
        """The facts that can be found already, by id; no texts are read."""
        return (fact for fact in self._facts.outline() if fact.fact_id in self._prepared)

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that are meant; retrievable ones only where they can be found."""
        ids = self._facts.find(where)
        if where.statuses is not None:
            return ids
        return [id_ for id_ in ids if id_ in self._prepared]


@dataclass(frozen=True)
class _MigratedTransaction:
    """A reading transaction whose facts are those of the coming embedder.

    Every facet but the facts is that of the transaction behind it.
    """

    facts: FactsFacet
    begun: Transaction

    @property
    def journal(self) -> JournalFacet:
        return self.begun.journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.begun, name)


def migration_target(facts: FactsFacet, embedder: str) -> bool:
    """Whether a namespace is on its way to an embedder and has not arrived."""
    return facts.setting(NEXT_SETTING) == embedder and facts.setting(EMBEDDER_SETTING) != embedder


@contextmanager
def migration_transaction(
    begun: AbstractContextManager[Transaction], embedder: str
) -> Iterator[Transaction]:
    """A reading transaction as a fabric of this embedder sees it."""
    with begun as transaction:
        if not migration_target(transaction.facts, embedder):
            yield transaction
        else:
            facts = cast("FactsFacet", MigratedFacts(transaction.facts, embedder))
            yield _MigratedTransaction(facts, transaction)


# How often the switch is tried while other writers keep adding facts, before the few that are
# missing are embedded within the writing transaction.
_TRIES = 8
# Slices that the store is asked for at once.
_ASKED_SLICES = 16
# Slices after which a reader of the new embedder is shown more.
_SHOWN_AFTER = 16


class ReembedReport(Record):
    """What a change of embedder did.

    Spec: CRP-SPEC-009 §3.4

    Attributes:
        before, embedder: identities of the old and the new embedder.
        facts: how many facts have new vectors, of any status.
        embedded: texts embedded by this call; the others were prepared before a kill, or are said
            by several facts.
        state_before, state_hash: of the namespace before and after the switch.
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
        begin: opens a transaction of the namespace; true for a writing one.
        key: gives the journal's key, asked for when there is something to write.
        embedder: the new one; thread-safe when `settings.embed_workers` is above 1.
        hash_in: the state hash as a transaction sees it.
    """

    begin: Callable[[bool], AbstractContextManager[Transaction]]
    embedder: Embedder
    clock: Clock
    key: Callable[[], bytes]
    settings: FabricSettings
    tracer: Tracer
    hash_in: Callable[[FactsFacet], str]

    def carry_out(self, progress: Progress) -> ReembedReport:
        """Embed every fact anew and switch.

        Spec: CRP-SPEC-009 §3.4
        """
        new = self.embedder.identity
        with self.begin(False) as transaction:
            facts = transaction.facts
            old = facts.setting(EMBEDDER_SETTING)
            state = self.hash_in(facts)
            total = sum(facts.tally().values())
        if old in (None, new):
            # Nothing is stored, or nothing is to be done.
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
                        # Another writer added facts, and must not wait here for their vectors.
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
        raise StoreBusy("the namespace never stood still; the vectors that were made are kept")

    def _announce(self) -> None:
        """Say where the namespace is going; vectors for another place are of no more use."""
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
        """Go on only while the namespace is on its way to this embedder."""
        going, new = facts.setting(NEXT_SETTING), self.embedder.identity
        if going != new:
            raise ConfigError(
                f"the namespace is on its way to embedder {going!r}, not to {new!r} any more; "
                "nothing was switched"
            )

    def _prepare(self, progress: ProgressCount) -> int:
        """Embed the texts without a new vector, slice by slice; returns how many there were."""
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
                    # A fact that was erased meanwhile must leave no vector behind.
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
        """Content hashes between the first and the last of a slice that still lack a vector."""
        there: set[str] = set()
        # A prefix of a hash sorts before it, so this asks from the slice's first hash on.
        after, last = part[0][0][:-1], part[-1][0]
        while after < last:
            unprepared = facts.unprepared(self.embedder.identity, len(part), after=after)
            if not unprepared:
                break
            there |= {content_hash for content_hash, _ in unprepared}
            after = unprepared[-1][0]
        return there

    def _missing(self, waiting: deque[tuple[LogMark, Slice]]) -> Iterator[Slice]:
        """Slices of texts that lack a vector, by hash; texts under way are not given twice."""
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
        """Embed the rest within the switching transaction; returns how many texts there were."""
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
        """Put the new vectors in the place of the old; both state hashes and the facts' number."""
        facts, new = transaction.facts, self.embedder.identity
        before = self.hash_in(facts)
        facts.use_prepared(new)
        facts.set_setting(EMBEDDER_SETTING, new)
        # Communities are of the old vectors: without this the next maintenance finds them anew.
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
