"""A window's trace for observers: its pack and its evaluation, without content.

It contains ids, counts, hashes, scores and enum values. The pack's part is written to the journal
with the window and read back from there (`pack_traces`), so that the figures in a trace viewer can
be compared with what was sealed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from pydantic import Field, TypeAdapter

from crp_integrations.audit.drafts import name_or_hash
from crp_integrations.audit.records import Event
from crp_integrations.dpe.records import Claim, ClaimCounts, Report
from crp_integrations.dpe.report_parts import UNAVAILABLE, JudgeRun
from crp_integrations.envelope.records import Drop, Envelope
from crp_integrations.errors import StepStopped
from crp_integrations.governance.settings import StepMeasurement, StepSettings
from crp_integrations.messages import ModelCall, Reply, Usage
from crp_integrations.ports import Tracer
from crp_integrations.records import Part, Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    Attribution,
    ClaimStatus,
    DropReason,
    EventType,
    QualityTier,
    RiskLevel,
)

# Attributions of claims that rest on the context (CRP-SPEC-005 §4.2).
CITES = frozenset({Attribution.CONTEXT_GROUNDED, Attribution.MIXED})


class ClaimCitation(NamedTuple):
    """A claim and a fact that it rests on according to the verifier.

    Attributes:
        holds: whether nothing was found against the claim.
    """

    claim_id: str
    fact_id: str
    holds: bool


class WindowEvaluation(Part):
    """A window's evaluation; shares are in [0, 1], None if there was nothing to count.

    Spec: Summit §Evaluation & Observability

    Attributes:
        consistent: whether the verifier found no contradiction between pack and answer.
        precision_proxy: share of the pack's items that a claim of the answer rests on.
        recall_proxy: share of the relevant candidates that are in the pack (CRP-SPEC-003 §8.1).
    """

    grounding: float = Field(ge=0.0, le=1.0)
    fidelity: float = Field(ge=0.0, le=1.0)
    entailment: float = Field(ge=0.0, le=1.0)
    completeness: float | None = Field(default=None, ge=0.0, le=1.0)
    checked_share: float = Field(ge=0.0, le=1.0)
    risk_score: float | None = Field(default=None, ge=0.0, le=1.0)
    risk_level: RiskLevel
    quality_tier: QualityTier
    envelope_score: float
    consistent: bool
    citations: int = Field(ge=0)
    citations_held: int = Field(ge=0)
    precision_proxy: float | None = Field(default=None, ge=0.0, le=1.0)
    recall_proxy: float = Field(ge=0.0, le=1.0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = Field(default=None, ge=0.0)

    @property
    def citation_accuracy(self) -> float | None:
        """Share of the citations that hold; None without citations."""
        return self.citations_held / self.citations if self.citations else None


def find_citations(report: Report) -> Iterator[ClaimCitation]:
    """The report's citations: each fact that a claim is attributed to, once per claim.

    A claim that contradicts a fact counts as a wrong citation of it.
    """
    for claim in report.claims:
        if claim.attribution in CITES or claim.status is ClaimStatus.CONTRADICTED:
            for fact_id in dict.fromkeys(evidence.fact_id for evidence in claim.evidence):
                yield ClaimCitation(claim.claim_id, fact_id, _holds(claim))


def is_consistent(report: Report) -> bool:
    """Whether nothing was found that contradicts the context.

    Spec: Summit §SLOs
    """
    return report.risk_level in (RiskLevel.LOW, RiskLevel.UNKNOWN)


def evaluate_window(report: Report, envelope: Envelope, usage: Usage) -> WindowEvaluation:
    """The evaluation of a window whose answer was examined."""
    cited = list(find_citations(report))
    shown = {fact.fact_id for fact in envelope.facts}
    used = {citation.fact_id for citation in cited} & shown
    return WindowEvaluation(
        grounding=report.grounding_pct,
        fidelity=report.fidelity_score,
        entailment=report.entailment_score,
        completeness=report.completeness_score,
        checked_share=report.checked_share,
        risk_score=report.risk_score,
        risk_level=report.risk_level,
        quality_tier=envelope.quality_tier,
        envelope_score=envelope.envelope_score,
        consistent=is_consistent(report),
        citations=len(cited),
        citations_held=sum(citation.holds and citation.fact_id in shown for citation in cited),
        precision_proxy=len(used) / len(shown) if shown else None,
        recall_proxy=min(1.0, max(0.0, envelope.coverage_score)),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=usage.cost_usd,
    )


def _holds(claim: Claim) -> bool:
    return not (claim.flagged or claim.disputed)


def check_guardrails(measured: Sequence[StepMeasurement], settings: StepSettings) -> None:
    """Stop a run at the first step that violates its guardrail."""
    for measurement in measured:
        fault = settings.of(measurement.step).fault(measurement)
        if fault:
            raise StepStopped(measurement.step.value, fault)


# Label of a fact without any label; in a tenant's namespace the tenant's label is still added.
UNLABELLED: Final = "unlabelled"
INVOCATION: Final = "invocation@1"


class TracedItem(Part):
    """An item of a pack.

    Attributes:
        label: its access labels, joined with `+`.
        tokens: tokens with its marker and separator.
        score: composite score for which it was selected, [0, 1].
        decision: id of the guard's decision that allowed reading it; empty if it has no id.
    """

    id: str
    source: str
    label: str
    tokens: int = Field(ge=0)
    score: float = Field(ge=0.0, le=1.0)
    decision: str = ""


_ITEMS: Final = TypeAdapter(tuple[TracedItem, ...])


class TracedDrops(Part):
    """The items that were left out for one reason.

    Attributes:
        ids_hash: SHA-256 of the ids, one per line, in the order of the drop report; the window's
            receipt names each of them.
    """

    reason: DropReason
    count: int = Field(ge=1)
    tokens: int = Field(ge=0)
    ids_hash: str


class PackTrace(Record):
    """The trace of a context pack.

    Spec: Summit §Evaluation & Observability

    Attributes:
        invocation_hash: hash of the call that the pack was made for; empty if there was none.
        held: number of items that the session keeps only in memory; they are not named.
        assembly_us: microseconds from the question to the packed envelope, by the relay's clock.
        ledger_hmac: the journal's HMAC over this trace; empty before it is written.
    """

    SCHEMA = "context-pack-trace/1"

    session_id: str
    window_id: str
    timestamp: str
    etag: str
    state_hash: str
    model: str = ""
    invocation_hash: str = ""
    token_budget: int = Field(default=0, ge=0)
    token_count: int = Field(default=0, ge=0)
    available: int = Field(default=0, ge=0)
    held: int = Field(default=0, ge=0)
    assembly_us: int = Field(default=0, ge=0)
    items: tuple[TracedItem, ...] = ()
    drops: tuple[TracedDrops, ...] = ()
    ledger_hmac: str = ""


class JudgeTrace(Part):
    """Calls and costs of a window's judge, not included in those of the answering models.

    Attributes:
        cached: replies that were in the judge's cache.
        failed: calls, cached ones included, without a readable reply.
        refused: calls that were not made, as the model had failed several times in a row.
        skipped: why no call was made, as in the report; empty if one was made.
    """

    asked: int = Field(default=0, ge=0)
    cached: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    refused: int = Field(default=0, ge=0)
    skipped: str = ""
    milliseconds: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = Field(default=None, ge=0.0)

    @property
    def read(self) -> int:
        """Number of calls, cached ones included, with a readable reply."""
        return self.asked + self.cached - self.failed

    @classmethod
    def of(cls, run: JudgeRun) -> JudgeTrace:
        """The trace of a report's judge run."""
        refused = sum(call.error == UNAVAILABLE for call in run.calls)
        cached = sum(call.cached for call in run.calls)
        asked = [call for call in run.calls if not call.cached and call.error != UNAVAILABLE]
        return cls(
            asked=len(asked),
            cached=cached,
            failed=sum(bool(call.error) for call in run.calls) - refused,
            refused=refused,
            skipped=run.skipped,
            milliseconds=sum(call.milliseconds for call in asked),
            prompt_tokens=sum(call.prompt_tokens for call in asked),
            completion_tokens=sum(call.completion_tokens for call in asked),
            cost_usd=run.cost_usd,
        )


