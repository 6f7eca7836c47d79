"""Facts that a session keeps in memory only, and what a subject's sessions used recently.

A session's facts are one frozen value that is replaced as a whole, so a turn that has read it sees
the same state until it ends. Recent uses contain ids and names, never a text or a vector; the facts
themselves are read through a `FabricView`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from sys import intern
from typing import TypeVar

import numpy as np

from crp_integrations.errors import LimitReached, StoreError
from crp_integrations.fabric.ports import FactBrief
from crp_integrations.fabric.records import Edge, Fact, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.fabric.settings import HotSettings, ShelfSettings
from crp_integrations.language.words import STOP_WORDS, words
from crp_integrations.vectors import FloatRows, cosine, top

# Tier number of the session's own facts in the memory cascade (CRP-SPEC-003 §5.2).
HOT_TIER = 1


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts of one session.

    Attributes:
        facts: facts by id, in ascending order of ids.
        rows: their unit vectors in the same order, shape (len(facts), dimensions).
        used_at: time of the session's last call.
    """

    facts: Mapping[str, Fact]
    rows: FloatRows
    used_at: datetime

    def as_shown(self, facts: Sequence[Fact]) -> SessionFacts:
        """Return a copy with only these facts, as a subject may read them (possibly redacted)."""
        shown = {fact.fact_id: fact for fact in facts}
        left = self.among(lambda fact: fact.fact_id in shown)
        return SessionFacts(shown, left.rows, left.used_at)

    def among(self, keep: Callable[[Fact], bool]) -> SessionFacts:
        """Return a copy with only the facts for which `keep` is true."""
        pairs = [(place, fact) for place, fact in enumerate(self.facts.values()) if keep(fact)]
        return SessionFacts(
            {fact.fact_id: fact for _, fact in pairs},
            np.ascontiguousarray(self.rows[[place for place, _ in pairs]]),
            self.used_at,
        )


