"""Settings of the guard: which policy decides about access."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator, model_validator

from crp_integrations.errors import ConfigError
from crp_integrations.guard.injection.records import (
    InjectionSettings,
)
from crp_integrations.records import Part

# Rego's names with slashes between, of which `data` is understood.
_ENTRYPOINT: Final = re.compile(r"(?!data/)[A-Za-z_]\w*(?:/[A-Za-z_]\w*)+", re.ASCII)


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
    entrypoint: str = "crp/access/decision"
    exceptions: Path | None = None
    most_kept: int = Field(default=4_096, ge=1)

    @field_validator("entrypoint")
    @classmethod
    def _with_slashes(cls, entrypoint: str) -> str:
        # Else every decision would deny, since nothing is there to be asked.
        if not _ENTRYPOINT.fullmatch(entrypoint):
            raise ConfigError(
                f"guard.entrypoint is {entrypoint!r:.80}, wanted package and rule with slashes "
                "between and without data, such as crp/access/decision"
            )
        return entrypoint

    @field_validator("opa_url")
    @classmethod
    def _no_address(cls, opa_url: str) -> str:
        # A variable that was not set would leave the fabric without any guard; what is left out
        # is not looked at here.
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
    """The numbers of a screening.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        enabled: whether an ordinary turn looks at its candidates at all.
        relevance_floor: relevance below which a candidate is off topic, [0, 1]; it depends on the
            embedder. 0 calls nothing off topic.
        words_floor: share of the best candidate's words from which one is on topic whatever its
            relevance, (0, 1].
        hop_floor: what a link must say for a candidate that is on topic whatever its relevance.
        fewest: candidates that must stay, else the pack is the minimal one; 0 for no such number.
        injection: the numbers of the rules.
    """

    enabled: bool = False
    relevance_floor: float = Field(default=0.0, ge=0.0, le=1.0)
    words_floor: float = Field(default=0.25, gt=0.0, le=1.0)
    hop_floor: float = Field(default=0.25, gt=0.0, le=1.0)
    fewest: int = Field(default=1, ge=0)
    injection: InjectionSettings = InjectionSettings()
