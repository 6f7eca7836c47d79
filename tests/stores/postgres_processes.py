"""What the other processes of the tests of PostgreSQL run; importable by name."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from crp_integrations import Relay
from crp_integrations.audit.journal import EventDraft, append
from crp_integrations.errors import StoreBusy
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.testing.records import KEY, NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import EventType
from tests.doubles import HashEmbedder

BATCH = 5
OPTIONS = {"embedder": HashEmbedder(), "key": "ab" * 32, "clock": NOON}
PAUSE_SECONDS = 0.05


def batch(name: str) -> list[str]:
    return [f"batch {name} part {part}" for part in range(BATCH)]


def write_batch(store: PostgresStore, name: str) -> None:
    """Add a batch and an event, again and again until the server says that it has them."""
    made = [fact(text) for text in batch(name)]
    while True:
        try:
            with store.begin(NAMESPACE) as transaction:
                # A commit whose answer was lost may have been carried out.
                if not transaction.facts.get([made[0].fact_id]):
                    transaction.facts.add(made, rows(made))
                    draft = EventDraft(EventType.FACT_INGESTED, {"source": name})
                    append(transaction.journal, KEY, [draft], "2026-05-25T10:00:00Z")
            return
        except StoreBusy:
            time.sleep(PAUSE_SECONDS)


def write_until_told(address: str, writer: int, wire: Connection) -> None:
    """Tell the number of every batch once it is committed; end when anything comes back."""
    store = PostgresStore(address, busy_seconds=2.0)
    number = 0
    while not wire.poll():
        write_batch(store, f"{writer}-{number}")
        wire.send(number)
        number += 1
    store.close()
    wire.send("done")


def read_and_wait(address: str, question: str, wire: Connection) -> None:
    """Read, tell what is kept ready, and tell again when the note of an erasure has come."""
    with Relay.open(address, **OPTIONS) as relay:
        relay._store._listener.listening(10.0)
        shown = [one.fact_id for one in relay.turn(question).preview().facts]
        ready = relay._world.namespace._fabric.ready
        wire.send((shown, sum(len(held.entries) for held in ready._held.values())))
        wire.recv()
        deadline = time.monotonic() + 1.0
        while ready._held and time.monotonic() < deadline:
            time.sleep(0.01)
        left = sum(len(held.entries) for held in ready._held.values())
        shown = [one.fact_id for one in relay.turn(question).preview().facts]
        wire.send((shown, left))
