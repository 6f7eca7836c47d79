"""Processes killed at any moment: nothing acknowledged is lost, nothing deleted comes back."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import JsonValue

from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import LogMark, Transaction
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.seals import sha256_hex
from crp_integrations.stores.sqlite import SqliteStore, cache
from crp_integrations.vocabulary import FactStatus
from tests.fabric.lifecycle_fixtures import ACME, EVERY, events, fabric, formula, seen

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
# In all 40 kills.
KILLS = 10
BATCH = 5
# Batches that stay, so that the store does not grow with the number of kills.
LIVE = 8
# The longest that a process lives, after it has done what it was waited for.
SECONDS = 0.12
DONE = 3


def facts_of(name: str) -> list[Fact]:
    return [
        Fact(
            content=f"Passage {part} of batch {name} says in ten words or more what it says.",
            source_id=name,
        )
        for part in range(BATCH)
    ]


def ids_of(name: str) -> list[str]:
    return [fact.fact_id for fact in facts_of(name)]


def bound(path: Path) -> tuple[Fabric, Namespace]:
    made = fabric(SqliteStore(path, busy_seconds=30.0))
    return made, made.bind(ACME)


def snapshot(made: Fabric) -> bool:
    """Keep what a reader sees in a derived file, as an index would."""
    with made.store.begin("acme", write=False) as transaction:
        mark = transaction.facts.mark()
        ids = [id for id, _ in transaction.facts.retrievable()]
    content = "\n".join(ids * 40).encode()

    def still_valid(transaction: Transaction) -> bool:
        return transaction.facts.changes(mark) == []

    derived = made.store.cache("acme")
    assert derived is not None
    about: dict[str, JsonValue] = {
        "sequence": mark.sequence,
        "token": mark.token,
        "content": sha256_hex(content),
    }
    return derived.save("graph", about, lambda path: _write(path, content), still_valid)


def _write(path: str, content: bytes) -> None:
    with Path(path).open("wb") as file:
        # In pieces, so that a kill meets a half-written file.
        for at in range(0, len(content), 1_000):
            file.write(content[at : at + 1_000])
            file.flush()


def work(path: Path, run: str, there: list[str], chance: random.Random, told: int) -> None:
    """Say what is tried, do it, say that it is done; until killed."""
    made, namespace = bound(path)
    live = list(there)
    number = 0
    while True:
        verb = chance.choice(["add", "add", "forget", "erase", "snapshot"])
        if len(live) >= LIVE and verb == "add":
            verb = chance.choice(["forget", "erase"])
        name = f"{run}-{number}"
        if verb in ("forget", "erase"):
            if not live:
                continue
            name = chance.choice(live)
        number += 1
        os.write(told, f"try {verb} {name}\n".encode())
        if verb == "add":
            namespace.add(facts_of(name))
            live.append(name)
        elif verb == "forget":
            namespace.forget(facts=ids_of(name))
            live.remove(name)
        elif verb == "erase":
            namespace.erase(name)
            live.remove(name)
        else:
            snapshot(made)
        os.write(told, f"done {verb} {name}\n".encode())


@dataclass
class Truth:
    """What is known from acknowledgements alone."""

    live: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    done: int = 0
    # What was tried last and not acknowledged: it happened as a whole or not at all.
    tried: tuple[str, str] | None = None

    def hear(self, lines: list[str]) -> None:
        self.tried = None
        for line in lines:
            word, verb, name = line.split()
            if word == "try":
                self.tried = (verb, name)
            else:
                self.tried = None
                self.done += verb != "snapshot"
                self.apply(verb, name)

    def apply(self, verb: str, name: str) -> None:
        if verb == "add":
            self.live.add(name)
        elif verb in ("forget", "erase"):
            self.live.discard(name)
            self.gone.add(name)
            if verb == "erase":
                self.erased.add(name)


def killed(
    path: Path, run: str, there: list[str], chance: random.Random, *, progress: bool
) -> list[str]:
    """What a process said before it was killed."""
    reading, writing = os.pipe()
    own = random.Random(chance.random())
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            work(path, run, there, own, writing)
        except Exception as error:  # noqa: BLE001 - told to the parent, then the process ends
            os.write(writing, f"died with {type(error).__name__}\n".encode())
        finally:
            os._exit(1)
    os.close(writing)
    said = b""
    # Every second process gets as far as a few acknowledgements, however slow the machine is.
    while progress and said.count(b"done") < DONE and (part := os.read(reading, 65_536)):
        said += part
    time.sleep(chance.uniform(0.002, SECONDS))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while part := os.read(reading, 65_536):
        said += part
    os.close(reading)
    lines = said.decode().splitlines()
    assert os.WIFSIGNALED(status), lines[-1:]
    return lines


def check(path: Path, truth: Truth) -> None:
    """Look at everything that a kill could have broken, and settle what was tried last."""
    made, namespace = bound(path)
    assert made.store.check("acme") == []
    if truth.tried is not None:
        verb, name = truth.tried
        present = {fact.fact_id for fact in namespace.facts(ids_of(name))}
        assert present in (set(), set(ids_of(name)))
        if bool(present) is (verb == "add") and verb != "snapshot":
            # It was committed; only its acknowledgement did not come through.
            truth.apply("erase" if verb == "erase" else verb, name)
    wanted = {id for name in truth.live for id in ids_of(name)}
    assert namespace.size() == len(wanted)
    if wanted:
        assert seen(namespace) == wanted
        assert namespace.state_hash() == formula(made)
    with made.store.begin("acme", write=False) as transaction:
        facts = transaction.facts
        assert {id for id, _ in facts.retrievable()} == wanted
        every = set(facts.find(Where(statuses=EVERY)))
        erased = {id for name in truth.erased for id in ids_of(name)}
        assert not every & erased
        forgotten = {id for name in truth.gone - truth.erased for id in ids_of(name)}
        statuses = {one.status for one in facts.get(sorted(forgotten))}
        assert statuses <= {FactStatus.DELETED}
        assert every == wanted | forgotten
        for name in truth.live:
            assert [one.content for one in facts.get(ids_of(name))] == [
                one.content for one in facts_of(name)
            ]
        found = made.store.cache("acme").load("graph")  # type: ignore[union-attr]
        if found is not None:
            content = Path(found.path).read_bytes()
            assert sha256_hex(content) == found.about["content"]
            mark = LogMark(int(str(found.about["sequence"])), str(found.about["token"]))
            changed = facts.changes(mark)
            assert changed is not None
            held = {*content.decode().split()}
            assert held - set(changed) == wanted - set(changed)
            assert not held & erased
    assert len(events(made)) >= truth.done
    made.store.close()


@pytest.mark.requirement("009-1-1", "009-2.2-9", "009-3.3-1", "009-3.3-2", "003-17.2-1")
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment(tmp_path: Path, seed: int) -> None:
    chance, truth = random.Random(seed), Truth()
    snapshots = interrupted = 0
    for run in range(KILLS):
        lines = killed(
            tmp_path / "kb",
            f"{seed}-{run}",
            sorted(truth.live),
            chance,
            progress=run % 2 == 1,
        )
        snapshots += sum(line.startswith("done snapshot") for line in lines)
        truth.hear(lines)
        interrupted += truth.tried is not None
        check(tmp_path / "kb", truth)
    # Enough came through for the kills to have met something.
    assert truth.done > KILLS // 2
    assert snapshots
    assert interrupted
    assert truth.gone - truth.erased
    assert truth.erased


@pytest.mark.parametrize("written", [False, True], ids=["first", "later"])
def test_killed_between_a_manifest_and_its_commit(tmp_path: Path, written: bool) -> None:
    made, namespace = bound(tmp_path / "kb")
    if written:
        namespace.add(facts_of("one"))
    made.store.close()

    def killing(path: Path) -> None:
        # The manifest has its place, and its transaction has not ended.
        assert path.joinpath("graph.json").exists()
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            cache.sync_folder = killing
            snapshot(bound(tmp_path / "kb")[0])
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    truth = Truth(live={"one"} if written else set(), tried=("snapshot", "two"))
    check(tmp_path / "kb", truth)
    again, _ = bound(tmp_path / "kb")
    assert again.store.cache("acme").load("graph") is not None  # type: ignore[union-attr]
    assert snapshot(again)
