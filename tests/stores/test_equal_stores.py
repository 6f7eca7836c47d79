"""The two stores do the same with the same; hypothesis looks for a difference."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crp_integrations.audit.journal import EventDraft, chained
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Mark, Store, Transaction
from crp_integrations.fabric.records import Edge, Where
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.records import KEY, NAMESPACE, NOON, fact, rows, seal, source
from crp_integrations.vocabulary import EventType, FactStatus

WORDS = ("tier", "tiers", "envelope", "envelopes", "GPT-4", "sky", "naïve", "naive", "sealed")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
batches = st.lists(texts, max_size=4)
some = st.lists(st.integers(0, 9), max_size=4)

WHERES = (
    Where(statuses=tuple(FactStatus), archived=True),
    Where(statuses=(FactStatus.STALE, FactStatus.DELETED), modified_before=NOON),
    Where(communities=("x",)),
    Where(labels=("t",)),
)


class Stop(Exception):
    pass


class EqualStores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores: list[Store] = [MemoryStore(), SqliteStore(self.folder / "kb")]
        self.ids: list[str] = []
        self.marks: list[list[Mark]] = [[], []]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def pick(self, places: list[int]) -> list[str]:
        return [self.ids[place % len(self.ids)] for place in places] if self.ids else []

    def both(self, change: Any, fails: bool = False) -> None:
        outcomes = []
        for store in self.stores:
            try:
                with store.begin(NAMESPACE) as transaction:
                    change(transaction)
                    if fails:
                        raise Stop
                outcomes.append("done")
            except Stop:
                outcomes.append("stopped")
            except StoreError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]

    @rule(batch=batches, fails=st.booleans())
    def add(self, batch: list[str], fails: bool) -> None:
        made = [fact(text) for text in batch]
        self.both(lambda tx: tx.facts.add(made, rows(made)), fails)
        self.ids = sorted({*self.ids, *(one.fact_id for one in made)})

    @rule(places=some, status=st.sampled_from(FactStatus), days=st.integers(0, 3))
    def set_status(self, places: list[int], status: FactStatus, days: int) -> None:
        at = NOON + timedelta(days=days)
        self.both(lambda tx: tx.facts.set_status(self.pick(places), status, at))

    @rule(places=some, fails=st.booleans())
    def touch(self, places: list[int], fails: bool) -> None:
        self.both(lambda tx: tx.facts.touch(self.pick(places), NOON), fails)

    @rule(places=some, batch=batches, embed=st.booleans(), fails=st.booleans())
    def replace(self, places: list[int], batch: list[str], embed: bool, fails: bool) -> None:
        pairs = zip(self.pick(places), batch, strict=False)
        made = [fact(text, fact_id=id, labels=(text[:1],)) for id, text in pairs]
        vectors = rows(made) if embed else None
        self.both(lambda tx: tx.facts.replace(made, vectors), fails)

    @rule(places=some, fails=st.booleans())
    def remove(self, places: list[int], fails: bool) -> None:
        self.both(lambda tx: tx.facts.remove(self.pick(places)), fails)

    @rule(places=some, days=st.none() | st.integers(0, 2), fails=st.booleans())
    def archive(self, places: list[int], days: int | None, fails: bool) -> None:
        at = None if days is None else NOON + timedelta(days=days)
        self.both(lambda tx: tx.facts.set_archived(self.pick(places), at), fails)

    @rule(places=some, label=st.sampled_from(["x", "y", None]), fails=st.booleans())
    def group(self, places: list[int], label: str | None, fails: bool) -> None:
        labels = dict.fromkeys(self.pick(places), label)
        self.both(lambda tx: tx.facts.set_communities(labels), fails)

    @rule(batch=batches, embedder=st.sampled_from("ef"), turn=st.integers(0, 2))
    def prepare(self, batch: list[str], embedder: str, turn: int) -> None:
        made = [fact(text) for text in batch]
        block = np.roll(rows(made), turn, axis=1)
        hashes = [one.content_hash for one in made]
        self.both(lambda tx: tx.facts.prepare(embedder, hashes, block))

    @rule(embedder=st.sampled_from("ef"), fails=st.booleans(), rest=st.booleans())
    def use_prepared(self, embedder: str, fails: bool, rest: bool) -> None:
        def change(transaction: Transaction) -> None:
            if rest:
                texts = [text for _, text in transaction.facts.unprepared(embedder, 99)]
                made = [fact(text) for text in texts]
                hashes = [one.content_hash for one in made]
                transaction.facts.prepare(embedder, hashes, rows(made))
            transaction.facts.use_prepared(embedder)

        self.both(change, fails)

    @rule(embedder=st.sampled_from(["e", "f", None]))
    def clear_prepared(self, embedder: str | None) -> None:
        self.both(lambda tx: tx.facts.clear_prepared(embedder))

    @rule(keep=st.integers(0, 6))
    def trim(self, keep: int) -> None:
        self.both(lambda tx: tx.facts.trim_changes(keep))

    @rule(upkeep=st.sampled_from(["scrub", "compact"]))
    def clean(self, upkeep: str) -> None:
        getattr(self.stores[1], upkeep)(NAMESPACE)
        assert self.stores[1].check(NAMESPACE) == []

    @rule(places=some, count=st.integers(0, 9), tokenizer=st.sampled_from("ab"))
    def count(self, places: list[int], count: int, tokenizer: str) -> None:
        counts = dict.fromkeys(self.pick(places), count)
        self.both(lambda tx: tx.facts.save_token_counts(tokenizer, counts))

    @rule(left=some, right=some, kind=st.sampled_from("xy"))
    def join(self, left: list[int], right: list[int], kind: str) -> None:
        pairs = zip(self.pick(left), self.pick(right), strict=False)
        edges = [Edge(source_fact=a, target_fact=b, kind=kind, weight=0.5) for a, b in pairs]
        self.both(lambda tx: tx.facts.add_edges(edges))

    @rule(uri=texts)
    def add_source(self, uri: str) -> None:
        self.both(lambda tx: tx.facts.add_source(source(uri)))

    @rule(name=texts, fails=st.booleans())
    def event(self, name: str, fails: bool) -> None:
        draft = EventDraft(EventType.TOOL_CALL, {"name": name}, session_id=name[:1])
        self.both(
            lambda tx: tx.journal.append(chained(tx.journal.tip(), KEY, [draft], "2026")), fails
        )

    @rule(session=st.sampled_from("ab"), number=st.integers(1, 3))
    def seal(self, session: str, number: int) -> None:
        self.both(lambda tx: tx.journal.seal(seal(session, number)))

    @rule()
    def reopen(self) -> None:
        self.stores[1].close()
        self.stores[1] = SqliteStore(self.folder / "kb")

    def seen(self, transaction: Transaction) -> list[Any]:
        live = [id for id, _ in transaction.facts.retrievable()]
        return [
            transaction.facts.generation(),
            transaction.facts.retrievable(),
            list(transaction.facts.state()),
            list(transaction.facts.outline()),
            transaction.facts.texts(self.ids),
            transaction.facts.tally(),
            transaction.facts.passages("user"),
            [transaction.facts.find(where) for where in WHERES],
            [transaction.facts.prepared_ids(embedder) for embedder in "ef"],
            [transaction.facts.unprepared(embedder, 5) for embedder in "ef"],
            transaction.facts.mark().sequence,
            transaction.facts.get(self.ids),
            transaction.facts.of_source("user"),
            transaction.facts.vectors(live).tolist(),
            list(transaction.facts.sources()),
            [dict(transaction.facts.token_counts(key, self.ids)) for key in "ab"],
            transaction.facts.edges(self.ids),
            list(transaction.journal.events()),
            transaction.journal.tip(),
            [transaction.journal.seals(session) for session in "ab"],
        ]

    def since(self, transaction: Transaction, store: int) -> list[Any]:
        """What the log says of a few marks, of which each store has its own."""
        known = self.marks[store]
        known.append(transaction.facts.mark())
        return [transaction.facts.changes(mark) for mark in [Mark(0, ""), *known[-12:]]]

    @invariant()
    def they_show_the_same(self) -> None:
        views, hits = [], []
        for store in self.stores:
            with store.begin(NAMESPACE, write=False) as transaction:
                views.append(self.seen(transaction))
                views[-1] += self.since(transaction, len(views) - 1)
                hits.append(
                    [transaction.facts.search_text([a, b], 99) for a in WORDS for b in WORDS[:3]]
                )
        assert views[0] == views[1]
        for ours, theirs in zip(*hits, strict=True):
            assert dict(ours) == pytest.approx(dict(theirs), rel=1e-9)


TestEqualStores = EqualStores.TestCase
TestEqualStores.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
