"""What opening a relay does to a store, and what asking leaves on the facts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import EngineError, StoreBusy
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Decision
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, FixedClock
from tests.relay.conftest import FACTS

Opener = Callable[..., Relay]
LATER = NOON + timedelta(days=2)


class ReadOnly:
    name = "read-only"

    def decide(self, subject: Any, action: str, labels: tuple[str, ...]) -> Decision:
        return Decision(allowed=action == "read", guard=self.name, reason="reading only")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


def state(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file that holds something, with time and bytes; marks in shared memory left out."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith("-shm") and path.stat().st_size
    }


def statuses(relay: Relay, ids: Any) -> list[FactStatus]:
    return [fact.status for fact in relay.fabric.facts(ids)]


@pytest.mark.requirement("009-2.2-8", "009-8.1-1", "009-8.1-2")
def test_opening_runs_what_is_due(open_relay: Opener, store: Any) -> None:
    first = open_relay(store)
    ids = first.fabric.add([Fact(content=FACTS[0], ttl="P1D"), FACTS[1]]).facts
    later = open_relay(store, clock=LATER)
    assert statuses(later, ids) == [FactStatus.STALE, FactStatus.ACTIVE]
    report = later.ask("Which reactor delivers 412 megawatts?")
    packed = {fact.fact_id: fact for fact in report.envelope.facts}
    assert packed[ids[0]].freshness_score == 0.0
    assert packed[ids[1]].freshness_score > 0.0


def test_opening_writes_nothing_when_nothing_is_due(open_relay: Opener, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    with open_relay(root) as first:
        first.fabric.add(list(FACTS))
        generation = first.fabric.generation()
    with open_relay(root):
        pass
    before = state(root)
    with open_relay(root, clock=LATER) as relay:
        assert relay.fabric.generation() == generation
        assert state(root) == before
    assert state(root) == before


def test_opening_a_folder_that_is_not_there_makes_none(open_relay: Opener, tmp_path: Path) -> None:
    with open_relay(tmp_path / "kb", clock=LATER):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["setting", "guard"])
def test_opening_leaves_a_store_alone_where_it_shall_or_must(
    open_relay: Opener, store: Any, how: str
) -> None:
    ids = open_relay(store).fabric.add([Fact(content=FACTS[0], ttl="P1D")]).facts
    options: dict[str, Any] = (
        {"fabric": FabricSettings(maintain_on_open=False)}
        if how == "setting"
        else {"guard": ReadOnly()}
    )
    later = open_relay(store, clock=LATER, **options)
    assert statuses(later, ids) == [FactStatus.ACTIVE]


@pytest.mark.parametrize("error", [StoreBusy, EngineError])
def test_maintenance_that_fails_is_put_off_and_the_log_says_so(
    open_relay: Opener, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    class Busy(MemoryStore):
        locked = False

        def begin(self, namespace: str, *, write: bool = True) -> Any:
            if write and self.locked:
                raise error("not now")
            return super().begin(namespace, write=write)

    store = Busy()
    ids = open_relay(store).fabric.add([Fact(content=FACTS[0], ttl="P1D")]).facts
    store.locked = True
    with caplog.at_level(logging.WARNING, logger="crp_integrations.relay"):
        later = open_relay(store, clock=LATER)
    assert statuses(later, ids) == [FactStatus.ACTIVE]
    assert ["put off" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.requirement("009-2-6", "009-6.2-4")
def test_each_inclusion_in_an_envelope_counts_once_and_changes_no_hash(
    open_relay: Opener, store: Any
) -> None:
    clock = FixedClock()
    relay = open_relay(store, clock=clock)
    ids = relay.fabric.add(list(FACTS)).facts
    hashed, generation = relay.fabric.state_hash(), relay.fabric.generation()
    used: dict[str, int] = dict.fromkeys(ids, 0)
    last: dict[str, Any] = dict.fromkeys(ids)
    for hours, query in enumerate(
        ["Who operates the Meridian reactor?", "Northfield revenue?"] * 2
    ):
        clock.moment = NOON + timedelta(hours=hours)
        envelope = relay.ask(query, k=2).envelope
        assert 0 < len(envelope.facts) < len(ids)
        for fact in envelope.facts:
            used[fact.fact_id] += 1
            last[fact.fact_id] = clock.moment
    relay.preview("What of the gardens?")
    facts = relay.fabric.facts(ids)
    assert {fact.fact_id: fact.access_count for fact in facts} == used
    assert {fact.fact_id: fact.last_accessed_at for fact in facts} == last
    assert 0 in used.values()
    assert {fact.modified_at for fact in facts} == {NOON}
    assert (relay.fabric.state_hash(), relay.fabric.generation()) == (hashed, generation)
