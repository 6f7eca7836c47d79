"""The verdict on an answer: deliver it, ask again, or withhold it.

Remedies come before verdicts: while re-dispatches remain and may fix a finding, the model is asked
again. The policy decides on the last attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from crp_integrations.dpe import remedies
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.remedies import Redispatch
from crp_integrations.dpe.repair import Repair, repair
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import QualityUnreachable
from crp_integrations.language.coverage import reasoning_spans, without_reasoning
from crp_integrations.messages import Reply
from crp_integrations.policy.demands import acts
from crp_integrations.policy.directives import Demand
from crp_integrations.policy.policy_text import policy_hash
from crp_integrations.policy.records import Policy, PolicyJudgement, ViolationReport, ViolationSink
from crp_integrations.policy.verdict import (
    DELIVER,
    UNREACHABLE,
    AnswerTerms,
    accepts_tier,
    decide_answer,
    exceeds_risk,
    is_approved,
    judge_answer,
    may_withhold,
    needs_review,
    unreachable,
    violation_report,
    withholding,
)
from crp_integrations.relay.records import Request
from crp_integrations.relay.repaired_answer import NOT_REPAIRED
from crp_integrations.relay.session_admission import Admission
from crp_integrations.relay.settings import DispatchSettings, Settings
from crp_integrations.relay.window_records import Note
from crp_integrations.relay.world import CheckedCalls, World
from crp_integrations.session import budget as safety
from crp_integrations.vocabulary import (
    EventType,
    HaltReason,
    Oversight,
    QualityTier,
    RepetitionLevel,
    Severity,
    Strategy,
)

# Demands that a better grounded answer may meet; the others have separate remedies.
GROUNDING_DEMANDS = (
    Demand.RISK,
    Demand.GROUNDING,
    Demand.ENTAILMENT,
    Demand.FABRICATION,
    Demand.DISTORTION,
    Demand.QUALITY,
)


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask the model again within the same window.

    Attributes:
        triggers: reasons for it: `contradiction`, `repetition`, `flow`, and unmet demands.
    """

    redispatch: Redispatch
    triggers: tuple[str, ...]
    upgraded: bool


