"""The receipt on a window: its contents, signed and kept in the transaction that seals it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache
from importlib.metadata import version

from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.windows import parents_of
from crp_integrations.dpe.examination import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.evolution import SUMMARY_SOURCE
from crp_integrations.envelope.records import Envelope
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.policy.records import Policy
from crp_integrations.policy.settling import DELIVER, UNREACHABLE, WITHHOLD, reviewed
from crp_integrations.receipt.building import draft
from crp_integrations.receipt.dsse import signing_key
from crp_integrations.receipt.erase import erased
from crp_integrations.receipt.issue import issue
from crp_integrations.receipt.leaves import salt_key
from crp_integrations.receipt.ports import receipts_of
from crp_integrations.receipt.records import Draft
from crp_integrations.receipt.statement import Chain
from crp_integrations.receipt.told import Asked, Call, Decided, InForce, Told
from crp_integrations.relay.close_records import SessionUpdate
from crp_integrations.relay.records import Request
from crp_integrations.relay.session_admission import Admission
from crp_integrations.relay.verdict import AnswerVerdict, Unreachable, Withhold
from crp_integrations.relay.window_end import DraftMaker, WindowEnd
from crp_integrations.relay.window_envelope import WindowEnvelope
from crp_integrations.relay.world import UnwrittenReceipt, World
from crp_integrations.session import budget as safety
from crp_integrations.session.ports import sessions_of


def receipt_contents(
    request: Request,
    world: World,
    packing: WindowEnvelope,
    further: Sequence[ModelCall],
    *,
    envelope: Envelope | None,
    text: str,
    reply: Reply | None,
    report: Report,
    examined: tuple[Examination, int] | None,
    admission: Admission | None,
    verdict: AnswerVerdict | None,
) -> Told:
    """The values that a window's receipt is made of.

    Spec: CRP-SPEC-005 §15.4
    """
    fitted = packing.last
    made = packing.made if fitted is not None and envelope is not None else None
    calls = () if fitted is None else (fitted.call, *further)
    return Told(
        asked=asked_question(request, fitted.call if fitted else None),
        report=report,
        settings=settings_in_force(world),
        fit=made,
        envelope=fitted.envelope if fitted is not None and made is not None else None,
        calls=tuple(Call(call.purpose, call.model, call.messages) for call in calls),
        text=text,
        answered_by=reply.model if reply else "",
        finish_reason=reply.finish_reason if reply else "",
        examined=examined[0] if examined else None,
        flags_before=examined[1] if examined else len(report.flags),
        decided=decision_of(request, envelope, admission, verdict, world),
        embedder=packing.namespace.embedder.identity,
        reranker=world.reranker.identity if world.reranker else "",
        state={"state_hash": made.candidates.state_hash} if made else {},
    )


def settings_in_force(world: World) -> InForce:
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


def draft_maker(told: Told) -> DraftMaker:
    """Makes the draft of a receipt once the window has its seal."""

    def drafted(seal: WindowSeal, report: Report) -> Draft:
        hashes = {"response_hash": seal.response_hash, "report_hash": seal.report_hash}
        return draft(told.sealed(report, **hashes), _version())

    return drafted


def asked_question(request: Request, call: ModelCall | None) -> Asked:
    """What was asked, as the model was sent it."""
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


def decision_of(
    request: Request,
    envelope: Envelope | None,
    admission: Admission | None,
    verdict: AnswerVerdict | None,
    world: World,
) -> Decided:
    """What the policies said, and what became of the answer."""
    policy = admission.policy if admission else Policy()
    left = admission.safety_budget if admission else 1.0
    if verdict is None:
        return Decided(policy, admission.report_only if admission else None, safety_budget=left)
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
        reviewed=reviewed(verdict.judgement, safety.rounded(left), verdict.terms),
        terms=verdict.terms,
    )


def issue_receipt(
    transaction: Transaction,
    namespace: Namespace,
    world: World,
    end: WindowEnd,
    seal: WindowSeal,
    report: Report,
    update: SessionUpdate,
    stored: Set[str],
) -> UnwrittenReceipt | None:
    """Sign the receipt on a window, and keep it where its report is kept."""
    kept = receipts_of(transaction)
    if end.draft is None or kept is None:
        return None
    with world.tracer.step("receipt"):
        draft = end.draft(seal, report)
        of = {leaf.fact_id: leaf.source_id for leaf in draft.leaves if leaf.fact_id}
        written = update.kept and (
            of.keys() <= stored
            or all(
                id_ in stored or source_id.startswith(SUMMARY_SOURCE)
                for id_, source_id in of.items()
            )
        )
        tenant = namespace.subject.tenant
        master = world.keyring.master()
        receipt = issue(
            draft,
            Chain.of(seal, parents_of(seal)),
            signing_key(master, tenant),
            salt_key(master, tenant),
        )
        if written:
            if sessions_of(transaction).report(seal.window_id) is None:
                # Something that it came from was withdrawn while it was under way.
                receipt = erased(receipt, of.keys(), said=True)
            kept.add(receipt, {id_: source_id for id_, source_id in of.items() if source_id})
    return UnwrittenReceipt(receipt, written)
