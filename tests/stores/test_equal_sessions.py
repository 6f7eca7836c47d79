"""The two stores keep and take the same of sessions; hypothesis looks for a difference."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.seals import iso
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.conformance_sessions import prior, report, session, window
from crp_integrations.testing.records import NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import FactStatus

NAMES = ("a", "b", "c", "d")
FACTS = [fact(f"fact {number}", source_id=f"doc {number % 2}") for number in range(5)]
IDS = [one.fact_id for one in FACTS]
names = st.sampled_from(NAMES)
facts = st.lists(st.integers(0, 4), max_size=3, unique=True)
numbers = st.integers(1, 4)
minutes = st.integers(0, 9)
windows = st.tuples(names, numbers).map(lambda pair: f"w-{pair[0]}-{pair[1]}")


class EqualSessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores: list[Store] = [MemoryStore(), SqliteStore(self.folder / "kb")]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def both(self, change: Any) -> None:
        outcomes = []
        for store in self.stores:
            try:
                with store.begin(NAMESPACE) as transaction:
                    outcomes.append(change(transaction))
            except StoreError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]

    @rule(
        name=names,
        parent=st.sampled_from(("", *NAMES)),
        left=st.integers(0, 10),
        minute=minutes,
        ended=st.sampled_from([False] * 9 + [True]),
    )
    def keep(self, name: str, parent: str, left: int, minute: int, ended: bool) -> None:
        state = session(
            name,
            parent_session=parent,
            safety_budget=left / 10,
            modified_at=iso(NOON + timedelta(minutes=minute)),
            ended=ended,
        )
        self.both(lambda tx: sessions_of(tx).keep(state))

    @rule(
        name=names,
        number=numbers,
        minute=minutes,
        shown=facts,
        evidence=facts,
        made_from=facts,
        sources=st.lists(st.sampled_from(["doc 0", "doc 9"]), max_size=2),
        says=st.booleans(),
        given=st.none() | st.lists(windows, max_size=2),
        continued=st.sampled_from(["", "", "c1", "c2"]),
    )
    def add_window(
        self,
        name: str,
        number: int,
        minute: int,
        shown: list[int],
        evidence: list[int],
        made_from: list[int],
        sources: list[str],
        says: bool,
        given: list[str] | None,
        continued: str,
    ) -> None:
        node = window(
            number,
            name,
            timestamp=iso(NOON + timedelta(minutes=minute)),
            continuation_id=continued,
        )
        self.both(
            lambda tx: sessions_of(tx).add_window(
                node,
                prior=prior(number, *(IDS[place] for place in shown)) if says else None,
                report=report(*(IDS[place] for place in evidence)) if evidence else "",
                facts=[IDS[place] for place in made_from],
                sources=sources,
                given=given,
            )
        )

    @rule(gone=facts, days=st.integers(-2, 0), source=st.sampled_from(["", "doc 0", "doc 9"]))
    def withdraw(self, gone: list[int], days: int, source: str) -> None:
        ids = [IDS[place] for place in gone]
        at = NOON + timedelta(days=days)
        self.both(lambda tx: sessions_of(tx).withdraw(ids, at, source_id=source))

    @rule(place=st.integers(0, 4))
    def add_fact(self, place: int) -> None:
        chosen = FACTS[place : place + 1]
        self.both(lambda tx: tx.facts.add(chosen, rows(chosen)))

    @rule(gone=facts)
    def remove_facts(self, gone: list[int]) -> None:
        self.both(lambda tx: tx.facts.remove([IDS[place] for place in gone]))

    @rule(place=st.integers(0, 4), status=st.sampled_from(FactStatus))
    def set_status(self, place: int, status: FactStatus) -> None:
        self.both(lambda tx: tx.facts.set_status([IDS[place]], status, NOON))

    @rule(name=names)
    def forget(self, name: str) -> None:
        self.both(lambda tx: sessions_of(tx).forget(name))

    @invariant()
    def they_hold_the_same(self) -> None:
        held = []
        for store in self.stores:
            with store.begin(NAMESPACE, write=False) as transaction:
                sessions = sessions_of(transaction)
                ids = [f"w-{name}-{number}" for name in NAMES for number in range(1, 5)]
                held.append(
                    (
                        list(sessions.session_ids()),
                        [sessions.session(name) for name in NAMES],
                        [sessions.has(name) for name in NAMES],
                        [sessions.windows(name) for name in NAMES],
                        [sessions.continued(id_) for id_ in ("", "c1", "c2")],
                        sessions.priors(ids),
                        [sessions.report(id_) for id_ in ids],
                        [sessions.idle(NOON + timedelta(minutes=n)) for n in range(0, 10, 3)],
                    )
                )
        assert held[0] == held[1]


EqualSessions.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


TestEqualSessions = EqualSessions.TestCase
