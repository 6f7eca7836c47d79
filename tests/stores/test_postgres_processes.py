"""Several processes on one server: erasures are told, and a killed server loses nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from types import SimpleNamespace

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.audit.journal import verify_journal
from crp_integrations.errors import StoreBusy, StoreError
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.pool import Listener, WatchedConnection
from crp_integrations.testing.fixtures import KEY, NAMESPACE, fact, fill
from tests.postgres import Server, postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import (
    OPTIONS,
    SPAWN,
    batch,
    read_and_wait,
    write_batch,
    write_until_told,
)

KILLS = 4
QUESTION = "which fact is about the walrus on the ice?"
TEXTS = [f"fact number {n} is about the walrus that sleeps on the ice {n} hours" for n in range(9)]


@contextmanager
def read_by_another(address: str) -> Iterator[tuple[Relay, Connection, list[str]]]:
    """A relay, a pipe to a process that has read its facts, and the ids that it was shown."""
    with Relay.open(address, **OPTIONS) as relay:
        relay.fabric.add(TEXTS)
        ours, theirs = SPAWN.Pipe()
        reader = SPAWN.Process(target=read_and_wait, args=(address, QUESTION, theirs))
        reader.start()
        shown = ours.recv()
        assert shown
        yield relay, ours, shown
        reader.join()


def test_an_erased_fact_is_gone_from_both_of_two_processes(postgres_address):  # noqa: F811
    with read_by_another(postgres_address) as (relay, ours, shown):
        erased = shown[0]
        relay.fabric.forget(facts=[erased])
        ours.send("forgotten")
        after, told = ours.recv()
        assert told
        assert erased not in after
        assert erased not in [one.fact_id for one in relay.turn(QUESTION).preview().facts]


def test_a_dropped_tenant_is_gone_from_another_process(postgres_address):  # noqa: F811
    with read_by_another(postgres_address) as (relay, ours, _):
        operator = PostgresStore(postgres_address)
        assert operator.drop("local")
        ours.send("dropped")
        assert ours.recv() == ([], True)
        # Who had it open finds it as if it never was, and may write it again.
        assert relay.fabric.size() == 0 and relay.fabric.doctor().findings == ()
        relay.fabric.add(TEXTS[:2])
        assert relay.fabric.size() == 2
        assert operator.drop("local")
        relay.ask(QUESTION, model="extractive")
        assert relay.verify().windows == 1
        operator.close()


def test_a_server_killed_while_two_processes_write_loses_nothing_acknowledged():
    # The disk is waited for here.
    server = Server("max_connections=30", "shared_buffers=32MB")
    try:
        address = server.address()
        wires, writers = [], []
        for writer in range(2):
            ours, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=write_until_told, args=(address, writer, theirs))
            process.start()
            wires.append(ours)
            writers.append(process)
        done: list[list[int]] = [[], []]

        def hear(writer: int) -> None:
            """One more batch, which also shows that the client has connected again."""
            done[writer].append(wires[writer].recv())

        for kill in range(KILLS):
            for writer in range(2):
                hear(writer)
            time.sleep(0.01 * (kill % 4))
            server.kill()
            server.start()
        for writer in range(2):
            hear(writer)
            wires[writer].send("end")
            while (told := wires[writer].recv()) != "done":
                done[writer].append(told)
        for process in writers:
            process.join()
        store = PostgresStore(address)
        with store.begin(NAMESPACE, write=False) as transaction:
            for writer, numbers in enumerate(done):
                assert numbers == list(range(len(numbers)))
                ids = [fact(text).fact_id for n in numbers for text in batch(f"{writer}-{n}")]
                assert len(transaction.facts.get(ids)) == len(ids)
                assert len(transaction.facts.vectors(ids)) == len(ids)
            count = len(transaction.facts.retrievable())
            assert verify_journal(transaction.journal.events(), KEY) == count // 5
            # A batch and its event are one transaction: one without the other was never there.
            assert count == 5 * transaction.facts.generation()
        assert store.check(NAMESPACE) == []
        store.close()
    finally:
        server.close()


def test_a_lost_server_is_said_and_met_again():
    server = Server("fsync=off", "shared_buffers=32MB")
    try:
        store = PostgresStore(server.address(), busy_seconds=1.0)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.set_setting("a", "b")
        server.kill()
        for write in (True, False):
            try:
                with store.begin(NAMESPACE, write=write):
                    raise AssertionError("a transaction without a server")
            except StoreBusy:
                pass
        server.start()
        deadline = time.monotonic() + 20
        while True:
            try:
                with store.begin(NAMESPACE, write=False) as transaction:
                    assert transaction.facts.setting("a") == "b"
                break
            except StoreBusy:
                assert time.monotonic() < deadline
        store.close()
    finally:
        server.close()


def test_a_standby_serves_reads_and_loses_nothing_acknowledged_when_it_takes_over():
    first = Server("shared_buffers=32MB", "max_connections=30")
    second = None
    try:
        copy = first.folder / "standby"
        first.give(copy)
        store = PostgresStore(first.address())
        fill(store, "before the copy")
        place = ("-h", str(first.sockets), "-p", str(first.port), "-U", "postgres")
        first.run("pg_basebackup", "-D", str(copy), "-R", "-c", "fast", *place)
        second = Server("shared_buffers=32MB", "max_connections=30", data=copy)
        with psycopg.connect(first.address(), autocommit=True) as raw:
            # A commit is acknowledged when the other server has it on its disk.
            raw.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            raw.execute("SELECT pg_reload_conf()")
            while raw.execute("SELECT sync_state FROM pg_stat_replication").fetchone() != ("sync",):
                time.sleep(0.05)
        for number in range(8):
            write_batch(store, str(number))
        reader = PostgresStore(second.address())
        with reader.begin(NAMESPACE, write=False) as transaction:
            assert len(transaction.facts.search_text(["copy"], 5)) == 1
        with pytest.raises(StoreError), reader.begin(NAMESPACE) as transaction:
            transaction.facts.set_setting("a", "b")
        first.kill()
        store.close()
        second.run("pg_ctl", "-w", "-D", str(copy), "promote")
        with reader.begin(NAMESPACE, write=False) as transaction:
            ids = [fact(text).fact_id for number in range(8) for text in batch(str(number))]
            assert len(transaction.facts.get(ids)) == len(ids)
            assert verify_journal(transaction.journal.events(), KEY) == 8
        write_batch(reader, "after")
        assert reader.check(NAMESPACE) == []
        reader.close()
    finally:
        for one in (second, first):
            if one is not None:
                one.close()


def test_a_cache_that_cannot_be_cleared_does_not_end_the_listening(monkeypatch, caplog):
    lasting = []

    def forget(files):
        lasting.append(files)
        if len(lasting) == 3:
            listener._closed.set()
        raise StoreError("a.vectors cannot be removed")

    raw = SimpleNamespace(execute=lambda _: None, notifies=lambda **_: iter(["erased"]))
    monkeypatch.setattr(WatchedConnection, "connect", lambda *_, **__: nullcontext(raw))
    listener = Listener("postgresql://", forget)
    listener.start()
    listener._thread.join(10.0)
    assert lasting == [False, True, True], "a connection keeps files, a notification does not"
    assert caplog.text.count("a.vectors cannot be removed") == 3
