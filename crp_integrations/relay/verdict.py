"""The verdict on a reply: what the policy in force says of its report, and what is done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from crp_integrations.dpe.records import Report
from crp_integrations.messages import Reply
from crp_integrations.policy.policy_text import policy_hash
from crp_integrations.policy.ports import ViolationSink
from crp_integrations.policy.records import Policy, PolicyJudgement, ViolationReport
from crp_integrations.policy.verdict import (
    AnswerTerms,
    judge_answer,
    needs_review,
    violation_report,
)
from crp_integrations.relay.deciding import Decision, Deliver, Withhold, decide
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.records import Request
from crp_integrations.relay.sealing.ending import Note
from crp_integrations.relay.world import World
from crp_integrations.session import budget as safety
from crp_integrations.vocabulary import EventType, HaltReason, Oversight, QualityTier

_LOG = logging.getLogger("crp_integrations.relay")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with a reply, and why.

    Attributes:
        judgement: of the policy in force.
        reported: of the policy that is reported and not enforced; None without one.
        report_uri: where the request wants violations reported, empty for nowhere else.
        approved: a person had to approve the answer, and has.
        terms: what the answer was held against besides the policies.
    """

    decision: Decision
    judgement: PolicyJudgement
    reported: PolicyJudgement | None
    policy: Policy
    report_only: Policy | None
    report_uri: str = ""
    approved: bool = False
    terms: AnswerTerms = field(default_factory=AnswerTerms)

    @classmethod
    def of(
        cls,
        report: Report,
        tier: QualityTier,
        *,
        request: Request,
        entered: Entered,
        reply: Reply,
        attempts: int,
        world: World,
        part: bool = False,
        judge_failed: bool = False,
    ) -> Verdict:
        """Judge a reply.

        Spec: CRP-SPEC-005 §7.4; related facts §6

        Args:
            tier: of the envelope, capped by the answer's quality.
            reply: one that asks for tools answers nothing yet, and is passed on.
            attempts: re-dispatches of this window so far.
            part: whether other windows may go on with the answer.
            judge_failed: the judge failed, and its owner wants the answer withheld then.
        """
        policy = entered.policy
        judgement = judge_answer(policy, report, tier=tier, oversight=request.oversight)
        only = entered.report_only
        reported = None if only is None else judge_answer(only, report, tier=tier, enforced=False)
        decision: Decision = Deliver()
        terms = AnswerTerms(
            accept_risk=request.accept_risk,
            accept_quality=tuple(request.accept_quality),
            part=part,
            unanswered=bool(reply.tool_calls) and not reply.text.strip(),
            review_below=world.settings.sessions.budget.review,
        )
        if not terms.unanswered:
            decision = decide(
                report,
                tier,
                judgement,
                request=request,
                policy=policy,
                text=reply.text,
                attempts=attempts,
                settings=world.settings.dispatch,
                terms=terms,
            )
        if judge_failed and isinstance(decision, Deliver):
            decision = Withhold(HaltReason.JUDGE_FAILED)
        wanted = needs_review(judgement, safety.round_budget(entered.safety_budget), terms)
        approved = False
        if isinstance(decision, Deliver) and wanted and not terms.unanswered:
            approved = _approved(request, report, reply, world)
            if not approved:
                decision = Withhold(HaltReason.OVERSIGHT)
        uri = request.report_uri
        return cls(decision, judgement, reported, policy, only, uri, approved, terms)

    def post(self, world: World, report: Report) -> None:
        """Hand violations to where the policies want them reported; never waits.

        Spec: related facts §6

        Args:
            report: with the identity of its window.
        """
        if world.sink is None:
            return
        trail = world.settings.headers.trail_uri.format(
            session_id=report.session_id, window_id=report.window_id
        )
        for policy, judgement in self._judged():
            receivers = [policy] if policy.report_uri or policy.report_to else []
            if self.report_uri and self.report_uri not in policy.report_uri:
                # A policy may be full, so the request's own address is not put among its.
                receivers.append(Policy(report_uri=(self.report_uri,)))
            for violation in judgement.violations:
                said = violation_report(violation, report, audit_trail_uri=trail)
                for receiver in receivers:
                    _take(world.sink, said, receiver)

    @property
    def reason(self) -> HaltReason | None:
        """Why the answer is withheld; None when it is not."""
        return self.decision.reason if isinstance(self.decision, Withhold) else None

    @property
    def notes(self) -> tuple[Note, ...]:
        """For the journal, once the window ends with this verdict."""
        notes: list[Note] = []
        for policy, judgement in self._judged():
            named = [one.directive.partition(" ")[0] for one in judgement.violations]
            if named:
                told = {
                    "directives": sorted(set(named)),
                    "policy_hash": policy_hash(policy),
                    "report_only": not judgement.enforced,
                }
                notes.append((EventType.POLICY_VIOLATION, told))
        if self.approved or self.reason is HaltReason.OVERSIGHT:
            mode = self.judgement.oversight or Oversight.HUMAN_REVIEW
            seen = {"mode": mode.value, "approved": self.approved}
            notes.append((EventType.OVERSIGHT_TRIGGERED, seen))
        return tuple(notes)

    def _judged(self) -> Iterator[tuple[Policy, PolicyJudgement]]:
        yield self.policy, self.judgement
        if self.report_only is not None and self.reported is not None:
            yield self.report_only, self.reported


def _take(sink: ViolationSink, said: ViolationReport, policy: Policy) -> None:
    """Hand a report to a sink; the window is sealed by now, and no answer depends on this."""
    try:
        sink.take(said, policy)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the receiver's
        why = type(error).__name__
        _LOG.warning("a violation of window %s was not reported: %s", said.window_id, why)


def _approved(request: Request, report: Report, reply: Reply, world: World) -> bool:
    """Whether a person approved exactly this answer: by a token, or asked now.

    Spec: related facts §3, §6
    """
    if request.oversight_token == f"approved:{report.response_content_hash}":
        return True
    return world.reviewer is not None and world.reviewer(report, reply.text)
