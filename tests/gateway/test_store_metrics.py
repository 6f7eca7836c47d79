"""What `/metrics` says of a database: connections, waits, locks and errors, on a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from crp_integrations.errors import StoreBusy
from crp_integrations.gateway import GatewaySettings
from crp_integrations.gateway import app as applications
from crp_integrations.stores.address import store_at
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from tests.gateway.application import FAST, TENANTS, Gateway, opened
from tests.postgres import Server as Database
from tests.postgres import server as shared
from tests.servers import Double

BUSY_SECONDS = 0.5
LIMITS = GatewaySettings(store_connections=2, busy_seconds=BUSY_SECONDS, **FAST)
FACT = "The east gate opens at seven and closes at ten at night."
NEW = {"facts": [{"content": FACT}]}
OTHER = {"facts": [{"content": FACT.replace("east", "west")}]}


@dataclass
class Measured:
    gateway: Gateway
    store: PostgresStore
    database: Database
    name: str

    def value(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.gateway.get("/metrics").text):
            for sample in family.samples:
                if (sample.name, sample.labels) == (name, labels):
                    return sample.value
        raise AssertionError(f"{name} {labels} is not there")


@contextmanager
def measuring(database: Database, model: Double) -> Iterator[Measured]:
    stores = []

    def kept(*where: str, **options: float) -> object:
        stores.append(store_at(*where, **options))
        return stores[-1]

    with (
        pytest.MonkeyPatch.context() as patched,
        database.database() as name,
    ):
        patched.setenv("CRP_KEY", "ab" * 32)
        patched.setattr(applications, "store_at", kept)
        with opened(database.address(name), model, settings=LIMITS) as gateway:  # type: ignore[arg-type]
            yield Measured(gateway, stores[0], database, name)


@pytest.fixture
def measured(server: Double) -> Iterator[Measured]:
    with measuring(shared(), server) as seen:
        yield seen


def test_an_exhausted_pool_shows_who_waits_how_long_and_in_vain(measured: Measured) -> None:
    assert measured.value("crp_store_connections_most") == 2
    assert measured.value("crp_store_connection_timeouts_total") == 0
    refused: list[StoreBusy] = []

    def ask() -> None:
        try:
            measured.store.ping()
        except StoreBusy as error:
            refused.append(error)

    before = measured.value("crp_store_connection_wait_seconds_total")
    with (
        measured.store.begin("acme", write=False),
        measured.store.begin("globex", write=False),
    ):
        assert measured.value("crp_store_connections", state="in_use") == 2
        assert measured.value("crp_store_connections", state="idle") == 0
        asking = threading.Thread(target=ask)
        asking.start()
        deadline = time.monotonic() + BUSY_SECONDS
        while measured.value("crp_store_connections_waiting") != 1:
            assert time.monotonic() < deadline
        asking.join()
    assert len(refused) == 1
    assert measured.value("crp_store_connections_waiting") == 0
    assert measured.value("crp_store_connections", state="in_use") == 0
    assert measured.value("crp_store_connection_timeouts_total") == 1
    waited = measured.value("crp_store_connection_wait_seconds_total") - before
    assert BUSY_SECONDS * 0.9 < waited < BUSY_SECONDS * 4
    # The server answered all along.
    assert measured.value("crp_store_errors_total", sqlstate_class="08") == 0


def test_a_statement_that_waits_too_long_for_a_lock_is_counted_once(measured: Measured) -> None:
    assert measured.gateway.post("/v1/facts", NEW).status_code == 200
    assert measured.value("crp_store_lock_timeouts_total") == 0
    with psycopg.connect(measured.database.address(measured.name)) as other:
        other.execute(f"SELECT FROM {schema_of('acme')}.own FOR UPDATE")
        assert measured.gateway.post("/v1/facts", OTHER).status_code == 503
        # Another tenant waits for nobody.
        assert measured.gateway.post("/v1/facts", NEW, "globex").status_code == 200
    assert measured.value("crp_store_lock_timeouts_total") == 1
    assert measured.value("crp_store_errors_total", sqlstate_class="55") == 1


@pytest.fixture
def stoppable(server: Double) -> Iterator[Measured]:
    database = Database()
    with closing(database), measuring(database, server) as seen:
        yield seen


def test_a_database_that_stops_is_an_error_of_the_connection(stoppable: Measured) -> None:
    measured = stoppable
    assert measured.gateway.ask().status_code == 200
    failing = ("08", "57")

    def errors() -> float:
        return sum(measured.value("crp_store_errors_total", sqlstate_class=c) for c in failing)

    assert errors() == 0
    measured.database.stop()
    assert measured.gateway.ask().status_code == 503
    assert measured.gateway.ask().status_code == 503
    seen = errors()
    assert seen >= 1
    measured.database.start()
    assert measured.gateway.ask().status_code == 200
    assert errors() == seen


def test_no_label_names_a_tenant(measured: Measured) -> None:
    measured.gateway.ask()
    text = measured.gateway.get("/metrics").text
    assert not {*TENANTS, measured.name, schema_of("acme")} & {*text.replace('"', " ").split()}


def test_a_folder_has_no_connections(tmp_path: Path, server: Double) -> None:
    with opened(tmp_path, server) as gateway:
        assert "crp_store" not in gateway.get("/metrics").text
