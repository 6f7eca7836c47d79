"""Manual changes of stored facts: status changes of batches, and updates in place.

Each change is one transaction: statuses, registry and journal change together or not at all. If
one id is unknown or its fact may not change this way, the whole batch is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any

from pydantic import ValidationError

from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.erasure import windows_scrubbed, withdraw_elsewhere, withdraw_windows
from crp_integrations.fabric.ingest.fact_preparation import check_length
from crp_integrations.fabric.lifecycle import (
    ChangeReport,
    Verb,
    check_archived,
    check_content,
    check_transition,
    check_validity,
    has_outlived,
)
from crp_integrations.fabric.namespace_writer import (
    NamespaceWriter,
    by_source,
    count_back,
    recount_sources,
    with_own_hash,
)
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.ports.engines import ignore_progress
from crp_integrations.fabric.records import Fact, Notice, Source
from crp_integrations.guard.decisions import Action
from crp_integrations.vocabulary import EventType, FactStatus, SourceStatus

Draft = tuple[EventType, dict[str, Any]]
# Changes facts, and returns journal events if the change has event types of its own.
Change = Callable[[FactsFacet, Sequence[Fact], datetime], list[Draft] | None]


def _set_status(status: FactStatus) -> Change:
    def carry_out(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
        facts.set_status(_ids(chosen), status, now)

    return carry_out


def _archive(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
    facts.set_archived(_ids(chosen), now)


def _restore(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
    # `modified_at` is set, or the facts would be archived again at once as unused.
    facts.replace([fact.changed(archived_at=None, modified_at=now) for fact in chosen])


def _quarantine(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> list[Draft]:
    facts.set_status(_ids(chosen), FactStatus.QUARANTINED, now)
    return [
        (EventType.FACT_QUARANTINED, {"source": name, "facts": ids, "count": len(ids)})
        for name, ids in by_source(chosen).items()
    ]


def _lift(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> None:
    """Make the facts ACTIVE and retrievable, even if they were archived before."""
    facts.set_status(_ids(chosen), FactStatus.ACTIVE, now)
    count_back(facts, chosen)
    archived = [fact.fact_id for fact in chosen if fact.archived_at is not None]
    if archived:
        facts.set_archived(archived, None)


def _delete(facts: FactsFacet, chosen: Sequence[Fact], now: datetime) -> list[Draft]:
    facts.set_status(_ids(chosen), FactStatus.DELETED, now)
    recount_sources(facts, chosen)
    return [_deleted(name, ids) for name, ids in by_source(chosen).items()]


def _to(status: FactStatus) -> Callable[[Sequence[Fact]], None]:
    return partial(check_transition, to=status)


# For each verb: a check that raises if a fact may not change this way, and the change itself.
_VERBS: Mapping[Verb, tuple[Callable[[Sequence[Fact]], None], Change]] = {
    "stale": (_to(FactStatus.STALE), _set_status(FactStatus.STALE)),
    "archived": (partial(check_archived, wanted=False), _archive),
    "restored": (partial(check_archived, wanted=True), _restore),
    "quarantined": (_to(FactStatus.QUARANTINED), _quarantine),
    "lifted": (
        partial(check_transition, to=FactStatus.ACTIVE, among={FactStatus.QUARANTINED}),
        _lift,
    ),
    "deleted": (_to(FactStatus.DELETED), _delete),
}


def change_status(writer: NamespaceWriter, verb: Verb, ids: Sequence[str]) -> ChangeReport:
    """Apply one change to facts in one transaction; a refused one creates neither file nor key.

    Spec: CRP-SPEC-009 §2.2, §8.2, §8.4
    """
    return _change(writer, verb, ids)[0]


def _change(
    writer: NamespaceWriter, verb: Verb, ids: Sequence[str]
) -> tuple[ChangeReport, list[Fact]]:
    """Apply a change; return the report, and the facts as they were before."""
    legal, carry_out = _VERBS[verb]
    action: Action = "erase" if verb == "deleted" else "write"
    now = writer.clock.now()
    with writer.begin(False) as transaction:
        legal(writer.stored(transaction.facts, ids, action))
        if not ids:
            return ChangeReport(verb=verb, state_hash=writer.hash_in(transaction.facts)), []
    key, withdrawn = writer.key(), False
    if verb == "deleted":
        withdraw_elsewhere(writer, ids, now)
    with writer.tracer.step(f"fabric.{verb}"), writer.begin(True) as transaction:
        chosen = writer.stored(transaction.facts, ids, action)
        legal(chosen)
        before = writer.hash_in(transaction.facts)
        drafts = carry_out(transaction.facts, chosen, now) or []
        if verb == "deleted":
            # A deletion is final, so answers that used these facts are deleted too.
            withdrawn = withdraw_windows(transaction, _ids(chosen), now)
        after, _ = writer.journal_changes(
            transaction,
            drafts,
            before=before,
            cause=verb,
            now=now,
            key=key,
            # Facts that are in events of their own are not listed twice.
            facts=() if drafts else _ids(chosen),
        )
    if withdrawn:
        windows_scrubbed(writer)
    report = ChangeReport(
        verb=verb, facts=tuple(_ids(chosen)), sources=tuple(by_source(chosen)), state_hash=after
    )
    return report, chosen


def quarantine_facts(writer: NamespaceWriter, ids: Sequence[str], reason: str) -> ChangeReport:
    """Remove facts from retrieval and notify the operator which sources to review.

    Spec: CRP-SPEC-009 §8.4
    """
    report, chosen = _change(writer, "quarantined", ids)
    for name, held in by_source(chosen).items():
        writer.notify(
            Notice(
                kind="quarantined",
                namespace=writer.namespace,
                source_id=name,
                facts=tuple(held),
                reason=reason,
            )
        )
    return report


def forget_facts(
    writer: NamespaceWriter, ids: Sequence[str], source_id: str | None
) -> ChangeReport:
    """Delete facts, or a source with all its facts; their bytes are removed later.

    Spec: CRP-SPEC-009 §2.2
    """
    if source_id is None:
        if not ids:
            raise RequestError("forget was given neither facts nor a source")
        report = change_status(writer, "deleted", ids)
        # Until this point, the facts' status hid the content derived from them.
        writer.erase_elsewhere(report.facts)
        return report

    def choose(facts: FactsFacet) -> tuple[list[Fact], Source]:
        source = writer.source(facts, source_id, "erase")
        held = [
            id_ for id_, _, status in facts.passages(source_id) if status is not FactStatus.DELETED
        ]
        # All facts, including those hidden from the subject; the guard must allow each.
        whole = facts.get(held)
        writer.require_each("erase", (fact.labels for fact in whole))
        others = writer.stored(facts, ids, "erase")
        chosen = {fact.fact_id: fact for fact in (*whole, *others)}
        check_transition(chosen.values(), FactStatus.DELETED)
        return [chosen[id_] for id_ in sorted(chosen)], source

    now = writer.clock.now()
    with writer.begin(False) as transaction:
        chosen, source = choose(transaction.facts)
        over = not chosen and source.status is SourceStatus.REMOVED
        before = writer.hash_in(transaction.facts) if over else ""
    # Repeated here, so that the next call completes an interrupted one.
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


def _ids(facts: Iterable[Fact]) -> list[str]:
    return [fact.fact_id for fact in facts]


def _deleted(source_id: str, ids: Sequence[str]) -> Draft:
    return (
        EventType.FACT_DELETED,
        {"source": source_id, "facts": list(ids), "count": len(ids), "cause": "forgotten"},
    )


class Unchanged(Enum):
    """Marker for an argument that leaves a field unchanged, where None empties the field."""

    KEEP = "keep"


UNCHANGED = Unchanged.KEEP


def update_fact(writer: NamespaceWriter, fact_id: str, fields: Mapping[str, Any]) -> Fact:
    """Change some fields of a fact.

    Spec: CRP-SPEC-009 §2, §3.3 (decision E18)
    """
    now = writer.clock.now()
    with writer.begin(False) as transaction:
        writer.check(transaction.facts)
        seen, wanted = _wanted(writer, transaction.facts, fact_id, fields, now)
        if wanted == seen:
            return seen
    row = None
    if "content" in fields:
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
        stored, wanted = _wanted(writer, facts, fact_id, fields, now)
        if wanted == stored:
            return stored
        before = writer.hash_in(facts)
        wanted = wanted.changed(modified_at=now)
        content_changed = wanted.content_hash != stored.content_hash
        facts.replace([wanted], row if content_changed else None)
        _tell_source(facts, wanted.source_id)
        data = {
            "source": wanted.source_id,
            "facts": [],
            "changed": [fact_id],
            "fields": sorted(fields),
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
        # Read back, since a store may normalise values.
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
    writer: NamespaceWriter,
    facts: FactsFacet,
    fact_id: str,
    fields: Mapping[str, Any],
    now: datetime,
) -> tuple[Fact, Fact]:
    """Return the fact as stored, and as it will be after the update."""
    (stored,) = writer.stored(facts, [fact_id], "write")
    check_content(stored)
    try:
        wanted = stored.changed(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "fact"
        raise FactRejected(f"fact {fact_id} cannot have this {field}: {first['msg']}") from None
    check_validity(wanted)
    if wanted.labels != stored.labels:
        writer.require("write", wanted.labels)
    if "content" in fields:
        # The content is confirmed, so the fact is fresh, unless its ttl has ended (§8.1).
        if stored.status is FactStatus.STALE and not has_outlived(wanted, now):
            check_transition([stored], FactStatus.ACTIVE)
            wanted = wanted.changed(status=FactStatus.ACTIVE)
        wanted = wanted.changed(archived_at=None)
    return stored, wanted


def _tell_source(facts: FactsFacet, source_id: str) -> None:
    source = facts.source(source_id)
    if source is not None:
        own = with_own_hash(facts, source)
        if own != source:
            facts.add_source(own)
