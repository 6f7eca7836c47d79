"""What is left of the bytes of removed texts, in a store that keeps any."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.records import Draft, issue
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    NOON,
    OTHER,
    SIGNER,
    fact,
    prior,
    receipt,
    receipts_in,
    session,
    window,
)
from crp_integrations.vectors import FloatRows, to_bytes, unit_rows
from tests.conformance.hooks import StoreHooks
from tests.conformance.processes import Workers
from tests.conformance.workloads import Opener

DIMENSIONS = 96
MARKS = re.compile(rb"zq[a-z]{8}", re.IGNORECASE)
# Where in a vector's bytes it is looked for, and how many of them tell it from the others.
_PLACES, _LENGTH = (0, 24 * 7, 24 * 15), 24
_LETTERS = "bcdfghjklmnp"


class Archive:
    """Facts with marks, by id.

    Attributes:
        vectors: the numbers of each as the store writes them.
        marks: words that only its texts hold, in lower case.
    """

    def __init__(
        self,
        seed: int,
        number_bytes: Callable[[npt.NDArray[np.float32]], bytes] = to_bytes,
    ) -> None:
        """Begin with none; equal seeds give equal facts.

        Args:
            number_bytes: how the store writes the numbers of a vector.
        """
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.number_bytes = number_bytes
        self.vectors: dict[str, bytes] = {}
        self.marks: dict[str, set[bytes]] = {}

    def mark(self) -> str:
        """A word of its own; no stemmer shortens it, and none begins another one."""
        return "Zq" + "".join(self.chance.choices(_LETTERS, k=8))

    def made(self, namespace: str, count: int) -> tuple[list[Fact], FloatRows]:
        """New facts with their unit rows, shape (count, 96)."""
        facts = []
        for _ in range(count):
            marks = [self.mark() for _ in range(6)]
            many = self.chance.choice([0, 5, 60, 900])
            words = [
                "".join(self.chance.choices(_LETTERS, k=self.chance.randint(3, 9)))
                for _ in range(many)
            ]
            words[many // 2 : many // 2] = [marks[0]]
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
            self.vectors[one.fact_id] = self.number_bytes(row)
        return facts, block

    def add(self, store: Store, namespace: str, count: int) -> list[str]:
        """Add new facts to a store, with counts of their tokens; their ids."""
        facts, block = self.made(namespace, count)
        with store.begin(namespace) as transaction:
            transaction.facts.add(facts, block)
            transaction.facts.save_token_counts("words", {one.fact_id: 7 for one in facts})
        return [one.fact_id for one in facts]

    def rename(self, old: str, new: str) -> None:
        """Call what is known of a fact by another name."""
        self.marks[new] = self.marks.pop(old)
        self.vectors[new] = self.vectors.pop(old)

    def found(self, whole: bytes) -> set[str]:
        """Facts of which any mark, or any part of the vector, is among some bytes."""
        marks = {mark.lower() for mark in MARKS.findall(whole)}
        ids = {id_ for id_, own in self.marks.items() if own & marks}
        for id_, vector in self.vectors.items():
            if id_ not in ids and any(vector[at : at + _LENGTH] in whole for at in _PLACES):
                ids.add(id_)
        return ids


def marked(whole: bytes) -> set[bytes]:
    """The marks that are among some bytes, in lower case."""
    return {mark.lower() for mark in MARKS.findall(whole)}


def keep_file(store: Store, namespace: str, content: bytes) -> None:
    """Keep a derived file, where the store has any."""
    cache = store.cache(namespace)

    def write(path: str) -> None:
        Path(path).write_bytes(content)

    if cache is not None:
        assert cache.save("graph", {"size": len(content)}, write, lambda _: True)


def remove_and_wait(wire: Connection, opener: Opener, ids: list[str], busy: bool) -> None:
    """Remove facts, say so, and be killed: at rest, or while everything is written anew."""
    store = opener()
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids)
    wire.send("removed")
    while True:
        if busy:
            store.compact(NAMESPACE)
        else:
            signal.pause()


class ErasureLaws(StoreHooks):
    """After removing and scrubbing no byte of a text or a vector is left."""

    @pytest.mark.parametrize("seed", [1, 4, 7, 9])
    def test_no_byte_of_a_removed_fact_is_left(self, store: Store, seed: int) -> None:
        self.stored(store)
        archive = Archive(seed, self.number_bytes)
        live: list[str] = []
        gone: set[str] = set()
        other = archive.add(store, OTHER, 10)
        for turn in range(self.erasure_turns):
            live += archive.add(store, NAMESPACE, archive.chance.choice(self.erasure_batches))
            if not turn:
                # What is looked for is there to be found.
                assert archive.found(self.stored(store)) == {*live, *other}
            with store.begin(NAMESPACE) as transaction:
                for id_ in archive.chance.sample(live, min(5, len(live))):
                    (new,), block = archive.made(NAMESPACE, 1)
                    transaction.facts.replace([new.changed(fact_id=id_)], block)
                    old = f"old {id_} {turn}"
                    archive.rename(id_, old)
                    archive.rename(new.fact_id, id_)
                    gone.add(old)
            many = len(live) * archive.chance.choice([1, 5, 9]) // 10
            removed = archive.chance.sample(live, many)
            live = [id_ for id_ in live if id_ not in {*removed}]
            keep_file(store, NAMESPACE, b"".join(archive.vectors[id_] for id_ in removed))
            keep_file(store, OTHER, b"".join(archive.vectors[id_] for id_ in other))
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.remove(removed)
            gone |= {*removed}
            if turn % 3 == 2:
                assert store.scrub(NAMESPACE) is True
                assert archive.found(self.stored(store)) == {*live, *other}
        assert gone
        assert store.check(NAMESPACE) == store.check(OTHER) == []

    def test_prepared_vectors_of_a_removed_text_are_gone(self, store: Store) -> None:
        self.stored(store)
        archive = Archive(1, self.number_bytes)
        facts, block = archive.made(NAMESPACE, 20)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(facts, np.roll(block, 1, axis=1))
            transaction.facts.prepare("e", [one.content_hash for one in facts], block)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([one.fact_id for one in facts[:15]])
        assert store.scrub(NAMESPACE) is True
        left = {one.fact_id for one in facts[15:]}
        assert archive.found(self.stored(store)) == left

    # Where a text lies in a page depends on how long it is.
    @pytest.mark.parametrize(("seed", "longest"), [(0, 300), (3, 1_000), (1, 9_000)])
    def test_no_byte_of_what_windows_said_is_left(
        self, store: Store, seed: int, longest: int
    ) -> None:
        self.stored(store)
        chance = random.Random(seed)
        archive = Archive(seed)
        live: dict[str, bytes] = {}
        removed: set[bytes] = set()
        found = 0
        for turn in range(4 * self.erasure_turns):
            with store.begin(NAMESPACE) as transaction:
                sessions = sessions_of(transaction)
                for number in range(chance.choice([3, max(4, self.erasure_batches[-1] // 4)])):
                    name, mark = f"{turn}-{number}", archive.mark()
                    live[name] = mark.lower().encode()
                    sessions.keep(session(name))
                    answer = mark + "x" * chance.randint(0, longest)
                    sessions.add_window(
                        window(1, name),
                        prior=prior(1, f"f-{name}", answer=answer),
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
                    removed.add(live.pop(name))
            assert store.scrub(NAMESPACE) is True
            left = marked(self.stored(store))
            assert not left & removed
            found += len(left & {*live.values()})
        # One that goes over the edge of a page, or is compressed, is not found as a whole.
        assert found > len(live)
        assert removed
        assert store.check(NAMESPACE) == []

    def test_no_byte_of_a_receipts_texts_is_left(self, store: Store) -> None:
        self.stored(store)
        archive = Archive(2)
        kept, gone = archive.mark(), archive.mark()
        for number, mark in enumerate((kept, gone), 1):
            fact_id = f"f-{number}"
            leaves = (
                Leaf("request", "a question"),
                Leaf("context"),
                # It may quote the fact, the fourth of these.
                Leaf("answer", f"the answer {mark}", of=(3,)),
                Leaf(f"fact/{fact_id}", f"a text {mark}", fact_id),
            )
            made = issue(Draft({"number": number}, leaves), receipt(number).chain, SIGNER, KEY)
            with store.begin(NAMESPACE) as transaction:
                receipts_in(transaction).add(made, {fact_id: f"doc-{number}"})
        assert marked(self.stored(store)) >= {mark.lower().encode() for mark in (kept, gone)}
        with store.begin(NAMESPACE) as transaction:
            sessions_of(transaction).withdraw(["f-2"], NOON)
        assert store.scrub(NAMESPACE) is True
        assert gone.lower().encode() not in marked(self.stored(store))

    @pytest.mark.parametrize("busy", [False, True])
    def test_what_a_killed_process_removed_is_scrubbed_by_the_next(
        self, store: Store, busy: bool
    ) -> None:
        opener = self.opener(store)
        self.stored(store)
        archive = Archive(3, self.number_bytes)
        ids = archive.add(store, NAMESPACE, 60)
        keep_file(store, NAMESPACE, b"".join(archive.vectors[id_] for id_ in ids))
        store.close()
        with Workers(1) as workers:
            worker = workers.start(remove_and_wait, opener, ids[:30], busy)
            assert worker.receive() == "removed"
            worker.kill()
        again = opener()
        with again.begin(NAMESPACE, write=False) as transaction:
            assert [id_ for id_, _ in transaction.facts.retrievable()] == sorted(ids[30:])
        scrubbed = again.scrub(NAMESPACE)
        while not scrubbed:
            # A server may still be at what the killed process had asked for.
            scrubbed = again.scrub(NAMESPACE)
        assert archive.found(self.stored(again)) == {*ids[30:]}
        assert again.check(NAMESPACE) == []
        again.close()
