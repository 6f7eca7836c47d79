"""A tenant's archive goes from store to store unchanged; a whole tenant is erased with a proof."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crp_integrations import Relay
from crp_integrations.cli.app import app
from crp_integrations.errors import ConfigError, RequestError, StoreError
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.postgres import postgres_address  # noqa: F401 - a fixture

KEY = "ab" * 32
OURS, THEIRS = "acme", "globex"
OUR_TEXT = "The walrus of acme sleeps on the northern ice until noon every day."
THEIR_TEXT = "The heron of globex wades in the southern marsh until dusk every day."
ERASED_TEXT = "The otter of acme was seen near the mill and is to be forgotten by all."
QUESTION = "Where does the walrus sleep?"


def crp(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"CRP_KEY": KEY})


def opened(place: object, tenant: str = OURS) -> Relay:
    # The commands open a store with the embedder of the settings.
    return Relay.open(place, subject=Subject(tenant=tenant), key=KEY)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of two tenants, one of which asked, and erased a source."""
    if request.param == "postgres":
        store = str(request.getfixturevalue("postgres_address"))
    else:
        store = str(tmp_path / "kb")
    for tenant, text in ((OURS, OUR_TEXT), (THEIRS, THEIR_TEXT)):
        with opened(store, tenant) as relay:
            relay.add([text])
            if tenant == OURS:
                gone = relay.add([ERASED_TEXT])
                relay.ask(QUESTION, model="extractive")
                relay.fabric.erase(gone.sources[0])
    return store


def emptied(place: str) -> None:
    if "://" in place:
        store = PostgresStore(place)
        store.drop(OURS, artifacts=())
        store.close()
    else:
        shutil.rmtree(place)


def export(place: str, file: Path) -> Result:
    return crp(
        *("fabric", "export", "--format", "archive", "--tenant", OURS),
        *("--store", place, "--out", file),
    )


def state(place: str) -> tuple[str, str, str, int, list[str]]:
    with opened(place) as relay:
        envelope = relay.preview(QUESTION)
        return (
            relay.fabric.state_hash(),
            envelope.etag,
            envelope.text,
            relay.verify().windows,
            [source.status for source in relay.fabric.sources()],
        )


def test_there_and_back_is_the_same(tmp_path: Path, postgres_address: str) -> None:  # noqa: F811
    first, back = tmp_path / "kb", tmp_path / "back"
    with opened(first) as relay:
        relay.add([OUR_TEXT])
        gone = relay.add([ERASED_TEXT])
        relay.ask(QUESTION, model="extractive")
        relay.fabric.erase(gone.sources[0])
    before = state(str(first))
    for number, (source, target) in enumerate(
        [(first, postgres_address), (postgres_address, back)]
    ):
        file = tmp_path / f"{number}.crp"
        done = export(str(source), file)
        assert done.exit_code == 0, done.exception
        done = crp("fabric", "import", file, "--tenant", OURS, "--store", target)
        assert done.exit_code == 0, done.exception
        assert state(str(target)) == before
    assert "REMOVED" in before[-1]


def test_no_other_tenants_row_and_no_erased_text_leaves(place: str, tmp_path: Path) -> None:
    done = export(place, tmp_path / "acme.crp")
    assert done.exit_code == 0, done.exception
    written = (tmp_path / "acme.crp").read_bytes()
    assert OUR_TEXT.encode() in written
    for absent in (THEIR_TEXT, "heron", THEIRS, ERASED_TEXT, "otter"):
        assert absent.encode() not in written
    assert (tmp_path / "acme.crp").stat().st_mode & 0o077 == 0
    assert {path.name for path in tmp_path.iterdir()} <= {"acme.crp", "kb"}


@pytest.mark.parametrize("damage", ["cut", "changed", "header", "longer"])
def test_a_torn_file_is_refused_and_nothing_is_imported(
    place: str, tmp_path: Path, damage: str
) -> None:
    file = tmp_path / "acme.crp"
    assert export(place, file).exit_code == 0
    data = file.read_bytes()
    torn = {
        "cut": data[:-1],
        "changed": data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:],
        "header": data[10:],
        "longer": data + b"\0",
    }[damage]
    file.write_bytes(torn)
    emptied(place)
    failed = crp("fabric", "import", file, "--tenant", OURS, "--store", place)
    assert isinstance(failed.exception, StoreError), failed.exception
    store = PostgresStore(place) if "://" in place else SqliteStore(place)
    assert OURS not in store.namespaces()
    store.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"acme.crp", "kb"}


