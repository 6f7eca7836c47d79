"""What the other processes of the tests of PostgreSQL run; importable by name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from crp_integrations import Relay
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import ConfigError, StoreBusy
from crp_integrations.fabric import embedder_migration
from crp_integrations.fabric.settings import FabricSettings, VectorGraphSettings
from crp_integrations.language.memo import forgotten_with
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.testing.fixtures import KEY, NAMESPACE, NOON, fact, rows
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType
from tests.doubles import HashEmbedder
from tests.fabric.embedders import ACME, Letters, fabric, sentence

SPAWN = multiprocessing.get_context("spawn")
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
                    append_events(transaction.journal, KEY, [draft], "2026-05-25T10:00:00Z")
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
    """Read, and read again when the note of an erasure has come, which empties this memory."""
    with Relay.open(address, **OPTIONS) as relay:
        relay._store._listener.listening(10.0)
        shown = [one.fact_id for one in relay.turn(question).preview().facts]
        forgotten = threading.Event()
        forgotten_with(forgotten.set)
        wire.send(shown)
        wire.recv()
        told = forgotten.wait(5.0)
        shown = [one.fact_id for one in relay.turn(question).preview().facts]
        wire.send((shown, told))


class Shifted(HashEmbedder):
    """Another embedder whose vectors have the same length."""

    identity = "shifted/256"

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        return np.roll(super().embed_passages(texts), 100, axis=1)


def search_until_refused(address: str, count: int, wire: Connection) -> None:
    """Ask for one fact after the other by its own text; tell what was wrong, and the refusal."""
    settings = FabricSettings(graph=VectorGraphSettings(exact_up_to=5))
    store = PostgresStore(address, index_from=10)
    namespace = fabric(store, settings=settings).bind(ACME)
    found, wrong, number = 0, [], 0
    try:
        while True:
            number = (number + 1) % count
            (hit,) = namespace.nearest(HashEmbedder().embed_query(sentence(number)), 1)
            text = namespace.facts([hit.fact_id])[0].content
            if text == sentence(number) and hit.score > 0.999:
                found += 1
            else:
                wrong.append((number, hit.score))
            if found == 1:
                wire.send("searching")
    except ConfigError as error:
        wire.send((found, wrong, str(error)))
    store.close()


def move_and_die_before_the_commit(address: str) -> None:
    """Replace every vector, and be killed."""
    embedder_migration.advance_epoch = lambda facts: os.kill(os.getpid(), signal.SIGKILL)
    fabric(PostgresStore(address, index_from=10)).bind(ACME).reembed(Letters())


def move_and_die_after_the_commit(address: str) -> None:
    """Move to another embedder, and be killed before there is an index of its vectors."""
    store = PostgresStore(address, index_from=10)
    store._indexing.build = lambda schema: os.kill(os.getpid(), signal.SIGKILL)
    fabric(store).bind(ACME).reembed(Letters())