@dataclass(frozen=True, slots=True)
class Withhold:
    """The answer must not be shown."""

    reason: HaltReason


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The caller's tiers cannot be reached.

    Spec: CRP-SPEC-003 §8.4
    """

    error: QualityUnreachable


@dataclass(frozen=True, slots=True)
class Deliver:
    """The answer may be shown."""


@dataclass(frozen=True, slots=True)
class Mend:
    """Have a repaired reply examined and judged."""

    repair: Repair
    reply: Reply


Decision: TypeAlias = AskAgain | Mend | Withhold | Unreachable | Deliver


def _decide(
    report: Report,
    tier: QualityTier,
    judgement: PolicyJudgement,
    policy: Policy,
    terms: AnswerTerms,
) -> Decision:
    """Decide whether to deliver an answer, withhold or refuse it when no remedy is left.

    Spec: CRP-SPEC-005 §7.4; CRP-SPEC-003 §8.4
    """
    decision = decide_answer(report, tier, judgement, terms, unread=policy.allows_unread)
    if decision.reason is not None:
        return Withhold(decision.reason)
    if decision.word == UNREACHABLE:
        listed = policy.require_quality
        return Unreachable(unreachable(judgement, report, tier, terms.accept_quality, listed))
    return Deliver()


def _ask_again(
    report: Report,
    tier: QualityTier,
    judgement: PolicyJudgement,
    request: Request,
    policy: Policy,
    text: str,
    settings: DispatchSettings,
    attempts: int,
) -> AskAgain | None:
    """The remedies that are permitted and may help, in one re-dispatch; None without any.

    Spec: CRP-SPEC-005 §8.3, §9.3, §11.5, §19
    """
    upgrade = policy.upgrade_on_risk
    grounding = {demand.value for demand in GROUNDING_DEMANDS} | {"flagged"}
    instructions: list[str] = []
    triggers: list[str] = []
    contradicted = [
        contradiction
        for contradiction in report.cross_window_contradictions
        if contradiction.severity in (Severity.CRITICAL, Severity.HIGH)
    ]
    if any(contradiction.severity is Severity.CRITICAL for contradiction in contradicted) and (
        upgrade is not None or settings.redispatch_on_contradiction
    ):
        triggers.append("contradiction")
        instructions.append(remedies.against_contradiction(contradicted))
    if report.repetition_level is RepetitionLevel.SEVERE and (
        upgrade is not None or settings.redispatch_on_repetition
    ):
        triggers.append("repetition")
        instructions.append(
            remedies.against_repetition(remedies.marked(text, report.quality.repetition))
        )
    before = _previous_answer(request)
    if (
        report.flow_remediation == "redispatch"
        and settings.flow == "augment"
        and before
        and (upgrade is not None or settings.redispatch_on_flow)
    ):
        triggers.append("flow")
        instructions.append(remedies.towards_flow(before))
    if upgrade is not None:
        unmet = set(judgement.unmet)
        if not accepts_tier(tier, request.accept_quality):
            unmet.add(Demand.QUALITY)
        if exceeds_risk(report, request.accept_risk, unread=policy.allows_unread):
            unmet.add(Demand.RISK)
        triggers += [demand.value for demand in GROUNDING_DEMANDS if demand in unmet]
    if acts(policy.ask_again_on, report) and attempts < request.most_again:
        triggers.append("flagged")
    if grounding.intersection(triggers):
        flagged = [claim for claim in report.claims if claim.flagged or claim.disputed]
        instructions.append(remedies.against_unsupported(flagged))
    if not triggers:
        return None
    # A single call, unless a directive or another finding wants the answer checked by the model.
    strategy = upgrade or (request.strategy if triggers == ["flagged"] else Strategy.REFLEXIVE)
    if request.accept_strategies and strategy not in request.accept_strategies:
        # The caller's accepted strategies take precedence over an upgrade.
        strategy = request.strategy
    return AskAgain(
        remedies.redispatch(
            instructions, seed=request.seed, strategy=strategy, attempt=attempts + 1
        ),
        tuple(triggers),
        upgraded=strategy is not request.strategy,
    )


def _mend(report: Report, policy: Policy, reply: Reply) -> Mend | None:
    if not acts(policy.repair_on, report):
        return None
    made = repair(report, reply.answer)
    mended = reply.with_answer(made.text) if made.edits else None
    return Mend(made, mended) if mended is not None else None


def note_form(report: Report, policy: Policy, reply: Reply) -> Report:
    """The report; it has a flag if the answer is to be repaired, and its form permits none."""
    if not acts(policy.repair_on, report) or reply.with_answer("") is not None:
        return report
    return report.changed(flags=tuple(dict.fromkeys((*report.flags, NOT_REPAIRED))))


def _without_reasoning(answer: str) -> str:
    """The text of an answer without its reasoning."""
    return without_reasoning(answer, reasoning_spans(answer)).strip()


def _previous_answer(request: Request) -> str:
    """The previous window's answer; empty if there is none or its text is not known."""
    return (
        max(request.prior, key=lambda window: window.window_number).answer if request.prior else ""
    )


_LOG = logging.getLogger("crp_integrations.relay")


