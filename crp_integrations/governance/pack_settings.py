"""Settings of a context pack: shares of its sections, depths, floors."""

from __future__ import annotations

from pydantic import Field, model_validator

from crp_integrations.envelope.settings import GraphExpansionSettings
from crp_integrations.governance.tools import ToolSettings
from crp_integrations.guard.injection.detection import ScreeningSettings
from crp_integrations.records import Part
from crp_integrations.scores import SCALE, to_fixed


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
        shares: of the budget, by section.
        memory_share: share of the knowledge's budget that memories have; each of the two gets
            what the other leaves.
        top_k: nearest facts of each of the two sections; words and graph bring more.
        depth: how many times as many are read, so that each section finds its own.
        min_confidence: confidence below which a memory is not shown, [0, 1].
        low_confidence: confidence below which the model is warned of what it is shown, [0, 1].
        stale_freshness: freshness, or what a decay function leaves, from which down it is warned
            that an item may be out of date, [0, 1].
        screening: which facts may not be shown at all; always at work in a pack.
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
        """Tokens of each section in whole numbers; they add up to the total.

        >>> PackSettings().budgets(8000)["knowledge"]
        4600
        """
        shares = {
            "user": self.shares.user,
            "task": self.shares.task,
            "tools": self.shares.tools,
            "policy": self.shares.policy,
        }
        found = {name: to_fixed(share) * total // SCALE for name, share in shares.items()}
        return {**found, "knowledge": total - sum(found.values())}
