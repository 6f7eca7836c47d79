"""The journal's events of one window, in the order in which things happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crp_integrations.audit.drafts import draft_session_created
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.trail import closing_data
from crp_integrations.dpe.records import Report
from crp_integrations.governance.window_trace import PackColumns
from crp_integrations.relay.sealing.ending import Ending
from crp_integrations.relay.sealing.leaving import Left
from crp_integrations.relay.sealing.tracing import spent
from crp_integrations.seals import sha256
from crp_integrations.session import budget as safety
from crp_integrations.session.settings import BudgetSettings
from crp_integrations.vocabulary import AiActClass, EventType, Pattern


def told(
    seal: WindowSeal,
    ending: Ending,
    report: Report,
    left: Left,
    settings: BudgetSettings,
    fallen: Mapping[str, object],
    pack: PackColumns | None,
) -> list[tuple[EventType, dict[str, Any]]]:
    """The window's events; ids, hashes, counts and words of closed lists only.

    Spec: related facts §5

    Args:
        fallen: what is warned of when tiers fall from window to window; empty for nothing.
        pack: what its pack is; None when it ended before there was one.

    Facts that a session holds in memory leave nothing on disk, so they are counted and not named:
    an id follows from what the fact says, and would confirm a guess at it.
    """
    events = [
        *_begun(seal, ending, left, pack),
        *((event_type, dict(data)) for event_type, data in ending.notes),
        *(
            _examined(seal, report, ending, fallen)
            if seal.outcome in ("released", "halted")
            else [(EventType.DISPATCH_FAILED, {"outcome": seal.outcome, "error": ending.error})]
        ),
        *_session(left, settings),
    ]
    # The seal's formula leaves some of its fields out; here the journal's chain covers them.
    events[-1][1].update(closing_data(seal))
    return events


def _begun(
    seal: WindowSeal, ending: Ending, left: Left, pack: PackColumns | None
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    if seal.window_number == 1:
        session = left.session
        created = draft_session_created(
            seal.session_id,
            seal.window_id,
            policy_hash=sha256(session.policy) if session.policy else "",
            parent_session=session.parent_session,
            loop_depth=session.loop_depth,
            agent=session.agent_id,
        )
        yield created.event_type, dict(created.data)
    else:
        told: dict[str, Any] = {"parent_hmac": seal.parent_hmac}
        if ending.outdated:
            told["outdated"] = list(ending.outdated)
        yield EventType.SESSION_CONTINUED, told
    if pack is None:
        return
    yield EventType.FACT_RETRIEVED, pack.told()
    began: dict[str, Any] = {"model": ending.model, "etag": pack.pack["etag"]}
    began |= {one.step.value: one.counts for one in ending.steps}
    if ending.invocation_hash:
        began["invocation_hash"] = ending.invocation_hash
    yield EventType.DISPATCH_STARTED, began


def _examined(
    seal: WindowSeal, report: Report, ending: Ending, fallen: Mapping[str, object]
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    yield EventType.DISPATCH_COMPLETED, {"response_hash": seal.response_hash, **spent(ending.usage)}
    yield (
        EventType.DPE_COMPLETED,
        {"report_hash": seal.report_hash, "risk_level": report.risk_level.value, **fallen},
    )
    for event_type, count in (
        (EventType.FABRICATION_DETECTED, report.fabrication_count),
        (EventType.DISTORTION_DETECTED, report.distortion_count),
        (EventType.CONTRADICTION_DETECTED, report.contradiction_count),
        (EventType.REPETITION_DETECTED, len(report.quality.repetition.sentences)),
        (EventType.COMPLETENESS_GAP, len(report.uncovered_sub_queries)),
        (EventType.PII_DETECTED, len(report.personal.found)),
    ):
        if count:
            yield event_type, {"count": count}
    if report.eu_ai_act_class is not AiActClass.UNKNOWN:
        yield EventType.EU_AI_ACT_CLASSIFIED, {"class": report.eu_ai_act_class.value}
    if seal.outcome == "halted":
        yield EventType.SAFETY_HALT, {"reason": ending.reason} if ending.reason else {}


def _session(left: Left, settings: BudgetSettings) -> Iterator[tuple[EventType, dict[str, Any]]]:
    if left.charged and safety.halts(left.session.safety_budget, settings):
        yield (
            EventType.SAFETY_BUDGET_DEPLETED,
            {"budget": f"{left.session.safety_budget:.4f}"},
        )
    if left.node.pattern is Pattern.FAN_IN:
        yield EventType.FAN_IN_MERGED, {"parents": list(left.node.parents)}
