"""Which facts are meant, what is retrievable, and what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from crp_integrations.fabric.ports import FactBrief, FactOutline, LogMark
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.stores import rules
from crp_integrations.stores.memory.base import Part
from crp_integrations.vocabulary import FactStatus

EMPTY = LogMark(0, "")


class Finding(Part):
    """Searches and lists of the facts of one namespace, and its log of changes."""

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of every retrievable fact, by id; with ids, of those among them."""
        return [(fact.fact_id, fact.labels) for fact in self._live(ids)]

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of every retrievable fact, by id; with ids, of those."""
        live = self._live(ids)
        return iter([(fact.fact_id, fact.content_hash, fact.status.value) for fact in live])

    def texts(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and content of those of the ids that are retrievable, by id."""
        return [(fact.fact_id, fact.content) for fact in self._live(ids)]

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """What selection reads of those of the ids that are retrievable, by id."""
        return [FactBrief.of(fact) for fact in self._live(ids)]

    def outline(self) -> Iterator[FactOutline]:
        """Every retrievable fact, by id; no texts are read."""
        return iter(
            [
                FactOutline(
                    fact.fact_id,
                    fact.content_hash,
                    fact.source_id,
                    fact.community_label,
                    fact.importance_weight,
                )
                for fact in self._live(None)
            ]
        )

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that are meant, ascending."""
        means = _meaning(where)
        return sorted(id for id, fact in self._draft.state.facts.items() if means(fact))

    def tally(self) -> Mapping[str, int]:
        """How many facts there are by status; archived ones count under `ARCHIVED` instead."""
        facts = self._draft.state.facts.values()
        words = Counter("ARCHIVED" if f.archived_at is not None else f.status.value for f in facts)
        return dict(sorted(words.items()))

    def passages(self, source_id: str) -> list[tuple[str, str, FactStatus]]:
        """Id, content hash and status of a source's facts, by id; no texts are read."""
        found = (f for f in self._draft.state.facts.values() if f.source_id == source_id)
        return sorted((f.fact_id, f.content_hash, f.status) for f in found)

    def search_text(self, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
        """Best retrievable facts that hold any of the terms: id and BM25 score."""
        return self._index(self._draft.state).search(terms, k)

    def mark(self) -> LogMark:
        """The end of the log of changes."""
        log = self._draft.state.log
        return log[-1][0] if log else EMPTY

    def changes(self, since: LogMark) -> list[str] | None:
        """Ids of the facts that were added, changed or removed after a mark, each once, by id."""
        log = self._draft.state.log
        first = log[0][0].sequence if log else 1
        if since == EMPTY:
            return sorted({id for _, id in log}) if first == 1 else None
        place = since.sequence - first
        if not 0 <= place < len(log) or log[place][0] != since:
            return None
        return sorted({id for _, id in log[place + 1 :]})

    def trim_changes(self, keep: int) -> None:
        """Forget the log but for its last `keep` entries; at least the last one stays."""
        log = self._draft.change("log").log
        del log[: -max(1, keep)]

    def _live(self, ids: Sequence[str] | None) -> list[Fact]:
        facts = self._draft.state.facts
        asked = facts.values() if ids is None else [facts[id] for id in {*ids} if id in facts]
        return sorted((f for f in asked if f.retrievable), key=lambda fact: fact.fact_id)


def _meaning(where: Where) -> Callable[[Fact], bool]:
    """The test that a fact passes when it is meant."""
    tests: list[Callable[[Fact], bool]] = []
    if where.statuses is None:
        tests.append(lambda fact: fact.retrievable)
    else:
        statuses = frozenset(where.statuses)
        tests.append(lambda fact: fact.status in statuses)
        if where.archived is not None:
            tests.append(lambda fact: (fact.archived_at is not None) is where.archived)
    if where.sources is not None:
        sources = frozenset(where.sources)
        tests.append(lambda fact: fact.source_id in sources)
    if where.kinds is not None:
        kinds = frozenset(where.kinds)
        tests.append(lambda fact: fact.kind in kinds)
    if where.communities is not None:
        communities = frozenset(where.communities)
        tests.append(lambda fact: fact.community_label in communities)
    if where.labels:
        labels = frozenset(where.labels)
        tests.append(lambda fact: labels <= set(fact.labels))
    if where.metadata:
        wanted = {key: rules.same_json(value) for key, value in where.metadata.items()}
        tests.append(lambda fact: rules.has_metadata(wanted, fact.metadata))
    tests.append(lambda fact: _in_time(where, fact))
    return lambda fact: all(test(fact) for test in tests)


def _in_time(where: Where, fact: Fact) -> bool:
    unused = where.unused_since
    return (
        (where.ingested_after is None or not _before(fact.ingested_at, where.ingested_after, True))
        and (where.ingested_before is None or _before(fact.ingested_at, where.ingested_before))
        and (where.modified_before is None or _before(fact.modified_at, where.modified_before))
        and (unused is None or _before(fact.ingested_at, unused, True))
        and (unused is None or _before(fact.last_accessed_at, unused, True))
        and (where.expired_at is None or _before(fact.expires_at, where.expired_at))
    )


def _before(moment: datetime | None, bound: datetime, nothing: bool = False) -> bool:
    """Whether a moment is before a bound.

    Args:
        nothing: the answer for no moment at all.
    """
    return nothing if moment is None else moment < bound
