"""Settings of governed context: tools, compaction, packs, artifacts, and the steps of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import Field, model_validator

from crp_integrations.envelope.settings import GraphExpansionSettings
from crp_integrations.errors import ConfigError
from crp_integrations.guard.settings import ScreeningSettings
from crp_integrations.records import Part
from crp_integrations.scores import SCALE, to_fixed


class ToolSettings(Part):
    """How tools are selected.

    Attributes:
        most: maximum number of tools that are offered.
        words_share: share of words in the score; the rest is the cosine.
        relevance_floor: cosine below which a tool is irrelevant, unless its words match.
        words_floor: minimum share of the best tool's word score at which a tool with a cosine of
            `words_relevance` or more is relevant.
        words_relevance: minimum cosine for tools whose words match.
    """

    most: int = Field(default=8, ge=1)
    words_share: float = Field(default=0.3, ge=0.0, le=1.0)
    relevance_floor: float = Field(default=0.3, ge=0.0, le=1.0)
    words_floor: float = Field(default=0.5, ge=0.0, le=1.0)
    words_relevance: float = Field(default=0.15, ge=0.0, le=1.0)


class CompactionSettings(Part):
    """When a working context is compacted, and how far. Shares are of the budget, in [0, 1].

    Spec: Summit §Compression Strategy

    Attributes:
        enabled: main switch; if false, nothing is ever changed.
        trigger_share: share of the budget above which compaction starts, measured before packing.
        max_items: number of messages or items above which it starts; at most this many are left.
        after_tool_call: also start after every tool call; only its results are then shortened,
            unless another trigger fires.
        target_share: share of the budget that it aims at, so that it does not start again at once.
        keep_recent: number of last turns (a message, or a call with its results) that are shown
            whole unless the budget itself is too small for them.
        blob_share: maximum share of the budget for the results of one tool call.
        offload_tokens: minimum size of texts that are kept as artifacts, if there is a store.
        extract_tokens: size of the extract that is shown next to an artifact's handle.
        drop_below: share of the best score below which an entry is dropped as a whole.
        prune_to: minimum share of its pieces that a text keeps when it is pruned, before whole
            turns are summarised.
        protected_bonus: added to the score of a passage with a figure, id, date or quotation.
        summary_share: maximum share of the budget for a summary.
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
        enabled: if false, a conversation is sent as its caller gave it.
        limit_share: budget of the conversation as a share of the model's context limit; triggers
            and targets are shares of this budget. It covers system prompt, conversation, question
            and tool definitions; the rest is for facts and the answer.
        offload: keep large results as artifacts, which only an erasure deletes; if false, they are
            only shortened.
    """

    enabled: bool = False
    limit_share: float = Field(default=0.50, gt=0.0, le=1.0)
    offload: bool = False


class SectionShares(Part):
    """Shares of the budget, which add up to 1.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        user: message, preamble and session state.
        task: the declared task.
        tools: signatures and safety notes.
        knowledge: facts and memories.
        policy: reminders and warnings.
    """

    user: float = Field(default=0.125, ge=0.10, le=0.15)
    task: float = Field(default=0.125, ge=0.10, le=0.15)
    tools: float = Field(default=0.075, ge=0.05, le=0.10)
    knowledge: float = Field(default=0.575, ge=0.50, le=0.60)
    policy: float = Field(default=0.10, ge=0.05, le=0.10)

    @model_validator(mode="after")
    def _whole(self) -> SectionShares:
        total = self.user + self.task + self.tools + self.knowledge + self.policy
        if round(total * SCALE) != SCALE:
            raise ValueError(f"shares add up to {total:.4f}, wanted 1")
        return self


class PackSettings(Part):
    """How context packs are made.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        shares: shares of the budget by section.
        memory_share: share of the knowledge section's budget for memories; each of the two may use
            what the other leaves.
        top_k: number of nearest facts of each of the two sections; words and graph add more.
        depth: multiple of `top_k` that is read, so that each section finds its own facts.
        min_confidence: confidence below which a memory is not shown, [0, 1].
        low_confidence: confidence below which the model is warned about a shown memory, [0, 1].
        stale_freshness: freshness, or the value of a decay function, at or below which the model is
            warned that an item may be out of date, [0, 1].
        screening: which facts may not be shown at all; always enabled in a pack.
        graph: how far relations are followed.
        tools: how tools are selected.
    """

    shares: SectionShares = SectionShares()
    memory_share: float = Field(default=0.3, ge=0.0, le=1.0)
    top_k: int = Field(default=50, ge=1)
    depth: int = Field(default=2, ge=1)
    min_confidence: float = Field(default=0.3, ge=0.0, le=1.0)
    low_confidence: float = Field(default=0.6, ge=0.0, le=1.0)
    stale_freshness: float = Field(default=0.25, ge=0.0, le=1.0)
    screening: ScreeningSettings = ScreeningSettings(enabled=True, relevance_floor=0.1)
    graph: GraphExpansionSettings = GraphExpansionSettings(hops=2)
    tools: ToolSettings = ToolSettings()

    def budgets(self, total: int) -> dict[str, int]:
        """Whole tokens of each section; they add up to the total.

        >>> PackSettings().budgets(8000)["knowledge"]
        4600
        """
        shares = {
            "user": self.shares.user,
            "task": self.shares.task,
            "tools": self.shares.tools,
            "policy": self.shares.policy,
        }
        budgets = {name: to_fixed(share) * total // SCALE for name, share in shares.items()}
        return {**budgets, "knowledge": total - sum(budgets.values())}


class RunStep(StrEnum):
    """A step of the loop, in its order.

    Spec: Summit §Principles
    """

    WRITE = "write"
    SELECT = "select"
    COMPRESS = "compress"
    ISOLATE = "isolate"


STEPS: Final = tuple(RunStep)


class StepMeasurement(Part):
    """The size of a step's input and output.

    Attributes:
        items_before, items_after: number of facts or messages before and after the step.
        tokens_before, tokens_after: their tokens; 0 if they are not counted.
    """

    step: RunStep
    items_before: int = Field(default=0, ge=0)
    items_after: int = Field(ge=0)
    tokens_before: int = Field(default=0, ge=0)
    tokens_after: int = Field(default=0, ge=0)

    @property
    def counts(self) -> list[int]:
        """The four numbers in order, as written to the journal."""
        return [self.items_before, self.items_after, self.tokens_before, self.tokens_after]


class Guardrail(Part):
    """Limits for the output of one step; None sets no limit.

    Attributes:
        least_items, most_items: minimum and maximum number of items in its output.
        most_tokens: maximum number of tokens in its output.
    """

    least_items: int | None = Field(default=None, ge=0)
    most_items: int | None = Field(default=None, ge=0)
    most_tokens: int | None = Field(default=None, ge=0)

    def fault(self, measured: StepMeasurement) -> str:
        """Why a run must stop at a step; empty to continue."""
        if self.least_items is not None and measured.items_after < self.least_items:
            return f"it leaves {measured.items_after} items, at least {self.least_items} are wanted"
        if self.most_items is not None and measured.items_after > self.most_items:
            return f"it leaves {measured.items_after} items, at most {self.most_items} are allowed"
        if self.most_tokens is not None and measured.tokens_after > self.most_tokens:
            return (
                f"it leaves {measured.tokens_after} tokens, at most {self.most_tokens} are allowed"
            )
        return ""


class StepSettings(Part):
    """The guardrails of the four steps.

    Spec: Summit §Principles
    """

    write: Guardrail = Guardrail()
    select: Guardrail = Guardrail()
    compress: Guardrail = Guardrail()
    isolate: Guardrail = Guardrail()

    def of(self, step: RunStep) -> Guardrail:
        """The guardrail of a step."""
        guardrail: Guardrail = getattr(self, step.value)
        return guardrail


class ArtifactSettings(Part):
    """Where artifacts are kept and how long an address opens one.

    Spec: Summit §Privacy & Security

    Attributes:
        place: address of an object store, such as `s3://bucket/prefix`; empty for a folder next to
            the store's files, or memory for a store in memory. Regions keep theirs in their own
            folders.
        url_seconds: default validity of an address.
        longest_url_seconds: maximum validity of an address.
        clock_skew_seconds: maximum clock difference of the machines that open addresses; a used
            address is remembered for this long after it has expired.
        most_bytes: maximum size of one artifact.
    """

    place: str = ""
    url_seconds: int = Field(default=300, ge=1)
    longest_url_seconds: int = Field(default=3_600, ge=1)
    clock_skew_seconds: int = Field(default=300, ge=0)
    most_bytes: int = Field(default=50_000_000, ge=1)
