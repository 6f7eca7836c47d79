"""Changing the embedder of a namespace while others read and write it.

The new vectors are made slice by slice and kept beside those in use, each slice in a transaction
of its own; after a kill the next call goes on where this one ended. When no fact lacks one, a
single transaction puts them in the place of the old ones. Until then everybody who was there
reads and writes with the old embedder, and a fabric of the new one reads what is prepared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import ConfigError, StoreBusy
from crp_integrations.fabric import kept
from crp_integrations.fabric.coming import NEXT_SETTING, STEP_SETTING
from crp_integrations.fabric.communities.schedule import RECLUSTERED_SETTING
from crp_integrations.fabric.epoch import EMBEDDER_SETTING, advance
from crp_integrations.fabric.ingest.embedding import Slice, embedded
from crp_integrations.fabric.ports import FactsFacet, Mark, Transaction
from crp_integrations.fabric.progress import Progress, Told
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.ports import Clock, Embedder, Tracer
from crp_integrations.records import Record
from crp_integrations.seals import iso
from crp_integrations.vocabulary import EventType

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
class Reembedding:
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

        Raises:
            ConfigError: another process moves the namespace to a third embedder.
            StoreBusy: another writer held the store for too long; what is prepared stays.
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
        told = Told("embed", progress, total)
        done = 0
        with self.tracer.step("fabric.reembed"):
            for attempt in range(_TRIES):
                done += self._prepare(told)
                with self.begin(True) as transaction:
                    facts = transaction.facts
                    self._check(facts)
                    missing = facts.unprepared(new, self.settings.embed_slice)
                    if missing and attempt + 1 < _TRIES:
                        # Another writer added facts; it is not kept waiting for their vectors.
                        continue
                    done += self._last(facts, missing)
                    state, after, count = self._switch(transaction, key)
                told.end()
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

    def _prepare(self, told: Told) -> int:
        """Embed what has no new vector yet, slice by slice; how many texts that were."""
        done = 0
        workers = self.settings.embed_workers
        waiting: deque[tuple[Mark, Slice]] = deque()
        for number, (part, rows) in enumerate(
            embedded(self.embedder, self._missing(waiting), workers=workers), 1
        ):
            with self.begin(True) as transaction:
                facts = transaction.facts
                self._check(facts)
                mark, _ = waiting.popleft()
                left = list(range(len(part)))
                if facts.mark() != mark:
                    # What was erased meanwhile leaves no vector behind.
                    there = self._still(facts, part)
                    left = [place for place in left if part[place][0] in there]
                if left:
                    hashes = [part[place][0] for place in left]
                    facts.prepare(self.embedder.identity, hashes, rows[left])
                if number % _SHOWN_AFTER == 1:
                    step = kept.number(facts, STEP_SETTING)
                    facts.set_setting(STEP_SETTING, str(step + 1))
            done += len(part)
            told.more(len(part))
        return done

    def _still(self, facts: FactsFacet, part: Slice) -> set[str]:
        """Content hashes between the first and the last of a slice that still lack a vector."""
        there: set[str] = set()
        # What a hash begins with sorts before it.
        after, last = part[0][0][:-1], part[-1][0]
        while after < last:
            found = facts.unprepared(self.embedder.identity, len(part), after=after)
            if not found:
                break
            there |= {said for said, _ in found}
            after = found[-1][0]
        return there

    def _missing(self, waiting: deque[tuple[Mark, Slice]]) -> Iterator[Slice]:
        """Slices of what lacks a vector, by hash; what is under way is not given twice.

        A walk over all of it is followed by another one, for what came meanwhile, until one finds
        nothing.

        Args:
            waiting: gets each slice with the mark of the state that it was read from; whoever keeps
                its vectors takes it out.
        """
        size = self.settings.embed_slice
        after, gave = "", False
        while True:
            with self.begin(False) as transaction:
                facts = transaction.facts
                found = facts.unprepared(self.embedder.identity, size * _ASKED_SLICES, after=after)
                mark = facts.mark()
            if not found and not gave:
                return
            if not found:
                after, gave = "", False
                continue
            after = found[-1][0]
            under_way = {said for _, part in waiting for said, _ in part}
            fresh = [item for item in found if item[0] not in under_way]
            for start in range(0, len(fresh), size):
                gave = True
                waiting.append((mark, fresh[start : start + size]))
                yield waiting[-1][1]

    def _last(self, facts: FactsFacet, missing: Slice) -> int:
        """Embed the rest within the switching transaction; how many texts that were."""
        done = 0
        while missing:
            for part, rows in embedded(self.embedder, [missing], workers=1):
                facts.prepare(self.embedder.identity, [said for said, _ in part], rows)
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
        number = advance(facts)
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
