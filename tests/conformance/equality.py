"""The same random changes give the same results in a store and in one of another kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import chain_events
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import LogMark, Store, Transaction
from crp_integrations.fabric.records import Edge, Fact, Where
from crp_integrations.fabric.state_hash import state_hash
from crp_integrations.seals import iso
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    NOON,
    fact,
    prior,
    report,
    rows,
    seal,
    session,
    source,
    window,
)
from crp_integrations.vocabulary import EventType, FactStatus
from tests.conformance.hooks import StoreHooks

WORDS = ("tier", "tiers", "envelope", "envelopes", "GPT-4", "sky", "naïve", "naive", "sealed")
NAMES = ("a", "b", "c")
WHERES = (
    Where(statuses=tuple(FactStatus), archived=True),
    Where(statuses=(FactStatus.STALE, FactStatus.DELETED), modified_before=NOON),
    Where(communities=("x",)),
    Where(labels=("t",)),
)
# Marks into the log of changes that are asked about later.
MARKS = 12
Change = Callable[[Transaction], object]


class Stop(Exception):
    """Raised in the middle of a transaction, which then leaves nothing."""


class RandomWalk:
    """Changes chosen by a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ids: list[str] = []
        # Marks of each store, by its name; each store has its own.
        self.marks: dict[str, list[LogMark]] = {}

    def step(self) -> Change:
        """The next change; made to several stores, it is the same."""
        return self.chance.choice(
            [self._add] * 3
            + [self._status, self._touch, self._replace, self._remove, self._archive]
            + [self._group, self._prepare, self._use_prepared, self._clear, self._trim]
            + [self._count, self._join, self._source, self._event, self._seal]
            + [self._session, self._window, self._window, self._withdraw, self._forget]
        )()

    def outcome(self, store: Store, change: Change, *, fails: bool) -> str:
        """Make a change in a transaction of its own; what came of it, in words."""
        try:
            with store.begin(NAMESPACE) as transaction:
                told = change(transaction)
                if fails:
                    raise Stop
            return f"done: {told}"
        except Stop:
            return "stopped"
        except StoreError as error:
            return str(error)

    def shown(self, store: Store) -> list[Any]:
        """Everything that a store shows, state hash first; word scores apart from rounding."""
        with store.begin(NAMESPACE, write=False) as transaction:
            facts, journal = transaction.facts, transaction.journal
            live = [id_ for id_, _ in facts.retrievable()]
            return [
                state_hash(facts.state()),
                facts.generation(),
                facts.retrievable(),
                list(facts.state()),
                list(facts.outline()),
                facts.texts(self.ids),
                facts.briefs(self.ids),
                facts.tally(),
                facts.passages("user"),
                [facts.find(where) for where in WHERES],
                [facts.prepared_ids(embedder) for embedder in "ef"],
                [facts.unprepared(embedder, 5) for embedder in "ef"],
                facts.mark().sequence,
                facts.get(self.ids),
                facts.of_source("user"),
                facts.vectors(live).tolist(),
                list(facts.sources()),
                [dict(facts.token_counts(key, self.ids)) for key in "ab"],
                facts.edges(self.ids),
                list(journal.events()),
                journal.tip(),
                list(journal.all_seals()),
                self._sessions(transaction),
                self._since(store, transaction),
            ]

    def hits(self, store: Store) -> list[dict[str, float]]:
        """Scores by id of searches for two words each."""
        with store.begin(NAMESPACE, write=False) as transaction:
            search = transaction.facts.search_text
            return [dict(search([one, other], 99)) for one in WORDS for other in WORDS[:3]]

    # --- within ----------------------------------------------------------------------------

    def _sessions(self, transaction: Transaction) -> list[Any]:
        sessions = sessions_of(transaction)
        ids = [f"w-{name}-{number}" for name in NAMES for number in range(1, 5)]
        return [
            list(sessions.session_ids()),
            [sessions.session(name) for name in NAMES],
            [sessions.windows(name) for name in NAMES],
            [sessions.continued(id_) for id_ in ("", "c1", "c2")],
            sessions.priors(ids),
            [sessions.report(id_) for id_ in ids],
            [sessions.idle(NOON + timedelta(minutes=n)) for n in range(0, 10, 3)],
        ]

    def _since(self, store: Store, transaction: Transaction) -> list[list[str] | None]:
        known = self.marks.setdefault(store.name, [])
        known.append(transaction.facts.mark())
        return [transaction.facts.changes(mark) for mark in [LogMark(0, ""), *known[-MARKS:]]]

    def _some(self, most: int = 3) -> list[str]:
        many = self.chance.randint(0, most) if self.ids else 0
        return [self.chance.choice(self.ids) for _ in range(many)]

    def _text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 6)))

    def _facts(self) -> list[Fact]:
        return [fact(self._text()) for _ in range(self.chance.randint(0, 4))]

    def _at(self) -> Any:
        return NOON + timedelta(days=self.chance.randint(0, 3))

    def _add(self) -> Change:
        made = self._facts()
        self.ids = sorted({*self.ids, *(one.fact_id for one in made)})
        return lambda tx: tx.facts.add(made, rows(made))

    def _status(self) -> Change:
        ids, status, at = self._some(), self.chance.choice(list(FactStatus)), self._at()
        return lambda tx: tx.facts.set_status(ids, status, at)

    def _touch(self) -> Change:
        ids = self._some()
        return lambda tx: tx.facts.touch(ids, NOON)

    def _replace(self) -> Change:
        made = [fact(self._text(), fact_id=id_) for id_ in self._some()]
        made = [one.changed(labels=(one.content[:1],)) for one in made]
        block = rows(made) if self.chance.random() < 0.5 else None
        return lambda tx: tx.facts.replace(made, block)

    def _remove(self) -> Change:
        ids = self._some()
        return lambda tx: tx.facts.remove(ids)

    def _archive(self) -> Change:
        ids, at = self._some(), self.chance.choice([None, self._at()])
        return lambda tx: tx.facts.set_archived(ids, at)

    def _group(self) -> Change:
        labels = dict.fromkeys(self._some(), self.chance.choice(["x", "y", None]))
        return lambda tx: tx.facts.set_communities(labels)

    def _prepare(self) -> Change:
        made, embedder = self._facts(), self.chance.choice("ef")
        block = np.roll(rows(made), self.chance.randint(0, 2), axis=1)
        hashes = [one.content_hash for one in made]
        return lambda tx: tx.facts.prepare(embedder, hashes, block)

    def _use_prepared(self) -> Change:
        embedder, rest = self.chance.choice("ef"), self.chance.random() < 0.5

        def change(transaction: Transaction) -> None:
            if rest:
                texts = [text for _, text in transaction.facts.unprepared(embedder, 99)]
                made = [fact(text) for text in texts]
                hashes = [one.content_hash for one in made]
                transaction.facts.prepare(embedder, hashes, rows(made))
            transaction.facts.use_prepared(embedder)

        return change

    def _clear(self) -> Change:
        embedder = self.chance.choice(["e", "f", None])
        return lambda tx: tx.facts.clear_prepared(embedder)

    def _trim(self) -> Change:
        keep = self.chance.randint(0, 6)
        return lambda tx: tx.facts.trim_changes(keep)

    def _count(self) -> Change:
        counts = dict.fromkeys(self._some(), self.chance.randint(0, 9))
        tokenizer = self.chance.choice("ab")
        return lambda tx: tx.facts.save_token_counts(tokenizer, counts)

    def _join(self) -> Change:
        kind, pairs = self.chance.choice("xy"), zip(self._some(), self._some(), strict=False)
        edges = [Edge(source_fact=a, target_fact=b, kind=kind, weight=0.5) for a, b in pairs]
        return lambda tx: tx.facts.add_edges(edges)

    def _source(self) -> Change:
        made = source(self._text())
        return lambda tx: tx.facts.add_source(made)

    def _event(self) -> Change:
        name = self._text()
        draft = EventDraft(EventType.TOOL_CALL, {"name": name}, session_id=name[:1])
        return lambda tx: tx.journal.append(chain_events(tx.journal.tip(), KEY, [draft], "2026"))

    def _seal(self) -> Change:
        name, number = self.chance.choice(NAMES), self.chance.randint(1, 3)
        return lambda tx: tx.journal.seal(seal(name, number))

    def _session(self) -> Change:
        state = session(
            self.chance.choice(NAMES),
            parent_session=self.chance.choice(("", *NAMES)),
            safety_budget=self.chance.randint(0, 10) / 10,
            modified_at=iso(NOON + timedelta(minutes=self.chance.randint(0, 9))),
            ended=self.chance.random() < 0.1,
        )
        return lambda tx: sessions_of(tx).keep(state)

    def _window(self) -> Change:
        number, name = self.chance.randint(1, 4), self.chance.choice(NAMES)
        node = window(
            number,
            name,
            timestamp=iso(NOON + timedelta(minutes=self.chance.randint(0, 9))),
            continuation_id=self.chance.choice(["", "", "c1", "c2"]),
        )
        said = prior(number, *_once(self._some())) if self.chance.random() < 0.7 else None
        evidence, facts = _once(self._some()), _once(self._some())
        told = report(*evidence) if evidence else ""
        sources = self.chance.choice([[], ["user"], ["doc"]])
        given = self.chance.choice([None, None, [f"w-{name}-{max(1, number - 1)}"]])
        return lambda tx: sessions_of(tx).add_window(
            node, prior=said, report=told, facts=facts, sources=sources, shown_windows=given
        )

    def _withdraw(self) -> Change:
        ids, at = _once(self._some()), NOON + timedelta(days=self.chance.randint(-2, 0))
        source_id = self.chance.choice(["", "", "doc"])
        return lambda tx: sessions_of(tx).withdraw(ids, at, source_id=source_id)

    def _forget(self) -> Change:
        name = self.chance.choice(NAMES)
        return lambda tx: sessions_of(tx).forget(name)


def _once(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))


STEPS = 40


class EqualityLaws(StoreHooks):
    """Equal content has an equal state hash, whichever way it came there."""

    @pytest.mark.parametrize("seed", range(8))
    def test_two_stores_do_the_same_with_the_same(self, store: Store, seed: int) -> None:
        walk, other, changed = RandomWalk(seed), self.reference(), 0
        for step in range(STEPS):
            change, fails = walk.step(), walk.chance.random() < 0.15
            told = [walk.outcome(one, change, fails=fails) for one in (store, other)]
            assert told[0] == told[1], f"step {step}"
            changed += told[0].startswith("done")
            if step % 10 == 9:
                assert store.scrub(NAMESPACE) is True
                store.compact(NAMESPACE)
            ours, theirs = walk.shown(store), walk.shown(other)
            assert ours == theirs, f"step {step}"
            for found, wanted in zip(walk.hits(store), walk.hits(other), strict=True):
                assert found == pytest.approx(wanted, rel=1e-9)
        assert changed > STEPS // 2
        assert store.check(NAMESPACE) == []
        other.close()
