"""What windows and receipts name is one row each, and an erasure finds it all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from crp_integrations.receipt.records import LeftOut
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.relational import fact_references
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.transfer import move
from crp_integrations.testing.fixtures import (
    NAMESPACE,
    NOON,
    prior,
    receipt,
    receipts_in,
    session,
    window,
)

MANY = 5


def said(store: SqliteStore, *numbers: int) -> None:
    """A window and a receipt for each number, both of them with a fact that all have."""
    for number in numbers:
        node = window(number, f"s{number}")
        ids = {"session_id": node.session_id, "window_id": node.window_id}
        with store.begin(NAMESPACE) as transaction:
            sessions_of(transaction).keep(session(node.session_id))
            sessions_of(transaction).add_window(
                node,
                prior=prior(number, f"f-{number}", "common"),
                sources=[f"doc-{number}"],
            )
            made = receipt(number, f"f-{number}", "common", **ids)
            receipts_in(transaction).add(made, {f"f-{number}": f"doc-{number}"})


def rows(path: Path, table: str) -> int:
    (database,) = path.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    connection.close()
    return int(count)


def indexed(path: Path) -> list[int]:
    return [rows(path, name) for name in ("window_facts", "window_sources", "receipt_facts")]


def kept(store: SqliteStore) -> list[tuple[bool, int]]:
    """For each receipt whether its window still says something, and how many facts' texts it has."""
    found = []
    with store.begin(NAMESPACE, write=False) as transaction:
        for id_ in receipts_in(transaction).ids():
            one = receipts_in(transaction).get(id_)
            assert one is not None
            window_id = one.chain.window_id
            texts = sum(
                bool(leaf.fact_id) and not isinstance(text, LeftOut)
                for leaf, text in zip(one.leaves, one.texts, strict=True)
            )
            found.append((bool(sessions_of(transaction).priors([window_id])), texts))
    return found


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    made = SqliteStore(tmp_path / "kb")
    said(made, *range(1, MANY + 1))
    return made


def test_a_window_writes_nothing_into_the_index(store: SqliteStore) -> None:
    assert indexed(store.root) == [0, 0, 0]
    assert [rows(store.root, name) for name in ("window_packed", "receipt_packed")] == [MANY, MANY]


@pytest.mark.parametrize("at_a_time", [1, 2, fact_references.SPREAD])
@pytest.mark.parametrize("how", ["fact", "source"])
def test_an_erasure_finds_what_is_packed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, at_a_time: int, how: str
) -> None:
    """Also what is beyond the part that it puts into the index; the others stay as they are."""
    monkeypatch.setattr(fact_references, "SPREAD", at_a_time)
    for number in (MANY, 1):
        with store.begin(NAMESPACE) as transaction:
            facts, source = ([f"f-{number}"], "") if how == "fact" else ([], f"doc-{number}")
            assert sessions_of(transaction).withdraw(facts, NOON, source_id=source) == 1
    assert kept(store) == [(False, 1), *[(True, 2)] * (MANY - 2), (False, 1)]
    left = MANY - min(MANY, 2 * at_a_time)
    assert rows(store.root, "receipt_packed") == max(0, left - (at_a_time < MANY))
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).withdraw(["common"], NOON)
    assert kept(store) == [(False, 0), *[(False, 1)] * (MANY - 2), (False, 0)]
    assert store.check(NAMESPACE) == []


def test_a_damaged_row_does_not_hold_up_an_erasure(store: SqliteStore) -> None:
    """Nobody can say what it names, so all that was said there goes."""
    (database,) = store.root.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    connection.execute('UPDATE window_packed SET facts = \'["f\' WHERE "window" = 2')
    connection.execute("UPDATE receipt_packed SET sources = '[]' WHERE place = 2")
    connection.commit()
    connection.close()
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).withdraw(["f-1"], NOON)
    # The receipt of the second window is of a window that was emptied.
    assert kept(store) == [(False, 1), (False, 2), (True, 0), (True, 2), (True, 2)]


def test_what_is_packed_is_moved_into_the_index(store: SqliteStore, tmp_path: Path) -> None:
    target = SqliteStore(tmp_path / "other")
    move(store, target, NAMESPACE, lambda *told: None)
    assert indexed(target.root) == [2 * MANY, MANY, 2 * MANY]
    assert rows(target.root, "window_packed") == rows(target.root, "receipt_packed") == 0
    with target.begin(NAMESPACE) as transaction:
        sessions_of(transaction).withdraw([f"f-{MANY}"], NOON)
    assert kept(target) == [*[(True, 2)] * (MANY - 1), (False, 1)]


def test_a_session_takes_its_rows_with_it(store: SqliteStore) -> None:
    with store.begin(NAMESPACE) as transaction:
        assert sessions_of(transaction).forget("s1")
    assert rows(store.root, "window_packed") == MANY - 1