class SessionFactsLayer:
    """A session's facts at one moment, as one subject may read them, for a `FabricView`."""

    tier = HOT_TIER

    def __init__(self, held: SessionFacts) -> None:
        self._held = held
        self._ids = list(self._held.facts)
        self._place = {id_: number for number, id_ in enumerate(self._ids)}

    def size(self) -> int:
        """Number of facts."""
        return len(self._ids)

    def ids(self) -> list[str]:
        """Ids of all facts, ascending."""
        return list(self._ids)

    def nearest(self, vector: FloatRows, k: int, where: Where | None) -> list[Hit]:
        """The k facts of highest cosine; none with a filter: filters are for stored facts only."""
        if where is not None:
            return []
        scores = cosine(self._held.rows, np.ascontiguousarray(vector, dtype=np.float32))
        return [Hit(self._ids[at], float(scores[at])) for at in top(scores, self._ids, k)]

    def search_text(self, query: str, k: int, where: Where | None) -> list[Hit]:
        """The k facts with the most words of the query, which is their score; ties by id."""
        if where is not None or k <= 0:
            return []
        wanted = {word.lower for word in words(query)}
        wanted = (wanted - STOP_WORDS) or wanted
        scored = [
            (len(wanted & {word.lower for word in words(fact.content)}), id_)
            for id_, fact in self._held.facts.items()
        ]
        best = sorted((-score, id_) for score, id_ in scored if score)[:k]
        return [Hit(id_, float(-score)) for score, id_ in best]

    def holds(self, ids: Sequence[str], *, aside: bool = True) -> set[str]:
        """The ids whose facts are in the session; `aside` is ignored, as none is archived."""
        return {id_ for id_ in ids if id_ in self._place}

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order of the ids; unknown ids are left out."""
        return [self._held.facts[id_] for id_ in ids if id_ in self._place]

    def briefs(self, ids: Sequence[str]) -> list[FactBrief]:
        """Briefs of facts for selection, in the order of the ids; unknown ids are left out."""
        return [FactBrief.of(fact) for fact in self.facts(ids)]

    def vectors(self, ids: Sequence[str]) -> FloatRows:
        """Unit rows in the order of the ids."""
        unknown = [id_ for id_ in ids if id_ not in self._place]
        if unknown:
            raise StoreError(f"fact {unknown[0]} cannot be retrieved")
        return np.ascontiguousarray(self._held.rows[[self._place[id_] for id_ in ids]])

    def edges(self, ids: Sequence[str]) -> list[Edge]:
        """Return no edges: facts in memory are not linked."""
        return []

    def token_counts(
        self, key: str, ids: Sequence[str], count: Callable[[list[str]], list[int]], *, keep: bool
    ) -> dict[str, int]:
        """Token counts by id; they are not stored, whatever `keep` says."""
        facts = self.facts(ids)
        counted = count([fact.content for fact in facts])
        return dict(zip((fact.fact_id for fact in facts), counted, strict=True))


class SessionMemory:
    """The sessions that keep facts in memory; thread-safe.

    Nothing is ever written to a file. A session's facts are dropped when the session ends, when it
    was idle for too long, or when the process ends.

    Spec: CRP-SPEC-009 §7.2
    """

    def __init__(self, settings: HotSettings, idle_hours: float) -> None:
        self._settings = settings
        self._idle = timedelta(hours=idle_hours)
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, str], SessionFacts] = {}

    def hold(
        self, tenant: str, session_id: str, facts: Sequence[Fact], rows: FloatRows, now: datetime
    ) -> list[str]:
        """Add facts to a session, all or none; returns the ids that were new."""
        with self._lock:
            self._purge(now)
            before = self._sessions.get((tenant, session_id))
            known: Mapping[str, Fact] = before.facts if before else {}
            new = [place for place, fact in enumerate(facts) if fact.fact_id not in known]
            self._check_room(tenant, session_id, len(new))
            if new:
                both = [*known.values(), *(facts[place] for place in new)]
                block = rows[new] if before is None else np.vstack([before.rows, rows[new]])
                order = sorted(range(len(both)), key=lambda place: both[place].fact_id)
                self._sessions[tenant, session_id] = SessionFacts(
                    {both[place].fact_id: both[place] for place in order},
                    np.ascontiguousarray(block[order], dtype=np.float32),
                    now,
                )
            return [facts[place].fact_id for place in new]

    def check_room(self, tenant: str, session_id: str, more: int) -> None:
        """Raise LimitReached if `more` facts would exceed a limit."""
        with self._lock:
            self._check_room(tenant, session_id, more)

    def held(self, tenant: str, session_id: str, now: datetime) -> SessionFacts | None:
        """Return a session's facts and mark the session as used now; None if it has none."""
        with self._lock:
            self._purge(now)
            held = self._sessions.get((tenant, session_id))
            if held is not None:
                held = SessionFacts(held.facts, held.rows, max(held.used_at, now))
                self._sessions[tenant, session_id] = held
            return held

    def end(self, tenant: str, session_id: str) -> int:
        """Forget a session; returns the number of its facts."""
        with self._lock:
            gone = self._sessions.pop((tenant, session_id), None)
        return len(gone.facts) if gone else 0

    def forget_source(self, tenant: str, source_id: str) -> int:
        """Forget the facts of a source in all sessions of a tenant; returns their number."""
        count = 0
        with self._lock:
            for place, held in list(self._sessions.items()):
                if place[0] != tenant:
                    continue
                remaining = held.among(lambda fact: fact.source_id != source_id)
                count += len(held.facts) - len(remaining.facts)
                if remaining.facts:
                    self._sessions[place] = remaining
                else:
                    del self._sessions[place]
        return count

    def forget_tenant(self, tenant: str) -> None:
        """Forget the facts of all sessions of a tenant."""
        with self._lock:
            for place in [place for place in self._sessions if place[0] == tenant]:
                del self._sessions[place]

    def purge_idle(self, now: datetime) -> int:
        """Forget sessions without a call for `lifecycle.session_idle_hours`."""
        with self._lock:
            return self._purge(now)

    def _check_room(self, tenant: str, session_id: str, more: int) -> None:
        if not more:
            return
        before = self._sessions.get((tenant, session_id))
        count = more + (len(before.facts) if before else 0)
        most = self._settings.facts_per_session
        if count > most:
            raise LimitReached(
                f"session {session_id} would hold {count} facts in memory, at most {most} are "
                "allowed (setting fabric.hot.facts_per_session)"
            )
        if before is None and len(self._sessions) >= self._settings.sessions:
            raise LimitReached(
                f"{len(self._sessions)} sessions hold facts in memory, as many as are allowed "
                "(setting fabric.hot.sessions); end one of them first"
            )

    def _purge(self, now: datetime) -> int:
        idle = [place for place, held in self._sessions.items() if now - held.used_at >= self._idle]
        for place in idle:
            del self._sessions[place]
        return len(idle)


