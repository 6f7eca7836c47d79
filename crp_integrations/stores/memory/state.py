"""One state of a namespace, and the draft that a transaction turns into the next one."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.fabric.ports import LogMark
from crp_integrations.fabric.records import Edge, Fact, Source
from crp_integrations.receipt.records import Receipt
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.stores.rules import Gate
from crp_integrations.stores.said import Said


@dataclass(frozen=True)
class State:
    """Everything in a namespace; nothing of a committed state is ever changed.

    Attributes:
        edges: by source, kind and target.
        counts: tokens by tokenizer and fact.
        seals: by session, each by window number and id.
        windows: nodes by id; `of_session` has their ids by number and id, `continued` by the id
            that continues them.
        said: what windows said, by window id; `emptied` those that it was taken from.
        withdrawn: facts that what is under way may still show, with the moment.
        faulted: findings against facts, and their uses when those were last reset.
        prepared: vectors by embedder and content hash.
        receipts: in the order of their log; `receipt_places` has their places by id,
            `receipt_windows` by window, `receipt_sources` the sources of their facts, and
            `receipt_log` the roots of complete subtrees (`merkle.position`).
        log: what changed, each entry with its mark; entries have no gaps.
        texts: another object whenever the retrievable texts may be other ones.
    """

    generation: int = 0
    dimensions: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    vectors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    prepared: dict[tuple[str, str], npt.NDArray[np.float32]] = field(default_factory=dict)
    log: list[tuple[LogMark, str]] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    edges: dict[tuple[str, str, str], Edge] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    seals: dict[str, tuple[WindowSeal, ...]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    windows: dict[str, WindowNode] = field(default_factory=dict)
    of_session: dict[str, tuple[str, ...]] = field(default_factory=dict)
    continued: dict[str, str] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    withdrawn: dict[str, datetime] = field(default_factory=dict)
    faulted: dict[str, tuple[int, int]] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    receipt_places: dict[str, int] = field(default_factory=dict)
    receipt_windows: dict[str, int] = field(default_factory=dict)
    receipt_sources: list[dict[str, str]] = field(default_factory=list)
    receipt_log: list[bytes] = field(default_factory=list)
    texts: object = field(default_factory=object)


class Draft:
    """A transaction's view: a state, and copies of the tables that it changed."""

    def __init__(self, namespace: str, state: State, gate: Gate) -> None:
        self.namespace = namespace
        self.gate = gate
        self._state = state
        self._own: set[str] = set()
        # What is undone gives its sequence numbers back, but not its token.
        self._token = secrets.token_hex(8)

    @property
    def state(self) -> State:
        """What this transaction sees."""
        self.gate.reading()
        return self._state

    def change(self, *tables: str, generation: bool = False) -> State:
        """What this transaction sees, with tables that it may write into.

        Args:
            tables: names of the tables about to be changed.
            generation: whether the change is one of facts, statuses or labels.
        """
        self.gate.writing()
        copies = {name: getattr(self._state, name).copy() for name in {*tables} - self._own}
        self._own.update(tables)
        if generation:
            # A number alone may come again after a rollback; an object never does.
            copies |= {"generation": self._state.generation + 1, "texts": object()}
        self._state = replace(self._state, **copies)
        return self._state

    def log(self, ids: Iterable[str]) -> None:
        """Put changes into the log."""
        log = self.change("log").log
        last = log[-1][0].sequence if log else 0
        log.extend(
            (LogMark(sequence, self._token), id) for sequence, id in enumerate(ids, start=last + 1)
        )

    def set_dimensions(self, dimensions: int | None) -> None:
        """Note the length of the vectors; None while there are none."""
        self._state = replace(self._state, dimensions=dimensions)
