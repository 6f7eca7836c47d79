"""Candidates of a question: what Select hands to Rank, with scores in fixed point.

`Candidates` is the seam: from there on only integers are computed with, so an envelope can be
rebuilt byte for byte from its candidates anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from crp_integrations.envelope.near_duplicates import Places, as_pairs
from crp_integrations.vocabulary import (
    DropReason,
)

Scores = Sequence[int] | npt.NDArray[np.int64]


class ScoredSpan(NamedTuple):
    """A part of a candidate, about a sentence, that can be shown without the rest.

    Attributes:
        start, end: character offsets in the candidate's content.
        score: fixed point in [0, SCALE].
    """

    start: int
    end: int
    score: int


class ScoredSpans(Sequence[ScoredSpan]):
    """Stretches as columns, each made when it is asked for; equal to a tuple of the same ones.

    Attributes:
        starts, ends: character offsets.
        column: the scores as they were given.
    """

    __slots__ = ("column", "ends", "starts")

    def __init__(self, starts: Sequence[int], ends: Sequence[int], scores: Scores) -> None:
        """Take columns of one length, the scores in fixed point in [0, SCALE]."""
        self.starts = starts
        self.ends = ends
        self.column = scores

    @property
    def scores(self) -> Sequence[int]:
        """Fixed point in [0, SCALE]."""
        column = self.column
        if isinstance(column, np.ndarray):
            numbers: list[int] = column.tolist()
            return numbers
        return column

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[ScoredSpan]:
        return map(ScoredSpan, self.starts, self.ends, self.scores)

    @overload
    def __getitem__(self, index: int) -> ScoredSpan: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ScoredSpan, ...]: ...

    def __getitem__(self, index: int | slice) -> ScoredSpan | tuple[ScoredSpan, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return ScoredSpan(self.starts[index], self.ends[index], int(self.column[index]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | ScoredSpans):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def span_scores(stretches: Sequence[ScoredSpan]) -> Scores:
    """The scores of stretches, in their order."""
    if isinstance(stretches, ScoredSpans):
        return stretches.column
    return [stretch.score for stretch in stretches]


def span_bounds(stretches: Sequence[ScoredSpan], number: int) -> tuple[int, int]:
    """Where one of the stretches begins and ends."""
    if isinstance(stretches, ScoredSpans):
        return stretches.starts[number], stretches.ends[number]
    return stretches[number][:2]


def flatten_spans(stretches: Sequence[ScoredSpan]) -> list[int]:
    """Start, end and score of each stretch, one after the other."""
    if isinstance(stretches, ScoredSpans):
        columns = zip(stretches.starts, stretches.ends, stretches.scores, strict=False)
        return [number for stretch in columns for number in stretch]
    return [number for stretch in stretches for number in stretch]


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
    stretches: Sequence[ScoredSpan] = ()
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


Integers = npt.NDArray[np.int64]


class Columns:
    """The attributes of candidates, each made when it is first asked for.

    Attributes:
        facts: the candidates; a place in a column is a position in them.
    """

    # Comprehensions throughout: an interpreter reads a slot faster so than through a getter.

    def __init__(self, facts: Sequence[Candidate]) -> None:
        self.facts = facts

    def __len__(self) -> int:
        return len(self.facts)

    @cached_property
    def ids(self) -> list[str]:
        """Fact ids."""
        return [fact.fact_id for fact in self.facts]

    @cached_property
    def relevance(self) -> Integers:
        """Cosines, fixed point."""
        return integers([fact.relevance for fact in self.facts])

    @cached_property
    def merit(self) -> Integers:
        """What each fact is ranked by, fixed point."""
        scores = [fact.score for fact in self.facts]
        if scores.count(None) == len(scores):
            return self.relevance
        # The property, written out: it is asked thousands of times.
        return integers(
            [fact.relevance if fact.score is None else fact.score for fact in self.facts]
        )

    @cached_property
    def importance(self) -> Integers:
        """Intrinsic weights, fixed point."""
        return integers([fact.importance for fact in self.facts])

    @cached_property
    def tokens(self) -> Integers:
        """Tokens of each fact with its marker."""
        return integers([fact.tokens for fact in self.facts])

    @cached_property
    def ingested_at(self) -> list[datetime | None]:
        """When each fact was stored."""
        return [fact.ingested_at for fact in self.facts]

    @cached_property
    def communities(self) -> list[str | None]:
        """Labels of the communities."""
        return [fact.community for fact in self.facts]

    @cached_property
    def stale(self) -> list[int]:
        """Positions of the stale facts."""
        flags = [fact.stale for fact in self.facts]
        return [at for at, stale in enumerate(flags) if stale] if True in flags else []

    @cached_property
    def decays(self) -> list[tuple[int, str]]:
        """Positions of the facts that carry a decay function, with it."""
        said = [fact.decay for fact in self.facts]
        if said.count(None) == len(said):
            return []
        return [(at, one) for at, one in enumerate(said) if one is not None]

    @cached_property
    def refused(self) -> list[int]:
        """Positions of the facts that may not be shown."""
        said = [fact.refused for fact in self.facts]
        if said.count(None) == len(said):
            return []
        return [at for at, one in enumerate(said) if one is not None]

    @cached_property
    def in_parts(self) -> npt.NDArray[np.bool_]:
        """Whether some of each fact can be shown without the rest."""
        return np.array([len(fact.stretches) > 1 for fact in self.facts], dtype=bool)

    @cached_property
    def by_id(self) -> Integers | None:
        """Positions by fact id; None where the facts stand so already, as they do by contract."""
        ids = self.ids
        # Far cheaper than a comparison of neighbours one by one: sorting finds one run.
        if ids == sorted(ids):
            return None
        return integers(sorted(range(len(ids)), key=ids.__getitem__))

    def position(self, fact_id: str) -> int | None:
        """Where a fact stands; None for one that is not among the candidates."""
        if self.by_id is not None:
            return self._positions.get(fact_id)
        at = bisect_left(self.ids, fact_id)
        return at if at < len(self.ids) and self.ids[at] == fact_id else None

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {fact_id: at for at, fact_id in enumerate(self.ids)}


def integers(values: Sequence[int]) -> Integers:
    """A column of integers."""
    return np.array(values, dtype=np.int64)


def in_id_order(values: Integers, by_id: Integers | None) -> Integers:
    """Positions, smallest value first, ties in the order of the ids."""
    if by_id is None:
        order: Places = np.argsort(values, kind="stable")
        return order
    found: Integers = by_id[np.argsort(values[by_id], kind="stable")]
    return found


def as_list(column: Any, at: Places) -> list[int]:
    """The values of a column, or of a plain sequence, at these positions."""
    if isinstance(column, np.ndarray):
        values: list[int] = column[at].tolist()
        return values
    return [column[place] for place in at.tolist()]


_FIELDS = fields(Candidate)
_PLACES = {one.name: place for place, one in enumerate(_FIELDS)}
_VALUES = attrgetter(*_PLACES)
_Open: Any = make_dataclass(
    "_Open",
    [
        (one.name, Any, field() if one.default is MISSING else field(default=one.default))
        for one in _FIELDS
    ],
    slots=True,
    eq=False,
    repr=False,
)


def made(*values: Any, **named: Any) -> Candidate:
    """A candidate like any other, from the values of its fields in their order.

    >>> made("f", "text", "s", 1, 1, 3) == Candidate("f", "text", "s", 1, 1, 3)
    True
    """
    candidate = _Open(*values, **named)
    candidate.__class__ = Candidate
    found: Candidate = candidate
    return found


def with_values(candidate: Candidate, **changed: Any) -> Candidate:
    """The candidate with other values, as `replace` makes it in several times the time."""
    values = list(_VALUES(candidate))
    for name, value in changed.items():
        values[_PLACES[name]] = value
    return made(*values)


_MADE = partial(tuple.__new__, RankedFact)


class Column(Protocol):
    """A number for each position: an array, or one that is worked out when it is asked for."""

    def __getitem__(self, index: int, /) -> int: ...


def candidates_of(ranked: Sequence[RankedFact]) -> Sequence[Candidate]:
    """The candidates of ranked facts, in their order."""
    return RankedFacts.of(ranked).candidates


def ids_of(ranked: Sequence[RankedFact]) -> list[str]:
    """The ids of ranked facts, in their order."""
    return RankedFacts.of(ranked).ids


class RankedFacts(Sequence[RankedFact]):
    """Ranked facts in their order; each is made when it is asked for.

    Attributes:
        columns: what was ranked, in another order.
        at: positions in the columns, best first.
    """

    __slots__ = ("_composites", "_diversity", "_freshness", "at", "columns")

    def __init__(
        self,
        columns: Columns,
        at: Places,
        composites: Integers,
        freshness: Column,
        diversity: Column,
    ) -> None:
        """Take the scores by position, whatever their order."""
        self.columns = columns
        self.at = at
        self._composites = composites
        self._freshness = freshness
        self._diversity = diversity

    @classmethod
    def of(cls, ranked: Sequence[RankedFact]) -> RankedFacts:
        """Columns of ranked facts; columns stay as they are."""
        if isinstance(ranked, RankedFacts):
            return ranked
        facts, *scores = list(zip(*ranked, strict=True)) or [(), (), (), ()]
        composites, freshness, diversity = map(integers, scores)
        return cls(
            Columns(facts),
            np.arange(len(facts), dtype=np.intp),
            composites,
            freshness,
            diversity,
        )

    @property
    def candidates(self) -> list[Candidate]:
        """The facts, best first."""
        facts = self.columns.facts
        return [facts[at] for at in self.at.tolist()]

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        ids = self.columns.ids
        return [ids[at] for at in self.at.tolist()]

    @property
    def tokens(self) -> Integers:
        """Their tokens."""
        return self.columns.tokens[self.at]

    @property
    def relevance(self) -> Integers:
        """Their relevance, fixed point."""
        return self.columns.relevance[self.at]

    @property
    def importance(self) -> Integers:
        """Their importance, fixed point."""
        return self.columns.importance[self.at]

    def composite(self, place: int) -> int:
        """The composite score at a place, fixed point."""
        return int(self._composites[self.at[place]])

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> RankedFacts:
        """Those at the places that are true."""
        return self._at(self.at[chosen])

    def those(self, places: Sequence[int]) -> RankedFacts:
        """Those at these places, in the order of the places."""
        return self._at(self.at[np.array(places, dtype=np.intp)])

    def without(self, taken: Sequence[int], start: int, end: int) -> RankedFacts:
        """The facts from `start` up to `end` apart from those at these places."""
        left = np.zeros(len(self.at), dtype=bool)
        left[start:end] = True
        left[list(taken)] = False
        return self.where(left)

    def _at(self, at: Places) -> RankedFacts:
        return RankedFacts(self.columns, at, self._composites, self._freshness, self._diversity)

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[RankedFact]:
        scores = (self._composites, self._freshness, self._diversity)
        columns = (as_list(column, self.at) for column in scores)
        return map(_MADE, zip(self.candidates, *columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> RankedFact: ...

    @overload
    def __getitem__(self, index: slice) -> RankedFacts: ...

    def __getitem__(self, index: int | slice) -> RankedFact | RankedFacts:
        if isinstance(index, slice):
            return self._at(self.at[index])
        at = int(self.at[index])
        return RankedFact(
            self.columns.facts[at],
            int(self._composites[at]),
            int(self._freshness[at]),
            int(self._diversity[at]),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def split_refused(candidates: Candidates) -> tuple[Candidates, tuple[Candidate, ...]]:
    """The candidates that may be shown, and those that were refused, both by id.

    >>> fact = Candidate("f", "text", "s", relevance=1, importance=1, tokens=1)
    >>> chosen, gone = admitted(Candidates("q", ("q",), (fact,), "t"))
    >>> len(chosen.facts), gone
    (1, ())
    """
    places = candidates.columns.refused
    if not places:
        return candidates, ()
    gone = set(places)
    facts = candidates.facts
    left = keep_candidates(candidates, [place for place in range(len(facts)) if place not in gone])
    return left, tuple([facts[place] for place in places])


def keep_candidates(candidates: Candidates, kept: Sequence[int]) -> Candidates:
    """The candidates at these positions, ascending, with the pairs among them."""
    moved = {place: number for number, place in enumerate(kept)}
    return replace(
        candidates,
        facts=tuple([candidates.facts[place] for place in kept]),
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )


def refuse_candidates(
    candidates: Candidates, reasons: Mapping[str, DropReason], algorithms: Collection[str] = ()
) -> Candidates:
    """The same candidates, those of these ids refused; an earlier refusal stays.

    Args:
        algorithms: `name@n` of what refused them.
    """
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
