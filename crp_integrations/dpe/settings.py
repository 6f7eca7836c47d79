"""Every number of the provenance engine, as one frozen part of the settings tree."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from crp_integrations.dpe.amplifiers import AmplifierSettings
from crp_integrations.dpe.settings_compliance import (
    COVERED,
    OmissionSettings,
    PersonalSettings,
)
from crp_integrations.dpe.settings_quality import QualitySettings
from crp_integrations.errors import ConfigError
from crp_integrations.records import Part
from crp_integrations.vocabulary import RiskLevel

LEVEL_CUTS: Final[tuple[tuple[float, RiskLevel], ...]] = (
    (0.70, RiskLevel.CRITICAL),
    (0.45, RiskLevel.HIGH),
    (0.20, RiskLevel.MEDIUM),
)
"""Normative cuts of the composite, lower bound included; no setting moves them.

Spec: CRP-SPEC-005 §7.4 (decision D13)
"""

# Sums of decimal weights are off by the last bits; more than this is another sum.
SUM_TOLERANCE: Final = 1e-9

COMMON_KNOWLEDGE: Final[tuple[str, ...]] = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "January",
    "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December", "Christmas", "Easter", "Earth", "Africa", "Antarctica", "Asia",
    "Australia", "Europe", "America", "English", "French", "German", "Spanish", "Chinese",
    "Japanese", "Internet", "God", "American", "British", "European", "Asian", "African", "AM",
    "PM", "CEO", "FAQ", "URL", "PDF", "AI", "IT", "OK", "TV", "DNA", "ID", "UTC", "US", "USA",
    "U.S", "U.S.", "U.S.A", "UK", "U.K", "U.K.", "EU", "UN", "United States", "United Kingdom",
    "European Union", "North America", "South America",
)  # fmt: skip
"""Names that need no source by default: calendar, continents, languages, common short forms."""


class DpeSettings(Part):
    """Numbers and choices that decide a report. All but counts and lengths are in [0, 1].

    Spec: CRP-SPEC-005 §4.3, §5.2, §5.5, §6.2, §7.2

    Attributes:
        verifier: which shipped verifier reads: `features`, a fitted model whose probability also
            drives attribution and the level, or `alignment` (decisions D2, D12, D13).
        decides: what the level comes from where a judge, or a verifier of the user's own, read the
            claims: their statuses (`claims`), or the document's `composite` (decision D13).
        rule: how claims are attributed: `cosine` is §4.3 to the letter, `alignment` the better
            of lexical alignment and embedding similarity (decision D2).
        grounded: score from which a claim is CONTEXT_GROUNDED (§4.3).
        mixed: score from which it is MIXED (§4.3).
        specific: specificity from which an unmatched claim is UNVERIFIABLE (§4.3).
        lexical_grounded: share of a claim's weighted words found in the context that counts as
            `grounded`; `lexical_mixed` likewise (rule `alignment`).
        embedded_windows: windows a claim is compared with by the embedder (rule `alignment`).
        fabrication_penalty, distortion_penalty, contradiction_penalty: §5.5.
        common_knowledge: names that need no source (§5.2, decision D10).
        pairs: contradiction is looked for in `all` pairs of claims that are about one thing, or
            for each claim in those that `share` most with it (§5.4, decision D15).
        alike_claims: earlier claims about one thing that a claim is compared with where `pairs`
            is `share`; the report's flags count claims that had more (§5.4, D15).
        most_pair_values: figures, dates and names of a claim above which it is not compared with
            other claims; the report's flags count such claims (§5.4, D15).
        windows: windows of the context that the verifier reads for each claim (§6.2, D6).
        longest_claim: characters; a longer claim is NOT_CHECKED (§6.2, D6).
        most_claims: claims that are checked; further ones are NOT_CHECKED (D6).
        conflict_entailment: most that entailment can be beside a typed conflict (§6.2).
        untraced_entailment: most that it can be beside a value without a source (§6.2).
        parametric_odds: log odds that the answer's evidence gains under `context-strict` when all
            factual claims are PARAMETRIC, in proportion below that (E21; verifier `features`).
        attribution_weight, fidelity_weight, entailment_weight, specificity_weight: §7.2, §16.3
            (decision D4).
        quality: numbers of stages 6 to 9 (§8 to §11, §18).
        amplifiers: what raises the composite in regulated circumstances (§7.3, §17).
        omission: what stage 10 looks for (§12).
        personal: what stage 11 looks for (§13).
    """

    verifier: Literal["features", "alignment"] = "features"
    decides: Literal["claims", "composite"] = "claims"
    rule: Literal["alignment", "cosine"] = "alignment"
    grounded: float = Field(default=0.75, ge=0.0, le=1.0)
    mixed: float = Field(default=0.60, ge=0.0, le=1.0)
    specific: float = Field(default=0.30, ge=0.0, le=1.0)
    lexical_grounded: float = Field(default=0.48, gt=0.0, lt=1.0)
    lexical_mixed: float = Field(default=0.28, gt=0.0, lt=1.0)
    embedded_windows: int = Field(default=2, ge=1)

    fabrication_penalty: float = Field(default=0.30, ge=0.0, le=1.0)
    distortion_penalty: float = Field(default=0.20, ge=0.0, le=1.0)
    contradiction_penalty: float = Field(default=0.15, ge=0.0, le=1.0)
    common_knowledge: tuple[str, ...] = COMMON_KNOWLEDGE
    pairs: Literal["all", "share"] = "share"

    alike_claims: int = Field(default=8, ge=1)
    most_pair_values: int = Field(default=40, ge=1)
    windows: int = Field(default=3, ge=1)
    longest_claim: int = Field(default=4_000, ge=1)
    most_claims: int = Field(default=2_000, ge=1)
    conflict_entailment: float = Field(default=0.05, ge=0.0, le=1.0)
    untraced_entailment: float = Field(default=0.10, ge=0.0, le=1.0)

    parametric_odds: float = Field(default=2.0, ge=0.0)

    attribution_weight: float = Field(default=0.35, ge=0.0, le=1.0)
    fidelity_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    entailment_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    specificity_weight: float = Field(default=0.15, ge=0.0, le=1.0)

    quality: QualitySettings = QualitySettings()

    amplifiers: AmplifierSettings = AmplifierSettings()
    omission: OmissionSettings = OmissionSettings()
    personal: PersonalSettings = PersonalSettings()

    @model_validator(mode="after")
    def _usable(self) -> DpeSettings:
        weights = self.weights
        total = sum(weights.values())
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise ConfigError(f"the risk weights sum to {total:.6g}, wanted 1.0")
        attribution, fidelity, entailment, specificity = weights.values()
        if not attribution > fidelity >= entailment > specificity:
            raise ConfigError(
                f"the risk weights are {attribution:g}, {fidelity:g}, {entailment:g} and "
                f"{specificity:g}, wanted attribution > fidelity >= entailment > specificity"
            )
        for low, high, name in (
            (self.mixed, self.grounded, "mixed and grounded"),
            (self.lexical_mixed, self.lexical_grounded, "lexical_mixed and lexical_grounded"),
        ):
            if low > high:
                raise ConfigError(f"{name} are {low:g} and {high:g}, wanted the first no larger")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The four risk weights by signal, in the order of their importance."""
        return {
            "attribution": self.attribution_weight,
            "fidelity": self.fidelity_weight,
            "entailment": self.entailment_weight,
            "specificity": self.specificity_weight,
        }

    @classmethod
    def preset(cls, name: str) -> DpeSettings:
        """The settings of one of the two presets that are kept and tested.

        Args:
            name: `default`, or `literal` for the specification's letter: cosine between a claim
                and whole facts, and every pair of claims tested for contradiction.

        Raises:
            ConfigError: there is no preset of that name.
        """
        if name == "default":
            return cls()
        if name == "literal":
            return cls(
                verifier="alignment",
                decides="composite",
                rule="cosine",
                pairs="all",
                quality=QualitySettings.literal(),
                omission=OmissionSettings(covered=COVERED),
            )
        raise ConfigError(f"dpe preset {name!r} is not known, wanted 'default' or 'literal'")
