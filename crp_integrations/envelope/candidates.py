"""Candidates of a question: what Select hands to Rank, with scores in fixed point.

Every step after `Candidates` computes with integers only, so an envelope can be rebuilt byte for
byte from its candidates on any machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.vocabulary import DropReason

# Number of candidates from memory tiers 0, 1, 2 and 3, each counted in the first that has it.
TierHits = tuple[int, int, int, int]


class ScoredSpan(NamedTuple):
    """A part of a candidate, about a sentence, that can be shown without the rest.

    Attributes:
        start, end: character offsets in the candidate's content.
        score: score in fixed point, [0, SCALE].
    """

    start: int
    end: int
    score: int


class ScoredPassage(NamedTuple):
    """A passage of a text that is too long to be embedded at once, with its own scores.

    Attributes:
        start, end: character offsets in the candidate's content, without white space at the ends.
        relevance, score, lexical, hop: scores as in `Candidate`, fixed point.
        tokens: tokens of the passage with a rendered marker and separator.
    """

    start: int
    end: int
    relevance: int
    score: int
    lexical: int
    hop: int
    tokens: int


# Begins a summary's source id; ids of documents are UUIDs or names given by a caller.
SUMMARY_SOURCE = "crp:summary:"


def is_summary(source_id: str) -> bool:
    """Whether a candidate of this source is an earlier answer of a model, or its summary."""
    return source_id.startswith(SUMMARY_SOURCE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that was retrieved for a question, with its fixed-point scores.

    Attributes:
        relevance: cosine to the best sub-query, fixed point in [0, SCALE].
        score: score it is ranked by, fixed point; None if it is ranked by the relevance.
        lexical: part of the score that comes from its words, fixed point.
        hop: part of the score that comes from the second hop, fixed point.
        stretches: parts that can be shown alone, in order; empty if it is only shown whole.
        spans: character offsets of this content in a longer fact; empty for the whole fact.
        importance: intrinsic weight, fixed point in [0, SCALE].
        ingested_at: time of storing; None for a fact that was never stored, which counts as new.
        content_hash: hash of the whole fact if the content is a part of it, else empty.
        stale: whether its status is STALE or it is older than `max-age`; its freshness is then 0.
        tokens: tokens of the fact with its rendered marker and separator.
        decay: decay function used instead of freshness, such as `half-life@1:P30D`; None for
            freshness.
        decision: id of the guard's decision that allowed reading it; empty if the guard gives no
            ids.
        refused: why it may not be shown; None if it may be.
        passages: passages of a long text, in order, each packed by its own score; empty for a text
            of one passage. The candidate's scores are those of its best passage.
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
    stretches: tuple[ScoredSpan, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    content_hash: str = ""
    decay: str | None = None
    decision: str = ""
    refused: DropReason | None = None
    passages: tuple[ScoredPassage, ...] = ()

    @property
    def merit(self) -> int:
        """The score it is ranked by, fixed point."""
        return self.relevance if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class Candidates:
    """Everything that ranking, packing and rendering depend on.

    Attributes:
        sub_queries: the question's information needs; the question itself if it is one need.
        facts: candidates, unique and sorted by id.
        duplicates: pairs of positions (i < j) with cosine above .95 that say the same, either
            listed or computed on demand (`near_duplicates.PairRelation`). A text that is cut has
            a position for each passage.
        conflicts: pairs above .95 whose numbers, dates or negation differ; both are kept.
        state_hash: hash of the fabric's state that was read, empty without a fabric.
        tokenizer: identity of the counter that gave `Candidate.tokens`.
        memory_tier_hit: highest memory tier read, 0–3.
        tier_hits: number of candidates from each memory tier.
        algorithms: `name@n` of each algorithm that determined the candidates and their scores.
        relevant_floor: minimum relevance at which the embedder's card calls a fact relevant,
            fixed point; None uses the settings' floor (decision E2).
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


class RankedFact(NamedTuple):
    """A candidate at its place in the ranking, score parts in fixed point.

    Spec: CRP-SPEC-003 §6
    """

    candidate: Candidate
    composite: int
    freshness: int
    diversity: int


def split_refused(candidates: Candidates) -> tuple[Candidates, tuple[Candidate, ...]]:
    """The candidates that may be shown, and those that were refused, both by id.

    >>> fact = Candidate("f", "text", "s", relevance=1, importance=1, tokens=1)
    >>> chosen, gone = split_refused(Candidates("q", ("q",), (fact,), "t"))
    >>> len(chosen.facts), gone
    (1, ())
    """
    refused = tuple(fact for fact in candidates.facts if fact.refused is not None)
    if not refused:
        return candidates, ()
    allowed = [place for place, fact in enumerate(candidates.facts) if fact.refused is None]
    return keep_candidates(candidates, allowed), refused


def pair_places(facts: Sequence[Candidate]) -> list[range]:
    """The positions of each candidate in pairs: one, or one for each of its passages."""
    ends = list(accumulate(max(1, len(fact.passages)) for fact in facts))
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def keep_candidates(candidates: Candidates, chosen: Sequence[int]) -> Candidates:
    """The candidates at these positions, ascending, with the pairs among them."""
    places = pair_places(candidates.facts)
    moved = {at: new for new, at in enumerate(at for place in chosen for at in places[place])}
    return replace(
        candidates,
        facts=tuple([candidates.facts[place] for place in chosen]),
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )


def refuse_candidates(
    candidates: Candidates, reasons: Mapping[str, DropReason], algorithms: Collection[str] = ()
) -> Candidates:
    """Mark the candidates with these ids as refused; an earlier refusal stays."""
    return replace(
        candidates,
        facts=tuple(
            [
                replace(fact, refused=reasons[fact.fact_id])
                if fact.refused is None and fact.fact_id in reasons
                else fact
                for fact in candidates.facts
            ]
        ),
        algorithms=(*candidates.algorithms, *algorithms),
    )
