"""Settings for the delivery of violation reports."""

from __future__ import annotations

from pydantic import Field, field_validator

from crp_integrations.errors import ConfigError
from crp_integrations.policy.directives import REPORT_NAMES, REPORT_URIS
from crp_integrations.records import Part


class ReportSettings(Part):
    """How violation reports are delivered.

    Spec: related facts §6

    Attributes:
        hosts: names and addresses of private hosts to which reports may be posted, such as
            `siem.internal` or `127.0.0.1`.
        receivers: address of each name that `report-to` may use; implies their `hosts`.
        capacity: maximum number of deliveries in progress; further ones are dropped.
        attempts: maximum number of attempts of one delivery.
        timeout_seconds: deadline of one attempt, from its first byte to its last.
        backoff_seconds: pause before the second attempt; it doubles with each further one.
        close_seconds: how long a closing relay waits for deliveries in progress.
    """

    hosts: tuple[str, ...] = ()
    receivers: dict[str, str] = {}
    capacity: int = Field(default=1_000, ge=1)
    attempts: int = Field(default=4, ge=1)
    timeout_seconds: float = Field(default=10.0, gt=0.0)
    backoff_seconds: float = Field(default=0.5, ge=0.0)
    close_seconds: float = Field(default=5.0, ge=0.0)

    @field_validator("receivers")
    @classmethod
    def _addressed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, uri in value.items():
            if not REPORT_NAMES.takes(name):
                raise ConfigError(f"receiver {name!r:.60} is invalid, wanted {REPORT_NAMES.wanted}")
            if not REPORT_URIS.takes(uri):
                raise ConfigError(f"receiver {name!r:.60} wants {REPORT_URIS.wanted}")
        return {name.lower(): uri for name, uri in value.items()}
