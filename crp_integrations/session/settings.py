"""Every number of sessions: safety budget, graph, transfer, token, and registered agents.

How many windows a session has is `max_windows` of the whole tree; what importance and relevance
a summary has is `envelope.evolution`.
"""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from crp_integrations.errors import ConfigError, PolicySyntaxError
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.records import Part
from crp_integrations.session.records import BUDGET_DIGITS
from crp_integrations.vocabulary import RiskLevel, Strategy


class RegisteredAgent(Part):
    """A registered agent, as it stands under `[[sessions.agents.registered]]` in crp.toml.

    Spec: related facts §8

    Attributes:
        max_loop_depth: agents within agents around it, at most; None for the settings' own.
        max_delegations: sub-agents that it may start within a session; None for any number.
        allowed_strategies: the strategies that it may use; None for all.
        safety_policy: at least so strict a policy holds for it; empty for none.
    """

    agent_id: str = Field(min_length=1, max_length=128)
    max_loop_depth: int | None = Field(default=None, ge=0)
    max_delegations: int | None = Field(default=None, ge=0)
    allowed_strategies: tuple[Strategy, ...] | None = None
    safety_policy: str = ""

    @field_validator("safety_policy")
    @classmethod
    def _a_policy(cls, value: str) -> str:
        try:
            if value.strip():
                parse_policy(value)
        except PolicySyntaxError as error:
            raise ConfigError(f"safety_policy of a registered agent: {error}") from error
        return value


def _check_digits(name: str, value: float) -> float:
    """A number that has no more digits than budgets are compared by."""
    if round(value, BUDGET_DIGITS) != value:
        raise ConfigError(
            f"{name} is {value}; give at most {BUDGET_DIGITS} digits behind the point"
        )
    return value


class RiskCosts(Part):
    """What a delivered answer costs of the safety budget, by its risk.

    Spec: related facts §8

    Attributes:
        low, medium, high, critical: cost of an answer of this level.
    """

    low: float = Field(default=0.0, ge=0.0, le=0.05)
    medium: float = Field(default=0.05, ge=0.02, le=0.10)
    high: float = Field(default=0.15, ge=0.10, le=0.25)
    critical: float = Field(default=0.35, ge=0.25, le=0.50)

    @field_validator("low", "medium", "high", "critical")
    @classmethod
    def _digits(cls, value: float) -> float:
        return _check_digits("a cost of sessions.budget.costs", value)

    def of(self, level: RiskLevel) -> float:
        """The cost of an answer of a level."""
        costs = {
            RiskLevel.LOW: self.low,
            # What nobody read costs nothing: nothing is known against it.
            RiskLevel.UNKNOWN: 0.0,
            RiskLevel.MEDIUM: self.medium,
            RiskLevel.HIGH: self.high,
            RiskLevel.CRITICAL: self.critical,
        }
        return costs[level]


class SafetyBudgetSettings(Part):
    """Where the safety budget warns, asks for people, and halts. All in [0, 1].

    Spec: related facts §8

    Attributes:
        enforce: whether the breaker acts: answers are withheld or reviewed, the strategy is
            raised, delegation ends and a spent session ends. Else it is counted and reported.
        start: of a session without a parent.
        healthy: above it nothing is said; up to it the breaker is half open.
        review: below it a person must review.
        halt: up to it every answer is withheld.
        child_halt: what a sub-agent's 451 costs the agent that asked it.
    """

    enforce: bool = False
    costs: RiskCosts = RiskCosts()
    start: float = Field(default=1.0, gt=0.0, le=1.0)
    healthy: float = Field(default=0.50, ge=0.0, le=1.0)
    review: float = Field(default=0.25, ge=0.0, le=1.0)
    halt: float = Field(default=0.10, ge=0.0, le=1.0)
    child_halt: float = Field(default=0.35, ge=0.0, le=1.0)

    @field_validator("start", "healthy", "review", "halt", "child_halt")
    @classmethod
    def _digits(cls, value: float) -> float:
        return _check_digits("a number of sessions.budget", value)

    @model_validator(mode="after")
    def _in_order(self) -> SafetyBudgetSettings:
        if not self.halt <= self.review <= self.healthy:
            raise ConfigError(
                f"sessions.budget has halt {self.halt}, review {self.review} and healthy "
                f"{self.healthy}; wanted halt ≤ review ≤ healthy"
            )
        return self


class WindowGraphSettings(Part):
    """How large a session's graph of windows may become.

    Spec: related facts §5

    Attributes:
        nodes: windows of a session, those of all branches together.
        fan_out: windows that may fan out of one.
    """

    nodes: int = Field(default=50, ge=1)
    fan_out: int = Field(default=10, ge=1)


class TransferSettings(Part):
    """What a window is given of the one that it follows. Shares and scores are in [0, 1].

    Spec: related facts §5

    Attributes:
        summaries: whether a model is asked for a summary of answers that do not fit; else the
            facts of the earlier windows are carried over alone.
        share: of the available tokens that may be transferred; the rest is for new facts.
        summary_of_parent: longest summary, as a share of the parent answer's tokens.
        summary_of_available: the same, as a share of the available tokens.
        temperature: at which a summary is written.
        fidelity: least fidelity of a summary to the answer that it stands for.
    """

    summaries: bool = False
    share: float = Field(default=0.60, ge=0.0, le=1.0)
    summary_of_parent: float = Field(default=0.25, gt=0.0, le=1.0)
    summary_of_available: float = Field(default=0.30, gt=0.0, le=1.0)
    temperature: float = Field(default=0.1, ge=0.0, le=2.0)
    fidelity: float = Field(default=0.80, ge=0.0, le=1.0)


class TokenSettings(Part):
    """How long a session token lives, and how long it may be.

    Spec: related facts §5

    Attributes:
        lifetime_seconds: from its issue to its end.
        most_bytes: of the whole token as it is sent.
    """

    lifetime_seconds: int = Field(default=3_600, ge=1)
    most_bytes: int = Field(default=4_096, ge=512)


class AgentSettings(Part):
    """Bounds of agents within agents.

    Spec: related facts §8

    Attributes:
        max_loop_depth: agents within agents around one, at most; 0 allows no delegation.
        registered: what is known of agents by name.
    """

    max_loop_depth: int = Field(default=5, ge=0)
    registered: tuple[RegisteredAgent, ...] = ()

    @field_validator("registered")
    @classmethod
    def _once(cls, value: tuple[RegisteredAgent, ...]) -> tuple[RegisteredAgent, ...]:
        names = [agent.agent_id for agent in value]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"agent {name!r:.60} is registered twice; once is enough")
        return value


class SessionSettings(Part):
    """Every number of sessions.

    Spec: related facts §5, §8
    """

    budget: SafetyBudgetSettings = SafetyBudgetSettings()
    graph: WindowGraphSettings = WindowGraphSettings()
    transfer: TransferSettings = TransferSettings()
    token: TokenSettings = TokenSettings()
    agents: AgentSettings = AgentSettings()
