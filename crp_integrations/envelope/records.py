"""Records of an envelope: packed facts, drop report, prior windows, the envelope itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import Field, model_validator

from crp_integrations.envelope.candidates import Candidate, RankedFact, TierHits
from crp_integrations.envelope.envelope_html import envelope_html, preview_html
from crp_integrations.fabric.records import Fact, Moment
from crp_integrations.markup import fragment, page
from crp_integrations.records import Part, Record
from crp_integrations.scores import from_fixed
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    AdviceWord,
    DropReason,
    Exactness,
    GroundingMode,
    QualityTier,
    SaturationLabel,
    Strategy,
)


class SeenFact(Part):
    """A fact that a window showed.

    Attributes:
        content_hash: `sha256:…` of the fact's whole text, even if only a part was shown; a fact
            whose text has changed since may be shown again.
    """

    fact_id: str
    content_hash: str


class EarlierWindow(Record):
    """An earlier window of a session.

    Spec: CRP-SPEC-003 §14.1, §14.2

    Attributes:
        etag: ETag of its envelope.
        facts_seen: every fact that it showed, including earlier summaries.
        deferred: ids of relevant facts that did not fit, best first.
        summary: short account of its answer; empty for none.
        answer: its whole answer, for the analysis of the next one (CRP-SPEC-005 §8 to §11); if
            empty, the summary is used instead. No envelope shows it.
        window_id: id of the sealed window, empty when it is not known.
        quality_tier: tier of its envelope.
    """

    SCHEMA = "prior-window/1"

    window_number: int = Field(ge=1)
    etag: str
    facts_seen: tuple[SeenFact, ...]
    deferred: tuple[str, ...] = ()
    summary: str = ""
    answer: str = ""
    window_id: str = ""
    quality_tier: QualityTier

    @model_validator(mode="after")
    def _deferred_unseen(self) -> EarlierWindow:
        both = {seen.fact_id for seen in self.facts_seen} & set(self.deferred)
        if both:
            raise ValueError(f"fact {min(both)} is both seen and deferred; it can be one of them")
        return self


class Drop(Part):
    """A candidate that is not in the envelope, and why.

    Attributes:
        kept: for a duplicate, the id of the fact kept instead of it.
    """

    fact_id: str
    reason: DropReason
    tokens: int = Field(ge=0)
    kept: str | None = None


class PackedFact(Part):
    """A fact in an envelope.

    Spec: CRP-SPEC-003 §3

    Attributes:
        content: the fact's text, or only the parts shown of it.
        spans: character offsets of the shown parts in the fact; empty for the whole fact.
        content_hash: SHA-256 of the whole fact's text where it is shown in part, else empty.
        selection_score: score it was ranked by; None if it was ranked by the relevance.
        lexical_score, hop_score: parts of the selection score.
        token_count: tokens of the fact with its rendered marker and separator.
        position: position in the envelope, from 1.
    """

    fact_id: str
    content: str
    spans: tuple[tuple[int, int], ...] = ()
    content_hash: str = ""
    source_id: str
    source_location: str = ""
    relevance_score: float = Field(ge=0.0, le=1.0)
    importance_weight: float = Field(ge=0.0, le=1.0)
    freshness_score: float = Field(ge=0.0, le=1.0)
    diversity_bonus: float = Field(ge=0.0, le=1.0)
    composite_score: float = Field(ge=0.0, le=1.0)
    selection_score: float | None = Field(default=None, ge=0.0, le=1.0)
    lexical_score: float = Field(default=0.0, ge=0.0, le=1.0)
    hop_score: float = Field(default=0.0, ge=0.0, le=1.0)
    token_count: int = Field(ge=0)
    position: int = Field(ge=1)
    community: str | None = None
    ingested_at: Moment | None = None

    @classmethod
    def of(cls, ranked: RankedFact, position: int) -> PackedFact:
        """A ranked fact at its position."""
        candidate, composite, freshness, diversity = ranked
        return cls(
            fact_id=candidate.fact_id,
            content=candidate.content,
            spans=candidate.spans,
            content_hash=candidate.content_hash,
            source_id=candidate.source_id,
            source_location=candidate.source_location,
            relevance_score=from_fixed(candidate.relevance),
            importance_weight=from_fixed(candidate.importance),
            freshness_score=from_fixed(freshness),
            diversity_bonus=from_fixed(diversity),
            composite_score=from_fixed(composite),
            selection_score=None if candidate.score is None else from_fixed(candidate.score),
            lexical_score=from_fixed(candidate.lexical),
            hop_score=from_fixed(candidate.hop),
            token_count=candidate.tokens,
            position=position,
            community=candidate.community,
            ingested_at=candidate.ingested_at,
        )


class Cap(Part):
    """A ceiling that lowered the quality tier.

    Spec: CRP-SPEC-003 §8.3
    """

    ceiling: QualityTier
    reason: str


class Advice(Part):
    """What an envelope suggests, and why; no suggestion is carried out automatically.

    Spec: CRP-SPEC-003 §9.3, §10.3, §14.3
    """

    word: AdviceWord
    reason: str


class Section(Part):
    """A named run of positions in an envelope; one section unless a caller asks for more."""

    name: str
    first: int = Field(ge=1)
    last: int = Field(ge=0)
    token_budget: int = Field(ge=0)
    token_count: int = Field(ge=0)


class Conflict(Part):
    """Ids of two near-identical facts whose numbers, dates or negation differ; both are shown."""

    left: str
    right: str


class Envelope(Record):
    """The facts for one model call, in order, with their quality and what was left out.

    Spec: CRP-SPEC-003 §3

    Attributes:
        text: the rendered facts exactly as they appear in the prompt; empty without facts.
        token_count: tokens of `text`, counted as a whole.
        saturation: token_count / token_budget, [0, 1], 0 for a zero budget.
        etag: hash of the fact set (§7.5); `state_hash` is the fabric's freshness.
        caps: every ceiling on the tier with its reason.
        tier_hits: number of candidates from memory tiers 0 to 3, each counted in the first tier
            that has it. It also depends on earlier questions, so it does not enter the ETag.
        advice: what the window's saturation suggests, each with its reason.
        deferred: ids of relevant facts that did not fit, in rank order, where a continuation
            window is suggested; that window begins with them.
        promoted: ids put first and last although no fact is critical (decision E7).
        layout: name of the layout.
        prefix_tokens: tokens of the facts with which both `text` and the previous envelope's text
            begin; 0 without a previous one.
        prefix_characters: number of characters of these facts.
        algorithms: `name@n` of each algorithm that determined the bytes.
        settings_digest: hash of every setting in force.
    """

    SCHEMA = "envelope/1"

    session_id: str = ""
    window_number: int = Field(default=1, ge=1)
    query: str
    sub_queries: tuple[str, ...]
    text: str
    facts: tuple[PackedFact, ...]
    sections: tuple[Section, ...]
    dropped: tuple[Drop, ...]
    conflicts: tuple[Conflict, ...] = ()
    total_facts_available: int = Field(ge=0)
    total_facts_included: int = Field(ge=0)
    token_count: int = Field(ge=0)
    token_budget: int = Field(ge=0)
    saturation: float = Field(ge=0.0, le=1.0)
    saturation_label: SaturationLabel
    quality_tier: QualityTier
    envelope_score: float
    coverage_score: float
    relevance_mean: float
    caps: tuple[Cap, ...]
    advice: tuple[Advice, ...] = ()
    deferred: tuple[str, ...] = ()
    promoted: tuple[str, ...] = ()
    layout: str = "position"
    prefix_tokens: int = Field(default=0, ge=0)
    prefix_characters: int = Field(default=0, ge=0)
    etag: str
    state_hash: str
    strategy: Strategy
    grounding_mode: GroundingMode
    created_at: Moment
    ckf_communities: tuple[str, ...] = ()
    memory_tier_hit: int = Field(ge=0, le=3)
    tier_hits: TierHits = (0, 0, 0, 0)
    model: str = ""
    tokenizer: str
    token_exactness: Exactness
    algorithms: tuple[str, ...]
    settings_digest: str = ""

    def suggests(self, word: AdviceWord) -> bool:
        """Whether a word is among the advice."""
        return any(advice.word is word for advice in self.advice)

    def to_html(self, facts: Sequence[Fact | str] = ()) -> str:
        """A page with the budget, the facts in order, and what was dropped and why.

        Args:
            facts: the facts given to `pack`; dropped facts are then shown with their texts.
        """
        converted = [Fact(content=fact) if isinstance(fact, str) else fact for fact in facts]
        texts = {fact.fact_id: fact.content for fact in converted}
        return page("Context envelope", envelope_html(self, texts))

    def _repr_html_(self) -> str:
        return fragment(envelope_html(self))

    def as_prior(
        self, summary: str = "", hashes: Mapping[str, str] = MappingProxyType({})
    ) -> EarlierWindow:
        """The record of this window that the next window needs.

        Spec: CRP-SPEC-003 §14.1

        Args:
            summary: short account of this window's answer, made by the caller; empty for none.
            hashes: `sha256:…` of the facts' shown texts, by id, as far as the caller has them.
        """
        return EarlierWindow(
            window_number=self.window_number,
            etag=self.etag,
            facts_seen=tuple(
                SeenFact(
                    fact_id=fact.fact_id,
                    content_hash=fact.content_hash
                    or hashes.get(fact.fact_id)
                    or sha256(fact.content),
                )
                for fact in self.facts
            ),
            deferred=self.deferred,
            summary=summary,
            quality_tier=self.quality_tier,
        )


class EnvelopePreview(Record):
    """The envelope that a question would get, with its size and quality.

    Spec: CRP-SPEC-003 §12.2

    Attributes:
        text: the facts as the model would see them.
        awaits: what the question does first and the preview does without, so that the envelope
            may differ: the model calls `decompose` and `summarise`, or its `parts`.
    """

    SCHEMA = "envelope-preview/1"

    facts_available: int
    facts_included: int
    estimated_tokens: int
    token_budget: int
    quality_tier: QualityTier
    saturation: float
    etag: str
    communities: tuple[str, ...]
    memory_tier_hit: int
    caps: tuple[Cap, ...] = ()
    advice: tuple[Advice, ...] = ()
    facts: tuple[PackedFact, ...] = ()
    text: str = ""
    awaits: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return fragment(preview_html(self))


def refused_drops(refused: Sequence[Candidate]) -> tuple[Drop, ...]:
    """The drop records of refused candidates."""
    return tuple(
        [
            Drop(fact_id=fact.fact_id, reason=fact.refused, tokens=fact.tokens)
            for fact in refused
            if fact.refused is not None
        ]
    )


def window_name(window: EarlierWindow) -> str:
    """A window's id, or `window-` and its number when the id is not known."""
    return window.window_id or f"window-{window.window_number}"
