"""Examines and seals answers that other code requested, or marks them as not examined.

Other code packed the context and made the call. What was observed of both is recorded; what
was not observed is recorded as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import Logger
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from crp_integrations.adapters.arguments import examined_conversation
from crp_integrations.dpe.dossier import SYSTEM, Dossier, PriorWindow
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import unique_claims
from crp_integrations.dpe.stages.report import finish
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message, ModelCall
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.window_values import Asked, Decided, WindowValues
from crp_integrations.relay.budget import Payer
from crp_integrations.relay.evidence import readable
from crp_integrations.relay.examination import RECORDED, VERIFIED, caller_dossier, examine_dossier
from crp_integrations.relay.judge import Judge, OnReport
from crp_integrations.relay.judged_answer import JudgedAnswer, barred_facts, hand_report
from crp_integrations.relay.receipts import asker_of, draft_maker, settings_in_force
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import JUDGED
from crp_integrations.relay.storeless_functions import examine
from crp_integrations.relay.window_records import WindowEnd
from crp_integrations.relay.window_seal import close
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import GroundingMode
from crp_integrations.vocabulary.provenance import Attribution, ClaimType, RiskLevel, Verification
from crp_integrations.vocabulary.safety import HaltReason


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """A sealed window around an answer that other code requested.

    Attributes:
        report: report with its window and session ids.
        receipt: None if receipts are off. The store keeps it only if all of its facts are in the
            fabric; otherwise this is the only copy, since no erasure could reach its texts.
        halt: error to raise where answers can be withheld; set if the judge failed and its
            `failure` is `halt`.
    """

    report: Report
    session_id: str
    window_id: str
    receipt: Receipt | None
    halt: SafetyHalt | None = None


def observe_answer(
    relay: Relay,
    answer: str,
    context: Envelope | Sequence[Fact | str],
    question: str = "",
    *,
    messages: Sequence[Message] = (),
    model: str = "",
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    session_id: str = "",
    prior: Sequence[str | PriorWindow] = (),
    rejected: Sequence[RejectedClaim] = (),
    policy: Policy | None = None,
    judgement: PolicyJudgement | None = None,
    keep: bool = True,
    judge: Judge | None = None,
    on_report: OnReport | None = None,
    depth: int = 0,
    turn: int = 0,
) -> ObservedAnswer:
    """Examine an answer and seal a window around it, with a receipt of what was observed.

    Spec: CRP-SPEC-005 §1.2, §15.4
    """
    world, namespace = relay._world, relay.fabric
    began = None if world.listeners.observer is None else world.clock.now()
    dossier = caller_dossier(
        answer,
        context,
        question,
        world.settings,
        grounding=grounding,
        controls=(*RECORDED, VERIFIED) if world.engines.code_verified else RECORDED,
        prior=prior,
        no_store=not keep,
        conversation=examined_conversation(messages, talk=judge is not None),
        rejected=unique_claims(
            rejected, world.memory.sessions.of(session_id).rejected if session_id else ()
        ),
    )
    report, examination = examine_dossier(dossier, world, namespace)
    own = len(report.flags)
    report = report.changed(flags=(*report.flags, "context-packed-elsewhere"))
    session = session_id or world.ids.new("crp_sess_")
    way, halt = None, None
    if judge is not None:
        left_out = _withheld_facts(judge, relay, dossier, context, session_id)
        way = JudgedAnswer(
            judge,
            report,
            dossier,
            world.settings.dpe,
            payer=Payer(session, world.budgets),
            left_out=left_out,
        )
        try:
            with world.tracer.step(JUDGED):
                report = way.play()
        except SafetyHalt as error:
            halt = error
            report = cast("Report", error.report)
    calls = (ModelCall(model=model, messages=tuple(messages)),) if messages else ()
    reason = halt.reason if halt else str((judgement and judgement.halt) or "")
    items = context.facts if isinstance(context, Envelope) else context
    sources = {item.fact_id: item.source_id for item in items if not isinstance(item, str)}
    record = WindowValues(
        asked=Asked(query=question, grounding=dossier.grounding, shaped=False),
        report=report,
        settings=settings_in_force(world),
        calls=calls,
        text=answer,
        answered_by=model,
        examined=replace(examination, judged=report.judge if way else None),
        flags_before=own,
        decided=Decided(
            policy=policy if policy is not None else Policy(),
            judgement=judgement,
            decision="withhold" if reason else "" if judgement is None else "deliver",
            reason=reason,
        ),
        embedder=namespace.embedder.identity,
        sources=sources,
        asker=asker_of(namespace, world),
        documents=tuple(namespace.sources({*sources.values()} - {""})),
        judge_prompt="" if judge is None else judge.prompt.text,
    )
    end = WindowEnd(
        outcome="halted" if reason else "released",
        envelope=None,
        text=answer,
        report=report,
        model=model,
        reason=record.decided.reason,
        keep=keep,
        draft=draft_maker(record) if world.settings.receipts else None,
        # Without the system prompt: the call, which is recorded anyway, contains it.
        candidates=tuple(fact_id for fact_id, _ in dossier.passages if fact_id != SYSTEM),
        depth=depth,
        turn=turn,
        began=began,
    )
    closed = close(namespace, world, session, None, end)
    # The receipt in memory has all texts; a stored one lacks those that are not in the fabric.
    made = None
    if closed.receipt_id:
        made = world.memory.receipts.find(closed.receipt_id, namespace.residency)
        made = made or relay.receipt(closed.receipt_id)
    if way is not None:
        hand_report(way, closed.report, on_report)
    return ObservedAnswer(closed.report, session, closed.seal.window_id, made, halt)


def _withheld_facts(
    judge: Judge,
    relay: Relay,
    dossier: Dossier,
    context: Envelope | Sequence[Fact | str],
    session_id: str,
) -> list[tuple[str, str]]:
    """Ids of facts that must not be sent to the judge's provider, and why."""
    reasons = dict(barred_facts(judge, context))
    ids = [fact_id for fact_id, _ in dossier.passages]
    if judge.settings.withhold_labels:
        reasons |= dict(barred_facts(judge, [fact for fact in relay.fabric.facts(ids) if fact]))
    if session_id:
        held = set(relay.fabric.view(session_id, keep_counts=False).held())
        reasons |= {fact_id: "no-store" for fact_id in ids if fact_id in held}
    return list(reasons.items())


