"""Records of a window's end, the journal events it writes, and the trace for observers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from crp_integrations.audit.drafts import draft_session_created
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.trail import closing_data
from crp_integrations.dpe.records import ClaimCounts, Report
from crp_integrations.envelope.records import EarlierWindow, Envelope
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.governance.settings import StepMeasurement
from crp_integrations.governance.window_trace import (
    JudgeTrace,
    PackTrace,
    WindowTrace,
    drop_columns,
    evaluate_window,
    read_trace,
    security_label,
)
from crp_integrations.messages import Reply, Usage
from crp_integrations.receipt.records import Draft
from crp_integrations.relay.steps import total_usage
from crp_integrations.relay.world import World
from crp_integrations.seals import sha256
from crp_integrations.session import budget as safety
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.session.settings import SafetyBudgetSettings
from crp_integrations.session.transfer import Transfer
from crp_integrations.vocabulary import AiActClass, EventType, Pattern, Strategy

if TYPE_CHECKING:
    from crp_integrations.relay.session_admission import Admission

_LOG = logging.getLogger("crp_integrations.relay")
# An event within a window: only ids, hashes, counts and enum values, never free text.
Note: TypeAlias = tuple[EventType, Mapping[str, Any]]
# Makes the draft of a window's receipt from its seal and its finished report.
DraftMaker: TypeAlias = Callable[[WindowSeal, Report], Draft]


@dataclass(frozen=True, slots=True)
class WindowEnd:
    """How a window ended.

    Attributes:
        error: class name of the error that ended the window, empty when none did.
        sibling: number among the windows of one fan-out, from 1; 0 for a single window.
        keep: whether its texts may be stored on disk; False under `no-store`.
        memory_only: whether an agent's tool results were used in it; its texts are then kept in
            memory until the session ends.
        new_session_fields: fields of the session if it begins with this window.
        candidates: ids of the facts that its receipt names, shown or not.
        hashes: `sha256:…` of the shown texts of the envelope's facts, by id, if computed.
        decisions: ids of the guard's decisions that permitted the facts, by fact id.
        invocation_hash: hash of the call that contains the envelope; empty for none.
        assembly_us: microseconds that packing took, by the relay's clock.
        depth, turn: depth in a chain of agents, and number in the agent's run; 0 for none.
        began: time when it began; None without an observer.
    """

    outcome: str
    envelope: Envelope | None
    text: str
    report: Report
    model: str
    strategy: Strategy = Strategy.PUSH
    tool_calls: int = 0
    error: str = ""
    reason: str = ""
    notes: tuple[Note, ...] = ()
    sibling: int = 0
    keep: bool = True
    memory_only: bool = False
    outdated: tuple[str, ...] = ()
    transfer: Transfer | None = None
    new_session_fields: Mapping[str, Any] = field(default_factory=dict)
    draft: DraftMaker | None = None
    candidates: tuple[str, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, str] = field(default_factory=dict)
    invocation_hash: str = ""
    assembly_us: int = 0
    usage: Usage = field(default_factory=Usage)
    steps: tuple[StepMeasurement, ...] = ()
    depth: int = 0
    turn: int = 0
    began: datetime | None = None


@dataclass(slots=True)
class WindowCalls:
    """Counts and events of a window's model calls.

    Spec: CRP-SPEC-005 §19.3

    Attributes:
        calls: number of replies received, for every purpose.
        remedies: remedies used against findings: `prompt-augmented`, `stitched`.
    """

    calls: int = 0
    redispatches: int = 0
    tool_calls: int = 0
    remedies: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    _usages: list[Usage] = field(default_factory=list)

    def add(self, reply: Reply) -> None:
        """Count a reply."""
        self.calls += 1
        self.tool_calls += len(reply.tool_calls)
        self._usages.append(reply.usage)

    def note(self, event_type: EventType, **data: object) -> None:
        """Add a journal event: only ids, hashes, counts and enum values."""
        self.notes.append((event_type, data))

    @property
    def usage(self) -> Usage:
        """Total usage of all calls; the cost is known only if every call has one."""
        return total_usage(self._usages)


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """The changes that were committed for the session.

    Attributes:
        prior: record of the window for its continuation; None when it was not delivered.
        reported: whether its report was stored.
        stored: whether the session and the window are in the store; otherwise they are in memory.
        placed: whether the window is part of the session's graph. A question that was refused
            before admission is sealed in the session's chain but is not part of the graph, unless
            the session begins with it.
    """

    session: Session
    node: WindowNode
    charged: float
    prior: EarlierWindow | None
    reported: bool = False
    stored: bool = False
    placed: bool = True


@dataclass(frozen=True, slots=True)
class Sealing:
    """A window that is being sealed, within the transaction that seals it.

    Attributes:
        report: the report with session and window ids filled in.
        earlier: the session's seals so far.
        follows: the earlier seals that the window follows.
        stored: ids of the window's facts that are in a store.
    """

    transaction: Transaction
    namespace: Namespace
    world: World
    admission: Admission | None
    end: WindowEnd
    seal: WindowSeal
    report: Report
    now: datetime
    earlier: Sequence[WindowSeal]
    follows: Sequence[WindowSeal]
    stored: Set[str]


def window_events(
    sealing: Sealing,
    update: SessionUpdate,
    fallen: Mapping[str, object],
    pack: Mapping[str, Any] | None,
) -> list[tuple[EventType, dict[str, Any]]]:
    """The window's journal events: only ids, hashes, counts and enum values.

    Spec: related facts §5

    Facts in memory must leave nothing on disk, so they are counted but not named: a fact's id is
    derived from its text and would confirm a guess of that text.
    """
    seal, end, report = sealing.seal, sealing.end, sealing.report
    events = [
        *_opening_events(seal, end, update, pack),
        *((event_type, dict(data)) for event_type, data in end.notes),
        *(
            _examination_events(seal, report, end, fallen)
            if seal.outcome in ("released", "halted")
            else [(EventType.DISPATCH_FAILED, {"outcome": seal.outcome, "error": end.error})]
        ),
        *_session_events(update, sealing.world.settings.sessions.budget),
    ]
    # Some fields are not covered by the seal's HMAC; here the journal's chain covers them.
    events[-1][1].update(closing_data(seal))
    return events


def _opening_events(
    seal: WindowSeal, end: WindowEnd, update: SessionUpdate, pack: Mapping[str, Any] | None
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    if seal.window_number == 1:
        session = update.session
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
        fields: dict[str, Any] = {"parent_hmac": seal.parent_hmac}
        if end.outdated:
            fields["outdated"] = list(end.outdated)
        yield EventType.SESSION_CONTINUED, fields
    if pack is None:
        return
    yield EventType.FACT_RETRIEVED, dict(pack)
    began: dict[str, Any] = {"model": end.model, "etag": pack["etag"]}
    began |= {step.step.value: step.counts for step in end.steps}
    if end.invocation_hash:
        began["invocation_hash"] = end.invocation_hash
    yield EventType.DISPATCH_STARTED, began


def _examination_events(
    seal: WindowSeal, report: Report, end: WindowEnd, fallen: Mapping[str, object]
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    yield (
        EventType.DISPATCH_COMPLETED,
        {"response_hash": seal.response_hash, **usage_fields(end.usage)},
    )
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
        yield EventType.SAFETY_HALT, {"reason": end.reason} if end.reason else {}


def _session_events(
    update: SessionUpdate, settings: SafetyBudgetSettings
) -> Iterator[tuple[EventType, dict[str, Any]]]:
    if update.charged and safety.halts(update.session.safety_budget, settings):
        yield (EventType.SAFETY_BUDGET_DEPLETED, {"budget": f"{update.session.safety_budget:.4f}"})
    if update.node.pattern is Pattern.FAN_IN:
        yield EventType.FAN_IN_MERGED, {"parents": list(update.node.parents)}


def trace_of(seal: WindowSeal, end: WindowEnd, pack: Mapping[str, Any], hmac: str) -> PackTrace:
    """The trace of a window's pack, from its journal fields.

    Spec: Summit §Evaluation & Observability
    """
    return read_trace(
        pack,
        session_id=seal.session_id,
        window_id=seal.window_id,
        timestamp=seal.timestamp,
        model=end.model,
        invocation_hash=end.invocation_hash,
        ledger_hmac=hmac,
    )


def pack_columns(end: WindowEnd, envelope: Envelope, stored: Set[str]) -> dict[str, Any]:
    """Journal fields of a window's pack; facts that are not on disk are not named."""
    shown = [fact for fact in envelope.facts if fact.fact_id in stored]
    ids = [fact.fact_id for fact in shown]
    labels, decisions = end.labels, end.decisions
    data: dict[str, Any] = {
        "etag": envelope.etag,
        "state_hash": envelope.state_hash,
        "budget_tokens": envelope.token_budget,
        "tokens": envelope.token_count,
        "available": envelope.total_facts_available,
        "assembly_us": end.assembly_us,
        "facts": ids,
        "dropped": len(envelope.dropped),
    }
    if ids:
        # Computed once for each set of labels: there are few sets and many items.
        named = {of: security_label(of) for of in {*labels.values()}}
        unlabelled = security_label(())
        data |= {
            "sources": [fact.source_id for fact in shown],
            "labels": [named[labels[id_]] if id_ in labels else unlabelled for id_ in ids],
            "item_tokens": [fact.token_count for fact in shown],
            "scores": [fact.composite_score for fact in shown],
        }
        if any(decisions.get(id_) for id_ in ids):
            data["decisions"] = [decisions.get(id_, "") for id_ in ids]
    data |= drop_columns(envelope.dropped)
    if len(shown) < len(envelope.facts):
        data["held"] = len(envelope.facts) - len(shown)
    return data


