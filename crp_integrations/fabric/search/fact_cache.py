"""Facts that a question has read, kept ready for the next one while their state lasts.

What is kept is of one committed state of each namespace, told by the end of its log and its
generation: after any change, by whichever process, the next reader begins anew.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crp_integrations.fabric.ports import FactBrief, LogMark
from crp_integrations.language.memo import forgotten_with

# Bytes that a fact takes beside its text, about.
_BESIDE_TEXT = 1_000

# One committed state: the end of the log and the generation.
State = tuple[LogMark, int]


@dataclass(slots=True)
class _CachedFact:
    brief: FactBrief
    tokens: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sys.getsizeof(self.brief.content) + _BESIDE_TEXT


@dataclass(slots=True)
class _CachedNamespace:
    """What is kept of one namespace, the facts used last at the end."""

    state: State
    entries: OrderedDict[str, _CachedFact] = field(default_factory=OrderedDict)
    bytes: int = 0


class FactCache:
    """The facts of a fabric's namespaces that were read last; safe between threads.

    Only what a reading transaction sees may be put here. `language.memo.forget` lets go of all of
    it, and of what a reader that began before would still put.
    """

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet."""
        self._most = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _CachedNamespace] = OrderedDict()
        self._bytes = 0
        self._erasures = 0
        _EVERY.add(self)

    def begun(self) -> int:
        """What a reader shows when it puts something; asked for before its transaction begins."""
        return self._erasures

    def briefs(self, name: str, state: State, ids: Sequence[str]) -> dict[str, FactBrief]:
        """Those of the facts that are at hand."""
        with self._lock:
            held = self._of(name, state)
            if held is None:
                return {}
            entries, briefs = held.entries, {}
            for id_ in ids:
                entry = entries.get(id_)
                if entry is not None:
                    entries.move_to_end(id_)
                    briefs[id_] = entry.brief
            return briefs

    def put(self, name: str, state: State, briefs: Iterable[FactBrief], begun: int) -> None:
        """Keep facts that a reader of this state saw."""
        with self._lock:
            if begun != self._erasures or self._most <= 0:
                return
            held = self._of(name, state)
            if held is None:
                self._drop(name)
                held = self._held[name] = _CachedNamespace(state)
            for brief in briefs:
                if brief.fact_id not in held.entries:
                    entry = held.entries[brief.fact_id] = _CachedFact(brief)
                    self._count(held, entry.bytes)
            self._held.move_to_end(name)
            self._make_room()

    def tokens(self, name: str, state: State, key: str, ids: Sequence[str]) -> dict[str, int]:
        """Token counts under a key, of the facts that are at hand."""
        with self._lock:
            held = self._of(name, state)
            if held is None:
                return {}
            entries = held.entries
            return {
                id_: entry.tokens[key]
                for id_ in ids
                if (entry := entries.get(id_)) is not None and key in entry.tokens
            }

    def put_tokens(self, name: str, state: State, key: str, counts: Mapping[str, int]) -> None:
        """Keep counts of facts that are at hand."""
        with self._lock:
            held = self._of(name, state)
            if held is None:
                return
            for id_, count in counts.items():
                entry = held.entries.get(id_)
                if entry is not None:
                    entry.tokens[key] = count

    def forget(self, name: str | None = None) -> None:
        """Let go of one namespace, or of all that is kept and of what readers are about to put."""
        with self._lock:
            if name is not None:
                self._drop(name)
                return
            self._erasures += 1
            self._held.clear()
            self._bytes = 0

    def _of(self, name: str, state: State) -> _CachedNamespace | None:
        held = self._held.get(name)
        return held if held is not None and held.state == state else None

    def _drop(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._bytes -= held.bytes

    def _count(self, held: _CachedNamespace, more: int) -> None:
        held.bytes += more
        self._bytes += more

    def _make_room(self) -> None:
        while self._bytes > self._most:
            # The namespace that was filled longest ago, and of it the fact used longest ago.
            name, held = next(iter(self._held.items()))
            if held.entries:
                self._count(held, -held.entries.popitem(last=False)[1].bytes)
            if not held.entries:
                self._drop(name)


_EVERY: weakref.WeakSet[FactCache] = weakref.WeakSet()


def _forget_all() -> None:
    for ready in list(_EVERY):
        ready.forget()


forgotten_with(_forget_all)