def test_nothing_is_imported_over_a_tenant_or_under_another_key(place: str, tmp_path: Path) -> None:
    file = tmp_path / "acme.crp"
    assert export(place, file).exit_code == 0
    assert "already" in str(
        crp("fabric", "import", file, "--tenant", OURS, "--store", place).exception
    )
    for env in ({"CRP_KEY": "cd" * 32}, {}):
        failed = CliRunner().invoke(
            app,
            ["fabric", "import", str(file), "--tenant", OURS, "--store", str(tmp_path / "new")],
            env=env,
        )
        assert isinstance(failed.exception, ConfigError) and "key" in str(failed.exception)
    assert not (tmp_path / "new").exists()


def altered(file: Path, tmp_path: Path, script: str, namespace: str = OURS) -> None:
    """Change an archive's database, and its header so that it fits."""
    header, data = file.read_bytes().split(b"\n", 1)
    database = tmp_path / "altered"
    database.write_bytes(data)
    with closing(sqlite3.connect(database)) as connection:
        sealed = [row[0] for row in connection.execute(SEALS)]
        for name in ("events_update", "events_delete"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.executescript(script)
        for statement in sealed:
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = database.read_bytes()
    about = json.loads(header) | {
        "namespace": namespace,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    file.write_bytes(json.dumps(about).encode() + b"\n" + data)


SEALS = "SELECT sql FROM sqlite_schema WHERE name IN ('events_update', 'events_delete')"
OTHER = "UPDATE own SET value = 'shared:law' WHERE name = 'namespace';"
ENDLESS = """DROP TABLE settings;
CREATE VIEW settings AS WITH RECURSIVE n (name, value) AS
    (SELECT 1, 1 UNION ALL SELECT name + 1, 1 FROM n) SELECT name, value FROM n;"""


@pytest.mark.parametrize(
    ("script", "namespace", "tenant", "words"),
    [
        (OTHER, "shared:law", ("--tenant", OURS), ("shared:law", OURS, "--shared")),
        (f"{OTHER} DELETE FROM events;", "shared:law", ("--shared", "law"), ("no trail",)),
        ("DELETE FROM events;", OURS, ("--tenant", OURS), ("no trail",)),
        (ENDLESS, OURS, ("--tenant", OURS), ("other tables",)),
        ("CREATE TABLE more (x);", OURS, ("--tenant", OURS), ("other tables",)),
    ],
)
def test_an_altered_archive_is_refused_before_it_is_read(
    tmp_path: Path, script: str, namespace: str, tenant: tuple[str, str], words: tuple[str, ...]
) -> None:
    with opened(tmp_path / "kb") as relay:
        relay.add([OUR_TEXT])
    file = tmp_path / "acme.crp"
    assert export(str(tmp_path / "kb"), file).exit_code == 0
    altered(file, tmp_path, script, namespace)
    failed = crp("fabric", "import", file, *tenant, "--store", tmp_path / "new")
    assert isinstance(failed.exception, StoreError), failed.exception
    assert all(word in str(failed.exception) for word in words)
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_an_archive_is_read_where_no_folder_can_be_made(tmp_path: Path) -> None:
    with opened(tmp_path / "kb") as relay:
        relay.add([OUR_TEXT])
    assert export(str(tmp_path / "kb"), tmp_path / "acme.crp").exit_code == 0
    with (tmp_path / "acme.crp").open("rb") as file:
        place = f"/proc/self/fd/{file.fileno()}"
        done = crp("fabric", "import", place, "--tenant", OURS, "--store", tmp_path / "new")
    assert done.exit_code == 0, done.exception


def test_one_tenant_is_migrated(place: str, tmp_path: Path) -> None:
    moving = ("fabric", "migrate", "--from", place, "--to", tmp_path / "one", "--tenant")
    assert "nobody" in str(crp(*moving, "nobody").exception)
    assert crp(*moving, OURS).exit_code == 0
    store = SqliteStore(tmp_path / "one")
    assert store.namespaces() == [OURS]
    store.close()
    assert state(str(tmp_path / "one")) == state(place)


def test_a_tenant_is_erased_and_the_proof_verifies(place: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof.ndjson"
    erasing = ("fabric", "erase", "--everything", "--tenant", OURS, "--store", place)
    assert isinstance(crp(*erasing, "--yes").exception, RequestError)
    done = crp(*erasing, "--proof", proof, "--yes")
    assert done.exit_code == 0, done.exception
    checking = ("audit", "verify", "--file", proof, "--tenant", OURS, "--store", place, "--json")
    checked = crp(*checking)
    assert checked.exit_code == 0 and json.loads(checked.stdout)["state"] == "VALID"
    lines = proof.read_text().splitlines()
    assert [json.loads(line)["data"]["cause"] for line in lines[-2:]] == ["erasure"] * 2
    assert OUR_TEXT not in proof.read_text()
    proof.write_text("\n".join([*lines[:-1], lines[-1].replace("erasure", "ingested")]) + "\n")
    assert crp(*checking).exit_code == 1
    assert "nothing" in str(crp("fabric", "stats", "--tenant", OURS, "--store", place).exception)
    with opened(place, THEIRS) as relay:
        assert relay.fabric.size() == 1 and relay.verify()
    if "://" not in place:
        left = b"".join(path.read_bytes() for path in Path(place).rglob("*") if path.is_file())
        assert b"walrus" not in left and b"heron" in left
    # The tenant may begin anew.
    with opened(place) as relay:
        relay.add([OUR_TEXT])
        assert relay.fabric.size() == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_proof_stays_if_the_erasure_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store, proof = tmp_path / "kb", tmp_path / "proof.ndjson"
    with opened(store) as relay:
        relay.add([OUR_TEXT])
    partial = tmp_path / "proof.ndjson.partial"
    partial.write_text("of an earlier try")
    proof.write_text("of another tenant")
    drop = SqliteStore.drop

    def interrupted(self: SqliteStore, namespace: str) -> bool:
        if after:
            drop(self, namespace)
        raise StoreError("interrupted")

    erasing = ("fabric", "erase", "--everything", "--tenant", OURS, "--store", store, "--yes")
    assert "already" in str(crp(*erasing, "--proof", proof).exception)
    proof.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "drop", interrupted)
        assert "interrupted" in str(crp(*erasing, "--proof", proof).exception)
    assert not proof.exists()
    trail = partial.read_text()
    assert '"erasure"' in trail
    again = crp(*erasing, "--proof", proof)
    if after:
        # A second erasure finds nothing, and leaves the proof.
        assert isinstance(again.exception, RequestError) and partial.read_text() == trail
    else:
        assert again.exit_code == 0, again.exception
        assert proof.exists() and not partial.exists()


def test_an_interrupted_removal_is_finished_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, after = tmp_path / "kb", tmp_path / "after"
    with opened(place, THEIRS) as relay:
        relay.add([THEIR_TEXT])

    def killed(path: Path) -> None:
        shutil.copytree(place, after)
        raise KeyboardInterrupt

    # The open relay leaves the text in the write-ahead log.
    with opened(place) as relay, monkeypatch.context() as patched:
        relay.add([OUR_TEXT])
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            SqliteStore(place).drop(OURS)
    store = SqliteStore(after)
    assert store.namespaces() == [THEIRS]
    store.close()
    left = b"".join(path.read_bytes() for path in after.rglob("*") if path.is_file())
    assert b"walrus" not in left and b"heron" in left


def test_a_relay_that_erased_its_tenant_has_nothing_of_it(place: str) -> None:
    with opened(place) as relay:
        assert relay.preview(QUESTION).facts
        assert relay.fabric.erase_everything(list) == 1
        assert not relay.preview(QUESTION).facts and relay.fabric.size() == 0
