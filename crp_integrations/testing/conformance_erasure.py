"""What is left of the bytes of what was removed, in a store that keeps any."""

from __future__ import annotations

import json
import random
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.records import Draft, issue
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.conformance_receipts import SIGNER, receipt, receipts_in
from crp_integrations.testing.conformance_sessions import prior, session, window
from crp_integrations.testing.hooks import Hooks
from crp_integrations.testing.marks import Archive, marked
from crp_integrations.testing.others import Others
from crp_integrations.testing.records import KEY, NAMESPACE, NOON, OTHER
from crp_integrations.testing.writing import Opener


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


class ErasureConformance(Hooks):
    """After removing and scrubbing no byte of a text or a vector is left."""

    @pytest.mark.parametrize("seed", [1, 4, 7, 9])
    def test_no_byte_of_a_removed_fact_is_left(self, store: Store, seed: int) -> None:
        """Nor of one whose text was replaced; what is there, and other namespaces, stay."""
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
        """They are of texts, not of facts, and go with the last fact of that text."""
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
        """With their session, or with a fact that they showed."""
        self.stored(store)
        chance = random.Random(seed)  # noqa: S311 - lengths, no secret
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
        """What was signed stays, and the texts behind its hashes go."""
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
        """Also when it was killed while it wrote everything anew."""
        opener = self.opener(store)
        self.stored(store)
        archive = Archive(3, self.number_bytes)
        ids = archive.add(store, NAMESPACE, 60)
        keep_file(store, NAMESPACE, b"".join(archive.vectors[id_] for id_ in ids))
        store.close()
        with Others(1) as others:
            other = others.start(remove_and_wait, opener, ids[:30], busy)
            assert other.hear() == "removed"
            other.kill()
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
