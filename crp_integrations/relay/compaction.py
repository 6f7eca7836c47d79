"""Compaction: a long conversation before a question is shortened, and the changes are recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.window_seals import journal_key
from crp_integrations.fabric.ports import Store
from crp_integrations.governance.artifacts.sandbox import ArtifactErasure, Sandbox
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.compaction.records import (
    CompactHistory,
    CompactionAccount,
    budget_share,
)
from crp_integrations.governance.settings import HistorySettings
from crp_integrations.messages import Message
from crp_integrations.ports import KeyRing
from crp_integrations.relay.records import Request
from crp_integrations.relay.window_records import Note
from crp_integrations.relay.world import World
from crp_integrations.seals import iso
from crp_integrations.vocabulary import EventType


def sandbox_of(
    world: World,
    residency: str,
    *,
    session_id: str = "",
    labels: tuple[str, ...] = (),
    keep: bool = True,
) -> Sandbox:
    """The artifact sandbox of a region, for the subject that the relay was opened for."""
    namespace = world.places.of(residency)

    def labels_of(ids: Sequence[str]) -> set[str]:
        # Includes facts that the subject may not see, so that a copy loses none of their labels.
        with namespace.begin(write=False) as transaction:
            own = transaction.facts.get(list(ids))
        return {label for fact in (*own, *namespace.facts(list(ids))) for label in fact.labels}

    return Sandbox(
        objects=world.places.objects[residency.lower()] if keep else world.places.fleeting(),
        subject=namespace.subject,
        guard=namespace.guard,
        clock=world.clock,
        ids=world.ids,
        keyring=world.keyring,
        tell=lambda draft: world.journal(namespace, [draft]) if keep else None,
        redactor=namespace.redactor,
        labels=labels,
        labels_of=labels_of,
        withdrawn=namespace.withdrawn,
        session_id=session_id,
        residency=residency.lower(),
        settings=world.settings.artifacts,
    )


def artifact_eraser(store: Store, objects: ObjectStore, keyring: KeyRing) -> ArtifactErasure:
    """An erasure that deletes artifacts together with the facts of a store."""

    def tell(namespace: str, draft: EventDraft, now: datetime) -> None:
        key = journal_key(keyring, namespace)
        with store.begin(namespace, write=True) as transaction:
            append_events(transaction.journal, key, [draft], iso(now))

    return ArtifactErasure(objects, tell)


def wants_compaction(request: Request, world: World) -> bool:
    """Whether a request's conversation is to be checked for compaction."""
    asked = request.compact
    on = world.settings.compaction.enabled if asked is None else asked
    return on and bool(request.history) and not request.results


def compact_request(request: Request, world: World, session_id: str) -> Request:
    """A request with its conversation shortened, if a trigger fires.

    Spec: Summit §Compression Strategy
    """
    system = [Message(role="system", content=request.system_prompt)] * bool(request.system_prompt)
    asked = Message(role="user", content=request.query)
    settings = world.settings.compaction.model_copy(update={"enabled": True})
    compact = compact_messages(
        (*system, *request.history, asked),
        world,
        settings,
        model=request.model,
        tools=request.tools,
        residency=request.residency,
        session_id=session_id,
    )
    left = compact.messages[len(system) : -1]
    return request.changed(history=left, compaction=compact.account)


def compact_messages(
    messages: Sequence[Message],
    world: World,
    settings: HistorySettings,
    *,
    model: str,
    tools: Sequence[Mapping[str, Any]] = (),
    question: str | None = None,
    budget: int | None = None,
    ids: Sequence[str] | None = None,
    pinned: Collection[str] = (),
    residency: str = "",
    session_id: str = "",
) -> CompactHistory:
    """Shorten messages to a token budget, in their order; the default is the model's share."""
    limit = budget_share(world.engines.limit_for(model)[0], settings.limit_share)
    keeps = settings.offload and session_id
    compactor = AutoCompactor(
        world.engines.counter_for(model),
        settings,
        artifacts=sandbox_of(world, residency, session_id=session_id) if keeps else None,
    )
    return compactor.compact_history(
        messages,
        limit if budget is None else budget,
        now=world.clock.now(),
        question=question,
        tools=tools,
        ids=ids,
        pinned=pinned,
    )


def compaction_events(account: CompactionAccount, signer: str) -> Iterator[Note]:
    """Journal events of a compaction: ids, counts, and each summary's hash and signer.

    Spec: Summit §Privacy & Security
    """
    yield (
        EventType.CONTEXT_COMPACTED,
        {
            "triggers": [trigger.value for trigger in account.triggers],
            "before": account.tokens_before,
            "after": account.tokens_after,
            "budget": account.budget,
            "fits": account.fits,
            "artifacts": [artifact.ref for artifact in account.artifacts],
        },
    )
    for report in account.reports:
        yield (
            EventType.CONTEXT_DROPPED,
            {
                "report": report.id,
                "reason": report.reason,
                "items": list(report.dropped_item_ids),
                "tokens": report.token_savings,
            },
        )
    for summary in account.summaries:
        yield (
            EventType.SUMMARY_WRITTEN,
            {
                "summary": summary.id,
                "level": summary.level,
                "content_hash": summary.checksum,
                "signer": signer,
                "method": summary.method,
                "items": [citation.item_id for citation in summary.citations],
            },
        )
