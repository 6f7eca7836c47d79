"""The conversation around a question, shortened where it is long, with an account in the journal.

Off unless the setting `compaction.enabled` or the question's own `compact` says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from crp_integrations.governance.compaction import AutoCompactor
from crp_integrations.governance.compaction.records import CompactHistory, CompactionAccount
from crp_integrations.governance.compaction.settings import HistorySettings, budget_share
from crp_integrations.messages import Message
from crp_integrations.relay.facets.sandboxes import sandbox_of
from crp_integrations.relay.records import Request
from crp_integrations.relay.sealing.ending import Note
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import EventType


def wanted(request: Request, world: World) -> bool:
    """Whether a request's conversation is looked at."""
    asked = request.compact
    on = world.settings.compaction.enabled if asked is None else asked
    return on and bool(request.history) and not request.results


def compacted(request: Request, world: World, session_id: str) -> Request:
    """A request with its conversation shortened, if a trigger fires.

    Spec: Summit §Compression Strategy

    Args:
        session_id: whose artifacts large results become, where the settings say so; empty keeps
            none.

    Raises:
        RequestError: a call in the conversation has no result, or a result no call.
        CompactionRefused: what came out does not account for what was left out.
    """
    system = [Message(role="system", content=request.system_prompt)] * bool(request.system_prompt)
    asked = Message(role="user", content=request.query)
    settings = world.settings.compaction.model_copy(update={"enabled": True})
    compact = shortened(
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


def shortened(
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
    """Messages as a model is to be sent them, in their order.

    Args:
        budget: tokens for messages and tool definitions; None for the model's share.
        session_id: whose artifacts large results become; empty keeps none.
    """
    limit = budget_share(world.limit_for(model)[0], settings.limit_share)
    keeps = settings.offload and session_id
    compactor = AutoCompactor(
        world.counter_for(model),
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


def notes(account: CompactionAccount, signer: str) -> Iterator[Note]:
    """What the journal is told of a compaction: ids, counts, and each summary's hash and signer.

    Spec: Summit §Privacy & Security

    Args:
        signer: the subject on whose behalf it was done.
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
            "fallbacks": len(account.fallbacks),
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
