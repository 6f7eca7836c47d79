"""What decides about access."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from crp_integrations.errors import ConfigError
from crp_integrations.records import Part


class GuardSettings(Part):
    """Which policy guards the fabric, and which exceptions are registered.

    Spec: Summit §Policy-as-Code Compliance Rules, §Governed Exceptions

    Attributes:
        policy: whether a policy guards the fabric; without one the local guard allows everything
            and says so in every report. Naming a bundle or a server asks for one as well.
        bundle: folder of `.rego` files with a `data.json`; None for the policy that ships.
        opa_url: address of an OPA server that holds the policy, such as `http://127.0.0.1:8181`;
            empty to evaluate it in this process.
        opa_timeout_s: seconds until the server counts as failed, which denies.
        entrypoint: the rule whose value is the decision, as `package/rule`.
        exceptions: JSON file of governed exceptions; None for none.
        most_kept: decisions that are kept in memory.
    """

    policy: bool = False
    bundle: Path | None = None
    opa_url: str = ""
    opa_timeout_s: float = Field(default=2.0, gt=0.0)
    entrypoint: str = Field(default="crp/access/decision", min_length=1)
    exceptions: Path | None = None
    most_kept: int = Field(default=4_096, ge=1)

    @model_validator(mode="after")
    def _one_engine(self) -> GuardSettings:
        if self.bundle is not None and self.opa_url:
            raise ConfigError(
                "guard.bundle and guard.opa_url are both given; a server holds its own policy, "
                "give one of them"
            )
        return self

    @property
    def wanted(self) -> bool:
        """Whether a policy guards the fabric."""
        return self.policy or self.bundle is not None or bool(self.opa_url)
