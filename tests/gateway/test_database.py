"""The gateway over PostgreSQL: one database for all tenants, and regions of their own."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest
from starlette.testclient import TestClient

from crp_integrations import Relay
from crp_integrations.errors import ConfigError, StoreBusy
from crp_integrations.gateway import GatewaySettings, KeyFile, create_app
from crp_integrations.gateway.tenants import StoreProbe
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore
from tests.commands import Here
from tests.doubles import HashEmbedder
from tests.gateway.application import (
    FACTS,
    FAST,
    QUESTION,
    SECRET,
    FixedKeys,
    application,
    key_for,
    opened,
)
from tests.postgres import Server as Database
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.postgres import server as database
from tests.servers import Double

KEY = "ab" * 32


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRP_KEY", KEY)


def connections() -> int:
    with psycopg.connect(database().address(), autocommit=True) as raw:
        found = raw.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.requirement("009-9.1-6")
def test_tenants_of_one_database_are_answered_from_their_own_facts(
    with_key: None,
    postgres_address: str,  # noqa: F811
    server: Double,
) -> None:
    before = connections()
    with opened(postgres_address, server) as gateway:
        asked = {tenant: gateway.ask(tenant) for tenant in ("acme", "globex")}
        assert {one.status_code for one in asked.values()} == {200}
        listed = {tenant: gateway.get("/v1/facts", tenant).json() for tenant in asked}
        texts = {tenant: str(one) for tenant, one in listed.items()}
        assert SECRET in texts["acme"] and SECRET not in texts["globex"]
        sent = str(server.requests)
        assert FACTS[7] in sent
        made = gateway.post(
            "/v1/facts", {"facts": [{"content": SECRET.replace("October", "May")}]}, "globex"
        )
        assert made.status_code == 200
        assert "May" in str(gateway.get("/v1/facts", "globex").json())
        assert "in May" not in str(gateway.get("/v1/facts").json())
        # One pool and one listener, however many tenants.
        assert connections() - before <= 6
    assert connections() == before
    for tenant in asked:
        with Relay.open(
            postgres_address, subject=Subject(tenant=tenant), embedder=HashEmbedder()
        ) as relay:
            assert relay.verify().windows == 1


def test_a_database_without_a_key_is_refused_before_it_is_served(
    postgres_address: str,  # noqa: F811
    here: Here,
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="CRP_KEY"):
        create_app(postgres_address, keys=FixedKeys(key_for("acme")[1]))
    KeyFile(tmp_path / "keys").add(key_for("acme")[1])
    done = here("serve", postgres_address, "--keys", "keys", cwd=tmp_path)
    assert done.returncode == 1 and "CRP_KEY" in done.stderr
    assert not (tmp_path / "postgresql:").exists() and not Path("postgresql:").exists()
    done = here("serve", "mysql://host/kb", "--keys", "keys", cwd=tmp_path)
    assert done.returncode == 1 and "mysql://" in done.stderr


def test_a_region_in_a_database_keeps_its_own_facts_windows_and_journal(
    with_key: None,
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    with Relay.open(
        tmp_path / "kb", regions={"eu": postgres_address}, embedder=HashEmbedder()
    ) as relay:
        relay.add(FACTS, residency="eu")
        assert (relay.fabric.size(), relay.region("eu").size()) == (0, len(FACTS))
        answer = relay.ask(QUESTION, model="extractive", residency="eu")
        assert "1957" in answer.text
        assert relay.verify(residency="eu").windows == 1
    with Relay.open(postgres_address, embedder=HashEmbedder()) as alone:
        assert alone.fabric.size() == len(FACTS)
    assert not Path("postgresql:").exists()


def test_a_region_in_a_database_needs_a_key(
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="CRP_KEY"):
        Relay.open(tmp_path / "kb", regions={"eu": postgres_address}, embedder=HashEmbedder())


def test_a_gateway_is_ready_while_its_store_answers(
    with_key: None, server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Database()
    with own.database() as name, opened(own.address(name), server) as gateway:
        # A statement for each tenant would be slow with many.
        monkeypatch.setattr(PostgresStore, "namespaces", None)
        assert gateway.client.get("/readyz").status_code == 200
        own.stop()
        assert gateway.client.get("/readyz").status_code == 503
        assert gateway.client.get("/healthz").status_code == 200
        own.start()
        assert gateway.client.get("/readyz").status_code == 200
    own.close()


def test_a_frozen_database_holds_no_request(with_key: None, server: Double) -> None:
    own = Database()
    limits = GatewaySettings(busy_seconds=1.0, ready_seconds=0.5, **FAST)
    with own.database() as name, opened(own.address(name), server, settings=limits) as gateway:
        assert gateway.ask("acme").status_code == 200
        with own.frozen():
            assert gateway.client.get("/readyz").status_code == 503
            refused = gateway.ask("acme")
            assert refused.status_code == 503 and "Retry-After" in refused.headers
        assert gateway.ask("acme").status_code == 200
        assert len(server.requests) == 2
    own.close()


@pytest.mark.parametrize("fault", ["damaged", "removed", "unreadable"])
def test_a_gateway_on_a_folder_is_ready_while_its_databases_can_be_read(
    tmp_path: Path, server: Double, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder = tmp_path / "kb"
    folder.mkdir()
    with opened(folder, server) as gateway:
        assert gateway.client.get("/readyz").status_code == 200
        if fault == "removed":
            folder.rename(tmp_path / "away")
        elif fault == "damaged":
            for path in folder.rglob("*.sqlite"):
                path.with_name(path.name + "-wal").unlink(missing_ok=True)
                path.write_bytes(b"no database" * 1_000)
        else:
            monkeypatch.setattr("os.scandir", lambda path: 1 / 0)
        refused = gateway.client.get("/readyz")
        assert refused.status_code == 503
        assert str(tmp_path) not in refused.text
        assert gateway.client.get("/healthz").status_code == 200


def test_a_gateway_is_ready_before_its_first_fact(tmp_path: Path, server: Double) -> None:
    app = application(tmp_path / "kb", server)
    with TestClient(app) as client:
        assert client.get("/readyz").status_code == 200
    assert not (tmp_path / "kb").exists()


async def test_a_store_that_hangs_holds_one_thread() -> None:
    released, calls = threading.Event(), []

    def hang() -> None:
        # The process must be able to end while it hangs.
        assert threading.current_thread().daemon
        calls.append(1)
        released.wait(20)

    probe = StoreProbe(hang)
    for _ in range(3):
        with pytest.raises(StoreBusy, match="did not answer"):
            await probe.ask(0.01)
    assert len(calls) == 1
    released.set()
    await probe.ask(10)


def test_serve_reads_the_store_from_its_variable(here: Here, tmp_path: Path) -> None:
    KeyFile(tmp_path / "keys").add(key_for("acme")[1])
    done = here("serve", "--keys", "keys", cwd=tmp_path, CRP_STORE="mysql://host/kb")
    assert done.returncode == 1 and "mysql://" in done.stderr
