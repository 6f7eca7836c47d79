"""Typed values of request and response headers, and their settings. None means no such header."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import AfterValidator, AwareDatetime, Field, field_validator

from crp_integrations import vocabulary
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers.grammar import FRACTION_DIGITS, LIMITS, floor_budget
from crp_integrations.headers.names import (
    PROTOCOL_VERSION,
    SESSION_TOKEN,
    AgentPhase,
    RetryCondition,
)
from crp_integrations.records import Part

_FLAGS: Final = {
    "no-store": "no_store",
    "no-cache": "no_cache",
    "reuse-ckf": "reuse_ckf",
    "only-if-ckf": "only_if_ckf",
}
_MAX_AGE: Final = re.compile(r"max-age=([0-9]{1,15})", re.ASCII)
_SHOWN_CHARACTERS: Final = 40


class CacheDirectives(Part):
    """Directives of a caller on caching and storage.

    Spec: CRP-SPEC-009 §7.1

    Attributes:
        no_store: write nothing of the session to the fabric; reading is allowed.
        no_cache: build the envelope again even if it is cached.
        reuse_ckf: use the fabric as it is, without reading sources again.
        only_if_ckf: fail if there is no relevant fact.
        max_age_seconds: facts ingested longer ago count as STALE; None for no limit.
    """

    no_store: bool = False
    no_cache: bool = False
    reuse_ckf: bool = False
    only_if_ckf: bool = False
    max_age_seconds: int | None = Field(default=None, ge=0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a comma list of directives; case does not matter.

        Raises:
            HeaderSyntaxError: a directive is unknown, malformed, or occurs twice; names it.

        >>> CacheDirectives.parse("no-store, max-age=3600").text
        'no-store, max-age=3600'
        """
        values: dict[str, bool | int] = {}
        for part in text.split(","):
            directive = part.strip(" \t").lower()
            age = _MAX_AGE.fullmatch(directive)
            field = "max_age_seconds" if age else _FLAGS.get(directive)
            if field is None:
                wanted = ", ".join(_FLAGS)
                raise HeaderSyntaxError(
                    f"cache directive {directive[:_SHOWN_CHARACTERS]!r} is not one of {wanted} "
                    "and max-age=SECONDS"
                )
            if field in values:
                name = directive.partition("=")[0]
                raise HeaderSyntaxError(f"cache directive {name} occurs twice; write it once")
            values[field] = int(age[1]) if age else True
        return cls(**values)

    @property
    def text(self) -> str:
        """The directives as a header's value; empty without directives."""
        parts = [name for name, field in _FLAGS.items() if getattr(self, field)]
        if self.max_age_seconds is not None:
            parts.append(f"max-age={self.max_age_seconds}")
        return ", ".join(parts)


Fraction = Annotated[
    float, Field(ge=0.0, le=1.0), AfterValidator(lambda value: round(value, FRACTION_DIGITS))
]
# Four digits, rounded down, so that a safety budget never grows when it is passed on.
Budget = Annotated[float, Field(ge=0.0, le=1.0), AfterValidator(floor_budget)]
Count = Annotated[int, Field(ge=0, lt=10**15)]
# Seconds, a time, or a condition.
RetryAfter = Annotated[int, Field(ge=0, lt=10**9)] | AwareDatetime | RetryCondition


class RequestHeaders(Part):
    """Values of a request's headers.

    Spec: related facts §3

    Attributes:
        strategies: strategies that the caller accepts, best first; empty for any.
        dispatch_strategy: the strategy that a parent agent asks for.
        if_match: ETag of the envelope that the caller has, or `*` for any known one.
        continuation_ids: windows to continue; several are joined (fan-in).
        accept_quality: tiers that the caller accepts; better tiers than the worst one count too.
        accept_risk: the highest risk that the caller accepts.
        safety_policy, safety_policy_report_only: texts of safety policies, not yet parsed.
        nonce: `base64:…`, bound to the policy.
        safety_budget: a ceiling, to four digits; it never raises a budget.
        loop_depth: nesting depth of agents around this call, 0 for the root.
        session_token: token from `CRP-Set-Session`, not yet verified.
        oversight_token: `approved:sha256:…`, with the hash of the response that a person approved.
    """

    session_id: str | None = None
    grounding: vocabulary.GroundingMode | None = None
    strategies: tuple[vocabulary.Strategy, ...] = ()
    dispatch_strategy: vocabulary.Strategy | None = None
    seed: int | None = None
    cache: CacheDirectives | None = None
    if_match: str | None = None
    residency: str | None = None
    continuation_ids: tuple[str, ...] = ()
    accept_quality: tuple[vocabulary.QualityTier, ...] = ()
    accept_risk: vocabulary.RiskLevel | None = None
    oversight_mode: vocabulary.Oversight | None = None
    safety_mode: vocabulary.SafetyMode | None = None
    safety_policy: str | None = None
    safety_policy_report_only: str | None = None
    report_uri: str | None = None
    nonce: str | None = None
    safety_budget: Budget | None = None
    loop_depth: Count | None = None
    session_parent: str | None = None
    phase: AgentPhase | None = None
    session_token: str | None = Field(default=None, repr=False)
    oversight_token: str | None = Field(default=None, repr=False)


class CacheOutcome(Part):
    """Value of `CRP-Context-Cache-Status`; `reason` is empty if there is none."""

    status: vocabulary.CacheStatus
    reason: str = ""


class DistortionsValue(Part):
    """Value of `CRP-Safety-Distortions`."""

    count: Count
    types: tuple[vocabulary.DistortionType, ...] = ()


class ContradictionsValue(Part):
    """Value of `CRP-Safety-Contradictions`; the scope is empty without contradictions."""

    count: Count
    scope: str = ""


