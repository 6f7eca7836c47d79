"""Reports on answers that somebody else asked for: examined and sealed, or marked as not checked.

The context was packed elsewhere, and the call made elsewhere. What was seen of both is recorded;
what was not is said to be not there, and never made up.
"""

from __future__ import annotations

import json
import logging
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
from crp_integrations.relay.evidence import readable
from crp_integrations.relay.examination import RECORDED, VERIFIED, caller_dossier, examine_dossier
from crp_integrations.relay.judge import Judge, OnReport
from crp_integrations.relay.judged_answer import JudgedAnswer, barred_facts, hand_report
from crp_integrations.relay.receipts import draft_maker, settings_in_force
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import JUDGED
from crp_integrations.relay.storeless_functions import examine
from crp_integrations.relay.window_records import WindowEnd
from crp_integrations.relay.window_seal import close
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import GroundingMode
from crp_integrations.vocabulary.provenance import (
    Attribution,
    ClaimType,
    RiskLevel,
    Verification,
)
from crp_integrations.vocabulary.safety import HaltReason


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """A sealed window around an answer that somebody else asked for.

    Attributes:
        report: with its identity.
        receipt: None where receipts are off. It is kept in the store where all of its facts are in
            the fabric; else nobody else has it, since no erasure could reach its texts.
        halt: what to raise where answers can be withheld: the judge failed, and its `failure` is
            `halt`.
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
    """Examine an answer and seal a window around it, with a receipt of what was seen.

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
            judge, report, dossier, world.settings.dpe, session_id=session, left_out=left_out
        )
        try:
            with world.tracer.step(JUDGED):
                report = way.play()
        except SafetyHalt as error:
            halt = error
            report = cast("Report", error.report)
    calls = (ModelCall(model=model, messages=tuple(messages)),) if messages else ()
    reason = halt.reason if halt else str((judgement and judgement.halt) or "")
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
        # The system prompt is left out: it is part of the call, which is recorded anyway.
        candidates=tuple(fact_id for fact_id, _ in dossier.passages if fact_id != SYSTEM),
        depth=depth,
        turn=turn,
        began=began,
    )
    closed = close(namespace, world, session, None, end)
    # The unwritten receipt has all texts; one read later lacks those that are in no fabric.
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
    """Ids of facts that the judge's provider must not get, and why."""
    reasons = dict(barred_facts(judge, context))
    ids = [fact_id for fact_id, _ in dossier.passages]
    if judge.settings.withhold_labels:
        reasons |= dict(barred_facts(judge, [fact for fact in relay.fabric.facts(ids) if fact]))
    if session_id:
        held = set(relay.fabric.view(session_id, keep_counts=False).held())
        reasons |= {fact_id: "no-store" for fact_id in ids if fact_id in held}
    return list(reasons.items())


Attachment: TypeAlias = dict[str, Any]
# What an examination came to, the receipt, and what halts.
Examination: TypeAlias = tuple[Report, Receipt | None, SafetyHalt | None]
# Flag of the report on an answer that was not examined.
NOT_EXAMINED: Final = "not-examined"


@dataclass(frozen=True, slots=True)
class AnswerExaminer:
    """Examines the answers of one handler; with a relay it seals them too."""

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
        """Examine an answer; whatever goes wrong becomes a report that says so."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, the report says it
            # The framework would swallow it; the answer must say that it was not examined. The
            # error's own words may quote a text, which no log may hold.
            self.log.error("the examination of an answer failed with %s", type(error).__name__)
            return not_checked(f"the examination failed with {type(error).__name__}", answer)


def not_checked(reason: str, answer: str = "") -> Examination:
    """What an answer that was not examined comes to: the report says why, and nobody halts."""
    return unread_report(reason, answer), None, None


def unread_report(reason: str, answer: str = "") -> Report:
    """The report on an answer that was not examined: all fields of any other, UNKNOWN, and why.

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
        completeness_score=0.0,
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
    """Whether a report is of an examination, or only says why there was none."""
    return NOT_EXAMINED not in report.flags


def critical_risk(report: Report) -> SafetyHalt:
    """What a handler raises for an answer whose risk is CRITICAL."""
    reason = HaltReason.CRITICAL_RISK.value
    return SafetyHalt(f"an answer's risk is {RiskLevel.CRITICAL}", report=report, reason=reason)


