"""What a reclustering reads of a namespace at one moment, before it begins to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.fabric.communities.naming import Member
from crp_integrations.fabric.ports import Mark, Outline
from crp_integrations.fabric.search.index import Index
from crp_integrations.vectors import FloatRows


@dataclass(frozen=True, slots=True)
class Read:
    """What was read at one moment: facts by id, with their rows.

    Attributes:
        times: how often communities had been found.
    """

    mark: Mark
    times: int
    outline: tuple[Outline, ...]
    labels: tuple[tuple[str, ...], ...]
    index: Index
    rows: FloatRows

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the facts, in the order of the rows."""
        return tuple(fact.fact_id for fact in self.outline)


def members(
    read: Read,
    group: Sequence[int],
    strength: Sequence[float],
) -> list[Member]:
    """The facts of a group of places, as their names are chosen from.

    Args:
        strength: of each fact, the weight of its edges within its group.
    """
    return [
        Member(
            fact_id=read.outline[place].fact_id,
            importance=read.outline[place].importance,
            strength=strength[place],
            labels=read.labels[place],
        )
        for place in group
    ]
