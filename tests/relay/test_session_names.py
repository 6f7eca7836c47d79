"""Any text names a session: LangGraph's thread ids, numbers, paths, other scripts, long ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.relay.delegation import asked_by
from crp_integrations.session.records import SESSION_ID, session_id_of
from tests.doubles import HashEmbedder

NAMES = [
    "1",
    "thread 1/ü",
    "a/b\\c?d=e&f#g",
    "crp_sess_short",
    "crp_sess_" + "a" * 33,
    "会話",
    "\n\t\x00",
    "\ud800",
    "x" * 100_000,
    "6f0c5c9e-0d0f-4f5e-9a55-4a1b2c3d4e5f",
]


@pytest.fixture(scope="module")
def relay() -> Iterator[Relay]:
    with Relay.open(embedder=HashEmbedder(), model="extractive") as opened:
        opened.fabric.add(["Plant 7 was built in 1957 by the Northfield company."])
        yield opened


@given(st.text(st.characters(), min_size=1) | st.integers() | st.uuids())
def test_every_name_has_one_id_of_the_protocols_form(name: str | int | uuid.UUID) -> None:
    found = session_id_of(name)
    assert SESSION_ID.fullmatch(found)
    assert found == session_id_of(str(name)) == session_id_of(found)


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_are_two_sessions(one: str, other: str) -> None:
    assert (session_id_of(one) == session_id_of(other)) is (one == other)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), min_size=1).filter(lambda name: name not in ("0", "1")))
def test_a_conversation_goes_on_under_any_name(relay: Relay, name: str) -> None:
    before = relay.ask("When was plant 7 built?", session_id=name)
    after = relay.ask("Who built plant 7?", session_id=name)
    assert after.session_id == before.session_id == session_id_of(name)
    assert after.window_number == before.window_number + 1
    assert after.headers["CRP-Context-Session-Id"] == after.session_id


@pytest.mark.parametrize("name", NAMES)
def test_every_door_of_the_relay_takes_the_name(relay: Relay, name: str) -> None:
    answer = relay.ask("When was plant 7 built?", session_id=name)
    assert relay.receipts().ids(name) == relay.receipts().ids(answer.session_id) != []
    down = relay.delegate(name)
    fields: dict[str, Any] = {**asked_by(down), "session_id": f"{name}/child"}
    child = relay.ask("Who built plant 7?", **fields)
    assert child.session_id != answer.session_id
    assert relay.reset_budget(name) == 1.0
    held = ["Plant 9 is run by the Eastfield company under a licence."]
    relay.add(held, session_id=name, cache="no-store")
    assert "Eastfield" in relay.assemble("Who runs plant 9?", session_id=name).text
    assert relay.end_session(name) == 1
