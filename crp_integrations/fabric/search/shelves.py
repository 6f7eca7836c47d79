"""Tiers 1 and 2 of the memory cascade: what a subject's sessions used lately.

A shelf holds ids and the names of communities and sources, never a text or a vector, so whatever
is on it is read through a `View` like anything else: what was forgotten, erased, quarantined or
withheld since does not come out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import TypeVar

from crp_integrations.fabric.settings import ShelfSettings

# Number of recently used subgraphs in the memory cascade (CRP-SPEC-003 §5.2).
WARM_TIER = 2


@dataclass(frozen=True, slots=True)
class Shelf:
    """What one subject used lately, as it was at one moment.

    Attributes:
        facts: ids of facts in earlier envelopes of the session.
        communities: labels of the communities used lately, by any session of the subject.
        sources: ids of the sources of facts without a community, likewise.
    """

    facts: frozenset[str] = frozenset()
    communities: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()


EMPTY = Shelf()


@dataclass(frozen=True, slots=True)
class Use:
    """A fact that an envelope held.

    Attributes:
        community: its community's label, None for none.
    """

    fact_id: str
    source_id: str
    community: str | None


# Whether it is a source of loose facts, and the source's id or the community's label.
_Subgraph = tuple[bool, str]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Shelves:
    """The shelves of every tenant and subject of a process; safe between threads.

    Each is bounded: what was used longest ago gives way. Nothing here reaches a file.

    Spec: CRP-SPEC-003 §5.2
    """

    def __init__(self, settings: ShelfSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, str, str], OrderedDict[str, None]] = OrderedDict()
        self._subjects: OrderedDict[tuple[str, str], OrderedDict[_Subgraph, None]] = OrderedDict()

    def note(self, tenant: str, subject: str, session_id: str, used: Iterable[Use]) -> None:
        """Put what an envelope held on the shelves of its session and its subject."""
        most = self._settings
        by_session, by_subject = (tenant, subject, session_id), (tenant, subject)
        with self._lock:
            session = self._sessions.get(by_session, OrderedDict())
            graphs = self._subjects.get(by_subject, OrderedDict())
            for use in used:
                # One string an id, however many sessions have seen the fact.
                _put(session, intern(use.fact_id), None, most.facts_per_session)
                loose = use.community is None
                name = intern(use.source_id if use.community is None else use.community)
                _put(graphs, (loose, name), None, most.subgraphs)
            _put(self._sessions, by_session, session, most.sessions)
            _put(self._subjects, by_subject, graphs, most.subjects)

    def shelf(self, tenant: str, subject: str, session_id: str) -> Shelf:
        """What a subject used lately; looking at it counts as no use.

        Args:
            session_id: empty for no session.
        """
        with self._lock:
            facts = frozenset(self._sessions.get((tenant, subject, session_id), ()))
            graphs = list(self._subjects.get((tenant, subject), ()))
        return Shelf(
            facts,
            frozenset(name for loose, name in graphs if not loose),
            frozenset(name for loose, name in graphs if loose),
        )

    def end(self, tenant: str, subject: str, session_id: str) -> None:
        """Forget a session of a subject."""
        with self._lock:
            self._sessions.pop((tenant, subject, session_id), None)

    def clear(self, tenant: str | None) -> None:
        """Forget everything of a tenant, or of everybody for None.

        After an erasure, since a community's label is made of words of its facts.
        """
        with self._lock:
            for session in [key for key in self._sessions if tenant in (None, key[0])]:
                del self._sessions[session]
            for subject in [key for key in self._subjects if tenant in (None, key[0])]:
                del self._subjects[subject]


def _put(shelf: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Put an entry in front; what was used longest ago gives way."""
    shelf[key] = value
    shelf.move_to_end(key)
    while len(shelf) > most:
        shelf.popitem(last=False)
