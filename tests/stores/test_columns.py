"""Every place where a text or bytes can lie, and how an erasure reaches it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.records import Draft, issue
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import (
    KEY,
    NAMESPACE,
    SIGNER,
    fact,
    prior,
    receipt,
    receipts_in,
    rows,
    session,
    window,
)

ROW = "goes with the row of its fact"
REGISTRY = "taken out of the registry entry when its source is erased"
LABEL = "a word from a closed list, a hash, a number or a time; says nothing of the content"
CHAIN = "ids, hashes and counts alone; kept, since the trail must verify"
INDEX = "follows its fact by triggers, is merged and rewritten by scrub"
WINDOW = "taken with the first fact that its window came from, and with its session"
RECEIPT = "a text goes with its fact, what may quote it too, and all of them with their session"
GRAPH = "ids, hashes and numbers; kept until the session is forgotten"
# Text and blob columns of every table, with what an erasure does to them.
COVERED = {
    "own": {"name": LABEL, "value": "name of the namespace, its counters and lengths"},
    "settings": {"name": LABEL, "value": "identities, times and numbers of the fabric's own"},
    "sources": {
        "source_id": LABEL,
        "schema": LABEL,
        "title": REGISTRY,
        "uri": REGISTRY,
        "document_hash": REGISTRY,
        "kind": LABEL,
        "ingested_at": LABEL,
        "status": LABEL,
        "labels": "access labels, which the guard needs to answer for what is left",
        "metadata": REGISTRY,
    },
    "facts": dict.fromkeys(
        (
            *("fact_id", "schema", "content", "content_hash", "namespace", "source_id"),
            *("source_location", "kind", "community_label", "ingested_at", "modified_at"),
            *("last_accessed_at", "ttl", "status", "labels", "valid_from", "valid_to"),
            *("supersedes", "metadata", "archived_at", "expires_at"),
        ),
        ROW,
    ),
    "vectors": {"vector": ROW},
    "token_counts": {"tokenizer": ROW},
    # Numbers alone.
    "fact_findings": {},
    "fact_uses": {"last_used_at": ROW},
    "edges": dict.fromkeys(("source_fact", "kind", "target_fact"), ROW),
    "events": dict.fromkeys(
        ("schema", "event_type", "timestamp", "session_id", "window_id", "data", "hmac"), CHAIN
    ),
    "seals": dict.fromkeys(
        (
            *("session_id", "schema", "window_id", "timestamp", "response_hash", "report_hash"),
            *("parent_hmac", "hmac", "outcome", "etag", "risk_level"),
        ),
        CHAIN,
    ),
    "changes": {"fact_id": "an id, a hash of hashes", "token": "random"},
    "prepared_vectors": {
        "embedder": LABEL,
        "content_hash": "removed with every fact of that content",
        "vector": "removed with every fact of that content",
    },
    "sessions": {
        "session_id": LABEL,
        "parent_session": LABEL,
        "modified_at": LABEL,
        "record": "a `Session`; its fields are listed below",
    },
    "windows": {
        **dict.fromkeys(("window_id", "session_id", "continuation_id", "closed_at"), GRAPH),
        "record": "a `WindowNode`; its fields are listed below",
    },
    "window_contents": {"padding": "zeros", "prior": WINDOW, "report": WINDOW},
    "window_facts": {"keys": WINDOW},
    "withdrawn_facts": {
        "fact_id": "an id, a hash of hashes; gone a day later",
        "withdrawn_at": LABEL,
    },
    "judge_spending": dict.fromkeys(("session_id", "judge", "period"), LABEL),
    "receipts": {
        **dict.fromkeys(("receipt_id", "session_id", "window_id", "signature", "key"), CHAIN),
        "payload": "ids, numbers, closed words and salted hashes; kept, since the log must verify",
    },
    "receipt_log": {"hash": CHAIN},
    "receipt_contents": {"padding": "zeros", "texts": RECEIPT},
    "receipt_facts": {"keys": RECEIPT},
    "facts_text": {"content": INDEX, "facts_text": INDEX, "rank": INDEX},
    "facts_text_data": {"block": INDEX},
    "facts_text_idx": {"segid": INDEX, "term": INDEX, "pgno": INDEX},
    "facts_text_docsize": {"sz": INDEX},
    "facts_text_config": {"k": LABEL, "v": LABEL},
    "sqlite_sequence": {"name": LABEL, "seq": LABEL},
    "texts": {"content": "a view of facts; keeps nothing"},
}


# What is kept of a session and of a window after all that it said is gone.
KEPT = {
    Session: {
        "policy": "the operator's or caller's directives, a closed language",
        "agent_id": "the name of a registered agent",
        **dict.fromkeys(
            (
                *("session_id", "created_at", "modified_at", "safety_budget", "parent_session"),
                *("loop_depth", "delegations", "tool_calls", "taken", "ended", "reviews"),
            ),
            LABEL,
        ),
    },
    WindowNode: dict.fromkeys(
        (
            *("window_id", "session_id", "window_number", "parents", "pattern", "strategy"),
            *("continuation_id", "etag", "quality_tier", "risk_level", "safety_budget", "hmac"),
            *("timestamp", "tokens", "response_hash", "transfer", "tokens_transferred"),
            *("summary_hash", "outcome"),
        ),
        GRAPH,
    ),
}


def test_what_stays_of_a_session_holds_no_text() -> None:
    """A field that comes to one of these records is looked at here first."""
    assert {kind: set(kind.model_fields) for kind in KEPT} == {
        kind: set(fields) for kind, fields in KEPT.items()
    }


@pytest.mark.requirement("009-8.3-3")
def test_erasure_covers_every_column_that_can_hold_content(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE):
        pass
    store.close()
    (database,) = tmp_path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    found: dict[str, set[str]] = {}
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
    ).fetchall():
        columns = connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", [table])
        # A column without a type takes anything; only INTEGER and REAL ones take no text.
        found[table] = {name for name, kind in columns if kind not in ("INTEGER", "REAL")}
    connection.close()
    assert {table: set(columns) for table, columns in COVERED.items()} == found


def test_only_the_facts_tables_hold_a_facts_text(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    one = fact("walruszq sleeps", metadata={"walruszq": "walruszq"}, source_location="walruszq")
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.add([one], rows([one]))
        transaction.facts.prepare("e", [one.content_hash], rows([one]))
        transaction.facts.set_communities({one.fact_id: "walruszq"})
        transaction.facts.replace([one.changed(content="walruszq wakes")])
    store.close()
    (database,) = tmp_path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    holding = set()
    for table in COVERED:
        for row in connection.execute(f"SELECT * FROM {table}"):
            if any("walruszq" in str(v) or b"walruszq" in _bytes(v) for v in row):
                holding.add(table)
    connection.close()
    assert holding == {"facts", "texts", "facts_text", "facts_text_data"}


def test_only_contents_of_windows_hold_what_was_said(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).keep(session("s"))
        said = prior(1, "f", answer="walruszq sleeps", summary="walruszq")
        sessions_of(transaction).add_window(window(1), prior=said, report='{"walruszq": 1}')
    store.close()
    (database,) = tmp_path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    holding = {
        (table, column)
        for table, columns in COVERED.items()
        for column in columns
        if any(
            "walruszq" in str(value)
            for (value,) in connection.execute(f"SELECT {column} FROM {table}")
        )
    }
    connection.close()
    assert holding == {("window_contents", "prior"), ("window_contents", "report")}


def test_only_contents_of_receipts_hold_their_texts(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    one = issue(
        Draft(
            {"candidates": ["f"]},
            (
                Leaf("request", "walruszq"),
                Leaf("context", parts=("[1] ", 3)),
                Leaf("answer", "the walruszq sleeps", of=(3,)),
                Leaf("fact/f", "a walruszq", "f", "doc"),
            ),
        ),
        receipt(1).chain,
        SIGNER,
        KEY,
    )
    with store.begin(NAMESPACE) as transaction:
        receipts_in(transaction).add(one, {"f": "doc"})
    store.close()
    (database,) = tmp_path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    holding = {
        (table, column)
        for table, columns in COVERED.items()
        for column in columns
        for (value,) in connection.execute(f"SELECT {column} FROM {table}")
        if "walruszq" in str(value) or b"walruszq" in _bytes(value)
    }
    connection.close()
    assert holding == {("receipt_contents", "texts")}


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
