"""The communities of a namespace: neighbours, Leiden, names, and the transaction that writes them.

Reading, searching and partitioning happen before the write transaction. A fact removed in between
gets no community name; a fact added in between waits for the next run.

Spec: CRP-SPEC-009 §5
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import ConfigError, StoreBusy
from crp_integrations.fabric.namespace_writer import NamespaceWriter
from crp_integrations.fabric.nearest_neighbours import Places, contract_graph, initial_membership
from crp_integrations.fabric.ports import CommunityEngine, FactOutline, LogMark, work_lock
from crp_integrations.fabric.ports.facts import vector_search_of
from crp_integrations.fabric.settings import CommunitySettings
from crp_integrations.fabric.similarity_graph import (
    ClusterReport,
    Community,
    CommunityMember,
    CurrentSimilarity,
    FactGraph,
    compared,
    groups_of,
    load_similarity,
    main_facts,
    matching_names,
    modularity,
    name_communities,
    save_similarity,
    similarity_threshold,
    update_similarity,
)
from crp_integrations.fabric.state_hash import (
    RECLUSTERED_SETTING,
    advance_epoch,
    note_reclustering,
    times_found,
)
from crp_integrations.seals import iso
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType


@dataclass(frozen=True, slots=True)
class DetectionInput:
    """The input of one run, read at one moment: facts in order of ids, with their rows.

    Attributes:
        times: number of reclusterings so far.
    """

    mark: LogMark
    times: int
    outline: tuple[FactOutline, ...]
    labels: tuple[tuple[str, ...], ...]
    rows: FloatRows

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the facts, in the order of the rows."""
        return tuple(fact.fact_id for fact in self.outline)


def community_members(
    read: DetectionInput,
    group: Sequence[int],
    strength: Sequence[float],
) -> list[CommunityMember]:
    """Return the facts at a group of places, in the form from which names are chosen."""
    return [
        CommunityMember(
            fact_id=read.outline[place].fact_id,
            importance=read.outline[place].importance,
            strength=strength[place],
            labels=read.labels[place],
        )
        for place in group
    ]


