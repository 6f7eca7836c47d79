"""Settings of the guard and of the screening of candidates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator, model_validator

from crp_integrations.errors import ConfigError
from crp_integrations.guard.injection.records import InjectionSettings
from crp_integrations.records import Part

# Rego names separated by slashes, without the leading `data`, which is implied.
_ENTRYPOINT: Final = re.compile(r"(?!data/)[A-Za-z_]\w*(?:/[A-Za-z_]\w*)+", re.ASCII)


class GuardSettings(Part):
    """Which policy guards the fabric, and which exceptions are registered.

    Spec: Summit §Policy-as-Code Compliance Rules, §Governed Exceptions

    Attributes:
        policy: whether a policy guards the fabric; without one the local guard allows everything
            and every report says so. A bundle or a server implies a policy.
        bundle: folder of `.rego` files with a `data.json`; None for the built-in policy.
        opa_url: address of an OPA server that has the policy, such as `http://127.0.0.1:8181`;
            empty to evaluate it in this process.
        opa_timeout_s: seconds until the server counts as failed, which denies.
        entrypoint: the rule whose value is the decision, as `package/rule`.
        exceptions: JSON file of governed exceptions; None for none.
        most_kept: maximum number of decisions that are cached.
    """

    policy: bool = False
    bundle: Path | None = None
    opa_url: str = ""
    opa_timeout_s: float = Field(default=2.0, gt=0.0)
    entrypoint: str = "crp/access/decision"
    exceptions: Path | None = None
    most_kept: int = Field(default=4_096, ge=1)

    @field_validator("entrypoint")
    @classmethod
    def _with_slashes(cls, entrypoint: str) -> str:
        # Refused here, because a missing entrypoint would make every decision a denial.
        if not _ENTRYPOINT.fullmatch(entrypoint):
            raise ConfigError(
                f"guard.entrypoint is {entrypoint!r:.80}, wanted package and rule with slashes "
                "between and without data, such as crp/access/decision"
            )
        return entrypoint

    @field_validator("opa_url")
    @classmethod
    def _no_address(cls, opa_url: str) -> str:
        # An empty variable would leave the fabric without a guard; the default of an omitted field
        # is not validated here.
        if not opa_url.strip():
            raise ConfigError(
                "guard.opa_url is empty, wanted an address such as http://127.0.0.1:8181; "
                "leave it out for no server"
            )
        return opa_url

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


class ScreeningSettings(Part):
    """Thresholds of the screening of candidates.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        enabled: whether candidates of an ordinary turn are screened at all.
        relevance_floor: relevance below which a candidate is off topic, [0, 1]; it depends on the
            embedder. With 0 nothing is off topic.
        words_floor: minimum share of the best candidate's words at which a candidate is on topic
            whatever its relevance, (0, 1].
        hop_floor: minimum weight of a link at which a candidate is on topic whatever its relevance.
        fewest: number of candidates that must stay, else the pack is minimal; 0 for no minimum.
        injection: settings of the injection rules.
    """

    enabled: bool = False
    relevance_floor: float = Field(default=0.0, ge=0.0, le=1.0)
    words_floor: float = Field(default=0.25, gt=0.0, le=1.0)
    hop_floor: float = Field(default=0.25, gt=0.0, le=1.0)
    fewest: int = Field(default=1, ge=0)
    injection: InjectionSettings = InjectionSettings()
