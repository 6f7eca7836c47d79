"""A tenant's archive goes from store to store unchanged; a whole tenant is erased with a proof."""

from __future__ import annotations

import json
import shutil
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
        done = crp("fabric", "import", file, "--store", target)
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
    failed = crp("fabric", "import", file, "--store", place)
    assert isinstance(failed.exception, StoreError), failed.exception
    store = PostgresStore(place) if "://" in place else SqliteStore(place)
    assert OURS not in store.namespaces()
    store.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"acme.crp", "kb"}


def test_nothing_is_imported_over_a_tenant_or_under_another_key(place: str, tmp_path: Path) -> None:
    file = tmp_path / "acme.crp"
    assert export(place, file).exit_code == 0
    assert "already" in str(crp("fabric", "import", file, "--store", place).exception)
    for env in ({"CRP_KEY": "cd" * 32}, {}):
        failed = CliRunner().invoke(
            app, ["fabric", "import", str(file), "--store", str(tmp_path / "new")], env=env
        )
        assert isinstance(failed.exception, ConfigError) and "key" in str(failed.exception)
    assert not (tmp_path / "new").exists()


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


def test_a_relay_that_erased_its_tenant_has_nothing_of_it(place: str) -> None:
    with opened(place) as relay:
        assert relay.preview(QUESTION).facts
        assert relay.fabric.erase_everything(list) == 1
        assert not relay.preview(QUESTION).facts and relay.fabric.size() == 0
