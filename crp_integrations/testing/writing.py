"""Batches of facts as other processes write them, and what must hold of them at any moment.

Each batch is one transaction over facts, vectors, words, a setting and the journal, and its event
says what was done. So the journal tells which facts there must be, and each facet shows whether the
others were committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from crp_integrations.audit.journal import EventDraft, append, verify
from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.testing.records import KEY, NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import EventType, FactStatus

# Opens the place of a store in any process.
Opener = Callable[[], Store]
# `add` or `remove`, and the name of a batch.
Deed = tuple[str, str]
BATCH = 5
PAUSE_SECONDS = 0.02
# Batches of a writer that stay; one of them is removed when there are more.
LIVE = 6
SCRUB_EVERY = 9


def batch(name: str) -> list[Fact]:
    """The facts of one batch."""
    return [fact(f"batch {name} part {part}", source_id=name) for part in range(BATCH)]


def deeds(transaction: Transaction) -> list[Deed]:
    """What was done so far, as the journal says."""
    told = [str(event.data["source"]).partition(":") for event in transaction.journal.events()]
    return [(what, name) for what, _, name in told]


def do(store: Store, deed: Deed) -> None:
    """Add or remove a batch, again and again while the store is busy."""
    again = False
    while True:
        try:
            with store.begin(NAMESPACE) as transaction:
                # A commit whose answer was lost may have been carried out.
                if not (again and deed in deeds(transaction)):
                    _done(transaction, *deed)
            return
        except StoreBusy:
            again = True
            time.sleep(PAUSE_SECONDS)


def _done(transaction: Transaction, what: str, name: str) -> None:
    made = batch(name)
    facts = transaction.facts
    if what == "add":
        facts.add(made, rows(made))
        facts.set_status([made[0].fact_id], FactStatus.STALE, NOON)
    else:
        facts.remove([one.fact_id for one in made])
    facts.set_setting("count", str(int(facts.setting("count") or 0) + 1))
    draft = EventDraft(EventType.FACT_INGESTED, {"source": f"{what}:{name}"})
    append(transaction.journal, KEY, [draft], "2026-05-25T10:00:00Z")


def seen(transaction: Transaction) -> list[Deed]:
    """What was done so far; every facet holds what that leaves, and nothing else.

    Raises:
        AssertionError: a batch is there in part, or one facet knows of what another does not.
    """
    facts = transaction.facts
    done = deeds(transaction)
    assert verify(transaction.journal.events(), KEY) == len(done) == len({*done})
    assert int(facts.setting("count") or 0) == len(done)
    live: set[str] = set()
    for what, name in done:
        # Nothing is removed that was not added before.
        assert (what == "add") is (name not in live)
        live ^= {name}
    wanted = {one.fact_id: one for name in live for one in batch(name)}
    ids = [id_ for id_, _ in facts.retrievable()]
    assert ids == sorted(wanted) == facts.find(Where(statuses=tuple(FactStatus)))
    found = facts.get(ids)
    assert [one.content for one in found] == [wanted[id_].content for id_ in ids]
    assert facts.vectors(ids).tolist() == rows(found).tolist()
    hits = facts.search_text(["batch"], len(ids) + 1)
    assert sorted(id_ for id_, _ in hits) == ids
    stale = {one.fact_id for one in found if one.status is FactStatus.STALE}
    assert stale == {batch(name)[0].fact_id for name in live}
    return done


def whole(store: Store) -> set[Deed]:
    """What was done to a store, which is sound and holds whole batches alone."""
    with store.begin(NAMESPACE, write=False) as transaction:
        done = seen(transaction)
    assert store.check(NAMESPACE) == []
    return {*done}


# --- what other processes do ---------------------------------------------------------------


def write_until_killed(wire: Connection, opener: Opener, run: int) -> None:
    """Add and remove batches; tell of each once it is committed."""
    store = opener()
    chance = random.Random(run)  # noqa: S311 - which batch goes, no secret
    live: list[str] = []
    number = 0
    while True:
        if len(live) >= LIVE:
            deed = "remove", live.pop(chance.randrange(len(live)))
        else:
            deed = "add", f"{run}-{number}"
            live.append(deed[1])
        do(store, deed)
        wire.send(deed)
        number += 1
        if number % SCRUB_EVERY == 0:
            store.scrub(NAMESPACE)


def write_some(wire: Connection, opener: Opener, writer: int, batches: int) -> None:
    """Add batches beside other writers, remove every third, and say when that is done."""
    store = opener()
    wire.send("ready")
    wire.recv()
    for number in range(batches):
        do(store, ("add", f"{writer}-{number}"))
        if number % 3 == 2:
            do(store, ("remove", f"{writer}-{number - 1}"))
    store.close()
    wire.send("done")


def read_until_told(wire: Connection, opener: Opener) -> None:
    """Look again and again; say how often, and how much was seen at last."""
    store = opener()
    wire.send("ready")
    wire.recv()
    looks, before = 0, 0
    while not wire.poll():
        with store.begin(NAMESPACE, write=False) as transaction:
            count = len(seen(transaction))
        # What was once seen is not taken back.
        assert count >= before
        looks, before = looks + 1, count
    store.close()
    wire.send((looks, before))