Attachment: TypeAlias = dict[str, Any]
# The report, the receipt, and the error that withholds the answer.
Examination: TypeAlias = tuple[Report, Receipt | None, SafetyHalt | None]
# Flag of the report on an answer that was not examined.
NOT_EXAMINED: Final = "not-examined"


@dataclass(frozen=True, slots=True)
class AnswerExaminer:
    """Examines the answers of one handler; with a relay, also seals them."""

    grounding: GroundingMode
    relay: Relay | None
    judge: Judge | None
    log: Logger

    def examine(
        self,
        answer: str,
        facts: Callable[[], list[Fact]],
        question: str,
        *,
        messages: Sequence[Message],
        model: str,
        on_report: OnReport | None,
        rejected: Sequence[RejectedClaim] = (),
        depth: int = 0,
        turn: int = 0,
    ) -> Examination:
        """Examine an answer; an unexpected error becomes a report that names it."""
        try:
            context = facts()
            if self.relay is None:
                report = examine(
                    answer,
                    context=context,
                    question=question or None,
                    grounding=self.grounding,
                    conversation=examined_conversation(messages),
                    rejected=rejected,
                    judge=self.judge,
                    on_report=on_report,
                )
                return report, None, None
            observed = observe_answer(
                self.relay,
                answer,
                context,
                question,
                messages=messages,
                model=model,
                grounding=self.grounding,
                rejected=rejected,
                judge=self.judge,
                on_report=on_report,
                depth=depth,
                turn=turn,
            )
            return observed.report, observed.receipt, observed.halt
        except SafetyHalt as halt:
            return cast("Report", halt.report), None, halt
        except Exception as error:  # noqa: BLE001 - the report names any error
            # The framework would swallow the error, but the answer must say that it was not
            # examined. Only the type is logged: the message may quote a text.
            self.log.error("the examination of an answer failed with %s", type(error).__name__)
            return not_checked(f"the examination failed with {type(error).__name__}", answer)


def not_checked(reason: str, answer: str = "") -> Examination:
    """The result for an answer that was not examined: its report gives the reason; no halt."""
    return unread_report(reason, answer), None, None


def unread_report(reason: str, answer: str = "") -> Report:
    """The report on an answer that was not examined: risk level UNKNOWN, with the reason.

    >>> unread_report("the answer has no text").risk_level.value
    'UNKNOWN'
    """
    made = Report(
        grounding_mode=GroundingMode.PREFERRED,
        claims_total=0,
        claims_by_type={name.value: 0 for name in ClaimType},
        attribution_dominant=None,
        attribution_breakdown={name.value: 0 for name in Attribution},
        grounding_pct=0.0,
        unverifiable_pct=0.0,
        fabrication_count=0,
        distortion_count=0,
        distortion_types=(),
        contradiction_count=0,
        contradiction_scope="none",
        fidelity_score=0.0,
        entailment_score=0.0,
        contradiction_probability=0.0,
        neutral_probability=0.0,
        signals={},
        flow_score=0.0,
        rqa_score=0.0,
        base_score=0.0,
        composite_score=0.0,
        risk_score=None,
        verification=Verification.UNREAD,
        flagged=False,
        reasons=(reason,),
        risk_level=RiskLevel.UNKNOWN,
        claims=(),
        checked_share=0.0,
        flags=(NOT_EXAMINED,),
        stages=(),
        verifier="",
        embedder="",
        thresholds={},
        response_content_hash=sha256(readable(answer)),
    )
    return finish(made, settings_digest="")


