"""Facts connected with the best ones: k hops over relations, names and communities.

The graph is read around the best facts of a question, a hop at a time. Its kinds of links are

    relation   a stored edge between two facts, such as those of memory items
    entity     a name that two facts contain but the question does not; rare names link more
    community  two facts of one community, for the first hop alone

Facts that a label filter excludes are not part of the graph: no path leads to or through them.

Spec: Summit §Context Assembly Pipeline
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.ports import Link, ReachedNode, Walker
from crp_integrations.envelope.settings import GraphExpansionSettings
from crp_integrations.fabric.records import Edge, Where
from crp_integrations.guard.decisions import LabelFilter
from crp_integrations.language.lexical_overlap import named_stems, profiles, question_stems
from crp_integrations.scores import SCALE, to_fixed

if TYPE_CHECKING:
    from crp_integrations.fabric.ports import FactBrief
    from crp_integrations.fabric.view import FabricView
    from crp_integrations.vectors import FloatRows

GRAPH: Final = "graph@1"
ENTITY: Final = "entity"
COMMUNITY: Final = "community"

# The stems of a name, so that spellings with equal stems are one name.
Name = tuple[str, ...]


def reach_facts(
    view: FabricView,
    query: str,
    vector: FloatRows,
    seeds: Mapping[str, int],
    settings: GraphExpansionSettings,
    labels: LabelFilter,
    walker: Walker,
) -> dict[str, ReachedNode]:
    """The facts reached from the best ones, `seeds`, by id, with their decayed strengths."""
    known = frozenset(question_stems(query))
    read = _GraphReader(settings)
    read.take(view.briefs(sorted(seeds)), labels)
    frontier = sorted(read.briefs.keys() - read.barred)
    for hop in range(settings.hops):
        if not frontier:
            break
        texts = [read.briefs[id_].content for id_ in frontier]
        names = _names(texts, known, read.names, settings.names)
        read.names |= dict.fromkeys(names)
        edges = view.edges(frontier)
        read.edges |= {(edge.source_fact, edge.kind, edge.target_fact): edge for edge in edges}
        wanted = {edge.target_fact for edge in edges}
        if names and settings.hits:
            hits = view.search_text(" ".join(names.values()), settings.hits)
            wanted |= {hit.fact_id for hit in hits}
        if hop == 0 and settings.community_hits:
            wanted |= _neighbours(view, vector, [read.briefs[id_] for id_ in frontier], settings)
        room = max(0, settings.most_facts - len(read.briefs))
        briefs = view.briefs(sorted(wanted - read.briefs.keys())[:room])
        read.take(briefs, labels)
        if hop + 1 < settings.hops:
            # The next hop continues only from facts that are linked to the graph read so far.
            linked = {end for link in read.links() for end in (link.left, link.right)}
            new = {brief.fact_id for brief in briefs} & linked - read.barred
            frontier = sorted(new)[: settings.frontier]
    ways = walker.reach(read.links(), seeds, settings.hops, read.barred)
    decay = to_fixed(settings.decay)
    return {
        id_: replace(way, strength=way.strength * decay ** (way.hop - 1) // SCALE ** (way.hop - 1))
        for id_, way in sorted(ways.items())
        if id_ in read.briefs
    }


def blend_reached(
    candidates: Candidates, reached: Mapping[str, ReachedNode], settings: GraphExpansionSettings
) -> Candidates:
    """Add the graph's strengths to the scores of the candidates.

    Each score grows by a share of the strength that exceeds the second hop of the mix. If the
    best is then above 1, all scores are divided by it.
    """
    share = to_fixed(settings.weight)
    facts = candidates.facts
    ways = [reached.get(fact.fact_id) for fact in facts]
    totals = [
        fact.merit + (share * max(0, way.strength - fact.hop) // SCALE if way else 0)
        for fact, way in zip(facts, ways, strict=True)
    ]
    best = max(totals, default=0)
    if not any(ways) or not best:
        return candidates
    top = max(SCALE, best)
    return replace(
        candidates,
        facts=tuple(
            # Most facts stay unchanged: the graph does not reach them, and no score is above 1.
            fact
            if way is None and fact.score == total * SCALE // top
            else replace(
                fact, score=total * SCALE // top, hop=max(fact.hop, way.strength if way else 0)
            )
            for fact, way, total in zip(facts, ways, totals, strict=True)
        ),
        algorithms=(*candidates.algorithms, GRAPH),
    )


# --- reading the graph -------------------------------------------------------------------


class _GraphReader:
    """The part of the graph that was read so far.

    Attributes:
        briefs: facts by id; `barred` has the ids of those that the label filter excludes.
        edges: stored edges by source, kind and target.
        names: names that were looked up.
    """

    def __init__(self, settings: GraphExpansionSettings) -> None:
        self._settings = settings
        self._holding: dict[str, set[str]] = {}
        self.briefs: dict[str, FactBrief] = {}
        self.barred: set[str] = set()
        self.edges: dict[tuple[str, str, str], Edge] = {}
        self.names: dict[Name, None] = {}

    def take(self, facts: Sequence[FactBrief], labels: LabelFilter) -> None:
        """Add facts that were read."""
        for brief, profile in zip(facts, profiles([brief.content for brief in facts]), strict=True):
            self.briefs[brief.fact_id] = brief
            if not labels.passes(brief.labels):
                self.barred.add(brief.fact_id)
            for stem in profile.stems:
                self._holding.setdefault(stem, set()).add(brief.fact_id)

    def links(self) -> list[Link]:
        """The links among the facts that were read."""
        links = [
            Link(edge.source_fact, edge.target_fact, edge.kind, to_fixed(edge.weight), 2)
            for edge in self.edges.values()
            if edge.source_fact in self.briefs and edge.target_fact in self.briefs
        ]
        no_ids: set[str] = set()
        for stems in self.names:
            holders = set.intersection(*(self._holding.get(stem, no_ids) for stem in stems))
            if 2 <= len(holders) <= self._settings.most_named:
                weight = math.isqrt(_rarity(len(holders), len(self.briefs)) * SCALE)
                node = f"{ENTITY}\u241f{' '.join(stems)}"
                links += [Link(id_, node, ENTITY, weight, 1) for id_ in sorted(holders)]
        return links + self._communities()

    def _communities(self) -> list[Link]:
        members: dict[str, list[str]] = {}
        for id_ in sorted(self.briefs):
            if label := self.briefs[id_].community_label:
                members.setdefault(label, []).append(id_)
        weight = math.isqrt(to_fixed(self._settings.community_weight) * SCALE)
        return [
            Link(id_, f"{COMMUNITY}\u241f{label}", COMMUNITY, weight, 1)
            for label, within in sorted(members.items())
            if len(within) > 1 and weight
            for id_ in within
        ]


def _names(
    texts: Iterable[str], known: frozenset[str], seen: Mapping[Name, None], most: int
) -> dict[Name, str]:
    """Spelling by stems of new names in texts with a word that the question does not contain."""
    names: dict[Name, str] = {}
    for text in texts:
        for written, stems in named_stems(text):
            if stems not in seen and not known.issuperset(stems):
                names.setdefault(stems, written)
    return dict(list(names.items())[:most])


def _neighbours(
    view: FabricView,
    vector: FloatRows,
    seeds: Sequence[FactBrief],
    settings: GraphExpansionSettings,
) -> set[str]:
    communities = tuple(sorted({seed.community_label for seed in seeds if seed.community_label}))
    if not communities:
        return set()
    hits = view.nearest(vector, settings.community_hits, Where(communities=communities))
    return {hit.fact_id for hit in hits}


def _rarity(holding: int, among: int) -> int:
    """Rarity of a name that `holding` of `among` facts contain, fixed point."""
    rare = math.log(1.0 + (among - holding + 0.5) / (holding + 0.5)) / math.log(2.0 + among)
    return to_fixed(min(1.0, rare))
