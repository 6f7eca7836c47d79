"""Candidates that may not be shown at all: they leave before anything is ranked, by name.

Whoever selects marks them. They stay among the candidates, so that the drop report names them and
a receipt replays that they were refused, and nothing about the others depends on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from crp_integrations.envelope.dropped import Drop
from crp_integrations.envelope.pairs import as_pairs
from crp_integrations.envelope.records import Candidate, Candidates
from crp_integrations.vocabulary import DropReason


def admitted(candidates: Candidates) -> tuple[Candidates, tuple[Candidate, ...]]:
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
    left = among(candidates, [place for place in range(len(facts)) if place not in gone])
    return left, tuple([facts[place] for place in places])


def among(candidates: Candidates, kept: Sequence[int]) -> Candidates:
    """The candidates at these positions, ascending, with the pairs among them."""
    moved = {place: number for number, place in enumerate(kept)}
    return replace(
        candidates,
        facts=tuple([candidates.facts[place] for place in kept]),
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )


def refusing(
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


def told(refused: Sequence[Candidate]) -> tuple[Drop, ...]:
    """The records of a drop report for what was refused, by id."""
    return tuple(
        [
            Drop(fact_id=fact.fact_id, reason=fact.refused, tokens=fact.tokens)
            for fact in refused
            if fact.refused is not None
        ]
    )
