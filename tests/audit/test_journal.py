from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, chain_events, matches_key, verify_journal
from crp_integrations.audit.records import Event
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.cli.app import app
from crp_integrations.errors import ChainBroken, StoreError
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import EventType, TrailState
from tests.requirements.rows import ROOT

KEY = bytes(range(32))
AT = "2026-05-25T10:00:00Z"
DATA: dict[str, Any] = {"facts": ["a", "b"], "count": 12, "share": 0.25, "note": "ü", "none": None}


def journal(count: int = 4) -> list[Event]:
    store = MemoryStore()
    for n in range(count):
        draft = EventDraft(EventType.FACT_RETRIEVED, {**DATA, "n": n}, f"crp_sess_{n}", f"w{n}")
        with store.begin("a") as transaction:
            journal = transaction.journal
            journal.append(chain_events(journal.tip(), KEY, [draft], AT))
    with store.begin("a", write=False) as transaction:
        return list(transaction.journal.events())


def test_the_formula() -> None:
    previous = ""
    for event in journal():
        data = json.dumps(
            event.data, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
        fields = [
            event.event_type.value,
            event.timestamp,
            hashlib.sha256(data).hexdigest(),
            event.window_id,
            previous,
        ]
        wanted = hmac.new(KEY, "␟".join(fields).encode(), hashlib.sha256).hexdigest()
        assert event.hmac == "sha256:" + wanted
        previous = event.hmac


def test_a_journal_verifies_and_counts() -> None:
    assert verify_journal(journal(), KEY) == 4
    assert verify_journal([], KEY) == 0


@given(place=st.integers(0, 3), data=st.data())
def test_any_changed_byte_breaks_verification_at_its_place(place: int, data: st.DataObject) -> None:
    events = journal()
    written = bytearray(events[place].model_dump_json().encode())
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    try:
        changed = Event.model_validate_json(bytes(written))
    except ValidationError:
        return  # A record that does not read is refused before it is verified.
    assume(changed != events[place])
    events[place] = changed
    with pytest.raises(ChainBroken) as broken:
        verify_journal(events, KEY)
    assert broken.value.index == place


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 9},
        {"event_type": EventType.FACT_DELETED},
        {"timestamp": "2026-05-25T10:00:01Z"},
        {"session_id": "crp_sess_other"},
        {"session_id": ""},
        {"window_id": "w9"},
        {"data": {**DATA, "n": 1}},
        {"data": {}},
        {"data": {"n": float("nan")}},
        {"hmac": "sha256:0"},
    ],
)
def test_every_field_is_covered(change: dict[str, Any]) -> None:
    events = journal()
    events[2] = events[2].model_copy(update=change)
    with pytest.raises(ChainBroken) as broken:
        verify_journal(events, KEY)
    assert broken.value.index == 2


def test_an_event_left_out_moved_or_repeated_shows() -> None:
    a, b, c, d = journal()
    for events, index in (([b, c], 0), ([a, c, d], 1), ([a, c, b], 1), ([a, b, b], 2)):
        with pytest.raises(ChainBroken) as broken:
            verify_journal(events, KEY)
        assert broken.value.index == index


def test_an_event_left_out_shows_when_the_rest_is_numbered_again() -> None:
    a, _, c, d = journal()
    renumbered = [a, c.model_copy(update={"seq": 2}), d.model_copy(update={"seq": 3})]
    with pytest.raises(ChainBroken) as broken:
        verify_journal(renumbered, KEY)
    assert broken.value.index == 1


def test_another_key_does_not_verify() -> None:
    with pytest.raises(ChainBroken):
        verify_journal(journal(), bytes(32))


@pytest.mark.parametrize("value", [float("nan"), 2**60, object(), {1: 2}, b"x"])
def test_data_that_cannot_be_sealed_is_refused_and_nothing_is_stored(value: Any) -> None:
    store = MemoryStore()
    drafts = [EventDraft(EventType.TOOL_CALL, {}), EventDraft(EventType.TOOL_CALL, {"x": value})]
    with store.begin("a") as transaction:
        with pytest.raises(StoreError, match="canonical JSON"):
            chain_events(transaction.journal.tip(), KEY, drafts, AT)
        with pytest.raises(StoreError, match="does not allow field"):
            append_events(transaction.journal, KEY, drafts, AT)
        assert transaction.journal.tip() is None


def test_data_that_names_another_session_is_refused() -> None:
    draft = EventDraft(EventType.TOOL_CALL, {"session_id": "b"}, session_id="a")
    with MemoryStore().begin("a") as transaction, pytest.raises(StoreError, match="'b'"):
        append_events(transaction.journal, KEY, [draft], AT)


def test_keys_differ_by_purpose_and_name() -> None:
    ring = FixedKeyRing(KEY)
    keys = [
        session_key(ring, "a"),
        session_key(ring, "b"),
        journal_key(ring, "a"),
        journal_key(ring, "b"),
        session_key(FixedKeyRing(bytes(32)), "a"),
    ]
    assert len({*keys, KEY}) == 6
    assert all(len(key) == 32 for key in keys)
    assert session_key(FixedKeyRing(KEY), "a") == keys[0]


def test_the_session_key_is_the_one_of_rfc_5869() -> None:
    extracted = hmac.new(b"crp_sess_a", KEY, hashlib.sha256).digest()
    expanded = hmac.new(extracted, b"crp-session-hmac-v3" + b"\x01", hashlib.sha256).digest()
    assert session_key(FixedKeyRing(KEY), "crp_sess_a") == expanded


def test_a_journal_knows_its_key_by_its_first_and_last_event() -> None:
    store = MemoryStore()

    def known(key: bytes) -> bool:
        with store.begin("a", write=False) as transaction:
            return matches_key(transaction.journal, key)

    other = bytes(32)
    assert known(KEY) and known(other)
    for number in range(3):
        with store.begin("a") as transaction:
            append_events(transaction.journal, KEY, [EventDraft(EventType.FACT_RETRIEVED, {})], AT)
        assert known(KEY), number
        assert not known(other), number


@pytest.mark.parametrize(("place", "right"), [(0, True), (1, True), (2, True), (None, False)])
def test_one_altered_event_is_damage_and_no_other_key(place: int | None, right: bool) -> None:
    altered = [
        event.model_copy(update={"timestamp": "2020-01-01T00:00:00Z"})
        if place in (None, number)
        else event
        for number, event in enumerate(journal(3))
    ]
    store = MemoryStore()
    with store.begin("a") as transaction:
        transaction.journal.append(altered)
    with store.begin("a", write=False) as transaction:
        assert matches_key(transaction.journal, KEY) is right


PAGE = (ROOT / "docs" / "reference" / "trail.md").read_text(encoding="utf-8")


def test_its_commands_and_words_exist() -> None:
    for command in ("verify", "export", "show"):
        told = CliRunner().invoke(app, ["audit", command, "--help"], env={"COLUMNS": "200"})
        assert told.exit_code == 0
        asked = re.findall(rf"^crp audit {command} (.*?)(?:  #|$)", PAGE, re.MULTILINE)
        for option in re.findall(r"--[a-z]+", " ".join(asked)):
            assert option in told.output
    for state in TrailState:
        assert f"`{state}`" in PAGE
