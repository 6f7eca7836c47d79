"""Facts that questions have read, ready for the next question while their state lasts.

A namespace's entries are of one committed state, identified by the end of its log and its
generation: after any change, by any process, the next reader begins anew.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crp_integrations.fabric.ports import FactBrief, LogMark
from crp_integrations.language.memo import forgotten_with

# For all namespaces of a region. A fact takes about a kilobyte in addition to its text.
MAX_BYTES: Final = 64_000_000
_BYTES_BESIDE_TEXT: Final = 1_000

State = tuple[LogMark, int]


@dataclass(slots=True)
class _NamespaceEntries:
    """Briefs and token counts of one state; counts by the key of their tokenizer, then by id."""

    state: State
    briefs: dict[str, FactBrief] = field(default_factory=dict)
    tokens: dict[str, dict[str, int]] = field(default_factory=dict)
    bytes: int = 0


class FactCache:
    """The facts of a region's namespaces that were read last; safe between threads.

    Only what a reading transaction sees may be put here. `language.memo.forget` empties it, and
    what a reader that began before that still holds is not put.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._namespaces: OrderedDict[str, _NamespaceEntries] = OrderedDict()
        self._erasures = 0
        _CACHES.add(self)

    def begun(self) -> int:
        """The number of erasures so far; a reader asks for it before its transaction begins."""
        return self._erasures

    def briefs(self, name: str, state: State, ids: Sequence[str]) -> dict[str, FactBrief]:
        """Those of the facts that are in memory."""
        with self._lock:
            entries = self._entries(name, state)
            briefs = entries.briefs if entries else {}
            return {id_: briefs[id_] for id_ in ids if id_ in briefs}

    def put(self, name: str, state: State, briefs: Iterable[FactBrief], begun: int) -> None:
        """Keep facts that a reader of this state saw."""
        with self._lock:
            if begun != self._erasures:
                return
            entries = self._entries(name, state)
            if entries is None:
                entries = self._namespaces[name] = _NamespaceEntries(state)
            for brief in briefs:
                entries.briefs[brief.fact_id] = brief
                entries.bytes += sys.getsizeof(brief.content) + _BYTES_BESIDE_TEXT
            self._namespaces.move_to_end(name)
            # The namespace that was read longest ago goes first, and this one if it is too large.
            while self._namespaces and self._bytes() > self._max_bytes:
                self._namespaces.popitem(last=False)

    def tokens(self, name: str, state: State, key: str, ids: Sequence[str]) -> dict[str, int]:
        """Token counts under a key, of the facts that are in memory."""
        with self._lock:
            entries = self._entries(name, state)
            counts = entries.tokens.get(key, {}) if entries else {}
            return {id_: counts[id_] for id_ in ids if id_ in counts}

    def put_tokens(self, name: str, state: State, key: str, counts: Mapping[str, int]) -> None:
        """Keep counts of facts that are in memory."""
        with self._lock:
            entries = self._entries(name, state)
            if entries is not None:
                known = {id_: count for id_, count in counts.items() if id_ in entries.briefs}
                entries.tokens.setdefault(key, {}).update(known)

    def drop(self, name: str) -> None:
        """Drop what is kept of one namespace."""
        with self._lock:
            self._namespaces.pop(name, None)

    def forget(self) -> None:
        """Drop everything, and refuse what readers that began before would still put."""
        with self._lock:
            self._erasures += 1
            self._namespaces.clear()

    def _entries(self, name: str, state: State) -> _NamespaceEntries | None:
        entries = self._namespaces.get(name)
        return entries if entries is not None and entries.state == state else None

    def _bytes(self) -> int:
        return sum(entries.bytes for entries in self._namespaces.values())


_CACHES: weakref.WeakSet[FactCache] = weakref.WeakSet()


def _forget_all() -> None:
    for cache in list(_CACHES):
        cache.forget()


forgotten_with(_forget_all)
