"""What the tests of the gateway share: an application, its keys, and ways to call it."""

from __future__ import annotations

import atexit
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from openai import OpenAI
from starlette.applications import Starlette
from starlette.testclient import TestClient

from crp_integrations import Relay
from crp_integrations.gateway import GatewaySettings, OpenAIServer, create_app
from crp_integrations.gateway.admission import Key, Scope, new_key
from crp_integrations.gateway.server import server as made
from crp_integrations.guard.decisions import Subject
from tests.doubles import HashEmbedder
from tests.servers import Double

FACTS = [
    f"Plant {n} was built in {1950 + n}, delivers {400 + 3 * n} megawatts and is run by the "
    f"Northfield company under licence {7_000 + n} of the ministry of energy."
    for n in range(12)
]
SECRET = (
    "The merger of Northfield with Zephyr Holdings is planned for October and known to nobody "
    "outside of the board."
)
QUESTION = "When was plant 7 built?"
ASKED = [{"role": "user", "content": QUESTION}]
BODY = {"model": "gpt-4o-mini", "messages": ASKED}
TENANTS = ("acme", "globex")
# Tests ask faster than callers may; those of the rate say their own.
FAST = {"requests_per_minute": 1e9, "burst": 1_000_000}


@dataclass
class Gateway:
    """A running application.

    Attributes:
        keys: the bearer key of each tenant.
        client: HTTP in this process, with the key of `acme`.
    """

    app: Starlette
    store: Path
    keys: dict[str, str]
    client: TestClient
    more: dict[str, Any] = field(default_factory=dict)

    def headers(self, tenant: str = "acme", **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[tenant]}", **more}

    def post(self, path: str, body: Any, tenant: str = "acme", **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=self.headers(tenant, **headers))

    def get(self, path: str, tenant: str = "acme", **headers: str) -> httpx.Response:
        return self.client.get(path, headers=self.headers(tenant, **headers))

    def ask(self, tenant: str = "acme", **headers: str) -> httpx.Response:
        return self.post("/v1/chat/completions", BODY, tenant, **headers)

    def relay(self, tenant: str = "acme") -> Relay:
        return Relay.open(self.store, subject=Subject(tenant=tenant), embedder=HashEmbedder())


class FixedKeys:
    """Keys that a test gives."""

    def __init__(self, *keys: Key) -> None:
        self._keys = {key.key_id: key for key in keys}

    def all(self) -> dict[str, Key]:
        return self._keys


def key_for(tenant: str, *scopes: Scope) -> tuple[str, Key]:
    return new_key(tenant, scopes=scopes or tuple(Scope))


def application(
    store: Path, server: Double, *keys: Key, settings: GatewaySettings | None = None, **more: Any
) -> Starlette:
    options = {"embedder": HashEmbedder(), **more.pop("options", {})}
    return create_app(
        store,
        keys=FixedKeys(*keys),
        upstream=more.pop("upstream", None) or OpenAIServer(server.url, api_key="sk-upstream"),
        settings=settings,
        options=options,
        **more,
    )


def fill(store: Path, tenant: str, facts: list[str]) -> None:
    with Relay.open(store, subject=Subject(tenant=tenant), embedder=HashEmbedder()) as relay:
        relay.fabric.add(facts)


def fill_both(store: Path) -> None:
    fill(store, "acme", [*FACTS, SECRET])
    fill(store, "globex", FACTS[:3])


@cache
def _filled() -> Path:
    made_once = TemporaryDirectory(prefix="crp-house-")
    atexit.register(made_once.cleanup)
    fill_both(Path(made_once.name))
    return Path(made_once.name)


def furnish(store: Path) -> None:
    """Fill a store with the facts of both tenants; an empty folder gets a copy of one."""
    if isinstance(store, Path) and not any(store.iterdir()):
        shutil.copytree(_filled(), store, dirs_exist_ok=True)
    else:
        fill_both(store)


@contextmanager
def opened(store: Path, server: Double, **more: Any) -> Iterator[Gateway]:
    furnish(store)
    made_keys = {tenant: key_for(tenant) for tenant in TENANTS}
    more.setdefault("settings", GatewaySettings(**FAST))
    also = more.pop("also", ())
    app = application(store, server, *(kept for _, kept in made_keys.values()), *also, **more)
    # One event loop for all requests, as under a server.
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Gateway(app, store, {name: key for name, (key, _) in made_keys.items()}, client)


@dataclass
class Served:
    """A gateway on a port.

    Attributes:
        port: on the loopback interface.
    """

    port: int
    keys: dict[str, str]
    store: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self, tenant: str = "acme", **more: Any) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.keys[tenant], max_retries=0, **more)


@contextmanager
def served(
    store: Path, server: Double, settings: GatewaySettings | None = None, **more: Any
) -> Iterator[Served]:
    """The gateway under uvicorn, in a thread."""
    furnish(store)
    keys = {tenant: key_for(tenant) for tenant in TENANTS}
    limits = settings or GatewaySettings(**FAST)
    app = application(store, server, *(k for _, k in keys.values()), settings=limits, **more)
    running = made(app, port=0, settings=limits)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(port, {name: key for name, (key, _) in keys.items()}, store)
    finally:
        running.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
