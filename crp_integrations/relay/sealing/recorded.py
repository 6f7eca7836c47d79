"""What a window leaves to its receipt, put together from what it was run with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.examination import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import DELIVER, UNREACHABLE, WITHHOLD, needs_review
from crp_integrations.receipt.draft import draft
from crp_integrations.receipt.records import Draft
from crp_integrations.receipt.window_values import Asked, Call, Decided, InForce, Told
from crp_integrations.relay.deciding import Unreachable, Withhold
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.fitting import Fitting
from crp_integrations.relay.records import Request
from crp_integrations.relay.sealing.ending import Drafting
from crp_integrations.relay.verdict import Verdict
from crp_integrations.relay.world import World
from crp_integrations.session import budget as safety


def recorded(
    request: Request,
    world: World,
    fitting: Fitting,
    further: Sequence[ModelCall],
    *,
    envelope: Envelope | None,
    text: str,
    reply: Reply | None,
    report: Report,
    examined: tuple[Examination, int] | None,
    entered: Entered | None,
    verdict: Verdict | None,
) -> Told:
    """The values that a window's receipt is made of.

    Spec: CRP-SPEC-005 §15.4

    Args:
        request: as it was dispatched in the end.
        further: calls of the answer behind the one that carries the envelope.
        envelope: as it was emitted; None for a window that ended before.
        examined: what the report came from, and how many of its flags are its own.
    """
    fitted = fitting.last
    made = fitting.made if fitted is not None and envelope is not None else None
    calls = () if fitted is None else (fitted.call, *further)
    return Told(
        asked=asked(request, fitted.call if fitted else None),
        report=report,
        settings=in_force(world),
        fit=made,
        envelope=fitted.envelope if fitted is not None and made is not None else None,
        calls=tuple(Call(call.purpose, call.model, call.messages) for call in calls),
        text=text,
        answered_by=reply.model if reply else "",
        finish_reason=reply.finish_reason if reply else "",
        examined=examined[0] if examined else None,
        flags_before=examined[1] if examined else len(report.flags),
        decided=decided(request, envelope, entered, verdict, world),
        embedder=fitting.namespace.embedder.identity,
        reranker=world.reranker.identity if world.reranker else "",
        state={"state_hash": made.candidates.state_hash} if made else {},
    )


def in_force(world: World) -> InForce:
    """A world's settings as a receipt tells them."""
    return InForce(
        world.settings_digest,
        world.settings.envelope,
        world.settings.dpe,
        world.settings.receipt_weights,
    )


@cache
def _version() -> str:
    return version("crp-integrations")


def drafting(told: Told) -> Drafting:
    """Makes the draft of a receipt once the window has its seal."""

    def drafted(seal: WindowSeal, report: Report) -> Draft:
        hashes = {"response_hash": seal.response_hash, "report_hash": seal.report_hash}
        return draft(told.sealed(report, **hashes), _version())

    return drafted


def asked(request: Request, call: ModelCall | None) -> Asked:
    """What was asked, as the model was sent it.

    Args:
        call: the one that was made; None where none was.
    """
    return Asked(
        query=request.query,
        system_prompt=request.system_prompt,
        history=request.history,
        results=request.results,
        instructions=request.instructions,
        tools=request.tools,
        grounding=request.grounding,
        strategy=request.strategy,
        oversight=request.oversight,
        max_tokens=request.max_tokens,
        temperature=call.temperature if call else request.temperature,
        seed=request.seed,
    )


def decided(
    request: Request,
    envelope: Envelope | None,
    entered: Entered | None,
    verdict: Verdict | None,
    world: World,
) -> Decided:
    """What the policies said, and what became of the answer."""
    policy = entered.policy if entered else Policy()
    left = entered.safety_budget if entered else 1.0
    if verdict is None:
        return Decided(policy, entered.report_only if entered else None, safety_budget=left)
    decision = DELIVER
    if isinstance(verdict.decision, Withhold):
        decision = WITHHOLD
    elif isinstance(verdict.decision, Unreachable):
        decision = UNREACHABLE
    return Decided(
        policy=verdict.policy,
        report_only=verdict.report_only,
        judgement=verdict.judgement,
        reported=verdict.reported,
        tier=envelope.quality_tier if envelope else None,
        decision=decision,
        reason=str(verdict.reason or ""),
        approved=verdict.approved,
        safety_budget=left,
        reviewed=needs_review(verdict.judgement, safety.round_budget(left), verdict.terms),
        terms=verdict.terms,
    )
