"""The types that the phases hand on: candidates, ranked facts, packed facts, the envelope.

Each phase makes the next type. `Candidates` is the seam: from there on only integers are
computed with, so an envelope can be rebuilt byte for byte from its candidates anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from pydantic import Field

from crp_integrations.envelope.columns import Columns
from crp_integrations.envelope.dropped import Drop as Drop
from crp_integrations.envelope.dropped import Dropped
from crp_integrations.envelope.prior import PriorWindow, seen_facts
from crp_integrations.envelope.stretches import Stretch as Stretch
from crp_integrations.fabric.records import Moment
from crp_integrations.records import Part, Record
from crp_integrations.scores import SCALE
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

# Candidates that memory tiers 0, 1, 2 and 3 gave; each counts in the first that has it.
TierHits = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that was retrieved for a question, with its fixed-point scores.

    Attributes:
        relevance: cosine to the best sub-query, fixed point in [0, SCALE].
        score: what it is ranked by in place of the cosine, fixed point; None for the cosine.
        lexical: its words' part of the score, fixed point.
        hop: the second hop's part of the score, fixed point.
        stretches: what of it can be shown alone, in order; none for whole or nothing.
        spans: what of a longer fact this content is, in the fact's characters; none for all.
        importance: intrinsic weight, fixed point in [0, SCALE].
        ingested_at: None for a fact that was never stored; it counts as new.
        content_hash: of the whole fact where the content is a part of it, else empty.
        stale: STALE by status or older than `max-age`; its freshness is 0.
        tokens: tokens of the fact with its rendered marker and separator.
        labels: access labels.
        decay: the decay function in the place of freshness, such as `half-life@1:P30D`; None for
            freshness.
        decision: id of the guard's decision that let it be read; empty where the guard numbers
            none.
        refused: why it may not be shown at all; None for a candidate like any other.
    """

    fact_id: str
    content: str
    source_id: str
    relevance: int
    importance: int
    tokens: int
    ingested_at: datetime | None = None
    stale: bool = False
    community: str | None = None
    source_location: str = ""
    labels: tuple[str, ...] = ()
    score: int | None = None
    lexical: int = 0
    hop: int = 0
    stretches: Sequence[Stretch] = ()
    spans: tuple[tuple[int, int], ...] = ()
    content_hash: str = ""
    decay: str | None = None
    decision: str = ""
    refused: DropReason | None = None

    @property
    def merit(self) -> int:
        """What it is ranked by, fixed point."""
        return self.relevance if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class Candidates:
    """Everything that ranking, packing and rendering depend on. Order of facts is by id.

    Attributes:
        query: the question as asked.
        sub_queries: what it was decomposed into; the question itself when it is one need.
        facts: unique by id and sorted by it.
        duplicates: pairs of positions (i < j) with cosine above .95 that say the same, listed
            or as a relation that is worked out when it is asked (`pairs.Pairs`).
        conflicts: pairs above .95 whose numbers, dates or negation differ; both are kept.
        state_hash: the fabric's state that was read, empty without a fabric.
        tokenizer: identity of the counter behind `Candidate.tokens`.
        memory_tier_hit: highest memory tier read, 0–3.
        tier_hits: candidates by the memory tier that gave them.
        algorithms: `name@n` of what decided the candidates and their scores.
        relevant_floor: relevance from which the embedder's card calls a fact relevant, fixed
            point; None leaves it to the settings (decision E2).
    """

    query: str
    sub_queries: tuple[str, ...]
    facts: tuple[Candidate, ...]
    tokenizer: str
    duplicates: Sequence[tuple[int, int]] = ()
    conflicts: Sequence[tuple[int, int]] = ()
    state_hash: str = ""
    memory_tier_hit: int = 3
    tier_hits: TierHits = (0, 0, 0, 0)
    algorithms: tuple[str, ...] = ()
    relevant_floor: int | None = None
    _columns: Columns | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def columns(self) -> Columns:
        """The facts as columns, read once."""
        found = self._columns
        if found is None:
            found = Columns(self.facts)
            # Frozen from outside: the columns say what the facts say.
            object.__setattr__(self, "_columns", found)
        return found