def was_examined(report: Report) -> bool:
    """False for a report that only gives the reason why there was no examination."""
    return NOT_EXAMINED not in report.flags


def critical_risk(report: Report) -> SafetyHalt:
    """The error that a handler raises for an answer whose risk is CRITICAL."""
    reason = HaltReason.CRITICAL_RISK.value
    return SafetyHalt(
        f"an answer's risk is {RiskLevel.CRITICAL}",
        report=report,
        reason=reason,
        directive="on_critical raise",
        value=str(RiskLevel.CRITICAL),
    )


Attach = Literal["full", "summary", "id"]
# Maximum size of a summary as JSON, also with all non-ASCII characters escaped.
SUMMARY_BYTES: Final = 700
_MAX_ID, _MIN_REASON, _MAX_REASON = 80, 80, 160
# A field of every attached report; no other metadata has it.
_REPORT_KEY: Final = "report_hash"


def check_attach(attach: str) -> None:
    """Check the value that says how much of a report is attached."""
    if attach not in get_args(Attach):
        wanted = ", ".join(get_args(Attach))
        raise RequestError(f"attach {attach!r:.40} is not one of {wanted}")


def attachment_of(report: Report, attach: str) -> Attachment:
    """The part of a report for an answer's metadata, as plain JSON: all, a summary, or the ids."""
    match attach:
        case "full":
            return report.model_dump(mode="json")
        case "id":
            return _ids(report)
        case _:
            return summarise_report(report)


def _ids(report: Report) -> Attachment:
    """The window id, which `Relay.report` accepts and which is empty for none; and the hash."""
    return {"window_id": _clipped(report.window_id, _MAX_ID), "report_hash": report.report_hash}


def summarise_report(report: Report) -> Attachment:
    """Fields of a report in at most 700 bytes of JSON, each in the form that it has there.

    `risk_score` is None if the level is UNKNOWN. The gravest reason is always included, cut if
    need be; flags, then flagged claims, then further reasons as far as they fit.
    """
    made: Attachment = {
        **_ids(report),
        "session_id": _clipped(report.session_id, _MAX_ID),
        "risk_level": report.risk_level.value,
        "risk_score": None if report.risk_score is None else round(report.risk_score, 4),
        "claim_counts": report.claim_counts.model_dump(),
        "verification": report.verification.value,
        "checked_by": _clipped(report.checked_by, _MAX_ID),
        "grounding_pct": round(report.grounding_pct, 4),
        "flagged": report.flagged,
        "flags": [],
        "reasons": [_clipped(reason, _MIN_REASON) for reason in report.reasons[:1]],
        "claims": [],
    }
    for flag in report.flags:
        _append_fitting(made, "flags", _clipped(flag, _MAX_REASON))
    for claim in report.claims:
        entry = {
            "claim_id": _clipped(claim.claim_id, _MAX_ID),
            "start": claim.start,
            "end": claim.end,
            "status": claim.status.value,
            "error": claim.error.value if claim.error else None,
        }
        if claim.flagged and not _append_fitting(made, "claims", entry):
            break
    if report.reasons:
        made["reasons"] = [""]
        spare = SUMMARY_BYTES - len(json.dumps(made))
        made["reasons"] = [_clipped(report.reasons[0], min(_MAX_REASON, spare))]
    for reason in report.reasons[1:]:
        _append_fitting(made, "reasons", _clipped(reason, _MAX_REASON))
    return made


def _append_fitting(made: Attachment, name: str, entry: Any) -> bool:
    made[name].append(entry)
    if len(json.dumps(made)) <= SUMMARY_BYTES:
        return True
    made[name].pop()
    return False


def _clipped(text: str, most: int) -> str:
    """A text cut to at most so many bytes as JSON, not counting the quotation marks."""
    cut = text[:most]
    while len(json.dumps(cut)) - 2 > most:
        cut = cut[:-1]
    return cut


def attached_report(metadata: object) -> Attachment | None:
    """The report, summary or id attached to an answer's metadata; None if there is none."""
    report = metadata.get("crp") if isinstance(metadata, Mapping) else None
    return dict(report) if isinstance(report, Mapping) and _REPORT_KEY in report else None


class ReportDelivery:
    """Gives an answer's report to the handlers that observed its model calls.

    Attributes:
        handlers: handlers with a `take` method.
    """

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def __call__(self, report: object) -> None:
        """Give the report to every handler."""
        if isinstance(report, Report):
            for handler in self.handlers:
                handler.take(report)


@contextmanager
def deliver_on_halt(delivery: ReportDelivery) -> Iterator[None]:
    """If the `with` block withholds an answer, give its report to the handlers, then re-raise."""
    try:
        yield
    except SafetyHalt as halt:
        delivery(halt.report)
        raise
