"""Settings of the provenance engine: one frozen part of the settings tree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from crp_integrations.dpe.catalogue import evidence_of
from crp_integrations.dpe.dossier import System
from crp_integrations.errors import ConfigError
from crp_integrations.records import Part
from crp_integrations.vocabulary import Domain, RiskLevel, Sector, Severity


class Amplifier(StrEnum):
    """The circumstances that raise a composite, strongest first.

    Spec: CRP-SPEC-005 §17
    """

    PERSONAL = "gdpr-pii"
    HIGH_RISK = "eu-ai-act-high-risk"
    SECTOR = "regulated-sector"
    LOOP_DEPTH = "agent-loop-depth"
    CROSS_WINDOW = "cross-window-contradiction"
    REPETITION = "severe-repetition"


# Required order of each pair of neighbouring factors.
_ORDER: Final[tuple[str, ...]] = (">", ">", ">=", ">=", ">")


class AmplifierSettings(Part):
    """The factor of each amplifier, and the depths of agents within agents.

    Spec: CRP-SPEC-005 §17 (decisions D4, D5)

    Attributes:
        personal: factor for personal data in prompt or answer; substantial.
        high_risk: factor for a high-risk domain of the EU AI Act; significant.
        sector: factor for a financial or medical system; moderate, like the next two.
        loop_depth: factor for agents nested deeper than `deep_above`.
        cross_window: factor for contradictions with earlier windows, whatever their number.
        repetition: factor for SEVERE repetition; light.
        deep_above: loop depth above which the amplifier applies, in agents (decision D5).
        stop_above: loop depth above which a call is refused, in agents (decision D5).
    """

    personal: float = Field(default=1.40, ge=1.0, le=10.0)
    high_risk: float = Field(default=1.30, ge=1.0, le=10.0)
    sector: float = Field(default=1.20, ge=1.0, le=10.0)
    loop_depth: float = Field(default=1.20, ge=1.0, le=10.0)
    cross_window: float = Field(default=1.20, ge=1.0, le=10.0)
    repetition: float = Field(default=1.10, ge=1.0, le=10.0)
    deep_above: int = Field(default=2, ge=0)
    stop_above: int = Field(default=5, ge=0)

    @model_validator(mode="after")
    def _in_order(self) -> AmplifierSettings:
        factors = list(self.factors.values())
        for place, sign in enumerate(_ORDER):
            first, second = factors[place], factors[place + 1]
            if first < second or (sign == ">" and first == second):
                raise ConfigError(
                    f"the amplifiers are {', '.join(f'{factor:g}' for factor in factors)}, wanted "
                    "personal > high_risk > sector >= loop_depth >= cross_window > repetition"
                )
        if factors[-1] <= 1.0:
            raise ConfigError(f"the amplifier repetition is {factors[-1]:g}, wanted above 1")
        if self.deep_above > self.stop_above:
            raise ConfigError(
                f"deep_above and stop_above are {self.deep_above} and {self.stop_above}, "
                "wanted the first no larger"
            )
        return self

    @property
    def factors(self) -> dict[Amplifier, float]:
        """The factor of each amplifier, strongest first."""
        return {
            Amplifier.PERSONAL: self.personal,
            Amplifier.HIGH_RISK: self.high_risk,
            Amplifier.SECTOR: self.sector,
            Amplifier.LOOP_DEPTH: self.loop_depth,
            Amplifier.CROSS_WINDOW: self.cross_window,
            Amplifier.REPETITION: self.repetition,
        }


# The specification's threshold, for an embedder that names none (decision D14).
COVERED_FACT: Final = 0.60
CARD: Final = "omission"


class OmissionSettings(Part):
    """Thresholds of stage 10, all in [0, 1].

    Spec: CRP-SPEC-005 §12.2

    Attributes:
        medium, high, critical: minimum importance of a fact at which its omission has this
            severity; facts below `medium` are not looked for.
        covered: minimum cosine with a sentence at which a fact is covered; None for the embedder's
            own value (decision D14).
        covered_words: minimum share of a fact's content words in one sentence at which it is
            covered, without an embedder.
    """

    medium: float = Field(default=0.70, ge=0.0, le=1.0)
    high: float = Field(default=0.80, ge=0.0, le=1.0)
    critical: float = Field(default=0.90, ge=0.0, le=1.0)
    covered: float | None = Field(default=None, ge=0.0, le=1.0)
    covered_words: float = Field(default=0.30, gt=0.0, le=1.0)

    @model_validator(mode="after")
    def _in_order(self) -> OmissionSettings:
        if not self.medium <= self.high <= self.critical:
            raise ConfigError(
                f"omission importances are {self.medium:g}, {self.high:g} and {self.critical:g}, "
                "wanted medium <= high <= critical"
            )
        return self

    def severity(self, importance: float) -> Severity | None:
        """The severity of omitting a fact; None for a fact that is not looked for.

        Spec: CRP-SPEC-005 §12.2
        """
        for bound, name in (
            (self.critical, Severity.CRITICAL),
            (self.high, Severity.HIGH),
            (self.medium, Severity.MEDIUM),
        ):
            if importance >= bound:
                return name
        return None

    def threshold(self, card: Mapping[str, float]) -> float:
        """The cosine that applies: the setting, else the embedder's own."""
        return card.get(CARD, COVERED_FACT) if self.covered is None else self.covered


