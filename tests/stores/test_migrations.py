"""A store of an older version opens, is brought up to date, and keeps what it holds."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from crp_integrations.audit.journal import EventDraft, append, verify
from crp_integrations.fabric.ports import Mark
from crp_integrations.fabric.records import Where
from crp_integrations.seals import iso, sha256_hex
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.sqlite.migrations import APPLICATION_ID, MIGRATIONS, VERSION
from crp_integrations.testing.records import KEY, NAMESPACE, NOON, fact, rows, source
from crp_integrations.vectors import to_bytes
from crp_integrations.vocabulary import EventType, FactStatus

FACTS = [
    fact("the first walrus", source_id="doc", ttl="P1D", labels=("eu",), metadata={"page": 1}),
    fact("the second walrus", status=FactStatus.STALE, community_label="seas"),
    fact("the third walrus", status=FactStatus.DELETED, modified_at=NOON),
]
FIRST_COLUMNS = (
    *("fact_id", "content", "content_hash", "namespace", "source_id", "source_location", "kind"),
    *("importance_weight", "community_label", "access_count", "ttl", "status"),
)


def first_version(root: Path, ttl: str | None = None) -> Path:
    """What version 0.1 wrote, by its own statements."""
    folder = root / "namespaces" / sha256_hex(NAMESPACE)
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "fabric.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN")
    for statement in MIGRATIONS[0].statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO own VALUES ('namespace', ?)", [NAMESPACE])
    connection.execute("INSERT INTO own VALUES ('dimensions', 8)")
    connection.execute("UPDATE own SET value = 3 WHERE name = 'generation'")
    connection.execute("INSERT INTO settings VALUES ('embedder', 'e/1')")
    one = source("a.md")
    connection.execute(
        "INSERT INTO sources VALUES (?, 'source/1', ?, ?, ?, 'user', ?, 1, 'ACTIVE', '[]', '{}')",
        [one.source_id, one.title, one.uri, one.document_hash, iso(one.ingested_at)],
    )
    for number, (made, vector) in enumerate(zip(FACTS, rows(FACTS), strict=True), start=1):
        values = {name: getattr(made, name) for name in FIRST_COLUMNS}
        values |= {
            "schema": "fact/1",
            "fact": number,
            "ingested_at": iso(NOON),
            "modified_at": made.modified_at and iso(NOON),
            "ttl": (ttl or made.ttl) if number == 1 else None,
            "labels": json.dumps(made.labels),
            "metadata": json.dumps(made.metadata),
        }
        marks = ", ".join("?" * len(values))
        connection.execute(
            f"INSERT INTO facts ({', '.join(values)}) VALUES ({marks})", [*values.values()]
        )
        connection.execute("INSERT INTO vectors VALUES (?, ?)", [number, to_bytes(vector)])
        connection.execute("INSERT INTO token_counts VALUES (?, 'words', 3)", [number])
    connection.execute("COMMIT")
    connection.close()
    return path


@pytest.mark.parametrize("write", [False, True])
def test_a_store_of_the_first_version_keeps_everything(tmp_path: Path, write: bool) -> None:
    path = first_version(tmp_path / "kb")
    ids = [one.fact_id for one in FACTS]
    live = sorted(ids[:2])
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE, write=write) as transaction:
        found = transaction.facts
        assert found.get(ids) == FACTS
        assert (found.vectors(ids) == rows(FACTS)).all()
        assert [id for id, _ in found.retrievable()] == live
        assert sorted(id for id, _ in found.search_text(["walrus"], 9)) == live
        assert found.token_counts("words", ids) == dict.fromkeys(ids, 3)
        assert found.generation() == 3
        assert found.setting("embedder") == "e/1"
        assert [one.uri for one in found.sources()] == ["a.md"]
        assert found.find(Where(labels=("eu",), metadata={"page": 1})) == ids[:1]
        assert found.find(Where(expired_at=NOON.replace(month=6))) == ids[:1]
        assert found.find(Where(expired_at=NOON)) == []
        assert found.tally() == {"ACTIVE": 1, "STALE": 1, "DELETED": 1}
    assert store.check(NAMESPACE) == []
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    connection.close()


def test_its_log_begins_with_the_new_version(tmp_path: Path) -> None:
    """What was there before is in no log, so a reader has to read it as a whole."""
    first_version(tmp_path / "kb")
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE) as transaction:
        assert transaction.facts.changes(Mark(0, "")) is None
        mark = transaction.facts.mark()
        new = fact("new")
        transaction.facts.add([new], rows([new]))
        assert transaction.facts.changes(mark) == [new.fact_id]


def test_its_rows_are_not_mistaken_for_later_ones(tmp_path: Path) -> None:
    path = first_version(tmp_path / "kb")
    store = SqliteStore(tmp_path / "kb")
    new = fact("new")
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove([FACTS[2].fact_id])
        transaction.facts.add([new], rows([new]))
        append(transaction.journal, KEY, [EventDraft(EventType.FACT_INGESTED, {})], "2026")
    with store.begin(NAMESPACE, write=False) as transaction:
        assert verify(list(transaction.journal.events()), KEY) == 1
    store.close()
    connection = sqlite3.connect(path)
    (number,) = connection.execute(
        "SELECT fact FROM facts WHERE fact_id = ?", [new.fact_id]
    ).fetchone()
    connection.close()
    assert number == len(FACTS) + 1


def test_a_ttl_that_is_no_duration_does_not_lock_its_fact_away(tmp_path: Path) -> None:
    """The first version took any text and did nothing with it."""
    first_version(tmp_path / "kb", ttl="a fortnight")
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE, write=False) as transaction:
        (found,) = transaction.facts.get([FACTS[0].fact_id])
    assert found == FACTS[0].changed(ttl=None)


def test_every_upkeep_brings_it_up_to_date(tmp_path: Path) -> None:
    for number, upkeep in enumerate(("scrub", "compact", "check", "files", "namespaces")):
        root = tmp_path / str(number)
        first_version(root)
        store = SqliteStore(root)
        answer = store.namespaces() if upkeep == "namespaces" else getattr(store, upkeep)(NAMESPACE)
        assert answer in (True, None, [], [NAMESPACE]) or "fabric.sqlite" in answer
        with store.begin(NAMESPACE, write=False) as transaction:
            assert transaction.facts.get([FACTS[0].fact_id]) == FACTS[:1]
        store.close()
