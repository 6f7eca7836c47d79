"""Any sequence of verbs, on both stores at once, beside a small model of what must come of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crp_integrations.errors import FactRejected, IllegalTransition, RequestError, StoreError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.records import Fact, fact_id
from crp_integrations.fabric.settings import FabricSettings, LifecycleSettings
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus, SourceStatus
from tests.doubles import FixedClock
from tests.fabric.lifecycle_fixtures import (
    ACME,
    events,
    everything,
    fabric,
    formula,
    seen,
    sentence,
    stored,
)

A, S, D, Q = FactStatus.ACTIVE, FactStatus.STALE, FactStatus.DELETED, FactStatus.QUARANTINED
SOURCES = ("letters", "notes")
TTL, RETENTION, DISUSE = timedelta(days=2), timedelta(days=3), timedelta(days=5)
SETTINGS = FabricSettings(lifecycle=LifecycleSettings(retention_days=3.0, archive_after_days=5.0))
# What the specification allows, written down once more.
TABLE = {(A, S), (A, D), (A, Q), (S, A), (S, D), (S, Q), (Q, A), (Q, D)}
FROM = {"mark_stale": {A}, "forget": {A, S, Q}, "quarantine": {A, S}, "lift": {Q}}
TO = {"mark_stale": S, "forget": D, "quarantine": Q, "lift": A}


@dataclass(frozen=True)
class Known:
    source: str
    text: str
    status: FactStatus
    ingested: datetime
    modified: datetime
    ttl: bool = False
    archived: bool = False
    used: datetime | None = None

    @property
    def retrievable(self) -> bool:
        return self.status in (A, S) and not self.archived


class Lifecycle(RuleBasedStateMachine):
    """Both stores, the model, and one clock."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FixedClock()
        self.made: tuple[Fabric, ...] = tuple(
            fabric(store, clock=self.clock, settings=SETTINGS, notify=lambda notice: None)
            for store in (MemoryStore(), SqliteStore(Path(self.folder.name) / "kb"))
        )
        self.spaces = [made.bind(ACME) for made in self.made]
        self.model: dict[str, Known] = {}
        self.removed: set[str] = set()
        self.sources: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "made"):
            # Both journals verify and tell the same.
            one, other = ([(e.event_type, e.data) for e in events(made)] for made in self.made)
            assert one == other
            for made in self.made:
                made.store.close()
            self.folder.cleanup()

    # --- what is done ------------------------------------------------------------------

    def both(self, act: Callable[[Any], Any], refused: type[Exception] | None = None) -> list[Any]:
        """Do it on both stores; what is refused leaves each as it was."""
        done = []
        for made, space in zip(self.made, self.spaces, strict=True):
            if refused is None:
                done.append(act(space))
                continue
            before = everything(made)
            with pytest.raises(refused):
                act(space)
            assert everything(made) == before
        return done

    def pick(self, places: list[int]) -> list[str]:
        ids = sorted(self.model)
        return [ids[place % len(ids)] for place in places] if ids else []

    @rule(number=st.integers(0, 7), source=st.sampled_from(SOURCES), ttl=st.booleans())
    def add(self, number: int, source: str, ttl: bool) -> None:
        text = sentence(number)
        id_ = fact_id(source, "", sha256(text))
        fact = Fact(content=text, source_id=source, ttl="P2D" if ttl else None)
        old = self.model.get(id_)
        if old is not None and old.status is not D and old.text != text:
            # It says something else since an update.
            self.both(lambda space: space.add([fact]), FactRejected)
            return
        reports = self.both(lambda space: space.add([fact]))
        if old is not None and old.status is not D:
            # What is given again comes back, unless its time is over; nothing else changes.
            now = self.clock.now()
            fresh = old.status is S and not (old.ttl and now > old.ingested + TTL)
            back = old.status in (A, S) and (fresh or old.archived)
            assert [report.returned for report in reports] == [(id_,) if back else ()] * 2
            assert [report.unchanged for report in reports] == [() if back else (id_,)] * 2
            if back:
                status = A if fresh else old.status
                self.model[id_] = replace(old, status=status, archived=False, modified=now)
            return
        assert [report.facts for report in reports] == [(id_,)] * 2
        now = self.clock.now()
        self.model[id_] = Known(source, text, A, now, now, ttl)
        self.sources.add(source)
        self.removed.discard(source)

    @rule(
        verb=st.sampled_from([*FROM, "archive", "restore"]),
        places=st.lists(st.integers(0, 99), min_size=1, max_size=3),
    )
    def change(self, verb: str, places: list[int]) -> None:
        ids = self.pick(places)
        if not ids:
            self.both(lambda space: space.mark_stale(["unknown"]), RequestError)
            return
        now = self.clock.now()

        def act(space: Any) -> Any:
            return space.forget(facts=ids) if verb == "forget" else getattr(space, verb)(ids)

        known = [self.model[id_] for id_ in ids]
        if verb in FROM:
            legal = all(one.status in FROM[verb] for one in known)
            assert not legal or all((one.status, TO[verb]) in TABLE for one in known)
        else:
            legal = all(
                one.status in (A, S) and one.archived == (verb == "restore") for one in known
            )
        if not legal:
            self.both(act, IllegalTransition)
            return
        for report in self.both(act):
            assert report.facts == tuple(sorted(set(ids)))
        for id_ in ids:
            one = self.model[id_]
            match verb:
                case "archive":
                    one = replace(one, archived=True)
                case "restore":
                    one = replace(one, archived=False, modified=now)
                case "lift":
                    one = replace(one, status=A, archived=False, modified=now)
                case _:
                    one = replace(one, status=TO[verb], modified=now)
            self.model[id_] = one

    @rule(place=st.integers(0, 99), number=st.integers(0, 9))
    def update(self, place: int, number: int) -> None:
        if not self.model:
            return
        (id_,) = self.pick([place])
        one, text, now = self.model[id_], sentence(number), self.clock.now()
        if one.status in (D, Q):
            self.both(lambda space: space.update(id_, content=text), IllegalTransition)
            return
        over = one.ttl and now > one.ingested + TTL
        status = S if one.status is S and over else A
        new = replace(one, text=text, status=status, archived=False)
        if new != one:
            new = replace(new, modified=now)
        for fact in self.both(lambda space: space.update(id_, content=text)):
            assert (fact.fact_id, fact.content, fact.status) == (id_, text, status)
        self.model[id_] = new

    @rule(source=st.sampled_from(SOURCES))
    def forget_source(self, source: str) -> None:
        if source not in self.sources:
            self.both(lambda space: space.forget(source=source), RequestError)
            return
        held = {
            id_ for id_, one in self.model.items() if one.source == source and one.status is not D
        }
        for report in self.both(lambda space: space.forget(source=source)):
            assert set(report.facts) == held
        for id_ in held:
            self.model[id_] = replace(self.model[id_], status=D, modified=self.clock.now())
        self.removed.add(source)

    @rule(source=st.sampled_from(SOURCES))
    def erase(self, source: str) -> None:
        if source not in self.sources:
            self.both(lambda space: space.erase(source), RequestError)
            return
        held = {id_ for id_, one in self.model.items() if one.source == source}
        for proof in self.both(lambda space: space.erase(source)):
            assert set(proof.facts) == held
            assert proof.scrubbed
        for id_ in held:
            del self.model[id_]
        self.removed.add(source)

    @rule(place=st.integers(0, 99))
    def use(self, place: int) -> None:
        for id_ in self.pick([place]):
            for space in self.spaces:
                with space.begin(True) as transaction:
                    transaction.facts.touch([id_], self.clock.now())
            self.model[id_] = replace(self.model[id_], used=self.clock.now())

    @rule(hours=st.sampled_from([1, 24, 47, 48, 49, 72, 120, 121]))
    def wait(self, hours: int) -> None:
        self.clock.moment += timedelta(hours=hours)

    @rule()
    def maintain(self) -> None:
        now = self.clock.now()
        stale = {
            id_ for id_, one in self.model.items()
            if one.status is A and one.ttl and now > one.ingested + TTL
        }  # fmt: skip
        for id_ in stale:
            self.model[id_] = replace(self.model[id_], status=S, modified=now)
        purged = {
            id_ for id_, one in self.model.items()
            if one.status is D and now - one.modified >= RETENTION
        }  # fmt: skip
        for id_ in purged:
            del self.model[id_]
        unused = {
            id_ for id_, one in self.model.items()
            if one.retrievable
            and all(moment < now - DISUSE for moment in (one.ingested, one.modified, one.used or one.ingested))
        }  # fmt: skip
        for id_ in unused:
            self.model[id_] = replace(self.model[id_], archived=True)
        for report in self.both(lambda space: space.maintain()):
            assert (report.stale, report.purged) == (len(stale), len(purged))
            assert report.archived == len(unused)

    # --- what must always hold ---------------------------------------------------------

    @invariant()
    def the_stores_are_as_the_model_says(self) -> None:
        if not hasattr(self, "made"):
            return
        wanted = {
            id_: (one.text, one.status, one.archived, one.modified, one.ingested, one.used)
            for id_, one in self.model.items()
        }
        for made in self.made:
            found = {
                fact.fact_id: (
                    fact.content,
                    fact.status,
                    fact.archived_at is not None,
                    fact.modified_at,
                    fact.ingested_at,
                    fact.last_accessed_at,
                )
                for fact in stored(made)
            }
            assert found == wanted

    @invariant()
    def only_what_is_retrievable_comes_out(self) -> None:
        if not hasattr(self, "made"):
            return
        wanted = {id_ for id_, one in self.model.items() if one.retrievable}
        hidden = sorted(set(self.model) - wanted)
        hashes = set()
        for made, space in zip(self.made, self.spaces, strict=True):
            assert seen(space) == wanted
            assert space.facts(hidden) == []
            assert space.token_counts("k", hidden, lambda texts: [1] * len(texts)) == {}
            for id_ in hidden:
                with pytest.raises(StoreError):
                    space.vectors([id_])
            rows = made.embedder.embed_passages([self.model[id_].text for id_ in sorted(wanted)])
            assert not wanted or np.array_equal(space.vectors(sorted(wanted)), rows)
            hashes.add(space.state_hash())
            assert space.state_hash() == formula(made)
            # A fabric that remembers nothing agrees.
            fresh = fabric(made.store, clock=self.clock, settings=SETTINGS)
            assert fresh.bind(ACME).state_hash() == space.state_hash()
        assert len(hashes) == 1

    @invariant()
    def sources_are_in_the_registry_until_they_are_removed(self) -> None:
        if not hasattr(self, "made"):
            return
        for space in self.spaces:
            statuses = {source.source_id: source.status for source in space.sources()}
            assert set(statuses) == self.sources
            gone = {id_ for id_, status in statuses.items() if status is SourceStatus.REMOVED}
            assert gone == self.removed


# The whole file is about these rows; the machine breaks when any of them does.
@pytest.mark.requirement(
    "009-2.2-7", "009-2.2-9", "009-2.2-10", "009-8.2-3", "003-17.2-2", "009-6.2-2"
)
class TestLifecycle(Lifecycle.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
