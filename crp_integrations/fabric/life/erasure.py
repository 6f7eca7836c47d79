"""Erasing a source: every byte of it goes, and that it went stays provable.

Before the commit nothing has happened, after it everything but the scrubbing of the files has.
What is left to scrub is noted in the same transaction, so whoever comes next can finish it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.communities.schedule import COMMUNITIES_SETTING, RECLUSTERED_SETTING
from crp_integrations.fabric.epoch import EMBEDDER_SETTING, advance
from crp_integrations.fabric.life.reports import Erasure
from crp_integrations.fabric.life.withdrawing import (
    windows_scrubbed,
    withdraw,
    withdraw_elsewhere,
)
from crp_integrations.fabric.life.writing import Writing
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Fact, Source, Where
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus

# Names the last event whose removals may still be in the files.
SCRUB_SETTING = "scrub"
# Characters of a label that was certainly not cut.
_WHOLE_LABEL = 50
_PART = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Erasing:
    """Erases sources of one namespace, on behalf of one subject."""

    writing: Writing

    def erase(self, source_id: str) -> Erasure:
        """Remove a source's facts, whatever their status, and leave a tombstone.

        Spec: CRP-SPEC-009 §8.3
        """
        writing, now = self.writing, self.writing.clock.now()
        with writing.begin(False) as transaction:
            source, chosen = self._choose(transaction.facts, source_id)
            before = writing.hash_in(transaction.facts)
        # What a session holds is in no transaction: it goes first, and once more at the end.
        writing.forget_held(source_id)
        # So does what is kept outside of the store: an erasure that was killed is made again.
        writing.erase_elsewhere([source_id, *(fact.fact_id for fact in chosen)])
        said = withdraw_elsewhere(
            writing, [fact.fact_id for fact in chosen], now, source_id=source_id
        )
        if not chosen and source == _tombstone(source):
            return Erasure(
                source_id=source_id,
                state_before=before,
                state_after=before,
                erased_at=now,
                scrubbed=scrubbed(writing) and said,
            )
        key = writing.key()
        with writing.tracer.step("fabric.erase"), writing.begin(True) as transaction:
            facts = transaction.facts
            source, chosen = self._choose(facts, source_id)
            before = writing.hash_in(facts)
            ids = [fact.fact_id for fact in chosen]
            _dissolve(facts, chosen)
            withdraw(transaction, ids, now, source_id=source_id)
            facts.remove(ids)
            # Those of texts that an interrupted ingestion never stored; nobody knows their source.
            embedder = facts.setting(EMBEDDER_SETTING)
            if embedder is not None:
                facts.clear_prepared(embedder)
            facts.add_source(_tombstone(source))
            data = {"source": source_id, "facts": ids, "count": len(ids), "cause": "erasure"}
            after, events = writing.tell(
                transaction,
                [(EventType.FACT_DELETED, data)],
                before=before,
                cause="erasure",
                now=now,
                key=key,
            )
            facts.set_setting(SCRUB_SETTING, str(events[-1].seq))
            # While the lock is held nobody publishes a file, so none outlives the commit.
            drop_cache(writing)
        writing.forget_held(source_id)
        writing.erase_elsewhere([source_id, *ids])
        return Erasure(
            source_id=source_id,
            facts=tuple(ids),
            state_before=before,
            state_after=after,
            erased_at=now,
            event_seq=events[0].seq,
            event_hmac=events[0].hmac,
            scrubbed=scrubbed(writing) and said,
        )

    def _choose(self, facts: FactsFacet, source_id: str) -> tuple[Source, list[Fact]]:
        """The source and all its facts, also those that the subject does not see."""
        source = self.writing.source(facts, source_id, "erase")
        chosen = facts.of_source(source_id)
        self.writing.allow("erase", (fact.labels for fact in chosen))
        return source, chosen


def _tombstone(source: Source) -> Source:
    """What stays of an erased source: its id, and the labels that the guard looks at.

    The document's hash goes as well, since it would confirm a guess at the document.
    """
    return source.changed(
        title="",
        uri="",
        document_hash=sha256(""),
        fact_count=0,
        status=SourceStatus.REMOVED,
        metadata={},
    )


def _dissolve(facts: FactsFacet, gone: Sequence[Fact]) -> None:
    """Take away every community label that may have words of the erased facts in it.

    A name outlives the facts that it was taken from, so labels are compared with what is erased,
    wherever the erased facts are by now. Facts that are in no community for the time being may
    bear names from long ago, and lose them. Communities are found anew at the next maintenance.
    """
    own = {fact.community_label for fact in gone if fact.community_label is not None}
    if not own and facts.setting(COMMUNITIES_SETTING) is None:
        return
    named = {fact.fact_id: fact.community for fact in facts.outline() if fact.community}
    said = {part for fact in gone for part in _parts(fact.content)}
    telling = own | {
        label
        for label in set(named.values())
        # A long one may end within a word.
        if len(label) > _WHOLE_LABEL or not said.isdisjoint(_parts(label))
    }
    taken = [id_ for id_, label in named.items() if label in telling]
    hidden = [
        *facts.find(Where(statuses=(FactStatus.DELETED, FactStatus.QUARANTINED))),
        *facts.find(Where(statuses=(FactStatus.ACTIVE, FactStatus.STALE), archived=True)),
    ]
    facts.set_communities(dict.fromkeys([*taken, *hidden]))
    if taken:
        # What is left of the communities is shown to others than before.
        advance(facts)
        facts.remove_setting(RECLUSTERED_SETTING)


def _parts(text: str) -> list[str]:
    return _PART.findall(text.casefold())


def drop_cache(writing: Writing) -> None:
    """Remove the namespace's derived files."""
    cache = writing.cache()
    if cache is not None:
        cache.drop()


def scrubbed(writing: Writing) -> bool:
    """Take what was removed off the disk, if anything is left there.

    Returns:
        False when a reader or another writer forbids it now; `maintain` tries again.
    """
    with writing.begin(False) as transaction:
        pending = transaction.facts.setting(SCRUB_SETTING)
    if pending is None:
        return windows_scrubbed(writing)
    drop_cache(writing)
    try:
        clean = writing.scrub()
        if clean:
            with writing.begin(True) as transaction:
                # Another removal may have come after the scrubbing; it then stays noted.
                if transaction.facts.setting(SCRUB_SETTING) == pending:
                    transaction.facts.remove_setting(SCRUB_SETTING)
    except StoreBusy:
        return False
    return clean and windows_scrubbed(writing)
