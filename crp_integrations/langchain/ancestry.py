"""Which documents belong to which model call: by descent in the run tree, never by time.

Retriever and model are cousins in the tree. Documents are shelved under every ancestor of the
retriever's run; a model's run climbs to the first ancestor that has some. So concurrent
inputs of one batch each find their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from uuid import UUID

from langchain_core.documents import Document

# LangChain tells nobody when a model or retriever that is itself the root gets cancelled, so the
# oldest tree is given up for the newest; whoever still runs in it is then not checked.
MOST_TREES: Final = 4_096


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What one retriever run returned."""

    query: str
    documents: tuple[Document, ...]


@dataclass(slots=True)
class _Run:
    parent: UUID | None
    root: UUID
    query: str = ""
    shelf: dict[UUID, Retrieved] = field(default_factory=dict)


class Ancestry:
    """The runs in progress; a tree is forgotten when its root ends. Safe under threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[UUID, _Run] = {}
        self._trees: dict[UUID, list[UUID]] = {}

    def start(self, run_id: UUID, parent: UUID | None, *, query: str = "") -> None:
        """A run began; `query` is what a retriever was asked."""
        with self._lock:
            above = self._runs.get(parent) if parent is not None else None
            root = above.root if above is not None else run_id
            self._runs[run_id] = _Run(parent if above is not None else None, root, query)
            self._trees.setdefault(root, []).append(run_id)
            if len(self._trees) > MOST_TREES:
                self._forget(next(iter(self._trees)))

    def retrieved(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """A retriever ended: shelve its documents in place of what its own children found."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            found = Retrieved(run.query, tuple(documents))
            for ancestor in self._above(run_id):
                shelf = self._runs[ancestor].shelf
                for inner in [other for other in shelf if run_id in self._above(other)]:
                    # A wrapper's documents are what goes on; the wrapped ones were narrowed.
                    del shelf[inner]
                shelf[run_id] = found

    def context_of(self, run_id: UUID) -> tuple[Retrieved, ...] | None:
        """What a model call saw: the shelf of its first ancestor that has one, else None."""
        with self._lock:
            for ancestor in self._above(run_id):
                shelf = self._runs[ancestor].shelf
                if shelf:
                    return tuple(shelf.values())
            return None

    def end(self, run_id: UUID) -> None:
        """A run ended, well or not; the end of a root forgets its tree."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None and run.root == run_id:
                self._forget(run_id)

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)

    def _forget(self, root: UUID) -> None:
        for member in self._trees.pop(root, ()):
            self._runs.pop(member, None)

    def _above(self, run_id: UUID) -> list[UUID]:
        path: list[UUID] = []
        run = self._runs.get(run_id)
        while run is not None and run.parent is not None:
            path.append(run.parent)
            run = self._runs.get(run.parent)
        return path