# Tier 2 of the memory cascade: recently used subgraphs (CRP-SPEC-003 §5.2).


@dataclass(frozen=True, slots=True)
class RecentUse:
    """What one subject used recently, at one moment.

    Attributes:
        facts: ids of facts in earlier envelopes of the session.
        communities: labels of the communities used recently by any session of the subject.
        sources: ids of recently used sources, for facts without a community.
    """

    facts: frozenset[str] = frozenset()
    communities: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()


EMPTY = RecentUse()


@dataclass(frozen=True, slots=True)
class FactUse:
    """A fact that was in an envelope.

    Attributes:
        community: label of the fact's community, None for none.
    """

    fact_id: str
    source_id: str
    community: str | None


# (True, source id) for facts without a community, (False, community label) for the others.
_Subgraph = tuple[bool, str]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class RecentUses:
    """Recent uses of every tenant and subject of a process; thread-safe.

    Each shelf is bounded: the least recently used entry is dropped. Nothing is written to a file.

    Spec: CRP-SPEC-003 §5.2
    """

    def __init__(self, settings: ShelfSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, str, str], OrderedDict[str, None]] = OrderedDict()
        self._subjects: OrderedDict[tuple[str, str], OrderedDict[_Subgraph, None]] = OrderedDict()

    def note(self, tenant: str, subject: str, session_id: str, used: Iterable[FactUse]) -> None:
        """Record the facts of an envelope on the shelves of its session and its subject."""
        most = self._settings
        by_session, by_subject = (tenant, subject, session_id), (tenant, subject)
        with self._lock:
            session = self._sessions.get(by_session, OrderedDict())
            graphs = self._subjects.get(by_subject, OrderedDict())
            for use in used:
                # Interned, so that all sessions that used a fact share one string.
                _put(session, intern(use.fact_id), None, most.facts_per_session)
                loose = use.community is None
                name = intern(use.source_id if use.community is None else use.community)
                _put(graphs, (loose, name), None, most.subgraphs)
            _put(self._sessions, by_session, session, most.sessions)
            _put(self._subjects, by_subject, graphs, most.subjects)

    def shelf(self, tenant: str, subject: str, session_id: str) -> RecentUse:
        """Return what a subject used recently; reading it does not count as a use."""
        with self._lock:
            facts = frozenset(self._sessions.get((tenant, subject, session_id), ()))
            graphs = list(self._subjects.get((tenant, subject), ()))
        return RecentUse(
            facts,
            frozenset(name for loose, name in graphs if not loose),
            frozenset(name for loose, name in graphs if loose),
        )

    def end(self, tenant: str, subject: str, session_id: str) -> None:
        """Forget a session of a subject."""
        with self._lock:
            self._sessions.pop((tenant, subject, session_id), None)

    def clear(self, tenant: str | None) -> None:
        """Forget the uses of one tenant, or of all tenants for None."""
        with self._lock:
            for session in [key for key in self._sessions if tenant in (None, key[0])]:
                del self._sessions[session]
            for subject in [key for key in self._subjects if tenant in (None, key[0])]:
                del self._subjects[subject]


def _put(shelf: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Move an entry to the recent end; drop the least recently used beyond the maximum."""
    shelf[key] = value
    shelf.move_to_end(key)
    while len(shelf) > most:
        shelf.popitem(last=False)