class PersonalSettings(Part):
    """Settings of stage 11, the search for personal data.

    Spec: CRP-SPEC-005 §13.2

    Attributes:
        least_score: minimum score of a place at which it counts, [0, 1].
        aside: kinds that are not looked for; the report says so. See `crp_integrations.dpe.pii`.
        regions: two-letter codes of countries whose telephone numbers are recognised without a
            prefix, in the order in which they are tried.
        most_found: maximum number of places listed per text; the report says if there were more.
    """

    least_score: float = Field(default=0.50, ge=0.0, le=1.0)
    aside: tuple[str, ...] = ()
    regions: tuple[str, ...] = ("US", "GB", "DE", "FR", "ES", "IT", "IN", "AU")
    most_found: int = Field(default=1_000, ge=1)


SUM_TOLERANCE: Final = 1e-9

# The specification's thresholds, for an embedder that names none (decision D14).
REPEATED: Final = 0.92
COVERED_NEED: Final = 0.70
LOW_OPENING: Final = 0.40


class QualitySettings(Part):
    """Thresholds and weights of stages 6 to 9. All but counts are in [0, 1].

    Spec: CRP-SPEC-005 §8.2, §9.2, §10.2, §11.3, §11.4, §18.2, §18.4

    Attributes:
        contradiction_probability: probability above which a pair of claims is a contradiction
            across windows (§8.2).
        opposed, opposed_slightly: probability assigned to a contradiction found by comparison;
            the second one to a minor difference (§8.2).
        minor_difference: maximum relative difference that is minor next to a hedge (D21).
        alike: minimum share of common words at which two claims are about one thing (§8.2).
        related: minimum share of common words at which the verifier reads a pair (§8.2).
        read_pairs: maximum number of earlier claims that the verifier reads per claim (§8.2).
        near_claims: maximum number of earlier claims that a claim is compared with (§8.2); no
            limit if the engine's setting `pairs` is `all`.
        repeated: cosine above which a sentence is repeated; None for the embedder's own (D14).
        repeated_words: minimum share of common words at which it is, without an embedder.
        near_words: minimum share of common words at which two sentences are compared by cosine;
            0 compares every pair (§9.2).
        changed_repeats: whether a sentence counts as repeated even with another figure, date, name
            or negation than the earlier one (§9.2).
        minor_overlap, significant_overlap, severe_overlap: minimum share of 4-grams (§9.2).
        minor_repeats, significant_repeats, severe_repeats: minimum share of sentences (§9.2).
        covered: cosine above which a need is covered; None for the embedder's own (D14).
        complete, mostly_complete, partial: minimum score of each level (§10.2).
        low_opening: opening coherence below which a window starts as if there were none before;
            None for the embedder's own (§11.3, D14).
        topics: maximum number of topics of a window (§11.3).
        length_band, complexity_band, passive_band: maximum differences in register (§11.3).
        complexity_words: number of words for the type–token ratio (§11.3, D21).
        opening_weight, topic_weight, register_weight, transition_weight: weights of §11.4.
        low_flow, least_flow: flow scores below which a remedy applies, and below which the answer
            is requested again (§11.5, D17).
        flow_remedy: the remedy below `low_flow` (§11.5).
        repetition_weight, completeness_weight, flow_weight, coherence_weight: weights of §18.2.
        tier_s, tier_a, tier_b, tier_c: minimum quality score that allows each tier (§18.4).
    """

    contradiction_probability: float = Field(default=0.75, ge=0.0, lt=1.0)
    opposed: float = Field(default=0.92, ge=0.0, le=1.0)
    opposed_slightly: float = Field(default=0.80, ge=0.0, le=1.0)
    minor_difference: float = Field(default=0.10, ge=0.0, le=1.0)
    alike: float = Field(default=0.75, gt=0.0, le=1.0)
    related: float = Field(default=0.50, gt=0.0, le=1.0)
    read_pairs: int = Field(default=1, ge=0)
    near_claims: int = Field(default=8, ge=1)

    repeated: float | None = Field(default=None, ge=0.0, le=1.0)
    repeated_words: float = Field(default=0.75, gt=0.0, le=1.0)
    near_words: float = Field(default=0.30, ge=0.0, le=1.0)
    changed_repeats: bool = False
    minor_overlap: float = Field(default=0.05, ge=0.0, le=1.0)
    significant_overlap: float = Field(default=0.15, ge=0.0, le=1.0)
    severe_overlap: float = Field(default=0.30, ge=0.0, le=1.0)
    minor_repeats: float = Field(default=0.10, ge=0.0, le=1.0)
    significant_repeats: float = Field(default=0.25, ge=0.0, le=1.0)
    severe_repeats: float = Field(default=0.50, ge=0.0, le=1.0)

    covered: float | None = Field(default=None, ge=0.0, le=1.0)
    complete: float = Field(default=0.90, ge=0.0, le=1.0)
    mostly_complete: float = Field(default=0.70, ge=0.0, le=1.0)
    partial: float = Field(default=0.40, ge=0.0, le=1.0)

    low_opening: float | None = Field(default=None, gt=0.0, lt=1.0)
    topics: int = Field(default=5, ge=1)
    length_band: float = Field(default=0.20, ge=0.0, le=1.0)
    complexity_band: float = Field(default=0.15, ge=0.0, le=1.0)
    passive_band: float = Field(default=0.10, ge=0.0, le=1.0)
    complexity_words: int = Field(default=200, ge=1)
    opening_weight: float = Field(default=0.35, ge=0.0, le=1.0)
    topic_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    register_weight: float = Field(default=0.20, ge=0.0, le=1.0)
    transition_weight: float = Field(default=0.20, ge=0.0, le=1.0)
    low_flow: float = Field(default=0.50, ge=0.0, le=1.0)
    least_flow: float = Field(default=0.30, ge=0.0, le=1.0)
    flow_remedy: Literal["augment", "stitch"] = "augment"

    repetition_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    completeness_weight: float = Field(default=0.35, ge=0.0, le=1.0)
    flow_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    coherence_weight: float = Field(default=0.15, ge=0.0, le=1.0)
    tier_s: float = Field(default=0.85, ge=0.0, le=1.0)
    tier_a: float = Field(default=0.70, ge=0.0, le=1.0)
    tier_b: float = Field(default=0.50, ge=0.0, le=1.0)
    tier_c: float = Field(default=0.30, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _usable(self) -> QualitySettings:
        for name, fields in (
            ("flow", ("opening_weight", "topic_weight", "register_weight", "transition_weight")),
            ("quality", ("repetition_weight", "completeness_weight", "flow_weight",
                         "coherence_weight")),
        ):  # fmt: skip
            total = sum(getattr(self, field) for field in fields)
            if abs(total - 1.0) > SUM_TOLERANCE:
                raise ConfigError(f"the {name} weights sum to {total:.6g}, wanted 1.0")
        bounds: tuple[tuple[str, ...], ...] = (
            ("minor_overlap", "significant_overlap", "severe_overlap"),
            ("minor_repeats", "significant_repeats", "severe_repeats"),
            ("partial", "mostly_complete", "complete"),
            ("least_flow", "low_flow"),
            ("related", "alike"),
            ("tier_c", "tier_b", "tier_a", "tier_s"),
        )
        for rising in bounds:
            for low, high in itertools.pairwise(rising):
                if getattr(self, low) > getattr(self, high):
                    raise ConfigError(
                        f"{low} and {high} are {getattr(self, low):g} and "
                        f"{getattr(self, high):g}, wanted the first no larger"
                    )
        return self

    @classmethod
    def literal(cls) -> QualitySettings:
        """The numbers and rules as the specification prints them (decision D14)."""
        return cls(
            repeated=REPEATED,
            near_words=0.0,
            changed_repeats=True,
            covered=COVERED_NEED,
            low_opening=LOW_OPENING,
        )

    def in_force(self, card: Mapping[str, float]) -> QualitySettings:
        """The settings, with the embedder's thresholds for those that are None."""
        thresholds = {
            "repeated": card.get("repeated_sentence", REPEATED),
            "covered": card.get("covered_need", COVERED_NEED),
            "low_opening": card.get("opening_coherence", LOW_OPENING),
        }
        return self.model_copy(
            update={name: at for name, at in thresholds.items() if getattr(self, name) is None}
        )


LEVEL_CUTS: Final[tuple[tuple[float, RiskLevel], ...]] = (
    (0.70, RiskLevel.CRITICAL),
    (0.45, RiskLevel.HIGH),
    (0.20, RiskLevel.MEDIUM),
)
"""Normative minimum composite of each level; no setting changes them.

Spec: CRP-SPEC-005 §7.4 (decision D13)
"""


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
"""Names that need no source by default: calendar, continents, languages, common abbreviations."""


class DpeSettings(Part):
    """Settings of the provenance engine. All numbers but counts and lengths are in [0, 1].

    Spec: CRP-SPEC-005 §4.3, §5.2, §5.5, §6.2, §7.2

    Attributes:
        verifier: the verifier that reads each claim with the passages: `none`, or one that was
            fetched with `model_catalogue.fetch`; `alignment` is the arithmetic of `composite`
            (decisions D2, D12, D13).
        decides: the source of a report: the claims' statuses, which a judge, a verifier or the
            exact comparison sets (`claims`), or the specification's arithmetic (`composite`,
            decision D13).
        grounded: minimum score at which a claim is CONTEXT_GROUNDED (§4.3).
        mixed: minimum score at which it is MIXED (§4.3).
        specific: minimum specificity at which an unmatched claim is UNVERIFIABLE (§4.3).
        fabrication_penalty, distortion_penalty, contradiction_penalty: penalties of §5.5.
        common_knowledge: names that need no source (§5.2, decision D10).
        pairs: contradictions are searched for in `all` pairs of claims about one thing, or for
            each claim only among those that `share` most with it (§5.4, decision D15).
        alike_claims: maximum number of earlier claims that a claim is compared with if `pairs` is
            `share`; the report's flags count claims that had more (§5.4, D15).
        most_pair_values: maximum figures, dates and names of a claim that is compared with other
            claims; the report's flags count claims with more (§5.4, D15).
        windows: number of context windows that the verifier reads per claim (§6.2, D6).
        longest_claim: maximum characters of a claim; a longer one is NOT_CHECKED (§6.2, D6).
        most_claims: maximum number of claims checked; further ones are NOT_CHECKED (D6).
        conflict_entailment: maximum entailment of a claim with a changed value (§6.2).
        untraced_entailment: maximum entailment of a claim with an untraced value (§6.2).
        attribution_weight, fidelity_weight, entailment_weight, specificity_weight: weights of
            §7.2, §16.3 (decision D4).
        quality: settings of stages 6 to 9 (§8 to §11, §18).
        amplifiers: factors that raise the composite in regulated circumstances (§7.3, §17).
        omission: settings of stage 10, omitted facts (§12).
        personal: settings of stage 11, personal data (§13).
    """

    verifier: Literal["none", "alignment", "lettucedetect", "nli", "minicheck"] = "none"
    decides: Literal["claims", "composite"] = "claims"
    grounded: float = Field(default=0.75, ge=0.0, le=1.0)
    mixed: float = Field(default=0.60, ge=0.0, le=1.0)
    specific: float = Field(default=0.30, ge=0.0, le=1.0)

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
        if self.verifier == ("none" if self.decides == "composite" else "alignment"):
            raise ConfigError(
                f"dpe.verifier {self.verifier!r} does not go with dpe.decides {self.decides!r}: "
                "`composite` needs `alignment` or a verifier that reads, `claims` needs `none` or "
                "one that reads"
            )
        if self.mixed > self.grounded:
            raise ConfigError(
                f"mixed and grounded are {self.mixed:g} and {self.grounded:g}, wanted the first "
                "no larger"
            )
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The four risk weights by signal, most important first."""
        return {
            "attribution": self.attribution_weight,
            "fidelity": self.fidelity_weight,
            "entailment": self.entailment_weight,
            "specificity": self.specificity_weight,
        }

    @classmethod
    def preset(cls, name: str) -> DpeSettings:
        """The settings of a preset: `default` or `literal`."""
        if name == "default":
            return cls()
        if name == "literal":
            return cls(
                verifier="alignment",
                decides="composite",
                pairs="all",
                quality=QualitySettings.literal(),
                omission=OmissionSettings(covered=COVERED_FACT),
            )
        raise ConfigError(f"dpe preset {name!r} is not known, wanted 'default' or 'literal'")


class Registration(Part):
    """The registered system, from `[system]` in crp.toml.

    Spec: CRP-SPEC-005 §14.1, §14.2

    Attributes:
        domain: purpose of the system; None for a system that is not registered, which is then
            classified UNKNOWN (decision D20).
        sector: `financial` or `medical`, None for neither (§17).
        decides: whether its answers are used in decisions about people (§14.2).
        evidence: names from the control catalogue of the evidence that the operator attests.
    """

    domain: Domain | None = None
    sector: Sector | None = None
    decides: bool = False
    evidence: tuple[str, ...] = ()

    @field_validator("evidence")
    @classmethod
    def _operators_own(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [name for name in value if name not in evidence_of("operator")]
        if wrong:
            raise ConfigError(
                f"system.evidence contains {wrong[0]!r:.60}, which an operator cannot attest; "
                "docs/evidence/compliance.md lists what can be"
            )
        return tuple(sorted(set(value)))

    def system(self, relay_evidence: Iterable[str] = ()) -> System:
        """The system as the stages receive it, with the relay's evidence added."""
        own = evidence_of("relay").intersection(relay_evidence)
        return System(
            domain=self.domain,
            sector=self.sector,
            decides=self.decides,
            evidence=tuple(sorted({*self.evidence, *own})),
        )
