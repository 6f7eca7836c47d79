"""What an operator registers about an agent."""

from __future__ import annotations

from pydantic import Field, field_validator

from crp_integrations.errors import ConfigError, PolicySyntaxError
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.records import Part
from crp_integrations.vocabulary import Strategy


class Agent(Part):
    """A registered agent, as it stands under `[[sessions.agents.registered]]` in crp.toml.

    Spec: related facts §8

    Attributes:
        agent_id: the name under which it asks.
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