class WindowTrace(Record):
    """A sealed window: its pack, and the examination of its answer.

    Attributes:
        parent_session: session of the parent agent; empty for the root.
        turn: number of the model call in the agent's run; 0 if calls are not counted.
        risk_level: risk level of its answer; empty if none was examined.
        duration_us: microseconds from its beginning to its seal, by the relay's clock.
        pack: None if it ended before there was one.
        evaluated: None if no answer was examined against a pack.
    """

    SCHEMA = "window-trace/1"

    session_id: str
    window_id: str
    outcome: str
    strategy: str
    model: str
    error: str = ""
    report_hash: str = ""
    window_hmac: str = ""
    receipt_id: str = ""
    window_number: int = Field(default=1, ge=1)
    parent_session: str = ""
    depth: int = Field(default=0, ge=0)
    turn: int = Field(default=0, ge=0)
    risk_level: str = ""
    claims: ClaimCounts = ClaimCounts()
    distortions: int = Field(default=0, ge=0)
    duration_us: int = Field(default=0, ge=0)
    pack: PackTrace | None = None
    evaluated: WindowEvaluation | None = None
    judged: JudgeTrace | None = None


@runtime_checkable
class Observer(Tracer, Protocol):
    """A tracer that also receives each sealed window and each model call."""

    def sealed(self, trace: WindowTrace) -> None:
        """Receive a window's trace; called outside of transactions, never under `no-store`."""
        ...

    def calling(self, call: ModelCall) -> AbstractContextManager[Callable[[Reply], None]]:
        """A context around a model call; it yields a function that receives the reply."""
        ...


