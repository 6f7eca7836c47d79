"""Facts over HTTP: a batch whole or not at all, pages, deletion, erasure, no-store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crp_integrations.gateway import GatewaySettings
from tests.gateway.application import FACTS, SECRET, Gateway, opened
from tests.servers import Double

GOOD = {"content": "The turbine hall of plant 90 was closed for repairs in the spring of 2021."}


def contents(gateway: Gateway, tenant: str = "acme", query: str = "") -> set[str]:
    listed = gateway.get(f"/v1/facts?limit=1000{query}", tenant).json()["facts"]
    return {one["content"] for one in listed}


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ({"content": ""}, 400),
        ({"content": "word " * 5_000}, 422),
        ({"content": " "}, 422),
        ({"text": "no content"}, 400),
        ({**GOOD, "kind": "gossip"}, 400),
        ({**GOOD, "ttl": "soon"}, 400),
        ({**GOOD, "importance_weight": 2}, 400),
        ({**GOOD, "namespace": "globex"}, 400),
        ({**GOOD, "status": "DELETED"}, 400),
    ],
    ids=range(9),
)
def test_a_batch_is_stored_whole_or_not_at_all(
    gateway: Gateway, bad: dict[str, Any], status: int
) -> None:
    before = contents(gateway)
    for batch in ([GOOD, bad], [bad, GOOD]):
        response = gateway.post("/v1/facts", {"facts": batch})
        assert response.status_code == status, response.text
        assert "word word" not in response.text
    assert contents(gateway) == before
    assert gateway.post("/v1/facts", {"facts": [GOOD]}).status_code == 200
    assert contents(gateway) == before | {GOOD["content"]}


def test_an_id_of_ones_own_changes_the_fact(gateway: Gateway) -> None:
    fact_id = "meter-7"
    first = gateway.post("/v1/facts", {"facts": [{**GOOD, "fact_id": fact_id}]})
    assert first.json()["facts"] == [fact_id]
    changed = {"content": GOOD["content"].replace("2021", "2022"), "fact_id": fact_id}
    second = gateway.post("/v1/facts", {"facts": [changed]})
    assert second.json()["rewritten"] == [fact_id]
    assert gateway.get(f"/v1/facts/{fact_id}").json()["content"] == changed["content"]


def test_pages_are_complete_and_without_repetition(gateway: Gateway) -> None:
    seen, after = [], ""
    while True:
        page = gateway.get(f"/v1/facts?limit=5&after={after}").json()
        seen += [one["fact_id"] for one in page["facts"]]
        after = page["after"]
        if not after:
            break
    assert seen == sorted(set(seen))
    assert len(seen) == len(FACTS) + 1


@pytest.mark.parametrize(
    "query",
    [
        "limit=0x",
        "limit=-1",
        "limit=1001",
        "unknown=1",
        "kind=gossip",
        "limit=1&limit=2",
        "%ff=1",
        "a" * 50,
    ],
)
def test_parameters_that_cannot_be_meant_are_400(gateway: Gateway, query: str) -> None:
    assert gateway.get(f"/v1/facts?{query}").status_code == 400


def test_a_deleted_fact_is_gone_at_once(gateway: Gateway, server: Double) -> None:
    found = gateway.get("/v1/facts?limit=1000").json()["facts"]
    fact_id = next(one["fact_id"] for one in found if one["content"] == SECRET)
    path = f"/v1/facts/{fact_id}"
    deleted = gateway.client.delete(path, headers=gateway.headers())
    assert deleted.status_code == 200
    assert deleted.json()["facts"] == [fact_id]
    assert gateway.client.delete(path, headers=gateway.headers()).status_code == 404
    assert gateway.get(path).status_code == 404
    assert SECRET not in contents(gateway)
    asked = {"model": "m", "messages": [{"role": "user", "content": "What merger is planned?"}]}
    gateway.post("/v1/chat/completions", asked)
    assert "Zephyr" not in server.requests[-1].raw


def test_an_erased_source_leaves_no_byte(gateway: Gateway) -> None:
    batch = {"facts": [{**GOOD, "source_id": "src-1"}]}
    assert gateway.post("/v1/facts", batch).status_code == 200
    erased = gateway.client.delete("/v1/sources/src-1", headers=gateway.headers())
    assert erased.status_code == 200, erased.text
    assert erased.json()["event_hmac"].startswith("sha256:")
    assert erased.json()["scrubbed"]
    needle = GOOD["content"].encode()
    for path in Path(gateway.store).rglob("*"):
        assert not path.is_file() or needle not in path.read_bytes()
    unknown = gateway.client.delete("/v1/sources/none", headers=gateway.headers())
    assert unknown.status_code == 404


def test_no_store_facts_are_their_sessions_alone(gateway: Gateway, server: Double) -> None:
    session = {"CRP-Context-Session-Id": "crp_sess_7f3a9bc2d4e1f083"}
    held = gateway.post(
        "/v1/facts", {"facts": [GOOD]}, **session, **{"CRP-Context-Cache": "no-store"}
    )
    assert held.status_code == 200, held.text
    assert GOOD["content"] not in contents(gateway)
    asked = {"model": "m", "messages": [{"role": "user", "content": "When was plant 90 closed?"}]}
    gateway.post("/v1/chat/completions", asked, **session)
    assert "turbine hall" in server.requests[-1].raw
    gateway.post("/v1/chat/completions", asked)
    assert "turbine hall" not in server.requests[-1].raw


def test_a_large_batch_is_400_and_a_large_body_413(tmp_path: Path, server: Double) -> None:
    limits = GatewaySettings(facts_batch=2, facts_bytes=2_000)
    with opened(tmp_path, server, settings=limits) as gateway:
        assert gateway.post("/v1/facts", {"facts": [GOOD] * 3}).status_code == 400
        big = {"facts": [{**GOOD, "metadata": {"note": "x" * 3_000}}]}
        assert gateway.post("/v1/facts", big).status_code == 413