class RankedFact(NamedTuple):
    """A candidate at its place in the ranking, score parts in fixed point.

    A tuple, since thousands are made for one envelope.

    Spec: CRP-SPEC-003 §6
    """

    candidate: Candidate
    composite: int
    freshness: int
    diversity: int


class PackedFact(Part):
    """A fact in an envelope.

    Spec: CRP-SPEC-003 §3

    Attributes:
        content: the fact's text; of a fact that is shown in part, the parts shown.
        spans: character offsets in the fact of the parts shown; empty for the whole fact.
        content_hash: SHA-256 of the whole fact's text where it is shown in part, else empty.
        selection_score: what it was ranked by in place of the relevance; None for the relevance.
        lexical_score, hop_score: parts of the selection score.
        token_count: tokens of the fact with its rendered marker and separator.
        position: place in the envelope, from 1.
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
        """A ranked fact at its position.

        Checked once more, since that takes half of the time of leaving it out. Scores are divided
        here and not by `from_fixed`, whose calls take as long as the check.
        """
        candidate, composite, freshness, diversity = ranked
        fields = {
            "fact_id": candidate.fact_id,
            "content": candidate.content,
            "spans": candidate.spans,
            "content_hash": candidate.content_hash,
            "source_id": candidate.source_id,
            "source_location": candidate.source_location,
            "relevance_score": candidate.relevance / SCALE,
            "importance_weight": candidate.importance / SCALE,
            "freshness_score": freshness / SCALE,
            "diversity_bonus": diversity / SCALE,
            "composite_score": composite / SCALE,
            "selection_score": None if candidate.score is None else candidate.score / SCALE,
            "lexical_score": candidate.lexical / SCALE,
            "hop_score": candidate.hop / SCALE,
            "token_count": candidate.tokens,
            "position": position,
            "community": candidate.community,
            "ingested_at": candidate.ingested_at,
        }
        found: PackedFact = cls.__pydantic_validator__.validate_python(fields)
        return found


class Cap(Part):
    """A ceiling that lowered the quality tier.

    Spec: CRP-SPEC-003 §8.3
    """

    ceiling: QualityTier
    reason: str


class Advice(Part):
    """What an envelope suggests, and why; nothing of it is done unasked.

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
    """Two near-identical facts whose numbers, dates or negation differ; both are shown."""

    left: str
    right: str


class Envelope(Record):
    """The facts for one model call, in order, with how good they are and what was left out.

    Spec: CRP-SPEC-003 §3

    Attributes:
        text: the rendered facts exactly as they stand in the prompt; empty without facts.
        token_count: tokens of `text` counted once as a whole.
        saturation: token_count / token_budget, [0, 1], 0 for a zero budget.
        etag: hash of the fact set (§7.5); `state_hash` is the fabric's freshness.
        caps: every ceiling on the tier with its reason.
        tier_hits: candidates that memory tiers 0 to 3 gave, each counted in the first that has it.
            It tells of earlier questions as well, so it enters no ETag.
        advice: what the window's saturation suggests, each with its reason.
        deferred: ids of relevant facts that did not fit, in rank order, where a continuation
            window is suggested; that window begins with them.
        promoted: ids put first and last although no fact is critical (decision E7).
        layout: name of the layout.
        prefix_tokens: tokens of the facts at the beginning of `text` with which the previous
            envelope's text begins as well; 0 without a previous one.
        prefix_characters: their characters.
        algorithms: `name@n` of each algorithm that decided the bytes.
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
    dropped: Dropped
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

    def as_prior(
        self, summary: str = "", hashes: Mapping[str, str] = MappingProxyType({})
    ) -> PriorWindow:
        """What the next window needs to know of this one.

        Spec: CRP-SPEC-003 §14.1

        Args:
            summary: short account of this window's answer, made by the caller; empty for none.
            hashes: `sha256:…` of what is shown of facts, by id, as far as the caller has them.
        """
        return PriorWindow(
            window_number=self.window_number,
            etag=self.etag,
            facts_seen=seen_facts(
                (one.fact_id, one.content_hash or hashes.get(one.fact_id) or sha256(one.content))
                for one in self.facts
            ),
            deferred=self.deferred,
            summary=summary,
            quality_tier=self.quality_tier,
        )


class EnvelopePreview(Record):
    """What an envelope will be, without a model call.

    Spec: CRP-SPEC-003 §12.2
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
