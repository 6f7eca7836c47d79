"""After removing and scrubbing, no byte of a fact is in any file of the store."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from crp_integrations.fabric.records import Fact
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.conformance_sessions import prior, session, window
from crp_integrations.testing.records import NAMESPACE, NOON, OTHER, fact
from crp_integrations.vectors import FloatRows, to_bytes, unit_rows

DIMENSIONS = 96
MARKS = re.compile(rb"zq[a-z]{8}", re.IGNORECASE)


class Archive:
    """Facts whose every text, and every vector, can be told from any other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.vectors: dict[str, bytes] = {}
        self.marks: dict[str, set[bytes]] = {}

    def word(self) -> str:
        return "".join(self.chance.choices("bcdfghjklmnp", k=self.chance.randint(3, 9)))

    def made(self, namespace: str, count: int) -> tuple[list[Fact], FloatRows]:
        facts = []
        for _ in range(count):
            # No stemmer shortens them, and none begins another one.
            marks = ["Zq" + "".join(self.chance.choices("bcdfghjklmnp", k=8)) for _ in range(6)]
            words = [self.word() for _ in range(self.chance.choice([0, 5, 60, 900]))]
            words[len(words) // 2 : len(words) // 2] = [marks[0]]
            one = fact(
                f"{marks[1]} {' '.join(words)} {marks[2]}",
                namespace=namespace,
                source_id="doc",
                source_location=marks[3],
                labels=(marks[4],),
                metadata={marks[5]: marks[5]},
            )
            facts.append(one)
            self.marks[one.fact_id] = {mark.lower().encode() for mark in marks}
        block = unit_rows(self.numbers.standard_normal((count, DIMENSIONS)).astype(np.float32))
        for one, row in zip(facts, block, strict=True):
            self.vectors[one.fact_id] = to_bytes(row)
        return facts, block


def found(folder: Path, archive: Archive) -> set[str]:
    """Facts of which any mark, or any part of the vector, is in any file."""
    whole = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    marks = {mark.lower() for mark in MARKS.findall(whole)}
    ids = {id for id, own in archive.marks.items() if own & marks}
    for id, vector in archive.vectors.items():
        if id not in ids and any(vector[at : at + 24] in whole for at in (0, 24 * 7, 24 * 15)):
            ids.add(id)
    return ids


def add(store: SqliteStore, archive: Archive, namespace: str, count: int) -> list[str]:
    facts, block = archive.made(namespace, count)
    with store.begin(namespace) as transaction:
        transaction.facts.add(facts, block)
        transaction.facts.save_token_counts("words", {one.fact_id: 7 for one in facts})
    return [one.fact_id for one in facts]


def keep_file(store: SqliteStore, namespace: str, content: bytes) -> None:
    cache = store.cache(namespace)

    def write(path: str) -> None:
        Path(path).write_bytes(content)

    assert cache.save("graph", {"size": len(content)}, write, lambda _: True)


@pytest.mark.requirement("009-8.3-3", "009-3.3-3", "003-17.2-1")
# With three of these, overwriting alone leaves something behind; only the rewriting takes it.
@pytest.mark.parametrize("seed", [1, 4, 7, 9])
def test_no_byte_of_a_removed_fact_is_left(tmp_path: Path, seed: int) -> None:
    archive, store = Archive(seed), SqliteStore(tmp_path / "kb")
    live: list[str] = []
    gone: set[str] = set()
    other = add(store, archive, OTHER, 10)
    for turn in range(10):
        live += add(store, archive, NAMESPACE, archive.chance.choice([3, 40, 120]))
        # An update leaves an old text behind, which nobody is to find either.
        with store.begin(NAMESPACE) as transaction:
            for id in archive.chance.sample(live, min(5, len(live))):
                (old,) = transaction.facts.get([id])
                (new,), block = archive.made(NAMESPACE, 1)
                transaction.facts.replace([new.changed(fact_id=id)], block)
                archive.marks[f"old {old.fact_id} {turn}"] = archive.marks[id]
                archive.vectors[f"old {old.fact_id} {turn}"] = archive.vectors[id]
                gone.add(f"old {old.fact_id} {turn}")
                archive.marks[id] = archive.marks.pop(new.fact_id)
                archive.vectors[id] = archive.vectors.pop(new.fact_id)
        removed = archive.chance.sample(live, len(live) * archive.chance.choice([1, 5, 9]) // 10)
        live = [id for id in live if id not in set(removed)]
        keep_file(store, NAMESPACE, b"".join(archive.vectors[id] for id in removed))
        keep_file(store, OTHER, b"".join(archive.vectors[id] for id in other))
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(removed)
        gone |= {*removed}
        if turn % 3 == 2:
            assert store.scrub(NAMESPACE) is True
            assert found(tmp_path, archive) == {*live, *other}
    assert gone
    assert store.cache(NAMESPACE).load("graph") is not None
    assert store.check(NAMESPACE) == store.check(OTHER) == []
    store.close()


def test_before_scrubbing_something_is_left(tmp_path: Path) -> None:
    """What the test above looks for is there to be found."""
    archive, store = Archive(9), SqliteStore(tmp_path / "kb")
    ids = add(store, archive, NAMESPACE, 50)
    assert found(tmp_path, archive) == {*ids}
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids)
    assert found(tmp_path, archive) == {*ids}
    assert store.scrub(NAMESPACE) is True
    assert found(tmp_path, archive) == set()


@pytest.mark.requirement("009-8.3-3")
def test_prepared_vectors_of_a_removed_text_are_gone(tmp_path: Path) -> None:
    archive, store = Archive(1), SqliteStore(tmp_path / "kb")
    facts, block = archive.made(NAMESPACE, 20)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(facts, np.roll(block, 1, axis=1))
        transaction.facts.prepare("e", [one.content_hash for one in facts], block)
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove([one.fact_id for one in facts[:15]])
    assert store.scrub(NAMESPACE) is True
    assert found(tmp_path, archive) == {one.fact_id for one in facts[15:]}


def test_a_reader_of_the_old_state_puts_scrubbing_off(tmp_path: Path) -> None:
    archive, store = Archive(2), SqliteStore(tmp_path / "kb", busy_seconds=0.05)
    ids = add(store, archive, NAMESPACE, 20)
    with store.begin(NAMESPACE, write=False) as reader:
        assert len(reader.facts.retrievable()) == 20
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[:10])
        assert store.scrub(NAMESPACE) is False
        assert len(reader.facts.get(ids)) == 20
    assert store.scrub(NAMESPACE) is True
    assert found(tmp_path, archive) == {*ids[10:]}


