"""Settings of compaction, and the triggers that start it."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from pydantic import Field, model_validator

from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.records import Part


class CompactionSettings(Part):
    """When a working context is compacted, and how far. Shares are of the budget, in [0, 1].

    Spec: Summit §Compression Strategy

    Attributes:
        enabled: one switch for all of it; off, nothing is ever changed.
        trigger_share: share of the budget above which compaction starts, measured before packing.
        max_items: messages or items above which it starts; at most so many are left.
        after_tool_call: start after every tool call as well, which looks at its results alone
            unless another trigger fires.
        target_share: share of the budget that it aims at, so that it does not start again at once.
        keep_recent: last turns (a message, or a call with its results) that are shown whole unless
            the budget itself is too small for them.
        blob_share: share of the budget that the results of one tool call may have.
        offload_tokens: texts from this size on are kept as artifacts, where there is a store.
        extract_tokens: of an artifact that is shown beside its handle.
        drop_below: what is scored below this share of the best goes as a whole.
        prune_to: share of its pieces that a text keeps at least when it is pruned, before whole
            turns are summed up.
        protected_bonus: added to the score of a passage with a figure, id, date or quotation.
        summary_share: share of the budget that a summary may have.
    """

    enabled: bool = True
    trigger_share: float = Field(default=0.80, gt=0.0, le=1.0)
    max_items: int = Field(default=200, ge=1)
    after_tool_call: bool = True
    target_share: float = Field(default=0.60, gt=0.0, le=1.0)
    keep_recent: int = Field(default=4, ge=0)
    blob_share: float = Field(default=0.25, gt=0.0, le=1.0)
    offload_tokens: int = Field(default=800, ge=1)
    extract_tokens: int = Field(default=120, ge=0)
    drop_below: float = Field(default=0.40, ge=0.0, le=1.0)
    prune_to: float = Field(default=0.25, ge=0.0, le=1.0)
    protected_bonus: float = Field(default=0.05, ge=0.0, le=1.0)
    summary_share: float = Field(default=0.15, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _in_order(self) -> CompactionSettings:
        if self.target_share > self.trigger_share:
            raise ConfigError(
                f"compaction aims at {self.target_share} of the budget and starts above "
                f"{self.trigger_share}; wanted target_share ≤ trigger_share"
            )
        return self


class HistorySettings(CompactionSettings):
    """How the conversation around a question is compacted before a model is asked.

    Spec: Summit §Rollout Plan

    Attributes:
        enabled: off, a conversation is sent as its caller gave it.
        limit_share: share of the model's context limit that the budget is of which the triggers
            and targets are shares: system prompt, conversation, question and tool definitions
            together, so that the rest is left to facts and the answer.
        offload: large results are kept as artifacts, which nothing deletes but an erasure; off,
            they are shortened alone.
    """

    enabled: bool = False
    limit_share: float = Field(default=0.50, gt=0.0, le=1.0)
    offload: bool = False


class Trigger(StrEnum):
    """Why a working context is compacted.

    Spec: Summit §Compression Strategy
    """

    BUDGET = "budget"
    ITEMS = "items"
    TOOL_CALL = "tool-call"


def find_triggers(
    tokens: int, budget: int, items: int, settings: CompactionSettings, *, after_tool_call: bool
) -> tuple[Trigger, ...]:
    """The triggers that fire; none when compaction is switched off.

    Spec: Summit §Compression Strategy
    """
    if budget <= 0:
        raise RequestError(f"a budget of {budget} tokens holds nothing; give one above 0")
    if not settings.enabled:
        return ()
    fired = []
    if tokens > budget_share(budget, settings.trigger_share):
        fired.append(Trigger.BUDGET)
    if items > settings.max_items:
        fired.append(Trigger.ITEMS)
    if after_tool_call and settings.after_tool_call:
        fired.append(Trigger.TOOL_CALL)
    return tuple(fired)


def budget_share(budget: int, part: float) -> int:
    """Whole tokens of a share of the budget, exactly."""
    return int(Fraction(str(part)) * budget)
