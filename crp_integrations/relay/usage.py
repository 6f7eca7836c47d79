"""What several model calls come to together."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.messages import Usage


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of usages; the cost is known only when each one's is.

    Spec: CRP-SPEC-005 §19.3
    """
    each = list(usages)
    costs = [usage.cost_usd for usage in each if usage.cost_usd is not None]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in each),
        completion_tokens=sum(usage.completion_tokens for usage in each),
        cost_usd=sum(costs) if each and len(costs) == len(each) else None,
    )