@pytest.mark.requirement("009-8.3-3")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("when", ["before", "during"])
def test_what_a_killed_process_left_is_scrubbed_by_the_next(tmp_path: Path, when: str) -> None:
    archive, store = Archive(3), SqliteStore(tmp_path / "kb")
    ids = add(store, archive, NAMESPACE, 60)
    keep_file(store, NAMESPACE, b"".join(archive.vectors[id] for id in ids))
    store.close()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        own = SqliteStore(tmp_path / "kb")
        with own.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[:30])
        os.write(writing, b"removed")
        if when == "before":
            signal.pause()
        while True:
            own.compact(NAMESPACE)
    assert os.read(reading, 7) == b"removed"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    again = SqliteStore(tmp_path / "kb")
    with again.begin(NAMESPACE, write=False) as transaction:
        assert {id for id, _ in transaction.facts.retrievable()} == {*ids[30:]}
    assert again.scrub(NAMESPACE) is True
    assert found(tmp_path, archive) == {*ids[30:]}
    assert again.check(NAMESPACE) == []


def test_scrubbing_does_nothing_when_nothing_was_removed(tmp_path: Path) -> None:
    archive, store = Archive(4), SqliteStore(tmp_path / "kb")
    ids = add(store, archive, NAMESPACE, 5)
    keep_file(store, NAMESPACE, b"derived")

    def stamps() -> dict[str, int]:
        files = (path for path in tmp_path.rglob("*") if path.suffix in (".sqlite", ".bin"))
        return {path.name: path.stat().st_mtime_ns for path in files}

    before = stamps()
    assert store.scrub(NAMESPACE) is True
    assert stamps() == before
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids[:1])
    assert store.scrub(NAMESPACE) is True
    after = stamps()
    assert after.keys() == {"fabric.sqlite"}
    assert after["fabric.sqlite"] != before["fabric.sqlite"]
    assert store.scrub(NAMESPACE) is True
    assert stamps() == after


def said_of(folder: Path) -> set[bytes]:
    """Marks that are in any file."""
    whole = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return {*re.findall(rb"Zq[a-z]{8}", whole)}


# Without the padding before a text, the first two leave something behind.
@pytest.mark.parametrize(("seed", "longest"), [(0, 300), (3, 1_000), (1, 9_000)])
def test_no_byte_of_what_windows_said_is_left(tmp_path: Path, seed: int, longest: int) -> None:
    """Without rewriting the file, which would take long: no text is where SQLite leaves copies."""
    chance, store = random.Random(seed), SqliteStore(tmp_path / "kb")
    live: dict[str, bytes] = {}
    removed = 0
    for turn in range(40):
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            for number in range(chance.choice([3, 30])):
                name = f"{turn}-{number}"
                mark = "Zq" + "".join(chance.choices("bcdfghjklmnp", k=8))
                live[name] = mark.encode()
                sessions.keep(session(name))
                sessions.add_window(
                    window(1, name),
                    prior=prior(1, f"f-{name}", answer=mark + "x" * chance.randint(0, longest)),
                    report=json.dumps({"said": "y" * chance.randint(0, longest) + mark}),
                )
        gone = chance.sample(sorted(live), len(live) * chance.choice([1, 5, 9]) // 10)
        with store.begin(NAMESPACE) as transaction:
            sessions = sessions_of(transaction)
            for name in gone:
                if chance.random() < 0.5:
                    assert sessions.forget(name)
                else:
                    assert sessions.withdraw([f"f-{name}"], NOON) == 1
                del live[name]
                removed += 1
        assert store.scrub(NAMESPACE) is True
        assert said_of(tmp_path) <= {*live.values()}
    # One that goes over the edge of a page is not found as a whole.
    assert len(said_of(tmp_path)) >= 0.8 * len(live)
    assert removed > 100
    assert store.check(NAMESPACE) == []
