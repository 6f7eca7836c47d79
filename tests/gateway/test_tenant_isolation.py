"""A key reaches its own tenant's facts, envelopes, reports and trails; cookies of an upstream stay apart."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.engines.openai_server import OpenAIServer
from crp_integrations.gateway import GatewaySettings
from crp_integrations.gateway.tenants import TenantRelays
from crp_integrations.guard.decisions import Subject
from crp_integrations.messages import Message, ModelCall
from tests.doubles import HashEmbedder
from tests.gateway.application import FACTS, SECRET, TENANTS, Gateway, opened
from tests.servers import Double

CHAT = "/v1/chat/completions"
PAIRS = list(itertools.permutations(TENANTS, 2))
NOBODY = {
    "fact": "00000000-0000-5000-8000-000000000000",
    "window": "crp_win_0000000000000000",
    "session": "crp_sess_0000000000000000",
    "receipt": "crp_rcpt_" + "0" * 32,
}


def reached(gateway: Gateway, tenant: str) -> dict[str, str]:
    """Ids of everything that a tenant has: path by path, the ones that others might try."""
    said = gateway.ask(tenant).json()["crp"]
    fact = gateway.get("/v1/facts?limit=1", tenant).json()["facts"][0]["fact_id"]
    content = f"Only {tenant} knows that its safe opens with the number {sum(map(ord, tenant))}."
    own = {"facts": [{"content": content, "source_id": f"src-{tenant}"}]}
    secret = gateway.post("/v1/facts", own, tenant).json()["facts"][0]
    return {
        "secret": secret,
        "fact": fact,
        "window": said["window_id"],
        "session": said["session_id"],
        "receipt": said["receipt_id"],
        "etag": said["headers"]["CRP-Context-ETag"],
        "continuation": said["continuation_id"],
        "token": said["headers"]["CRP-Set-Session"].partition("token=")[2].partition(";")[0],
    }


@pytest.mark.parametrize(("owner", "other"), PAIRS)
def test_anothers_ids_are_answered_like_ids_that_never_were(
    gateway: Gateway, owner: str, other: str
) -> None:
    ids = reached(gateway, owner)
    for path, kind, own in (
        ("/v1/facts/{}", "fact", "secret"),
        ("/v1/reports/{}", "window", "window"),
        ("/v1/receipts/{}", "receipt", "receipt"),
        ("/v1/audit/{}", "session", "session"),
        ("/v1/audit/{}?format=ndjson", "session", "session"),
    ):
        found = gateway.get(path.format(ids[own]), other)
        never = gateway.get(path.format(NOBODY[kind]), other)
        assert found.status_code == never.status_code == 404, path
        assert found.text.replace(ids[own], "…") == never.text.replace(NOBODY[kind], "…")
        assert found.headers.keys() == never.headers.keys()
        assert gateway.get(path.format(ids[own]), owner).status_code == 200, path
    assert (
        gateway.client.delete(
            f"/v1/facts/{ids['secret']}", headers=gateway.headers(other)
        ).status_code
        == 404
    )
    assert (
        gateway.client.delete(
            f"/v1/sources/src-{owner}", headers=gateway.headers(other)
        ).status_code
        == 404
    )
    assert gateway.get(f"/v1/facts/{ids['secret']}", owner).status_code == 200


@pytest.mark.parametrize(("owner", "other"), PAIRS)
def test_anothers_session_etag_and_token_tell_nothing(
    gateway: Gateway, owner: str, other: str
) -> None:
    ids = reached(gateway, owner)
    session = {"CRP-Context-Session-Id": ids["session"]}
    confirmed = gateway.ask(other, **session, **{"CRP-Context-If-Match": ids["etag"]})
    assert confirmed.status_code == 200
    assert confirmed.headers["CRP-Context-Cache-Status"].startswith("MISS")
    # A session of that name is another one in another namespace.
    assert confirmed.headers["CRP-Context-Window"].startswith("1/")
    going_on = gateway.ask(other, **session, **{"CRP-Context-Continuation-Id": ids["continuation"]})
    assert going_on.status_code == 404
    assert gateway.ask(other, **session, **{"CRP-Session-Token": ids["token"]}).status_code in (
        401,
        409,
    )
    # And the owner's session is as it was.
    again = gateway.ask(owner, **session)
    assert again.headers["CRP-Context-Window"].startswith("2/")


def test_no_envelope_and_no_preview_holds_anothers_fact(gateway: Gateway, server: Double) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "What merger is planned?"}]}
    gateway.post(CHAT, asked, "globex")
    assert "Zephyr" not in server.requests[-1].raw
    gateway.post(CHAT, asked, "acme")
    assert "Zephyr" in server.requests[-1].raw
    listed = gateway.get("/v1/facts?limit=1000", "globex").text
    assert SECRET not in listed
    assert gateway.post("/v1/preview", asked, "globex").json()["facts_available"] <= 3


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(TENANTS),
        st.sampled_from(["put", "forget", "list", "ask", "steal"]),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPERATIONS)
def test_whatever_is_done_each_tenant_lists_what_it_put(
    gateway: Gateway, server: Double, steps: list[tuple[str, str, int]]
) -> None:
    """A model of two separate lists says what every listing shows."""
    for tenant in TENANTS:
        for fact in gateway.get("/v1/facts?limit=1000", tenant).json()["facts"]:
            gateway.client.delete(f"/v1/facts/{fact['fact_id']}", headers=gateway.headers(tenant))
    kept: dict[str, dict[str, str]] = {tenant: {} for tenant in TENANTS}
    for tenant, step, number in steps:
        other = TENANTS[1 - TENANTS.index(tenant)]
        content = f"Reading {number} of {tenant} on the meter was {number * 7 + 100} kilowatts."
        if step == "put":
            batch = {"facts": [{"content": content, "source_location": str(number)}]}
            stored = gateway.post("/v1/facts", batch, tenant)
            assert stored.status_code == 200
            (fact_id,) = {*stored.json()["facts"], *stored.json()["unchanged"]} | {
                *stored.json()["returned"],
                *stored.json()["rewritten"],
            }
            kept[tenant][fact_id] = content
        elif step == "forget" and kept[tenant]:
            fact_id = sorted(kept[tenant])[number % len(kept[tenant])]
            answered = gateway.client.delete(
                f"/v1/facts/{fact_id}", headers=gateway.headers(tenant)
            )
            assert answered.status_code == 200
            del kept[tenant][fact_id]
        elif step == "steal" and kept[other]:
            fact_id = sorted(kept[other])[number % len(kept[other])]
            for method in ("GET", "DELETE"):
                answered = gateway.client.request(
                    method, f"/v1/facts/{fact_id}", headers=gateway.headers(tenant)
                )
                assert answered.status_code == 404
        elif step == "ask":
            gateway.post(
                CHAT, {"model": "m", "messages": [{"role": "user", "content": content}]}, tenant
            )
            assert f"of {other} on" not in server.requests[-1].raw
        listed = gateway.get("/v1/facts?limit=1000", tenant).json()["facts"]
        assert {one["fact_id"]: one["content"] for one in listed} == kept[tenant]


def test_tenants_at_once_get_their_own(gateway: Gateway, server: Double) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server.answers = lambda seen: "Zephyr" if "Zephyr" in seen.context else "nothing of it"
    asked = {"model": "m", "messages": [{"role": "user", "content": "What merger is planned?"}]}

    def one(number: int) -> tuple[str, str]:
        tenant = TENANTS[number % 2]
        said = gateway.post(CHAT, asked, tenant).json()
        return tenant, said["choices"][0]["message"]["content"]

    with ThreadPoolExecutor(8) as pool:
        for tenant, said in pool.map(one, range(32)):
            assert said == ("Zephyr" if tenant == "acme" else "nothing of it")


def test_relays_are_opened_when_needed_and_few_stay_open(tmp_path: Path, server: Double) -> None:
    with opened(tmp_path, server, settings=GatewaySettings(tenants=1)) as gateway:

        def kept() -> int:
            lines = gateway.get("/metrics").text.splitlines()
            return int(
                next(one for one in lines if one.startswith("crp_gateway_relays_open")).split()[1]
            )

        for tenant in ("acme", "globex", "acme", "globex"):
            assert gateway.ask(tenant).status_code == 200
        # The one that serves this very request, and none of the others.
        assert kept() <= 2


async def test_a_relay_in_use_is_not_closed_under_its_user(tmp_path: Path) -> None:
    closed: list[str] = []

    def opener(subject: Subject) -> Relay:
        relay = Relay.open(tmp_path, subject=subject, embedder=HashEmbedder())
        inner = relay.close

        def close() -> None:
            closed.append(subject.tenant)
            inner()

        relay.close = close  # type: ignore[method-assign]
        return relay

    tenants = TenantRelays(opener, 1)
    async with tenants.lease(Subject(tenant="a")) as first:
        async with tenants.lease(Subject(tenant="b")):
            pass
        await asyncio.sleep(0)
        first.fabric.add([FACTS[0]])
        assert "a" not in closed
    await tenants.close()
    assert sorted(closed) == ["a", "b"]


async def test_a_relay_that_cannot_be_opened_is_tried_again() -> None:
    tries: list[int] = []

    def opener(subject: Subject) -> Any:
        tries.append(1)
        raise OSError("no room")

    tenants = TenantRelays(opener, 1)
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            async with tenants.lease(Subject(tenant="a")):
                raise AssertionError
    assert len(tries) == 2
    assert tenants.open == 0


def test_users_of_a_tenant_are_the_guards_subjects(tmp_path: Path, server: Double) -> None:
    """Labels decide within a tenant, by the name and the roles of the key."""
    from starlette.testclient import TestClient

    from crp_integrations.gateway.admission import new_key
    from crp_integrations.guard.decisions import Action, Decision
    from tests.gateway.application import application

    class ByRole:
        name = "by-role"

        def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
            allowed = "board" not in labels or "director" in subject.roles
            return Decision(allowed=allowed, guard=self.name, reason="the role")

    clerk, kept_clerk = new_key("acme", name="clerk")
    director, kept_director = new_key("acme", name="director", roles=("director",))
    app = application(tmp_path, server, kept_clerk, kept_director, options={"guard": ByRole()})
    asked = {"model": "m", "messages": [{"role": "user", "content": "What merger is planned?"}]}
    with TestClient(app) as client:
        put = client.post(
            "/v1/facts",
            json={"facts": [{"content": SECRET, "labels": ["board"]}]},
            headers={"Authorization": f"Bearer {director}"},
        )
        assert put.status_code == 200, put.text
        for key, sees in ((clerk, False), (director, True)):
            said = client.post(CHAT, json=asked, headers={"Authorization": f"Bearer {key}"})
            assert said.status_code == 200
            assert ("Zephyr" in server.requests[-1].raw) is sees
            fact_id = put.json()["facts"][0]
            one = client.get(f"/v1/facts/{fact_id}", headers={"Authorization": f"Bearer {key}"})
            assert one.status_code == (200 if sees else 404)


SAID = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    ],
}
CALL = ModelCall(model="m", messages=(Message(role="user", content="Is it?"),))


class _Setting(BaseHTTPRequestHandler):
    cookies: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.cookies.append(self.headers["Cookie"])
        data = json.dumps(SAID).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "session=of-acme; Path=/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *said: object) -> None:
        """Keep quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    _Setting.cookies.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Setting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_cookie_of_the_upstream_is_not_sent_back(url: str) -> None:
    model = OpenAIServer(url)
    for _ in range(2):
        assert model.call(CALL).text == "Yes."

    async def twice() -> None:
        for _ in range(2):
            await model.acall(CALL)
        await model.aclose()

    asyncio.run(twice())
    assert _Setting.cookies == [None] * 4
