"""Candidates of a question: what Select hands to Rank, with scores in fixed point.

`Candidates` is the seam: from there on only integers are computed with, so an envelope can be
rebuilt byte for byte from its candidates anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.vocabulary import DropReason

# Candidates that memory tiers 0, 1, 2 and 3 gave; each counts in the first that has it.
TierHits = tuple[int, int, int, int]


class ScoredSpan(NamedTuple):
    """A part of a candidate, about a sentence, that can be shown without the rest.

    Attributes:
        start, end: character offsets in the candidate's content.
        score: fixed point in [0, SCALE].
    """

    start: int
    end: int
    score: int


class ScoredPassage(NamedTuple):
    """A passage of a text that is too long to be read at once, with scores of its own.

    Attributes:
        start, end: character offsets in the candidate's content, without white space at the ends.
        relevance, score, lexical, hop: as a candidate's, fixed point.
        tokens: with a rendered marker and separator.
    """

    start: int
    end: int
    relevance: int
    score: int
    lexical: int
    hop: int
    tokens: int


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
        decay: the decay function in the place of freshness, such as `half-life@1:P30D`; None for
            freshness.
        decision: id of the guard's decision that let it be read; empty where the guard numbers
            none.
        refused: why it may not be shown at all; None for a candidate like any other.
        passages: what a long text is cut into, in order, each packed by its own score; none for a
            text that is one passage. The candidate's scores are those of its best.
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
        """What it is ranked by, fixed point."""
        return self.relevance if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class Candidates:
    """Everything that ranking, packing and rendering depend on. Order of facts is by id.

    Attributes:
        sub_queries: what it was decomposed into; the question itself when it is one need.
        facts: unique by id and sorted by it.
        duplicates: pairs of positions (i < j) with cosine above .95 that say the same, listed
            or as a relation that is worked out when it is asked (`near_duplicates.PairRelation`).
            A text that is cut has a position for each passage.
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
    """The positions in pairs that each candidate has: one, or one for each of its passages."""
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
    """The same candidates, those of these ids refused; an earlier refusal stays."""
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
