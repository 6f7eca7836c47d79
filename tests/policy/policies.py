"""Random policies, and the same demands in many spellings."""

from __future__ import annotations

from hypothesis import strategies as st

from crp_integrations.policy.directives import PolicySource
from crp_integrations.policy.records import Policy
from crp_integrations.vocabulary import (
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    Strategy,
)

THRESHOLDS = st.none() | st.integers(0, 10_000).map(lambda number: number / 10_000)
# Few values, so that two policies are often comparable.
COARSE = st.none() | st.sampled_from((0.0, 0.5, 0.5001, 1.0))
LEVELS = st.none() | st.sampled_from((RiskLevel.CRITICAL, RiskLevel.HIGH, RiskLevel.MEDIUM))
OVERSIGHT = st.none() | st.sampled_from(Oversight)
TIERS = (QualityTier.S, QualityTier.A, QualityTier.B)
ADDRESSES = (
    "https://a.example/r",
    "http://127.0.0.1:8080/crp?x=1&y=%3B",
    "https://[::1]:9/",
    "HTTPS://B.Example",
)


def policies(thresholds: st.SearchStrategy[float | None] = THRESHOLDS) -> st.SearchStrategy[Policy]:
    """Policies of every kind."""
    return st.builds(
        Policy,
        default_src=st.sets(st.sampled_from(PolicySource)).map(tuple),
        halt_on=LEVELS,
        warn_on=LEVELS,
        ask_again_on=LEVELS,
        repair_on=LEVELS,
        require_grounding=thresholds,
        require_entailment=thresholds,
        require_flow=thresholds,
        require_completeness=thresholds,
        require_quality=st.sets(st.sampled_from(TIERS)).map(tuple),
        require_oversight=OVERSIGHT,
        oversight=OVERSIGHT,
        block_ungrounded=st.booleans(),
        block_parametric=st.booleans(),
        block_pii=st.booleans(),
        block_fabrication=st.booleans(),
        block_distortion=st.booleans(),
        block_repetition=st.booleans(),
        max_repetition=st.none()
        | st.sampled_from(
            (RepetitionLevel.NONE, RepetitionLevel.MINOR, RepetitionLevel.SIGNIFICANT)
        ),
        upgrade_on_risk=st.none()
        | st.sampled_from((Strategy.REFLEXIVE, Strategy.HIERARCHICAL, Strategy.BATCH)),
        unchecked=st.none() | st.just("allow"),
        report_uri=st.sets(st.sampled_from(ADDRESSES)).map(tuple),
        report_to=st.sets(st.sampled_from(("ops", "audit.team", "x_1"))).map(tuple),
    )