Attach = Literal["full", "summary", "id"]
# Of a summary as JSON, however it is written.
SUMMARY_BYTES: Final = 1_024
_MOST_ID, _MOST_REASON, _MOST_QUOTE = 96, 160, 80
# Keys of which every attachment has one, and no other metadata of this package.
_MARKS: Final = frozenset({"report_id", "risk_level"})
_LOG: Final = logging.getLogger("crp_integrations.adapters")


def check_attach(attach: str) -> None:
    """Check how much of a report is attached."""
    if attach not in get_args(Attach):
        wanted = ", ".join(get_args(Attach))
        raise RequestError(f"attach {attach!r:.40} is not one of {wanted}")


def attachment_of(report: Report, attach: str) -> Attachment:
    """What an answer's metadata hold of its report, as plain JSON: all, a summary, or the id."""
    match attach:
        case "full":
            return report.model_dump(mode="json")
        case "id":
            return {"report_id": report_id(report)}
        case _:
            return summarise_report(report)


def report_id(report: Report) -> str:
    """The window's id, by which `Relay.report` gives the report; its hash where none is sealed."""
    return report.window_id or report.report_hash


def summarise_report(report: Report) -> Attachment:
    """A report in at most 1,024 bytes of JSON: what was found, and where the report is.

    `claims` counts what was read of the answer; `risk_score` is None where the level is UNKNOWN.
    Reasons and flagged claims are in it as far as they fit, gravest and first ones before others;
    `flagged_total` counts all flagged claims.
    """
    flagged = [claim for claim in report.claims if claim.flagged]
    made: Attachment = {
        "report_id": _clipped(report_id(report), _MOST_ID),
        "session_id": _clipped(report.session_id, _MOST_ID),
        "risk_level": report.risk_level.value,
        "risk_score": None if report.risk_score is None else round(report.risk_score, 4),
        "claims": {
            "read": report.claim_counts.read,
            "supported": report.claim_counts.supported,
            "wrong": report.claim_counts.wrong,
            "unread": report.claim_counts.unread,
        },
        "verification": report.verification.value,
        "checked_by": _clipped(report.checked_by, _MOST_ID),
        "grounding_pct": round(report.grounding_pct, 4),
        "flagged": report.flagged,
        "flagged_total": len(flagged),
        "reasons": [],
        "flagged_claims": [],
    }
    for reason in report.reasons:
        _append_fitting(made, "reasons", _clipped(reason, _MOST_REASON))
    for claim in flagged:
        entry = {
            "claim_id": _clipped(claim.claim_id, _MOST_ID),
            "start": claim.start,
            "end": claim.end,
            "status": claim.status.value,
            "error": claim.error.value if claim.error else None,
            "text": _clipped(claim.text, _MOST_QUOTE),
        }
        if not _append_fitting(made, "flagged_claims", entry):
            break
    return made


def _append_fitting(made: Attachment, name: str, entry: Any) -> bool:
    made[name].append(entry)
    if len(json.dumps(made)) <= SUMMARY_BYTES:
        return True
    made[name].pop()
    return False


def _clipped(text: str, most: int) -> str:
    """A text of at most so many bytes as JSON, quotation marks apart."""
    cut = text[:most]
    while len(json.dumps(cut)) - 2 > most:
        cut = cut[:-1]
    return cut


def attached_report(metadata: object) -> Attachment | None:
    """The report in an answer's metadata, as much of it as is attached; None for none."""
    report = metadata.get("crp") if isinstance(metadata, Mapping) else None
    return dict(report) if isinstance(report, Mapping) and _MARKS & report.keys() else None


class HeardReports:
    """Hands an answer's report to the handlers that heard its model calls.

    Attributes:
        handlers: those, each with `take`.
    """

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def __call__(self, report: object) -> None:
        """Hand it over."""
        if isinstance(report, Report):
            for handler in self.handlers:
                handler.take(report)


@contextmanager
def halts_heard(delivery: HeardReports) -> Iterator[None]:
    """Within it, handlers get the report of an answer that is withheld before the error."""
    try:
        yield
    except SafetyHalt as halt:
        delivery(halt.report)
        raise
