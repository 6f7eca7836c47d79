"""Numbers of what happens around one envelope: pressure, the next window, and reuse."""

from __future__ import annotations

from pydantic import Field

from crp_integrations.records import Part


class PressureSettings(Part):
    """When an envelope suggests something. Saturations are in [0, 1].

    Spec: CRP-SPEC-003 §9.3, §10.3, §14.3

    Attributes:
        reuse_saturation: saturation from which `reuse-ckf` is suggested (§9.3).
        continue_saturation: saturation from which a continuation window is suggested when
            relevant facts did not fit (§9.3).
        pressure_saturation: the same for the word budget pressure (§10.3).
        falling_windows: windows in a row, each of a worse tier than the one before, from which
            `hierarchical` is suggested (§14.3).
    """

    reuse_saturation: float = Field(default=0.95, ge=0.0, le=1.0)
    continue_saturation: float = Field(default=0.95, ge=0.0, le=1.0)
    pressure_saturation: float = Field(default=0.98, ge=0.0, le=1.0)
    falling_windows: int = Field(default=3, ge=2)


class EvolutionSettings(Part):
    """How the summary of an earlier window enters the next one. Scores are in [0, 1].

    Spec: CRP-SPEC-003 §14.1

    Attributes:
        summary_relevance: relevance of a summary; at 1 it is packed before other facts.
        summary_importance: importance of a summary (related facts §5).
    """

    summary_relevance: float = Field(default=1.0, ge=0.0, le=1.0)
    summary_importance: float = Field(default=0.95, ge=0.0, le=1.0)


class ReuseSettings(Part):
    """What is kept in memory of earlier envelopes, for conditional requests.

    Spec: CRP-SPEC-003 §11, §16.2

    Attributes:
        envelopes: most envelopes that are known at a time; 0 knows none.
        bytes: about how much memory these may take together, an envelope some 200 kB.
        lifetime_seconds: seconds after which an envelope is known no more; that of a session
            token. Freshness goes with time, and no validator shows it.
        salt_etags: mix a secret of the session into every ETag, so that two sessions cannot be
            compared (§16.2).
    """

    envelopes: int = Field(default=64, ge=0)
    bytes: int = Field(default=8_000_000, ge=0)
    lifetime_seconds: int = Field(default=3_600, ge=1)
    salt_etags: bool = False
