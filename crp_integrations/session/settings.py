"""Settings of sessions: safety budget, graph, transfer, token, and registered agents.

The maximum number of windows is the top-level setting `max_windows`; importance and relevance of a
summary are in `envelope.evolution`.
"""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from crp_integrations.errors import ConfigError, PolicySyntaxError
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.records import Part
from crp_integrations.session.records import BUDGET_DIGITS
from crp_integrations.vocabulary import RiskLevel, Strategy


class RegisteredAgent(Part):
    """A registered agent, from `[[sessions.agents.registered]]` in crp.toml.

    Spec: related facts §8

    Attributes:
        max_loop_depth: maximum depth in a chain of agents; None for the general setting.
        max_delegations: maximum number of sub-agents within a session; None for any number.
        allowed_strategies: strategies that it may use; None for all.
        safety_policy: policy that its sessions have at least; empty for none.
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
    """Return a number if it has at most `BUDGET_DIGITS` digits, as budgets are compared by."""
    if round(value, BUDGET_DIGITS) != value:
        raise ConfigError(f"{name} is {value}; give at most {BUDGET_DIGITS} digits after the point")
    return value


class RiskCosts(Part):
    """The cost of a delivered answer to the safety budget, by its risk.

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
            # An answer that was not judged costs nothing: no fault in it is known.
            RiskLevel.UNKNOWN: 0.0,
            RiskLevel.MEDIUM: self.medium,
            RiskLevel.HIGH: self.high,
            RiskLevel.CRITICAL: self.critical,
        }
        return costs[level]


class SafetyBudgetSettings(Part):
    """Thresholds at which the safety budget warns, requires review, and halts. All in [0, 1].

    Spec: related facts §8

    Attributes:
        enforce: whether the circuit breaker acts: answers are withheld or reviewed, the strategy
            is raised, delegation ends and a spent session ends. Else it is only reported.
        start: initial budget of a session without a parent.
        healthy: budget above which there is no warning; up to it the breaker is half open.
        review: budget below which a person must review answers.
        halt: budget up to which every answer is withheld.
        child_halt: cost of a sub-agent's withheld answer (451) to the agent that asked it.
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
    """Limits of a session's graph of windows.

    Spec: related facts §5

    Attributes:
        nodes: maximum number of windows of a session, in all branches together; None for no limit.
            The document's limit of 50 belongs to the profile `protocol`.
        fan_out: maximum number of windows that follow one window.
    """

    nodes: int | None = Field(default=None, ge=1)
    fan_out: int = Field(default=10, ge=1)


class TransferSettings(Part):
    """How much a window receives of the one that it follows. Shares and scores are in [0, 1].

    Spec: related facts §5

    Attributes:
        summaries: whether a model is asked for a summary of answers that do not fit; else only
            the facts of the earlier windows are passed on.
        share: share of the available tokens that may be transferred; the rest is for new facts.
        summary_of_parent: maximum length of a summary, as a share of the parent answer's tokens.
        summary_of_available: maximum length of a summary, as a share of the available tokens.
        temperature: temperature for writing a summary.
        fidelity: minimum fidelity of a summary to the answer.
    """

    summaries: bool = False
    share: float = Field(default=0.60, ge=0.0, le=1.0)
    summary_of_parent: float = Field(default=0.25, gt=0.0, le=1.0)
    summary_of_available: float = Field(default=0.30, gt=0.0, le=1.0)
    temperature: float = Field(default=0.1, ge=0.0, le=2.0)
    fidelity: float = Field(default=0.80, ge=0.0, le=1.0)


class TokenSettings(Part):
    """Lifetime and maximum length of session tokens.

    Spec: related facts §5

    Attributes:
        lifetime_seconds: seconds from issue to expiry.
        most_bytes: maximum length of the whole token in bytes.
    """

    lifetime_seconds: int = Field(default=3_600, ge=1)
    most_bytes: int = Field(default=4_096, ge=512)


class AgentSettings(Part):
    """Limits for agents that call agents.

    Spec: related facts §8

    Attributes:
        max_loop_depth: maximum depth in a chain of agents; 0 allows no delegation.
        registered: registered agents.
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
    """All settings of sessions.

    Spec: related facts §5, §8
    """

    budget: SafetyBudgetSettings = SafetyBudgetSettings()
    graph: WindowGraphSettings = WindowGraphSettings()
    transfer: TransferSettings = TransferSettings()
    token: TokenSettings = TokenSettings()
    agents: AgentSettings = AgentSettings()
