"""A store of an older version opens, is brought up to date, and keeps what it holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, verify_journal
from crp_integrations.audit.records import WindowSeal
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import LogMark
from crp_integrations.fabric.records import Where
from crp_integrations.seals import iso, sha256, sha256_hex, window_hmac
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.sqlite.migrations import APPLICATION_ID, MIGRATIONS, VERSION
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    NOON,
    fact,
    prior,
    rows,
    session,
    source,
    window,
)
from crp_integrations.vectors import to_bytes
from crp_integrations.vocabulary import ChainIntegrity, EventType, FactStatus

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


class Raw:
    """What a migration may use, over a plain connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def executemany(self, statement: str, given: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(statement, given)


def chain(session_id: str, count: int) -> list[WindowSeal]:
    """Seals of a session's windows, one after the other, that verify."""
    made: list[WindowSeal] = []
    for number in range(1, count + 1):
        fields: dict[str, Any] = {
            "session_id": session_id,
            "window_number": number,
            "timestamp": "2026-05-25T10:00:00Z",
            "response_hash": sha256(f"answer {number}"),
            "report_hash": sha256(f"report {number}"),
            "parent_hmac": made[-1].hmac if made else "",
        }
        made.append(
            WindowSeal(
                **fields,
                window_id=f"crp_win_{session_id}_{number}",
                hmac=window_hmac(KEY, **fields),
                outcome="halted",
                etag="sha256:e",
                risk_level="HIGH",
            )
        )
    return made


SEALS = [*chain("a", 3), *chain("b", 12)]


def older_version(root: Path, number: int) -> Path:
    """What an older version wrote, by its own statements, with sealed windows."""
    path = first_version(root)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    for step in MIGRATIONS[1:number]:
        for statement in step.statements:
            connection.execute(statement)
        if step.afterwards is not None:
            step.afterwards(Raw(connection))
    connection.execute(f"PRAGMA user_version = {number}")
    for seal in reversed(SEALS):
        columns = seal.model_dump()
        marks = ", ".join("?" * len(columns))
        connection.execute(
            f"INSERT INTO seals ({', '.join(columns)}) VALUES ({marks})", [*columns.values()]
        )
    connection.execute("COMMIT")
    connection.close()
    return path


@pytest.mark.parametrize("number", range(1, VERSION))
@pytest.mark.parametrize("write", [False, True])
def test_windows_that_older_versions_sealed_stay_sealed(
    tmp_path: Path, number: int, write: bool
) -> None:
    """Their seals get another key; each is the same, none can be changed, and chains verify."""
    path = older_version(tmp_path / "kb", number)
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE, write=write) as transaction:
        assert list(transaction.journal.all_seals()) == SEALS
        assert transaction.facts.get([FACTS[0].fact_id]) == FACTS[:1]
        for session_id in ("a", "b"):
            sealed = transaction.journal.seals(session_id)
            assert window_seals.verify_seals(sealed, KEY) is ChainIntegrity.VALID
        assert transaction.journal.last_seal("b") == SEALS[-1]
        assert list(sessions_of(transaction).session_ids()) == []
    with store.begin(NAMESPACE) as transaction:
        with pytest.raises(StoreError, match="already has a window 12"):
            transaction.journal.seal(SEALS[-1])
        sibling = SEALS[-1].changed(window_id="another")
        transaction.journal.seal(sibling)
        sessions_of(transaction).keep(session("a"))
        sessions_of(transaction).add_window(window(4, "a"), prior=prior(4, FACTS[0].fact_id))
        assert sessions_of(transaction).withdraw([FACTS[0].fact_id], NOON) == 1
    assert store.check(NAMESPACE) == []
    store.close()
    connection = sqlite3.connect(path)
    for change in ("UPDATE seals SET outcome = 'x'", "DELETE FROM seals"):
        with pytest.raises(sqlite3.IntegrityError, match="never changed or removed"):
            connection.execute(change)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert connection.execute("SELECT count(*) FROM seals").fetchone() == (len(SEALS) + 1,)
    connection.close()


def test_a_migration_that_fails_leaves_the_older_version(tmp_path: Path) -> None:
    """All of its steps are one transaction."""
    path = older_version(tmp_path / "kb", 3)
    connection = sqlite3.connect(path)
    # In the way of the last table that the step makes.
    connection.execute("CREATE TABLE withdrawn_facts (a)")
    connection.commit()
    store = SqliteStore(tmp_path / "kb")
    for write in (True, False):
        with pytest.raises(StoreError), store.begin(NAMESPACE, write=write):
            raise AssertionError("a transaction was begun")
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert connection.execute("SELECT count(*) FROM seals").fetchone() == (len(SEALS),)
    connection.execute("DROP TABLE withdrawn_facts")
    connection.commit()
    connection.close()
    with store.begin(NAMESPACE, write=False) as transaction:
        assert list(transaction.journal.all_seals()) == SEALS
    store.close()


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
        assert transaction.facts.changes(LogMark(0, "")) is None
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
        append_events(transaction.journal, KEY, [EventDraft(EventType.FACT_INGESTED, {})], "2026")
    with store.begin(NAMESPACE, write=False) as transaction:
        assert verify_journal(list(transaction.journal.events()), KEY) == 1
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