@dataclass(frozen=True, slots=True)
class AnswerVerdict:
    """The decision on a reply, and the judgements behind it.

    Attributes:
        report_uri: the request's own address for violation reports; empty for none.
    """

    decision: Decision
    judgement: PolicyJudgement
    reported: PolicyJudgement | None
    policy: Policy
    report_only: Policy | None
    report_uri: str = ""
    approved: bool = False
    terms: AnswerTerms = field(default_factory=AnswerTerms)
    checked: CheckedCalls = field(default_factory=CheckedCalls)

    @classmethod
    def of(
        cls,
        report: Report,
        shown: Envelope,
        *,
        session_id: str,
        request: Request,
        admission: Admission,
        reply: Reply,
        attempts: int,
        world: World,
        part: bool = False,
        judge_failed: bool = False,
        repaired: bool = False,
    ) -> AnswerVerdict:
        """Evaluate the policies on a reply and decide; a repaired one is final.

        Spec: CRP-SPEC-005 §7.4; related facts §6
        """
        policy, tier = admission.policy, shown.quality_tier
        judgement = judge_answer(policy, report, tier=tier, oversight=request.oversight)
        only = admission.report_only
        reported = None if only is None else judge_answer(only, report, tier=tier, enforced=False)
        decision: Decision = Deliver()
        terms = AnswerTerms(
            accept_risk=request.accept_risk,
            accept_quality=tuple(request.accept_quality),
            part=part,
            unanswered=bool(reply.tool_calls) and not _without_reasoning(reply.answer),
            review_below=world.settings.sessions.budget.review
            if world.settings.sessions.budget.enforce
            else 0.0,
        )
        if not terms.unanswered:
            decision = _decide(report, tier, judgement, policy, terms)
            settings = world.settings.dispatch
            if not repaired and not report.classification.halts:
                again = attempts < settings.redispatches and _ask_again(
                    report, tier, judgement, request, policy, reply.answer, settings, attempts
                )
                decision = again or _mend(report, policy, reply) or decision
        if judge_failed and isinstance(decision, Deliver):
            decision = Withhold(HaltReason.JUDGE_FAILED)
        wanted = needs_review(judgement, safety.round_budget(admission.safety_budget), terms)
        approved = False
        if isinstance(decision, Deliver) and wanted and not terms.unanswered:
            approved = _approved(request, report, reply, world)
            if not approved:
                decision = Withhold(HaltReason.OVERSIGHT)
        uri, check, checked = request.report_uri, world.listeners.check_calls, CheckedCalls()
        if check is not None and reply.tool_calls and isinstance(decision, Deliver):
            checked = check(reply, shown, session_id)
            decision = Withhold(HaltReason.ACTION) if checked.refusal else decision
        return cls(decision, judgement, reported, policy, only, uri, approved, terms, checked)

    def post(self, world: World, report: Report) -> None:
        """Report violations to the addresses of the policies and the request; never waits.

        Spec: related facts §6
        """
        if world.listeners.sink is None:
            return
        trail = world.settings.headers.trail_uri.format(
            session_id=report.session_id, window_id=report.window_id
        )
        for policy, judgement in self._judged():
            receivers = [policy] if policy.report_uri or policy.report_to else []
            if self.report_uri and self.report_uri not in policy.report_uri:
                # Not added to the policy's list of addresses, which may be full.
                receivers.append(Policy(report_uri=(self.report_uri,)))
            for violation in judgement.violations:
                notice = violation_report(violation, report, audit_trail_uri=trail)
                for receiver in receivers:
                    _take_violation(world.listeners.sink, notice, receiver)

    @property
    def reason(self) -> HaltReason | None:
        """Why the answer is withheld; None when it is not."""
        return self.decision.reason if isinstance(self.decision, Withhold) else None

    def cause(self, report: Report) -> tuple[str, str]:
        """The demand that withholds or refuses the answer, and the value found; empty for none."""
        if isinstance(self.decision, Unreachable):
            return self.decision.error.directive, self.decision.error.value
        reason = self.reason
        if reason is HaltReason.ACTION:
            return "on_ungrounded withhold", self.checked.refusal
        return withholding(self.judgement, reason, report, self.terms) if reason else ("", "")

    @property
    def notes(self) -> tuple[Note, ...]:
        """Journal events for a window that ends with this verdict."""
        notes: list[Note] = [*self.checked.notes]
        for policy, judgement in self._judged():
            named = [violation.directive.partition(" ")[0] for violation in judgement.violations]
            if named:
                data = {
                    "directives": sorted(set(named)),
                    "policy_hash": policy_hash(policy),
                    "report_only": not judgement.enforced,
                }
                notes.append((EventType.POLICY_VIOLATION, data))
        if self.approved or self.reason is HaltReason.OVERSIGHT:
            mode = self.policy.overseen(self.judgement.oversight, Oversight.HUMAN_REVIEW)
            data_seen = {"mode": str(mode), "approved": self.approved}
            notes.append((EventType.OVERSIGHT_TRIGGERED, data_seen))
        return tuple(notes)

    def _judged(self) -> Iterator[tuple[Policy, PolicyJudgement]]:
        yield self.policy, self.judgement
        if self.report_only is not None and self.reported is not None:
            yield self.report_only, self.reported


