"""Whether an answer may be shown as it comes, before its verdict."""

from __future__ import annotations

from crp_integrations.policy.verdict import may_withhold
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.examining import may_be_forbidden
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings
from crp_integrations.session import budget as safety
from crp_integrations.vocabulary import Strategy


def shows_at_once(
    entered: Entered, request: Request, strategy: Strategy, settings: Settings
) -> bool:
    """Whether nothing may withhold a window's answer or ask for it again.

    Spec: related facts §7

    Args:
        request: as the caller gave it.
        strategy: with which it is dispatched; the first pass of several is no answer.
    """
    if may_withhold(entered.policy, request.oversight) or may_be_forbidden(settings):
        return False
    if safety.needs_review(entered.safety_budget, settings.sessions.budget):
        return False
    if strategy is Strategy.REFLEXIVE:
        return False
    return not (request.accept_quality or request.accept_risk)
