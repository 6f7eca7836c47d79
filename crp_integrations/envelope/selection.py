"""Numbers of what the default preset adds to the letter of Select."""

from __future__ import annotations

from pydantic import Field

from crp_integrations.records import Part


class HybridSettings(Part):
    """How relevance is mixed, and how stretches of facts fill what whole facts leave.

    Chosen on five public sets; docs/selection.md has the ablation.

    Spec: CRP-SPEC-003 §6.3, §7.3

    Attributes:
        enabled: rank by the mix; otherwise by the cosine, to the letter.
        lexical_share: share of words in the mix, the rest is the cosine.
        cosine_power: power of the cosine over its best in the mix, in halves; above 1 the best
            stand out more.
        lexical_power: power of the words' score over its best in the mix.
        stretch_power: power of the score of a fact's best stretch in the fact's score.
        stretch_share: share of a fact's score that its best stretch gives.
        neighbour_share: added of the better neighbour in the same document.
        neighbour_gap: most characters between two facts that are neighbours.
        hop_sources: best facts whose names are followed.
        hop_names: most of these names that are looked up, those of the best facts first.
        hop_hits: facts read for these names; 0 reads none.
        hop_weight: added of what the second hop says for a fact; 0 makes none.
        hop_decay: power of a source's score, over the best, in the weight of its names.
        whole_share: share of the budget that whole facts fill first; stretches fill the rest.
            1 shows whole facts alone.
        passed_over: facts that do not fit in this share and may be skipped for each one that is
            in; with one more, sentences begin. None for any number.
        parent_share: share of the fact's score in that of its stretches.
        stretch_neighbour_share: added of the better stretch beside it.
        stretch_hop_share: share of the hop in the score of a stretch.
        stretches_seen: best stretches that are looked at when the rest is filled.
    """

    enabled: bool = True
    lexical_share: float = Field(default=0.30, ge=0.0, le=1.0)
    cosine_power: float = Field(default=2.0, ge=0.5, le=8.0, multiple_of=0.5)
    lexical_power: float = Field(default=1.5, ge=0.5, le=8.0, multiple_of=0.5)
    stretch_power: float = Field(default=2.0, ge=0.5, le=8.0, multiple_of=0.5)
    stretch_share: float = Field(default=0.20, ge=0.0, le=1.0)
    neighbour_share: float = Field(default=0.15, ge=0.0, le=1.0)
    neighbour_gap: int = Field(default=80, ge=0)
    hop_sources: int = Field(default=5, ge=0)
    hop_names: int = Field(default=60, ge=0)
    hop_hits: int = Field(default=50, ge=0)
    hop_weight: float = Field(default=0.80, ge=0.0, le=2.0)
    hop_decay: float = Field(default=4.0, ge=0.0)
    whole_share: float = Field(default=0.80, ge=0.0, le=1.0)
    passed_over: int | None = Field(default=2, ge=0)
    parent_share: float = Field(default=0.70, ge=0.0, le=1.0)
    stretch_neighbour_share: float = Field(default=0.30, ge=0.0, le=1.0)
    stretch_hop_share: float = Field(default=0.50, ge=0.0, le=1.0)
    stretches_seen: int = Field(default=250, ge=1)


class GraphSettings(Part):
    """How far and how strongly the graph of relations, names and communities counts.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        hops: facts on the way from one of the best, and one; 0 walks nowhere.
        seeds: best facts that ways begin at.
        names: names that are looked up for each hop.
        hits: facts read for the names of a hop.
        community_hits: facts read of the communities of the seeds, the nearest to the question.
        community_weight: of the link between two facts of one community.
        most_named: facts among those read that may have a name for it to link them.
        frontier: facts that a hop goes on from.
        most_facts: facts read in all.
        decay: of the strength, for each hop after the first.
        weight: share of the strength, beyond the second hop of the mix, that is added to a fact's
            score.
    """

    hops: int = Field(default=0, ge=0, le=8)
    seeds: int = Field(default=5, ge=1)
    names: int = Field(default=60, ge=0)
    hits: int = Field(default=50, ge=0)
    community_hits: int = Field(default=10, ge=0)
    community_weight: float = Field(default=0.25, ge=0.0, le=1.0)
    most_named: int = Field(default=20, ge=2)
    frontier: int = Field(default=20, ge=1)
    most_facts: int = Field(default=400, ge=1)
    decay: float = Field(default=0.5, ge=0.0, le=1.0)
    weight: float = Field(default=0.15, ge=0.0, le=1.0)
