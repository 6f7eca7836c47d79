"""What `docs/how-to/postgresql.md` says of copies: a dump is the same store, a standby answers questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, StoreBusy
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.testing.fixtures import NOON
from tests.doubles import HashEmbedder, ScriptedModel, erase_all
from tests.postgres import Server
from tests.stores.postgres_processes import OPTIONS

PASSWORD = "a-password"
QUESTION = "where does the walrus sleep?"
SMALL = ("fsync=off", "shared_buffers=32MB", "max_connections=20")


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made = [Server(*SMALL), Server(*SMALL)]
    yield made
    for server in made:
        server.close()


def dumped(server: Server) -> Path:
    """The server's database in a file, made by the command of the page."""
    folder = server.folder / "dump"
    server.give(folder)
    server.run("pg_dump", "-Fc", "-f", str(folder / "kb.dump"), "-d", server.address())
    for one in (folder, folder / "kb.dump"):
        one.chmod(0o755)
    return folder / "kb.dump"


def test_a_dump_restored_on_another_server_is_the_same_store(servers: list[Server]) -> None:
    first, second = servers
    texts = [
        f"The walrus number {n} sleeps on the ice at {n} o'clock in the night" for n in range(9)
    ]
    with (
        closing(PostgresStore(first.address(), index_from=3)) as operator,
        Relay.open(operator, subject=Subject(tenant="acme"), **OPTIONS) as relay,
    ):
        relay.fabric.add(texts)
        relay.ask(QUESTION, model="extractive")
        state, asked = relay.fabric.state_hash(), relay.preview(QUESTION).etag
        with operator.begin("shared:law") as transaction:
            transaction.facts.set_setting("a", "b")
        operator.admit("acme", PASSWORD, reads=["shared:law"])
        backup = dumped(first)
    # Roles are not in a dump: without these two words every right of theirs is an error.
    given = ("--no-owner", "--no-acl", "-d", second.address())
    second.run("pg_restore", *given, str(backup))
    with closing(PostgresStore(second.address(), index_from=3)) as operator:
        assert operator.check("acme") == []
        role = operator.admit("acme", PASSWORD, reads=["shared:law"])
        place = second.address("postgres", role, PASSWORD)
        tenant = PostgresStore(place, index_from=3)
        with Relay.open(tenant, subject=Subject(tenant="acme"), **OPTIONS) as relay:
            assert relay.fabric.state_hash() == state
            assert relay.preview(QUESTION).etag == asked
            assert relay.verify().windows == 1
            relay.add(["The seal sleeps on the ice at ten o'clock in the night"])
            relay.ask(QUESTION, model="extractive")
            assert relay.verify().windows == 2
            # Bytes are taken off the disk by functions that run as their owner.
            assert erase_all(relay.fabric).scrubbed
        with closing(PostgresStore(place)) as tenant:
            with tenant.begin("shared:law", write=False) as transaction:
                assert transaction.facts.setting("a") == "b"
            with pytest.raises(AccessDenied), tenant.begin("shared:law") as transaction:
                transaction.facts.set_setting("a", "c")
        with (
            psycopg.connect(place, autocommit=True) as raw,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            raw.execute("CREATE TEMPORARY TABLE facts (a int)")
        with (
            psycopg.connect(second.address(), autocommit=True) as raw,
            pytest.raises(psycopg.errors.RaiseException),
        ):
            raw.execute(f"DELETE FROM {role}.events")


def test_a_standby_is_opened_and_asked_although_upkeep_is_due() -> None:
    first = Server("shared_buffers=32MB", "max_connections=30")
    second = None
    try:
        with Relay.open(first.address(), **OPTIONS) as relay:
            expiring = "The seal sleeps until ten in the morning on the beach"
            relay.fabric.add(
                [
                    Fact(content=expiring, namespace="local", ttl="P1D"),
                    *(f"The walrus number {n} sleeps on the ice at {n} o'clock" for n in range(9)),
                ]
            )
        copy = first.folder / "standby"
        first.give(copy)
        place = ("-h", str(first.sockets), "-p", str(first.port), "-U", "postgres")
        first.run("pg_basebackup", "-D", str(copy), "-R", "-c", "fast", *place)
        second = Server("shared_buffers=32MB", "max_connections=30", data=copy)
        later = {**OPTIONS, "clock": NOON + timedelta(days=2)}
        with Relay.open(second.address(), **later) as relay:
            # What was not counted before is counted, and cannot be kept.
            assert relay.preview(QUESTION).etag.startswith("sha256:")
            assert relay.fabric.nearest(HashEmbedder().embed_query(expiring), 1)[0].score > 0.99
            assert relay.fabric.doctor().findings == ()
            for write in (relay.fabric.maintain, lambda: relay.add([expiring.upper()])):
                with pytest.raises(StoreBusy, match="is read-only, like a standby"):
                    write()
            paid = ScriptedModel("On the ice.")
            with Relay.open(second.address(), **later, models=paid) as asking:
                for _ in range(2):
                    with pytest.raises(StoreBusy, match="is read-only, like a standby"):
                        asking.ask(QUESTION, model="gpt-4o")
                assert paid.calls == []
                second.run("pg_ctl", "-w", "-D", str(copy), "promote")
                # By a connection that knew the server as a standby.
                assert asking.ask(QUESTION, model="gpt-4o").text == "On the ice."
            assert relay.fabric.maintain().stale == 1
            assert relay.ask(QUESTION, model="extractive").text
    finally:
        for one in (second, first):
            if one is not None:
                one.close()
