"""Changes of stored facts by hand: status changes batch by batch, and updates in place.

Each change is one transaction: statuses, registry and journal change together or not at all, and
one id that is unknown or may not change refuses the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any

from pydantic import ValidationError

from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.ingest.fact_preparation import check_length
from crp_integrations.fabric.life.erasure import (
    windows_scrubbed,
    withdraw_elsewhere,
    withdraw_windows,
)
from crp_integrations.fabric.life.fact_writer import (
    FactWriter,
    by_source,
    count_back,
    recount_sources,
    with_own_hash,
)
from crp_integrations.fabric.life.lifecycle import (
    ChangeReport,
    Verb,
    check_archived,
    check_content,
    check_transition,
    check_validity,
    has_outlived,
)
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.ports.engines import ignore_progress
from crp_integrations.fabric.records import Fact, Notice, Source
from crp_integrations.guard.decisions import Action
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus

Draft = tuple[EventType, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class StatusChanges:
    """The verbs of the lifecycle within one namespace, on behalf of one subject."""

    writer: FactWriter

    def mark_stale(self, ids: Sequence[str]) -> ChangeReport:
        """Flag ACTIVE facts as STALE by hand.

        Spec: CRP-SPEC-009 §2.2
        """

        def carry_out(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
            facts.set_status(_ids(chosen), FactStatus.STALE, now)

        return self._change("stale", ids, _to(FactStatus.STALE), carry_out)

    def archive(self, ids: Sequence[str]) -> ChangeReport:
        """Put retrievable facts aside.

        Spec: CRP-SPEC-009 §8.2
        """

        def carry_out(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
            facts.set_archived(_ids(chosen), now)

        return self._change("archived", ids, partial(check_archived, wanted=False), carry_out)

    def restore(self, ids: Sequence[str]) -> ChangeReport:
        """Bring archived facts back as they were.

        Spec: CRP-SPEC-009 §8.2
        """

        def carry_out(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
            # The moment of return is kept, or disuse would archive them again at once.
            facts.replace([fact.changed(archived_at=None, modified_at=now) for fact in chosen])

        return self._change("restored", ids, partial(check_archived, wanted=True), carry_out)

    def quarantine(self, ids: Sequence[str], reason: str) -> ChangeReport:
        """Take facts out of retrieval and tell the operator which sources to review.

        Spec: CRP-SPEC-009 §8.4
        """
        facts_by_source: dict[str, list[str]] = {}

        def carry_out(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> list[Draft]:
            facts.set_status(_ids(chosen), FactStatus.QUARANTINED, now)
            facts_by_source.update(by_source(chosen))
            return [
                (EventType.FACT_QUARANTINED, {"source": name, "facts": held, "count": len(held)})
                for name, held in facts_by_source.items()
            ]

        report = self._change("quarantined", ids, _to(FactStatus.QUARANTINED), carry_out)
        for name, held in facts_by_source.items():
            self.writer.notify(
                Notice(
                    kind="quarantined",
                    namespace=self.writer.namespace,
                    source_id=name,
                    facts=tuple(held),
                    reason=reason,
                )
            )
        return report

    def lift(self, ids: Sequence[str]) -> ChangeReport:
        """End a quarantine: the facts are ACTIVE and retrievable, archived or not before.

        Spec: CRP-SPEC-009 §8.4
        """

        def carry_out(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
            facts.set_status(_ids(chosen), FactStatus.ACTIVE, now)
            count_back(facts, chosen)
            archived = [fact.fact_id for fact in chosen if fact.archived_at is not None]
            if archived:
                facts.set_archived(archived, None)

        legal = partial(check_transition, to=FactStatus.ACTIVE, among={FactStatus.QUARANTINED})
        return self._change("lifted", ids, legal, carry_out)

    def forget(self, ids: Sequence[str], source_id: str | None) -> ChangeReport:
        """Delete facts, or a source with all its facts; their bytes are removed later.

        Spec: CRP-SPEC-009 §2.2
        """
        if source_id is None:
            if not ids:
                raise RequestError("forget was given neither facts nor a source")
            report = self._change("deleted", ids, _to(FactStatus.DELETED), _delete)
            # Until here their status hid what is kept outside of the store.
            self.writer.erase_elsewhere(report.facts)
            return report

        def choose(facts: FactsFacet) -> tuple[list[Fact], Source]:
            source = self.writer.source(facts, source_id, "erase")
            held = [
                id_
                for id_, _, status in facts.passages(source_id)
                if status is not FactStatus.DELETED
            ]
            # All facts, also those that the subject does not see: the guard is asked for each.
            whole = facts.get(held)
            self.writer.require_each("erase", (fact.labels for fact in whole))
            others = self.writer.found(facts, ids, "erase")
            chosen = {fact.fact_id: fact for fact in (*whole, *others)}
            check_transition(chosen.values(), FactStatus.DELETED)
            return [chosen[id_] for id_ in sorted(chosen)], source

        writer, now = self.writer, self.writer.clock.now()
        with writer.begin(False) as transaction:
            chosen, source = choose(transaction.facts)
            over = not chosen and source.status is SourceStatus.REMOVED
            before = writer.hash_in(transaction.facts) if over else ""
        # A call that was killed before its end is finished by the next call.
        writer.erase_elsewhere([source_id])
        if over:
            return ChangeReport(verb="deleted", state_hash=before)
        key = writer.key()
        withdraw_elsewhere(writer, _ids(chosen), now, source_id=source_id)
        with writer.tracer.step("fabric.forget"), writer.begin(True) as transaction:
            chosen, source = choose(transaction.facts)
            before = writer.hash_in(transaction.facts)
            drafts = _delete(transaction.facts, chosen, now)
            withdrawn = withdraw_windows(transaction, _ids(chosen), now, source_id=source_id)
            removed = transaction.facts.source(source_id) or source
            removed = removed.changed(status=SourceStatus.REMOVED, fact_count=0)
            transaction.facts.add_source(removed)
            if not any(data["source"] == source_id for _, data in drafts):
                drafts.append(_deleted(source_id, []))
            after, _ = writer.journal_changes(
                transaction, drafts, before=before, cause="deleted", now=now, key=key
            )
        writer.erase_elsewhere([source_id, *_ids(chosen)])
        if withdrawn:
            windows_scrubbed(writer)
        return ChangeReport(
            verb="deleted",
            facts=tuple(_ids(chosen)),
            sources=tuple(sorted({source_id, *by_source(chosen)})),
            state_hash=after,
        )

    def _change(
        self,
        verb: Verb,
        ids: Sequence[str],
        legal: Callable[[Sequence[Fact]], None],
        carry_out: Callable[[FactsFacet, Sequence[Fact], datetime], list[Draft] | None],
    ) -> ChangeReport:
        """Choose, check, change and report. A refused change makes neither a file nor a key."""
        writer, now = self.writer, self.writer.clock.now()
        action: Action = "erase" if verb == "deleted" else "write"
        with writer.begin(False) as transaction:
            legal(writer.found(transaction.facts, ids, action))
            if not ids:
                return ChangeReport(verb=verb, state_hash=writer.hash_in(transaction.facts))
        key, withdrawn = writer.key(), False
        if verb == "deleted":
            withdraw_elsewhere(writer, ids, now)
        with writer.tracer.step(f"fabric.{verb}"), writer.begin(True) as transaction:
            chosen = writer.found(transaction.facts, ids, action)
            legal(chosen)
            before = writer.hash_in(transaction.facts)
            drafts = carry_out(transaction.facts, chosen, now) or []
            if verb == "deleted":
                # A deletion is final, so what was said with these facts goes too.
                withdrawn = withdraw_windows(transaction, _ids(chosen), now)
            after, _ = writer.journal_changes(
                transaction,
                drafts,
                before=before,
                cause=verb,
                now=now,
                key=key,
                # Facts that have events of their own are not named twice.
                facts=() if drafts else _ids(chosen),
            )
        if withdrawn:
            windows_scrubbed(writer)
        return ChangeReport(
            verb=verb,
            facts=tuple(_ids(chosen)),
            sources=tuple(by_source(chosen)),
            state_hash=after,
        )


def _to(status: FactStatus) -> Callable[[Sequence[Fact]], None]:
    return partial(check_transition, to=status)


def _ids(facts: Iterable[Fact]) -> list[str]:
    return [fact.fact_id for fact in facts]


def _delete(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> list[Draft]:
    facts.set_status(_ids(chosen), FactStatus.DELETED, now)
    recount_sources(facts, chosen)
    return [_deleted(name, held) for name, held in by_source(chosen).items()]


def _deleted(source_id: str, ids: Sequence[str]) -> Draft:
    return (
        EventType.FACT_DELETED,
        {"source": source_id, "facts": list(ids), "count": len(ids), "cause": "forgotten"},
    )


class Unchanged(Enum):
    """The argument that leaves a field as it is, where None means to empty it."""

    KEEP = "keep"


UNCHANGED = Unchanged.KEEP


@dataclass(frozen=True, slots=True)
class FactUpdate:
    """Changes facts of one namespace, on behalf of one subject."""

    writer: FactWriter

    def update(self, fact_id: str, given: Mapping[str, Any]) -> Fact:
        """Change some fields of a fact.

        Spec: CRP-SPEC-009 §2, §3.3 (decision E18)
        """
        writer, now = self.writer, self.writer.clock.now()
        with writer.begin(False) as transaction:
            writer.check(transaction.facts)
            seen, wanted = self._wanted(transaction.facts, fact_id, given, now)
            if wanted == seen:
                return seen
        row = None
        if "content" in given:
            tokens = writer.counter.count(wanted.content)
            check_length(f"fact {fact_id} would have", tokens, writer.settings.chunking)
            writer.check_shared([wanted], [seen])
            with writer.tracer.step("fabric.embed"):
                texts = {wanted.content_hash: wanted.content}
                row = writer.embedding.vectors(texts, ignore_progress)[wanted.content_hash][None]
        key = writer.key()
        with writer.tracer.step("fabric.update"), writer.begin(True) as transaction:
            facts = transaction.facts
            writer.check(facts)
            stored, wanted = self._wanted(facts, fact_id, given, now)
            if wanted == stored:
                return stored
            before = writer.hash_in(facts)
            wanted = wanted.changed(modified_at=now)
            content_changed = wanted.content_hash != stored.content_hash
            facts.replace([wanted], row if content_changed else None)
            self._tell_source(facts, wanted.source_id)
            data = {
                "source": wanted.source_id,
                "facts": [],
                "changed": [fact_id],
                "fields": sorted(given),
                "content_hash": wanted.content_hash,
            }
            writer.journal_changes(
                transaction,
                [(EventType.FACT_INGESTED, data)],
                before=before,
                cause="updated",
                now=now,
                key=key,
            )
            # Read back, since a store may write a value in another form.
            (updated,) = facts.get([fact_id])
        if content_changed:
            writer.notify(
                Notice(
                    kind="source-changed",
                    namespace=writer.namespace,
                    source_id=updated.source_id,
                    facts=(fact_id,),
                )
            )
        return updated

    def _wanted(
        self, facts: FactsFacet, fact_id: str, given: Mapping[str, Any], now: datetime
    ) -> tuple[Fact, Fact]:
        """The fact as it is stored, and as it is to be."""
        (stored,) = self.writer.found(facts, [fact_id], "write")
        check_content(stored)
        try:
            wanted = stored.changed(**given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "fact"
            raise FactRejected(f"fact {fact_id} cannot have this {field}: {first['msg']}") from None
        check_validity(wanted)
        if wanted.labels != stored.labels:
            self.writer.require("write", wanted.labels)
        if "content" in given:
            # The source says it again, so it is fresh, unless its ttl has run out (§8.1).
            if stored.status is FactStatus.STALE and not has_outlived(wanted, now):
                check_transition([stored], FactStatus.ACTIVE)
                wanted = wanted.changed(status=FactStatus.ACTIVE)
            wanted = wanted.changed(archived_at=None)
        return stored, wanted

    def _tell_source(self, facts: FactsFacet, source_id: str) -> None:
        source = facts.source(source_id)
        if source is not None:
            own = with_own_hash(facts, source)
            if own != source:
                facts.add_source(own)
