"""What the other processes of these tests run; importable by name, as a fresh process must."""

from __future__ import annotations

from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.stores.keys import FileKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import KEY, NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import EventType, FactStatus

BATCH = 5


def batch(name: str) -> list[str]:
    """The texts of one batch."""
    return [f"batch {name} part {part}" for part in range(BATCH)]


def write_batch(store: SqliteStore, name: str) -> None:
    """Add a batch, an event and one to a counter, and let the batch's first fact grow stale."""
    made = [fact(text) for text in batch(name)]
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
        transaction.facts.set_status([made[0].fact_id], FactStatus.STALE, NOON)
        count = int(transaction.facts.setting("count") or 0)
        transaction.facts.set_setting("count", str(count + 1))
        draft = EventDraft(EventType.FACT_INGESTED, {"source": name})
        append_events(transaction.journal, KEY, [draft], "2026-05-25T10:00:00Z")


def make_key(path: Path, start: Barrier, answer: Connection) -> None:
    """Ask for the key at the same moment as others."""
    ring = FileKeyRing(path)
    start.wait()
    answer.send(ring.master())
