"""Contexts made before, kept in memory under everything that decides them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from crp_integrations.envelope.cfs.records import AssembledContext
from crp_integrations.envelope.cfs.settings import PackingName


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What decides every byte of a context but its timestamp.

    Spec: CFS-021 §Caching

    Attributes:
        query_hash: BLAKE3 of the query.
        state_root: the fabric's state hash; `generation` counts its changes besides, and
            `embedder` made its vectors.
        budget_hash: BLAKE3 of the token budget.
        threshold: of the overlap.
        settings_hash: BLAKE3 of all other settings.
        scope: who reads, and where.
    """

    query_hash: str
    state_root: str
    generation: int
    budget_hash: str
    packing: PackingName
    tokenizer: str
    threshold: float
    settings_hash: str
    embedder: str
    scope: str = ""


class ContextCache:
    """At most so many contexts, the least recently used one out first; safe between threads.

    A context of an older state of its scope is let go as soon as one of a newer state is looked
    for or put, so that no text of what was erased stays for long.

    Spec: CFS-021 §Caching

    Args:
        max_size: most contexts; 0 keeps none.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._held: OrderedDict[CacheKey, AssembledContext] = OrderedDict()
        self._states: dict[str, tuple[int, str]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def get(self, key: CacheKey) -> AssembledContext | None:
        """The context of a key, which is now the one used last; None for a miss."""
        with self._lock:
            self._notice(key)
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: CacheKey, context: AssembledContext) -> None:
        """Keep a context; the one used least recently goes when there are too many."""
        with self._lock:
            if not self._notice(key):
                return
            self._held[key] = context
            self._held.move_to_end(key)
            while len(self._held) > self._max_size:
                self._held.popitem(last=False)

    def _notice(self, key: CacheKey) -> bool:
        """Let older states of the scope go; false for a key that is itself of an older one."""
        state = key.generation, key.state_root
        known = self._states.get(key.scope)
        if known is not None and key.generation < known[0]:
            return False
        if state != known:
            self._states[key.scope] = state
            for held in [
                held for held in self._held
                if held.scope == key.scope and (held.generation, held.state_root) != state
            ]:  # fmt: skip
                del self._held[held]
        return True
