"""Signed addresses over HTTP: opened once, and 403 when expired, altered or used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.gateway import GatewaySettings, create_app
from crp_integrations.gateway.admission import Key, KeyFile, new_key
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.vocabulary import EventType
from tests.doubles import HashEmbedder
from tests.gateway.application import FAST, Gateway, opened
from tests.servers import Double

LOG = "12:00:01 ERROR crane 7 stopped at 18 tons\n" * 400
AUDITOR = Subject(tenant="acme", name="auditor", roles=("audit",))


@pytest.fixture
def gateway(tmp_path: Path, server: Double) -> Iterator[Gateway]:
    """One whose keys name the auditor."""
    with opened(tmp_path, server, also=[auditor()]) as found:
        yield found


def auditor(**more: Any) -> Key:
    return new_key("acme", **{"name": "auditor", "roles": ("audit", "board"), **more})[1]


def accesses(relay: Relay) -> list[dict[str, object]]:
    with relay.fabric.begin(write=False) as transaction:
        return [
            event.data
            for event in transaction.journal.events()
            if event.event_type is EventType.ARTIFACT_ACCESS
        ]


def kept(gateway: Gateway, **more: object) -> tuple[str, str]:
    """A handle and an address that opens it."""
    with Relay.open(gateway.store, subject=AUDITOR, embedder=HashEmbedder(), **more) as relay:
        sandbox = relay.sandbox()
        ref = sandbox.put(LOG, kind="log", sources=["call-1"]).ref
        return ref, sandbox.sign(ref, seconds=60)


@pytest.mark.requirement("SUM-privacy-4")
@pytest.mark.requirement("SUM-isolate-14")
def test_an_address_opens_its_artifact_once_and_the_journal_names_every_access(
    gateway: Gateway,
) -> None:
    ref, address = kept(gateway)
    # Whoever holds the address needs no key.
    answer = gateway.client.get(address)
    assert answer.status_code == 200, answer.text
    assert answer.text == LOG
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    replayed = gateway.client.get(address)
    assert (replayed.status_code, replayed.json()["error"]["code"]) == (403, "access_denied")
    assert gateway.client.get(address).status_code == 403
    with gateway.relay() as relay:
        told = accesses(relay)
        relay.verify()
    assert [one["action"] for one in told] == ["put", "signed", "opened", "refused"]
    assert {one["subject"] for one in told} == {"auditor"}
    assert {tuple(one["artifacts"]) for one in told} == {(ref,)}  # type: ignore[arg-type]
    assert told[-1]["reason"] == "replayed"
    # The three uses of one address bear one nonce; none of them bears a word of the text.
    assert len({one["nonce"] for one in told[1:]}) == 1
    assert "crane" not in str(told)


@pytest.mark.requirement("SUM-privacy-4")
def test_an_expired_address_is_403_and_journalled(gateway: Gateway) -> None:
    past = datetime.now(UTC) - timedelta(hours=2)
    _, address = kept(gateway, clock=past)
    for _ in range(3):
        answer = gateway.client.get(address)
        assert answer.status_code == 403
        assert "expired" in answer.json()["error"]["message"]
    with gateway.relay() as relay:
        refused = [one for one in accesses(relay) if one["action"] == "refused"]
    # Once: an old address cannot be used to fill the journal.
    assert [one["reason"] for one in refused] == ["expired"]


@pytest.mark.requirement("SUM-privacy-4")
def test_any_altered_character_is_403_and_the_address_still_holds(gateway: Gateway) -> None:
    _, address = kept(gateway)
    path, _, token = address.partition("?token=")
    said, _, seal = token.partition(".")
    other = path[:-1] + ("0" if path[-1] != "0" else "1")
    altered = [f"{other}?token={token}", path, f"{path}?token=", f"{path}?token={said}"]
    for place in range(0, len(token), 7):
        character = "A" if token[place] != "A" else "B"
        altered.append(f"{path}?token={token[:place]}{character}{token[place + 1 :]}")
    altered += [
        f"{path}?token={said}=.{seal}",
        f"{path}?token={token}0",
        f"{path}?token={token}%0a",
    ]
    for one in altered:
        answer = gateway.client.get(one)
        assert answer.status_code == 403, one
        # In the same words, so that nobody learns what was wrong.
        assert answer.json()["error"]["message"].startswith("the address opens nothing")
    assert gateway.client.get(address).status_code == 200


def test_an_address_of_another_store_or_tenant_opens_nothing(
    gateway: Gateway, tmp_path: Path
) -> None:
    ref, _ = kept(gateway)
    with Relay.open(tmp_path / "other", subject=AUDITOR, embedder=HashEmbedder()) as relay:
        sandbox = relay.sandbox()
        other = sandbox.put(LOG, kind="log", sources=["call-1"]).ref
        assert gateway.client.get(sandbox.sign(other)).status_code == 403
    with gateway.relay("globex") as relay:
        sandbox = relay.sandbox()
        with pytest.raises(RequestError, match="no artifact"):
            sandbox.sign(ref)


def test_an_erased_artifact_is_404(gateway: Gateway) -> None:
    ref, address = kept(gateway)
    with Relay.open(gateway.store, subject=AUDITOR, embedder=HashEmbedder()) as relay:
        relay.sandbox().erase(ref)
    answer = gateway.client.get(address)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_artifact")


class NoAuditors:
    """Denies whoever is called auditor."""

    name = "no-auditors"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        return Decision(allowed=subject.name != "auditor", guard=self.name, reason="a test")


def test_the_guard_is_asked_again_when_the_address_is_used(tmp_path: Path, server: Double) -> None:
    options = {"guard": NoAuditors()}
    with opened(tmp_path, server, options=options, also=[auditor()]) as gateway:
        _, address = kept(gateway)
        assert gateway.client.get(address).status_code == 403


def test_looking_at_an_address_does_not_use_it_up(gateway: Gateway) -> None:
    _, address = kept(gateway)
    for _ in range(2):
        answer = gateway.client.head(address)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert gateway.client.options(address).status_code == 405
    assert gateway.client.get(address).status_code == 200
    with gateway.relay() as relay:
        assert [one["action"] for one in accesses(relay)] == ["put", "signed", "opened"]
    # Elsewhere a HEAD is what a GET is, without its body.
    assert gateway.client.head("/healthz").status_code == 200


@pytest.mark.parametrize(
    "keys",
    [
        (),
        (auditor(expires_at=datetime.now(UTC) - timedelta(seconds=1)),),
        (auditor(name="gateway"),),
        (auditor(roles=("board",)),),
        (auditor(roles=("audit",), name="other"), auditor(roles=())),
    ],
    ids=["no key", "an expired key", "another name", "another role", "parts of two"],
)
def test_an_address_holds_no_longer_than_a_key_of_its_subject(
    tmp_path: Path, server: Double, keys: tuple[Key, ...]
) -> None:
    with opened(tmp_path, server, also=keys) as gateway:
        ref, address = kept(gateway)
        for _ in range(2):
            answer = gateway.client.get(address)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "access_denied")
            assert "no longer has a key" in answer.json()["error"]["message"]
        with gateway.relay() as relay:
            told = accesses(relay)
    assert [one["action"] for one in told] == ["put", "signed", "refused"]
    assert (told[-1]["reason"], told[-1]["artifacts"]) == ("revoked", [ref])


def test_a_key_that_is_revoked_takes_its_addresses_along(tmp_path: Path, server: Double) -> None:
    file = KeyFile(tmp_path / "keys.jsonl", every_seconds=0.0)
    key = auditor()
    file.add(key)
    app = create_app(tmp_path / "kb", keys=file, options={"embedder": HashEmbedder()})
    with TestClient(app, raise_server_exceptions=False) as client:
        gateway = Gateway(app, tmp_path / "kb", {}, client)
        (_, first), (_, second) = kept(gateway), kept(gateway)
        assert client.get(first).status_code == 200
        file.revoke(key.key_id)
        assert client.get(second).status_code == 403


def test_a_gateway_can_be_told_that_addresses_are_of_people_without_keys(
    tmp_path: Path, server: Double
) -> None:
    settings = GatewaySettings(**FAST, address_keys=False)
    with opened(tmp_path, server, settings=settings) as gateway:
        _, address = kept(gateway)
        assert gateway.client.get(address).status_code == 200


def test_an_artifact_of_what_was_quarantined_is_403_until_it_is_lifted(gateway: Gateway) -> None:
    with Relay.open(gateway.store, subject=AUDITOR, embedder=HashEmbedder()) as relay:
        (fact,) = relay.add(["Crane 7 stopped at 18 tons when the wind rose above 31 knots."]).facts
        sandbox = relay.sandbox()
        address = sandbox.sign(sandbox.put(LOG, kind="log", sources=[fact]).ref)
        relay.fabric.quarantine([fact])
        assert gateway.client.get(address).status_code == 403
        relay.fabric.lift([fact])
        assert gateway.client.get(address).status_code == 200


def test_the_log_holds_no_address(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    _, address = kept(gateway)
    with caplog.at_level("INFO"):
        gateway.client.get(address)
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("crp_integrations")]
    assert ours
    assert "token" not in "".join(ours)
    assert address.partition("token=")[2] not in "".join(ours)
