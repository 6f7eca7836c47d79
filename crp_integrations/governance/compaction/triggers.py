"""What starts a compaction."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction.settings import CompactionSettings


class Trigger(StrEnum):
    """Why a working context is compacted.

    Spec: Summit §Compression Strategy
    """

    BUDGET = "budget"
    ITEMS = "items"
    TOOL_CALL = "tool-call"


def triggers(
    tokens: int, budget: int, items: int, settings: CompactionSettings, *, after_tool_call: bool
) -> tuple[Trigger, ...]:
    """The triggers that fire; none when compaction is switched off.

    Spec: Summit §Compression Strategy

    Args:
        tokens: of the working context before packing, tool definitions included.
        budget: tokens that the working context may have, above 0.
        items: messages of a history, or items of a pack.
        after_tool_call: whether the last thing in it is the result of a tool.

    Raises:
        RequestError: the budget is not above 0.
    """
    if budget <= 0:
        raise RequestError(f"a budget of {budget} tokens holds nothing; give one above 0")
    if not settings.enabled:
        return ()
    fired = []
    if tokens > share(budget, settings.trigger_share):
        fired.append(Trigger.BUDGET)
    if items > settings.max_items:
        fired.append(Trigger.ITEMS)
    if after_tool_call and settings.after_tool_call:
        fired.append(Trigger.TOOL_CALL)
    return tuple(fired)


def share(budget: int, part: float) -> int:
    """Whole tokens of a share of the budget, exactly."""
    return int(Fraction(str(part)) * budget)