def usage_fields(usage: Usage) -> Mapping[str, Any]:
    """Journal fields of the model calls' usage; unknown values are left out."""
    if not usage.total_tokens:
        return {}
    fields: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
    }
    if usage.cost_usd is not None:
        fields["cost_microusd"] = round(usage.cost_usd * 1_000_000)
    return fields


def microseconds_between(began: datetime, ended: datetime) -> int:
    """Microseconds from one time to another; 0 if the clock was set back."""
    return max(0, (ended - began) // timedelta(microseconds=1))


def observe(
    world: World,
    end: WindowEnd,
    seal: WindowSeal,
    report: Report,
    pack: Callable[[], PackTrace] | None,
    receipt_id: str,
    update: SessionUpdate,
) -> None:
    """Pass the trace of a sealed window to the observer; its errors are only logged.

    Windows under `no-store` are not traced.
    """
    if world.listeners.observer is None or not end.keep:
        return
    # A reply with only tool calls has no text, so nothing was examined.
    examined = seal.outcome in ("released", "halted") and bool(end.text.strip())
    try:
        now = world.clock.now()
        world.listeners.observer.sealed(
            WindowTrace(
                session_id=seal.session_id,
                window_id=seal.window_id,
                outcome=seal.outcome,
                strategy=end.strategy.value,
                model=end.model,
                error=end.error,
                report_hash=seal.report_hash,
                window_hmac=seal.hmac,
                receipt_id=receipt_id,
                window_number=seal.window_number,
                parent_session=update.session.parent_session,
                depth=end.depth,
                turn=end.turn,
                risk_level=report.risk_level.value if examined else "",
                claims=report.claim_counts if examined else ClaimCounts(),
                distortions=report.distortion_count,
                duration_us=microseconds_between(end.began or now, now),
                pack=pack() if pack else None,
                evaluated=evaluate_window(report, end.envelope, end.usage)
                if examined and end.envelope is not None
                else None,
                judged=JudgeTrace.of(report.judge) if report.judge is not None else None,
            )
        )
    except Exception as error:  # noqa: BLE001 - an observer's error must not affect the window
        why = type(error).__name__
        _LOG.warning("the trace of window %s was not taken: %s", seal.window_id, why)
