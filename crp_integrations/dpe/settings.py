"""Every number of the provenance engine, as one frozen part of the settings tree."""

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
    """What may raise a composite, strongest first.

    Spec: CRP-SPEC-005 §17
    """

    PERSONAL = "gdpr-pii"
    HIGH_RISK = "eu-ai-act-high-risk"
    SECTOR = "regulated-sector"
    LOOP_DEPTH = "agent-loop-depth"
    CROSS_WINDOW = "cross-window-contradiction"
    REPETITION = "severe-repetition"


# Between neighbours of the list: whether the first must be larger, or at least as large.
_ORDER: Final[tuple[str, ...]] = (">", ">", ">=", ">=", ">")


class AmplifierSettings(Part):
    """The factor of each amplifier, and the depths of agents within agents.

    Spec: CRP-SPEC-005 §17 (decisions D4, D5)

    Attributes:
        personal: personal data in prompt or answer; substantial.
        high_risk: a high-risk domain of the EU AI Act; significant.
        sector: a financial or medical system; moderate, as the next two.
        loop_depth: agents within agents deeper than `deep_above`.
        cross_window: a contradiction with an earlier window, whatever their number.
        repetition: SEVERE repetition; light.
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
        """The factor of each amplifier, in the order of their severity."""
        return {
            Amplifier.PERSONAL: self.personal,
            Amplifier.HIGH_RISK: self.high_risk,
            Amplifier.SECTOR: self.sector,
            Amplifier.LOOP_DEPTH: self.loop_depth,
            Amplifier.CROSS_WINDOW: self.cross_window,
            Amplifier.REPETITION: self.repetition,
        }


# The document's threshold, for an embedder whose card names none (decision D14).
COVERED_FACT: Final = 0.60
CARD: Final = "omission"


class OmissionSettings(Part):
    """Numbers that decide what stage 10 says, all in [0, 1].

    Spec: CRP-SPEC-005 §12.2

    Attributes:
        medium, high, critical: importance from which an omission has this severity; facts below
            the first are not looked for.
        covered: cosine of a sentence from which a fact is covered; None for the embedder's own
            value (decision D14).
        covered_words: share of a fact's content words in one sentence, for the same without an
            embedder.
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
        """The severity of leaving out a fact, None for one that is not looked for.

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
        """The cosine in force."""
        return card.get(CARD, COVERED_FACT) if self.covered is None else self.covered


class PersonalSettings(Part):
    """What stage 11 looks for.

    Spec: CRP-SPEC-005 §13.2

    Attributes:
        least_score: how sure a recogniser must be of a place that counts, [0, 1].
        aside: kinds that are not looked for; the report says so. See `crp_integrations.dpe.pii`.
        regions: countries whose numbers are read without a prefix, as two letters, in the order
            in which they are tried.
        most_found: places that are told of one text; the report says when there were more.
    """

    least_score: float = Field(default=0.50, ge=0.0, le=1.0)
    aside: tuple[str, ...] = ()
    regions: tuple[str, ...] = ("US", "GB", "DE", "FR", "ES", "IT", "IN", "AU")
    most_found: int = Field(default=1_000, ge=1)


SUM_TOLERANCE: Final = 1e-9

# The documents' thresholds, for an embedder whose card names none (decision D14).
REPEATED: Final = 0.92
COVERED_NEED: Final = 0.70
LOW_OPENING: Final = 0.40


class QualitySettings(Part):
    """Numbers that decide what stages 6 to 9 say. All but counts are in [0, 1].

    Spec: CRP-SPEC-005 §8.2, §9.2, §10.2, §11.3, §11.4, §18.2, §18.4

    Attributes:
        contradiction_probability: above it a pair is a contradiction across windows (§8.2).
        opposed, opposed_slightly: probability that a typed difference stands for; the second
            for a minor one (§8.2).
        minor_difference: largest relative difference that is minor beside a hedge (D21).
        alike: share of their words that two claims have in common to be about one thing (§8.2).
        related: the same from which the verifier reads the pair (§8.2).
        read_pairs: earlier claims that the verifier reads for each claim (§8.2).
        near_claims: earlier claims that a claim is compared with (§8.2); `pairs` = `all` of the
            engine's settings compares with every one that shares a word or value.
        repeated: cosine above which a sentence is repeated; None for the embedder's own (D14).
        repeated_words: share of common words for the same where there is no embedder.
        near_words: share of common words from which two sentences are compared by cosine; 0
            compares every pair (§9.2).
        changed_repeats: a sentence with another figure, date, name or negation than the earlier
            one counts as repeated all the same (§9.2).
        minor_overlap, significant_overlap, severe_overlap: §9.2, share of 4-grams.
        minor_repeats, significant_repeats, severe_repeats: §9.2, share of sentences.
        covered: cosine above which a need is covered; None for the embedder's own (D14).
        complete, mostly_complete, partial: §10.2, lower bounds of the score.
        low_opening: opening coherence below which a window starts as if there were none before;
            None for the embedder's own (§11.3, D14).
        topics: topic clusters of a window (§11.3).
        length_band, complexity_band, passive_band: §11.3, largest differences in register.
        complexity_words: words that the type–token ratio is counted over (§11.3, D21).
        opening_weight, topic_weight, register_weight, transition_weight: §11.4.
        low_flow, least_flow: below the first a remedy applies, below the second the answer is
            asked for again (§11.5, D17).
        flow_remedy: the remedy that is configured (§11.5).
        repetition_weight, completeness_weight, flow_weight, coherence_weight: §18.2.
        tier_s, tier_a, tier_b, tier_c: quality scores from which the tier is not capped below
            this one (§18.4).
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
        """The numbers and rules as printed (decision D14)."""
        return cls(
            repeated=REPEATED,
            near_words=0.0,
            changed_repeats=True,
            covered=COVERED_NEED,
            low_opening=LOW_OPENING,
        )

    def in_force(self, card: Mapping[str, float]) -> QualitySettings:
        """The settings with the embedder's thresholds where none is set."""
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
"""Normative cuts of the composite, lower bound included; no setting moves them.

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
"""Names that need no source by default: calendar, continents, languages, common short forms."""


class DpeSettings(Part):
    """Numbers and choices that decide a report. All but counts and lengths are in [0, 1].

    Spec: CRP-SPEC-005 §4.3, §5.2, §5.5, §6.2, §7.2

    Attributes:
        verifier: which verifier reads each claim beside the passages: `none`, or one that was
            fetched with `model_catalogue.fetch`; `alignment` is the arithmetic of `composite`
            (decisions D2, D12, D13).
        decides: what a report comes from: the claims' statuses, as a judge, a verifier or an exact
            comparison gives them (`claims`), or the document's own arithmetic (`composite`,
            decision D13).
        grounded: score from which a claim is CONTEXT_GROUNDED (§4.3).
        mixed: score from which it is MIXED (§4.3).
        specific: specificity from which an unmatched claim is UNVERIFIABLE (§4.3).
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
        attribution_weight, fidelity_weight, entailment_weight, specificity_weight: §7.2, §16.3
            (decision D4).
        quality: numbers of stages 6 to 9 (§8 to §11, §18).
        amplifiers: what raises the composite in regulated circumstances (§7.3, §17).
        omission: what stage 10 looks for (§12).
        personal: what stage 11 looks for (§13).
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
        """The four risk weights by signal, in the order of their importance."""
        return {
            "attribution": self.attribution_weight,
            "fidelity": self.fidelity_weight,
            "entailment": self.entailment_weight,
            "specificity": self.specificity_weight,
        }

    @classmethod
    def preset(cls, name: str) -> DpeSettings:
        """The settings of one of the two presets that are kept and tested."""
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
    """The registered system, as it stands under `[system]` in crp.toml.

    Spec: CRP-SPEC-005 §14.1, §14.2

    Attributes:
        domain: what the system is for; None for a system that is not registered, which is then
            classified UNKNOWN (decision D20).
        sector: `financial` or `medical`, None for neither (§17).
        decides: its answers take part in decisions about people (§14.2).
        evidence: names of what the operator attests, as the control catalogue has them.
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
                f"system.evidence holds {wrong[0]!r:.60}, which an operator cannot attest; "
                "docs/evidence/compliance.md lists what can be"
            )
        return tuple(sorted(set(value)))

    def system(self, relay_evidence: Iterable[str] = ()) -> System:
        """The system as stages read it."""
        own = evidence_of("relay").intersection(relay_evidence)
        return System(
            domain=self.domain,
            sector=self.sector,
            decides=self.decides,
            evidence=tuple(sorted({*self.evidence, *own})),
        )
