"""A store that this user may only read, or whose disk is full: it is looked into, and pays no model."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from crp_integrations import Relay
from crp_integrations.errors import StoreError, StoreNewer
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores import files
from crp_integrations.testing.fixtures import NOON
from crp_integrations.vocabulary import Strategy
from tests.doubles import ScriptedModel
from tests.stores.postgres_processes import OPTIONS

QUESTION = "where does the walrus sleep?"
NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user that owns nothing; file modes do not bind root."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user can reach."""
    made = Path(tempfile.mkdtemp(prefix="crp-readers-"))
    made.chmod(0o777)
    yield made
    for path, _, _ in os.walk(made):
        Path(path).chmod(0o777)
    shutil.rmtree(made)


@pytest.fixture
def kb(folder: Path) -> Path:
    """A store of that user's, with upkeep that is due later."""
    root = folder / "kb"
    with Relay.open(root, **OPTIONS) as relay:
        facts = [f"The walrus number {n} sleeps on the ice" for n in range(3)]
        due = "The seal sleeps until ten in the morning on the beach"
        relay.fabric.add([*facts, Fact(content=due, namespace="local", ttl="P1D")])
        relay.ask(QUESTION, model="extractive")
    if not os.geteuid():
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    return root


def database(root: Path) -> Path:
    (path,) = root.rglob("*.sqlite")
    return path


def refused(relay: Relay, strategy: Strategy = Strategy.PUSH) -> str:
    """What is said to each way of asking."""
    said = set()
    for ask in (
        lambda: relay.ask(QUESTION, model="gpt-4o", strategy=strategy),
        lambda: list(relay.stream(QUESTION, model="gpt-4o")),
        lambda: asyncio.run(relay.aask(QUESTION, model="gpt-4o", strategy=strategy)),
    ):
        with pytest.raises(StoreError) as caught:
            ask()
        said.add(str(caught.value))
    assert len(said) == 1
    return said.pop()


@pytest.mark.parametrize("strategy", [Strategy.PUSH, Strategy.HIERARCHICAL, Strategy.REFLEXIVE])
def test_a_file_that_is_only_read(kb: Path, strategy: Strategy) -> None:
    database(kb).chmod(0o444)
    model = ScriptedModel("On the ice.")
    with unprivileged():
        options = {**OPTIONS, "clock": NOON + timedelta(days=2)}
        with Relay.open(kb, **options, models=model) as relay:
            # Counted with another tokenizer than those that are kept.
            assert relay.preview(QUESTION, model="mistral-large").facts_included
            said = refused(relay, strategy)
            assert model.calls == []
            # What was opened meanwhile is only read as well.
            database(kb).chmod(0o600)
            assert f"{database(kb)}-" in refused(relay)
            for path in database(kb).parent.glob("fabric.sqlite*"):
                path.chmod(0o600)
            assert model.calls == []
            assert relay.ask(QUESTION, model="gpt-4o").text == "On the ice."
    assert f"{database(kb)} is read-only" in said
    assert "namespace 'local'" in said
    assert "let this user write it" in said


@pytest.mark.parametrize("where", ["kb", "kb/namespaces", "."])
def test_a_folder_in_which_nothing_can_be_made(folder: Path, where: str) -> None:
    locked = folder / where
    locked.mkdir(parents=True, exist_ok=True)
    locked.chmod(0o555)
    model = ScriptedModel("On the ice.")
    before = sorted(folder.rglob("*"))
    with (
        unprivileged(),
        Relay.open(folder / "kb", **OPTIONS, models=model, subject=Subject(tenant="acme")) as it,
    ):
        said = refused(it)
        assert model.calls == []
        assert sorted(folder.rglob("*")) == before
    assert f"{locked} is a folder in which this user cannot create files" in said
    assert "namespace 'acme'" in said


@pytest.mark.parametrize("blocks", [0, 3])
@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk(
    kb: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, there: bool
) -> None:
    disk = SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bavail=blocks, f_bfree=blocks)
    monkeypatch.setattr(files.os, "statvfs", lambda place: disk)
    model = ScriptedModel("On the ice.")
    with Relay.open(kb if there else folder / "new", **OPTIONS, models=model) as relay:
        said = refused(relay)
        assert model.calls == []
        # One that tells nothing of its size, as some in memory.
        disk.f_blocks = 0
        assert relay.ask(QUESTION, model="gpt-4o").text == "On the ice."
    assert f"has {4096 * blocks} bytes left on its disk, wanted {files.MIN_FREE_BYTES}" in said
    assert "make room" in said


def test_a_file_of_a_newer_version(kb: Path) -> None:
    model = ScriptedModel("On the ice.")
    with Relay.open(kb, **OPTIONS, models=model) as relay:
        relay.preview(QUESTION)
        connection = sqlite3.connect(database(kb))
        connection.execute("PRAGMA user_version = 1000")
        connection.close()
        # Also while it is open.
        with pytest.raises(StoreNewer, match="schema version 1000; this version of the package"):
            relay.ask(QUESTION, model="gpt-4o")
    with (
        pytest.raises(StoreNewer, match="schema version 1000; this version of the package"),
        Relay.open(kb, **OPTIONS, models=model) as relay,
    ):
        relay.ask(QUESTION, model="gpt-4o")
    assert model.calls == []
