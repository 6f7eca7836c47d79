"""Sessions in files that somebody else wrote into, or that a newer version wrote."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from crp_integrations.errors import StoreDamaged
from crp_integrations.session.ports import SessionsFacet, sessions_of
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import NAMESPACE, NOON, prior, session, window

PLACES: tuple[tuple[str, str, Callable[[SessionsFacet], object], str], ...] = (
    ("sessions", "record", lambda sessions: sessions.session("s"), "session 's'"),
    ("windows", "record", lambda sessions: sessions.windows("s"), "window 'w-s-1'"),
    ("windows", "record", lambda sessions: sessions.continued("c"), "window 'w-s-1'"),
    ("window_contents", "prior", lambda s: s.priors(["w-s-1"]), "what was said by window 'w-s-1'"),
)


def made(path: Path) -> Path:
    """A store with a session of one window, closed; the path of its one database."""
    store = SqliteStore(path)
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).keep(session("s"))
        sessions_of(transaction).add_window(window(1, continuation_id="c"), prior=prior(1, "f"))
    store.close()
    (database,) = path.rglob("*.sqlite")
    return database


@pytest.mark.parametrize(("table", "column", "look", "name"), PLACES)
@pytest.mark.parametrize("how", ["newer", "extra", "foreign", "broken"])
def test_what_does_not_read_back_is_damage(
    tmp_path: Path,
    table: str,
    column: str,
    look: Callable[[SessionsFacet], object],
    name: str,
    how: str,
) -> None:
    """A newer schema, a field that nobody knows, another record, no JSON; `check` names it."""
    database = made(tmp_path / "kb")
    connection = sqlite3.connect(database)
    ((text,),) = connection.execute(f"SELECT {column} FROM {table}").fetchall()
    fields = json.loads(text)
    kind, _, number = fields["schema"].partition("/")
    match how:
        case "newer":
            fields["schema"] = f"{kind}/{int(number) + 1}"
        case "extra":
            fields["walrus"] = "secret walrus"
        case "foreign":
            fields["schema"] = "fact/1"
    changed = "secret walrus {" if how == "broken" else json.dumps(fields)
    connection.execute(f"UPDATE {table} SET {column} = ?", [changed])
    connection.commit()
    connection.close()
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE, write=False) as transaction:
        with pytest.raises(StoreDamaged, match="does not read back") as caught:
            look(sessions_of(transaction))
        assert "walrus" not in str(caught.value)
    assert store.check(NAMESPACE) == [f"{name} does not read back"]
    store.close()


def test_a_sound_session_has_nothing_wrong(tmp_path: Path) -> None:
    made(tmp_path / "kb")
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE) as transaction:
        for number in range(2, 1_100):
            sessions_of(transaction).add_window(window(number), report="{}")
    assert store.check(NAMESPACE) == []
    store.close()


def test_a_damaged_node_does_not_hold_up_an_erasure(tmp_path: Path) -> None:
    """Nobody can say what follows it, so all that its session said goes."""
    database = made(tmp_path / "kb")
    store = SqliteStore(tmp_path / "kb")
    with store.begin(NAMESPACE) as transaction:
        sessions_of(transaction).add_window(window(2), prior=prior(2, "g"))
        sessions_of(transaction).add_window(window(3), prior=prior(3, "h"))
    connection = sqlite3.connect(database)
    connection.execute("UPDATE windows SET record = '{' WHERE window_id = 'w-s-1'")
    connection.commit()
    connection.close()
    with store.begin(NAMESPACE) as transaction:
        assert sessions_of(transaction).withdraw(["g"], NOON) == 3
    store.close()
