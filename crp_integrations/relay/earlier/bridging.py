"""Whether a bridge between two windows may be shown under the policy in force."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import judge_answer, may_withhold
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.world import World


def may_be_laid(
    bridge: str, between: Sequence[Answer], policy: Policy, request: Request, world: World
) -> bool:
    """Whether the policy lets a bridge through.

    It stands in no window's text and no window's report speaks of it, so it is held against the
    answers that it joins. A policy that withholds nothing lets every bridge through.

    Spec: CRP-SPEC-005 §11.5
    """
    if not may_withhold(policy, request.oversight):
        return True
    report = examine(
        Dossier(
            question=request.query,
            answer=bridge,
            passages=tuple((answer.window_id, answer.text) for answer in between),
            vectors=None,
            grounding=request.grounding,
        ),
        embedder=world.namespace.embedder,
        verifier=world.verifier,
        settings=world.settings.dpe,
        tracer=world.tracer,
    )
    found = judge_answer(policy, report, oversight=request.oversight)
    return found.halt is None and not found.needs_review