def _take_violation(sink: ViolationSink, notice: ViolationReport, policy: Policy) -> None:
    """Pass a violation report to a sink; an error of the sink is only logged."""
    try:
        sink.take(notice, policy)
    except Exception as error:  # noqa: BLE001 - a receiver's error must not affect the answer
        why = type(error).__name__
        _LOG.warning("a violation of window %s was not reported: %s", notice.window_id, why)


def _approved(request: Request, report: Report, reply: Reply, world: World) -> bool:
    """Whether a person approved exactly this answer: by a token, or through the reviewer now.

    Spec: related facts §3, §6
    """
    if request.oversight_token == f"approved:{report.response_content_hash}":
        return True
    reviewer = world.listeners.reviewer
    return reviewer is not None and is_approved(reviewer(report, reply.answer))


def oversight_of(
    request: Request, admission: Admission | None, settings: Settings
) -> Oversight | None:
    """Who decides on a window's answer; a low safety budget always requires a person.

    Spec: related facts §3, §8
    """
    if admission is None:
        return None
    low = safety.needs_review(admission.safety_budget, settings.sessions.budget)
    return admission.policy.overseen(request.oversight, Oversight.HUMAN_REVIEW if low else None)


def halted_mode(reason: HaltReason | None) -> Oversight | None:
    """The oversight mode that caused a halt; None if something else did."""
    return Oversight.HALT if reason is HaltReason.OVERSIGHT else None


def permits_bridge(report: Report, policy: Policy, request: Request) -> bool:
    """Whether an answer with only a bridge's text would be delivered without a person's review.

    Spec: CRP-SPEC-005 §11.5
    """
    judgement = judge_answer(policy, report, oversight=request.oversight)
    terms = AnswerTerms(accept_risk=request.accept_risk, part=True)
    decision = decide_answer(report, None, judgement, terms, unread=policy.allows_unread)
    return decision.word == DELIVER and not judgement.needs_review


def may_show_at_once(
    admission: Admission, request: Request, strategy: Strategy, world: World
) -> bool:
    """Whether nothing can withhold or repeat a window's answer; it may then precede the verdict.

    Spec: related facts §7
    """
    policy, settings = admission.policy, world.settings
    dispatch = settings.dispatch
    # A registered use is withheld if it is forbidden, or if it cannot be classified.
    classified = settings.system.domain is not None or world.engines.own_policy
    if may_withhold(policy, request.oversight) or policy.repair_on is not None or classified:
        return False
    if safety.needs_review(admission.safety_budget, settings.sessions.budget):
        return False
    remedies_permitted = (
        policy.upgrade_on_risk is not None,
        policy.ask_again_on is not None,
        dispatch.redispatch_on_contradiction,
        dispatch.redispatch_on_repetition,
        dispatch.redispatch_on_flow,
    )
    if dispatch.redispatches > 0 and any(remedies_permitted):
        return False
    if strategy is Strategy.REFLEXIVE:
        return False
    return not (request.accept_quality or request.accept_risk)