def security_label(labels: Sequence[str]) -> str:
    """An item's labels as one name.

    >>> security_label(("internal", "tenant:acme")), security_label(())
    ('internal+tenant:acme', 'unlabelled')
    """
    return "+".join(name_or_hash(label) for label in sorted(labels)) or UNLABELLED


def invocation_hash(call: ModelCall) -> str:
    """`sha256:` of everything sent to a model: its name, all messages, parameters and tools.

    Texts enter the digest as their own digests, so that a long prompt is not encoded as JSON
    (`invocation@1`).
    """
    parts = [
        INVOCATION,
        call.model,
        call.purpose.value,
        repr(call.temperature),
        repr(call.max_tokens),
        repr(call.seed),
    ]
    for message in call.messages:
        parts += [str(message.role), message.name or "", message.tool_call_id or ""]
        parts += [sha256(message.content)]
        parts += [
            _hash_json([tool_call.id, tool_call.name, tool_call.arguments])
            for tool_call in message.tool_calls
        ]
    parts.append(_hash_json(list(call.tools)))
    return _hash_json(parts)


def _hash_json(value: Any) -> str:
    return sha256(json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":")))


def drop_columns(dropped: Sequence[Drop]) -> dict[str, list[Any]]:
    """The journal's fields on drops: reasons, counts, tokens, and hashes of the ids."""
    groups = group_drops(dropped)
    if not groups:
        return {}
    return {
        "reasons": [reason.value for reason in groups],
        "reason_counts": [len(ids) for ids, _ in groups.values()],
        "reason_tokens": [tokens for _, tokens in groups.values()],
        "reason_hashes": [sha256("\n".join(ids)) for ids, _ in groups.values()],
    }


def group_drops(dropped: Sequence[Drop]) -> dict[DropReason, tuple[list[str], int]]:
    """Ids and tokens by reason, in the order in which the reasons first occur."""
    groups: dict[DropReason, tuple[list[str], int]] = {}
    for drop in dropped:
        ids, tokens = groups.get(drop.reason, ([], 0))
        ids.append(drop.fact_id)
        groups[drop.reason] = (ids, tokens + drop.tokens)
    return groups


def pack_traces(events: Iterable[Event]) -> Iterator[PackTrace]:
    """The traces in a journal, in its order.

    The hash of the call is in the event after that of the selection.
    """
    waiting: Event | None = None
    for event in events:
        if waiting is not None:
            starts = event.event_type is EventType.DISPATCH_STARTED
            same = starts and event.window_id == waiting.window_id
            yield _trace_in(waiting, event.data if same else {})
            waiting = None
        if event.event_type is EventType.FACT_RETRIEVED and event.window_id:
            waiting = event
    if waiting is not None:
        yield _trace_in(waiting, {})


def _trace_in(event: Event, call: Mapping[str, Any]) -> PackTrace:
    return read_trace(
        event.data,
        session_id=event.session_id,
        window_id=event.window_id,
        timestamp=event.timestamp,
        ledger_hmac=event.hmac,
        model=call.get("model", ""),
        invocation_hash=call.get("invocation_hash", ""),
    )


def read_trace(data: Mapping[str, Any], **about: str) -> PackTrace:
    """A pack's trace from its event data in the journal.

    Args:
        about: fields of the trace that are elsewhere in the journal.
    """
    ids = data.get("facts", ())
    many = len(ids)
    rows = zip(
        ids,
        data.get("sources", [""] * many),
        data.get("labels", [UNLABELLED] * many),
        data.get("item_tokens", [0] * many),
        data.get("scores", [0.0] * many),
        data.get("decisions", [""] * many),
        strict=True,
    )
    reasons = zip(
        *(data.get(f"reason{name}", ()) for name in ("s", "_counts", "_tokens", "_hashes")),
        strict=True,
    )
    return PackTrace(
        **about,
        etag=data.get("etag", ""),
        state_hash=data.get("state_hash", ""),
        token_budget=data.get("budget_tokens", 0),
        token_count=data.get("tokens", 0),
        available=data.get("available", 0),
        held=data.get("held", 0),
        assembly_us=data.get("assembly_us", 0),
        # Validated together, because each window has dozens.
        items=_ITEMS.validate_python(
            tuple(dict(zip(TracedItem.model_fields, row, strict=True)) for row in rows)
        ),
        drops=tuple(
            TracedDrops(reason=reason, count=count, tokens=tokens, ids_hash=ids_hash)
            for reason, count, tokens, ids_hash in reasons
        ),
    )