class RepetitionValue(Part):
    """Value of `CRP-Quality-Repetition`; `overlap` is None without repetition."""

    level: vocabulary.RepetitionLevel
    overlap: Fraction | None = None


class CompletenessValue(Part):
    """Value of `CRP-Quality-Completeness`; `uncovered` are slugs of sub-queries."""

    level: vocabulary.CompletenessLevel
    covered: Count
    total: Count
    uncovered: tuple[str, ...] = ()


class OmissionsValue(Part):
    """Value of `CRP-Safety-Omissions`: number of omitted important facts by severity."""

    critical: Count = 0
    high: Count = 0
    medium: Count = 0


class FlowValue(Part):
    """Value of `CRP-Quality-Flow`; `remediation` is the remedy used, empty for none."""

    score: Fraction
    remediation: str = ""


class SetSessionValue(Part):
    """Value of `CRP-Set-Session`: the session token and its public parameters.

    Spec: CRP-SPEC-003 §14.3; related facts §5

    Attributes:
        token: signed token, which never appears in a log or a `repr`.
        quality_history: tier of each window of the session, the first window first.
    """

    token: str = Field(repr=False, max_length=LIMITS[SESSION_TOKEN])
    window: Count = Field(ge=1)
    quality_history: tuple[vocabulary.QualityTier, ...] = ()
    max_age_seconds: Count = 3_600
    path: str = "/"


class ResponseHeaders(Part):
    """Values of the response headers of one window; fractions have three digits.

    Spec: CRP-SPEC-003 §15, CRP-SPEC-005 §20

    Attributes:
        continuation_id: `crp_cont_…` if a continuation window is suggested; several, separated
            by commas, if a fan-out gave each child its own.
        dispatch_strategy: the strategy that a parent agent asked for.
        violation: `inheritance`, or the names of unmet directives, terms and settings.
        retry_after: when a caller may ask again after a withheld answer; sent with every 451.
        dag_root: root of the session's windows, without the prefix `dag:`.
        iso_42001: ids of the ISO/IEC 42001 controls that are met.
        controls_met: number of controls of the catalogue that are met, and of all.
        knowledge_age: time since the newest included fact was ingested.
    """

    protocol_version: str = PROTOCOL_VERSION
    session_id: str | None = None
    window: tuple[Count, Count] | None = None
    strategy: vocabulary.Strategy | None = None
    quality_tier: vocabulary.QualityTier | None = None
    saturation: Fraction | None = None
    facts_used: tuple[Count, Count] | None = None
    tokens_used: Count | None = None
    etag: str | None = None
    cache_status: CacheOutcome | None = None
    continuation_id: str | None = None
    tier_hit: int | None = Field(default=None, ge=0, le=3)
    ckf_hits: Count | None = None
    ckf_community: str | None = None
    knowledge_age: timedelta | None = None
    claim_count: Count | None = None
    attribution: vocabulary.Attribution | None = None
    grounding_pct: Fraction | None = None
    attribution_score: Fraction | None = None
    fabrications: Count | None = None
    distortions: DistortionsValue | None = None
    contradictions: ContradictionsValue | None = None
    entailment_score: Fraction | None = None
    fidelity_score: Fraction | None = None
    hallucination_risk: vocabulary.RiskLevel | None = None
    hallucination_score: Fraction | None = None
    repetition: RepetitionValue | None = None
    completeness: CompletenessValue | None = None
    flow: FlowValue | None = None
    quality_score: Fraction | None = None
    omissions: OmissionsValue | None = None
    personal_data: bool | None = None
    ai_act_class: vocabulary.AiActClass | None = None
    nist_tier: str | None = None
    iso_42001: tuple[str, ...] | None = None
    controls_met: tuple[Count, Count] | None = None
    chained_hmac: str | None = None
    window_hmac: str | None = None
    chain_integrity: vocabulary.ChainIntegrity | None = None
    dag_root: str | None = None
    lineage: tuple[str, ...] | None = None
    report_uri: str | None = None
    trail_id: str | None = None
    trail_uri: str | None = None
    residency: str | None = None
    policy_applied: str | None = None
    violation: tuple[str, ...] | None = None
    oversight_mode: vocabulary.Oversight | None = None
    retry_after: RetryAfter | None = None
    nonce: str | None = None
    seed: Count | None = None
    dispatch_strategy: vocabulary.Strategy | None = None
    phase: AgentPhase | None = None
    loop_depth: Count | None = None
    safety_budget: Budget | None = None
    budget_warning: vocabulary.BudgetWarning | None = None
    tool_calls: Count | None = None
    session_parent: str | None = None
    revision_round: tuple[Count, Count] | None = None
    set_session: SetSessionValue | None = None


# Names that a URI template may contain in braces.
PLACES: Final = ("session_id", "window_id")


class HeaderSettings(Part):
    """Contents of response headers.

    Attributes:
        show_community: whether `CRP-Memory-CKF-Community` is sent; turn it off if the topic of a
            question is itself sensitive (CRP-SPEC-003 §16.3).
        report_uri: template of a report's address (CRP-SPEC-005 §15.4) with `{window_id}` and
            `{session_id}`: an absolute URI, or a path on the gateway; empty sends no header.
        trail_uri: template of the address of a session's trail, in the same format.
    """

    show_community: bool = True
    report_uri: str = "/crp/windows/{window_id}/report"
    trail_uri: str = ""

    @field_validator("report_uri", "trail_uri")
    @classmethod
    def _fits(cls, value: str) -> str:
        try:
            value.format(**dict.fromkeys(PLACES, "x"))
        except (KeyError, IndexError, ValueError):
            raise ValueError(
                f"{value!r:.80} has other braces than {{{PLACES[0]}}} and {{{PLACES[1]}}}"
            ) from None
        return value