@dataclass(frozen=True, slots=True)
class CommunityDetection:
    """Finds and lists the communities of one namespace."""

    writer: NamespaceWriter

    def run(self, *, afresh: bool = False) -> ClusterReport:
        """Recompute the communities; with `afresh`, ignore the earlier ones.

        Spec: CRP-SPEC-009 §5
        """
        region = self.writer.region
        if region.leiden is None:
            raise ConfigError(
                "communities need an engine: pip install 'crp-integrations[communities]', or give "
                "the fabric one"
            )
        # If the store supports locks, no other process runs at the same time.
        with work_lock(region.store, self.writer.namespace, "recluster") as ours:
            if not ours:
                raise self._conflict_error("are being found")
            return self._run(region.leiden, afresh=afresh)

    def _run(self, engine: CommunityEngine, *, afresh: bool) -> ClusterReport:
        settings, step = self._settings, self.writer.tracer.step
        with step("fabric.recluster.read"):
            read = self._read()
        before = [None if afresh else fact.community for fact in read.outline]
        if len(read.outline) < settings.min_size and not any(f.community for f in read.outline):
            return self._unchanged_report(len(read.outline))
        with step("fabric.recluster.neighbours"):
            current = self._neighbours(read, afresh=afresh)
            lists = current.similarity.neighbours
            left, right, weights = lists.edges()
        # Only if the neighbours were updated incrementally is the partition incremental too.
        warm = current.changed is not None and any(before)
        with step("fabric.recluster.leiden"):
            if warm and current.changed is not None:
                free = np.array([name is None for name in before], dtype=np.bool_)
                free[current.changed] = True
                part = contract_graph(free, left, right, weights, initial_membership(before, lists))
                membership = part.spread(
                    self._partition(
                        engine, part.nodes, part.left, part.right, part.weights, part.initial
                    )
                )
            else:
                membership = self._partition(engine, len(read.outline), left, right, weights, None)
        groups = groups_of(membership)
        large = [group for group in groups if len(group) >= settings.min_size]
        inside = membership[left] == membership[right]
        held, nodes = weights[inside], len(read.outline)
        ends = np.bincount(left[inside], held, nodes) + np.bincount(right[inside], held, nodes)
        strength = np.round(ends, 6).tolist()
        with step("fabric.recluster.names"):
            names = self._names(read, large, before, strength)
        wanted = {
            read.outline[place].fact_id: name
            for name, group in zip(names, large, strict=True)
            for place in group
        }
        with step("fabric.recluster.write"):
            return self._write(
                read,
                wanted,
                ClusterReport(
                    facts=len(read.outline),
                    searched=current.searched,
                    edges=len(left),
                    dissolved=sum(1 < len(group) < settings.min_size for group in groups),
                    modularity=modularity(membership, left, right, weights, settings.resolution),
                    warm=warm,
                    engine=engine.name,
                ),
            )

    def communities(self) -> list[Community]:
        """Communities of the facts that the subject may read, the largest first, then by name.

        Spec: CRP-SPEC-009 §5
        """
        with self.writer.begin(False) as transaction:
            labels = dict(transaction.facts.retrievable())
            members: defaultdict[str, list[FactOutline]] = defaultdict(list)
            for fact in transaction.facts.outline():
                if fact.community is not None and self.writer.may_read(labels[fact.fact_id]):
                    members[fact.community].append(fact)
        count = self._settings.label_facts
        communities = [
            Community(
                label=label,
                size=len(facts),
                facts=tuple(
                    fact.fact_id
                    for fact in sorted(facts, key=lambda f: (-f.importance, f.fact_id))[:count]
                ),
            )
            for label, facts in members.items()
        ]
        return sorted(communities, key=lambda community: (-community.size, community.label))

    def graph(self) -> FactGraph:
        """The current similarity graph of the facts that the subject may read.

        Spec: CRP-SPEC-009 §5.2
        """
        read = self._read()
        left, right, weights = self._neighbours(read).similarity.neighbours.edges()
        whole = FactGraph(
            ids=read.ids,
            communities=tuple(fact.community for fact in read.outline),
            sources=tuple(fact.source_id for fact in read.outline),
            left=left,
            right=right,
            weights=weights,
        )
        seen = np.array([self.writer.may_read(labels) for labels in read.labels], dtype=np.bool_)
        return whole if seen.all() else whole.among(seen)

    # --- steps -------------------------------------------------------------------------

    @property
    def _settings(self) -> CommunitySettings:
        return self.writer.settings.communities

    def _read(self) -> DetectionInput:
        with self.writer.begin(False) as transaction:
            facts = transaction.facts
            self.writer.check(facts)
            labelled = facts.retrievable()
            if vector_search_of(facts) is not None:
                # The store searches its vectors itself, so no index stays in this process.
                rows = facts.vectors([fact_id for fact_id, _ in labelled])
            else:
                state = self.writer.region.namespace_state(self.writer.namespace)
                rows = state.snapshot(facts).index.all_rows()[1]
            return DetectionInput(
                mark=facts.mark(),
                times=times_found(facts),
                outline=tuple(facts.outline()),
                labels=tuple(labels for _, labels in labelled),
                rows=rows,
            )

    def _conflict_error(self, what: str) -> StoreBusy:
        return StoreBusy(
            f"the communities of namespace {self.writer.namespace!r:.80} {what} by another run "
            "at the same time; nothing was changed here"
        )

    def _unchanged_report(self, facts: int) -> ClusterReport:
        with self.writer.begin(False) as transaction:
            after = self.writer.hash_in(transaction.facts)
        return ClusterReport(facts=facts, unclustered=facts, state_hash=after)

    def _partition(
        self,
        engine: CommunityEngine,
        nodes: int,
        left: Places,
        right: Places,
        weights: npt.NDArray[np.float64],
        initial: Places | None,
    ) -> Places:
        """The community of each node.

        Spec: CRP-SPEC-009 §5.3
        """
        settings = self._settings
        return engine.partition(
            nodes,
            left,
            right,
            weights,
            resolution=settings.resolution,
            iterations=settings.iterations,
            seed=settings.seed,
            initial=initial,
        )

    def _neighbours(self, read: DetectionInput, *, afresh: bool = False) -> CurrentSimilarity:
        """The neighbours of every fact."""
        region, cache, name = self.writer.region, self.writer.cache(), self.writer.namespace
        known = None
        if not afresh:
            known = region.similarities.get(name) if cache is None else load_similarity(cache)
        current = update_similarity(
            read.ids,
            [fact.content_hash for fact in read.outline],
            read.rows,
            embedder=self.writer.embedder.identity,
            k=self._settings.neighbours,
            least=similarity_threshold(self._settings, self.writer.embedder),
            known=known,
            rebuild_share=self.writer.settings.graph.rebuild_share,
            exact_up_to=self.writer.settings.graph.exact_up_to,
        )
        made = current.similarity
        if known is None or made.hashes != known.hashes or made.ids != known.ids:
            if cache is None:
                region.similarities[name] = made
            else:
                save_similarity(cache, made, read.mark)
        return current

    def _names(
        self,
        read: DetectionInput,
        groups: Sequence[Sequence[int]],
        before: Sequence[str | None],
        strength: Sequence[float],
    ) -> list[str]:
        """A name for each group of places: its previous name, or a new one."""
        names = matching_names(groups, before)
        nameless = [number for number in range(len(groups)) if number not in names]
        if nameless:
            # The largest group is named first; ties go by the first id.
            nameless.sort(key=lambda number: (-len(groups[number]), groups[number][0]))
            chosen = {
                number: main_facts(
                    community_members(read, groups[number], strength), self._settings.label_facts
                )
                for number in compared([len(group) for group in groups], nameless)
            }
            names |= name_communities(self._texts(chosen), nameless, list(names.values()))
        return [names[number] for number in range(len(groups))]

    def _texts(self, chosen: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
        """The texts of the main facts of some groups."""
        with self.writer.begin(False) as transaction:
            listed = [fact_id for ids in chosen.values() for fact_id in ids]
            texts = dict(transaction.facts.texts(listed))
        return {
            number: [texts[fact_id] for fact_id in ids if fact_id in texts]
            for number, ids in chosen.items()
        }

    def _write(
        self, read: DetectionInput, wanted: dict[str, str], report: ClusterReport
    ) -> ClusterReport:
        """Write changed labels and invalidate every ETag, in one transaction.

        Spec: CRP-SPEC-009 §5.5, §6.2
        """
        writer = self.writer
        key, now = writer.key(), writer.clock.now()
        seen = set(read.ids)
        with writer.begin(True) as transaction:
            facts = transaction.facts
            # The namespace may have moved to another embedder meanwhile.
            writer.check(facts)
            if times_found(facts) != read.times:
                raise self._conflict_error("were found")
            before = writer.hash_in(facts)
            # In most runs nothing has changed since the read, so the outline is reused.
            outline = read.outline if facts.mark() == read.mark else facts.outline()
            stored = {fact.fact_id: fact.community for fact in outline}
            sizes = Counter(name for fact_id, name in wanted.items() if fact_id in stored)
            names = {name for name, size in sizes.items() if size >= self._settings.min_size}
            # A name may contain words of a fact that was erased meanwhile.
            gone = sorted(seen - stored.keys())
            left = {fact.fact_id for fact in facts.get(gone)}
            erased = {wanted[id_] for id_ in gone if id_ in wanted and id_ not in left}
            names -= erased
            labels: dict[str, str | None] = {}
            for fact_id, name in stored.items():
                # A fact that became retrievable since keeps its name if that community exists.
                label = wanted.get(fact_id) if fact_id in seen else name
                label = label if label in names else None
                if label != name:
                    labels[fact_id] = label
            advance_epoch(facts)
            note_reclustering(facts, now, len(names), new=len(stored.keys() - seen))
            if erased:
                facts.remove_setting(RECLUSTERED_SETTING)
            # Labels do not enter the hash; before they are written it needs no new computation.
            after = writer.hash_in(facts)
            if labels:
                facts.set_communities(labels)
            data = {
                "before": before,
                "after": after,
                "cause": "recluster",
                "communities": len(names),
                "changed": len(labels),
            }
            draft = EventDraft(EventType.CKF_ETAG_CHANGED, data)
            append_events(transaction.journal, key, [draft], iso(now))
        placed = sum(sizes[name] for name in names)
        return report.changed(
            communities=len(names),
            unclustered=len(stored) - placed,
            relabelled=len(labels),
            state_hash=after,
        )
