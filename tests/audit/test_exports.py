"""Exports: what leaves, what verifies elsewhere, and what a security system is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.audit import exports
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.exports import ALL, KEYS, ExportSelection
from crp_integrations.audit.journal import chain_events
from crp_integrations.audit.records import Event, Stub
from crp_integrations.audit.trail import AuditTrail, verify_events
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.errors import ChainBroken, RequestError
from crp_integrations.ports import KeyRing
from crp_integrations.vocabulary import EventType, TrailState
from tests.audit.chain_graphs import RING, SESSION, TENANT, Memory, diamond

SECOND = "crp_sess_0000000000000000"
JOURNAL = Memory()
diamond(JOURNAL)
diamond(JOURNAL, session=SECOND)
EVENTS = JOURNAL.written
LINES = list(exports.write_ndjson(EVENTS))


def check(lines, keyring: KeyRing = RING) -> AuditTrail:
    return verify_events(
        exports.read_ndjson(lines),
        journal_key=journal_key(keyring, TENANT),
        session_key=lambda session_id: session_key(keyring, session_id),
    )


def at(second: int) -> datetime:
    return datetime(2026, 5, 25, 10, 0, second, tzinfo=UTC)


def test_every_line_has_the_six_keys_and_nothing_else() -> None:
    for selection in (ALL, ExportSelection(session_id=SECOND)):
        for line in exports.write_ndjson(EVENTS, selection):
            assert tuple(json.loads(line)) == KEYS
            assert "\n" not in line and line.isascii()
    assert KEYS == ("event_type", "timestamp", "session_id", "window_id", "data", "hmac")


def test_an_export_reads_back_and_verifies_with_the_key_alone() -> None:
    assert list(exports.read_ndjson(LINES)) == EVENTS
    assert check(LINES) == JOURNAL.check()
    assert list(exports.read_ndjson(line + "\n" for line in LINES)) == EVENTS
    assert check([]).state is TrailState.UNVERIFIED


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        (ExportSelection(session_id=SESSION), 14),
        (ExportSelection(window_id="crp_win_joined"), 4),
        (ExportSelection(session_id=SECOND, window_id="crp_win_joined"), 2),
        (ExportSelection(types=frozenset({EventType.DPE_COMPLETED})), 14),
        (ExportSelection(since=at(3)), 22),
        (ExportSelection(until=at(3)), 6),
        (ExportSelection(since=at(3), until=at(5), types=frozenset({EventType.DPE_COMPLETED})), 2),
        (ExportSelection(session_id="crp_sess_nobody"), 0),
    ],
)
def test_what_is_selected_is_shown_and_the_rest_leaves_its_hmac(
    selection: ExportSelection, count: int
) -> None:
    entries = list(exports.read_ndjson(exports.write_ndjson(EVENTS, selection)))
    shown = [entry for entry in entries if isinstance(entry, Event)]
    assert shown == [event for event in EVENTS if selection.takes(event)]
    assert (len(shown), len(entries)) == (count, len(EVENTS))
    assert [entry.hmac for entry in entries] == [event.hmac for event in EVENTS]
    trail = check(exports.write_ndjson(EVENTS, selection))
    assert (trail.events, trail.left_out) == (count, len(EVENTS) - count)
    assert len(list(exports.write_ocsf(EVENTS, selection))) == count


def test_a_stub_says_nothing_but_its_hmac() -> None:
    line = next(exports.write_ndjson(EVENTS, ExportSelection(session_id=SECOND)))
    assert json.loads(line) == {**dict.fromkeys(KEYS), "hmac": EVENTS[0].hmac}
    assert list(exports.read_ndjson([line])) == [Stub(hmac=EVENTS[0].hmac)]


def test_moments_are_compared_as_moments() -> None:
    event = EVENTS[0].model_copy(update={"timestamp": "2026-05-25T10:00:00.5Z"})
    assert ExportSelection(since=at(0)).takes(event)
    assert not ExportSelection(until=at(0)).takes(event)
    zone = timezone(timedelta(hours=2))
    assert ExportSelection(since=datetime(2026, 5, 25, 12, tzinfo=zone)).takes(event)
    for name in ("since", "until"):
        with pytest.raises(RequestError, match=f"{name} .* has no time zone"):
            ExportSelection(**{name: datetime(2026, 5, 25)})  # noqa: DTZ001 - on purpose
    for text in ("yesterday", "2026-05-25", ""):
        with pytest.raises(RequestError, match="time"):
            exports.parse_moment(text)


@given(st.integers(0, len(LINES) - 1), st.data())
def test_any_changed_byte_of_an_export_shows_at_its_line(place: int, data: st.DataObject) -> None:
    line = LINES[place].encode()
    where = data.draw(st.integers(0, len(line) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = (line[:where] + bytes([byte]) + line[where + 1 :]).decode("utf-8", "replace")
    lines = [*LINES]
    lines[place] = changed
    try:
        same = next(exports.read_ndjson([changed])).model_copy(update={"seq": place + 1})
        same_as_before = same == EVENTS[place]
    except ChainBroken:
        same_as_before = False
    if same_as_before:
        # Another way to write the same event, such as a space, changes nothing that it says.
        assert check(lines) == JOURNAL.check()
        return
    with pytest.raises(ChainBroken) as broken:
        check(lines)
    assert broken.value.index == place


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "null",
        "{}",
        "{" * 200_000,
        LINES[0][:-1],
        LINES[0][:-1] + ',"more":1}',
        LINES[0].replace("{", '{"hmac":"sha256:0",', 1),
        LINES[0].replace("{", '{"event_type":"SAFETY_HALT",', 1),
        LINES[1].replace('"outcome":"released"', '"outcome":"failed","outcome":"released"'),
        LINES[0].replace("DISPATCH_STARTED", "NO_SUCH_EVENT"),
        json.dumps(dict.fromkeys(KEYS)),
    ],
)
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    lines = [*LINES]
    lines[2] = line
    with pytest.raises(ChainBroken, match="line 3") as broken:
        check(lines)
    assert broken.value.index == 2


def test_a_lost_doubled_or_moved_line_shows() -> None:
    for lines, index in (
        (LINES[1:], 0),
        ([*LINES[:5], *LINES[6:]], 5),
        ([*LINES[:6], *LINES[5:]], 6),
        ([LINES[1], LINES[0], *LINES[2:]], 0),
    ):
        with pytest.raises(ChainBroken) as broken:
            check(lines)
        assert broken.value.index == index


def test_an_export_holds_one_event_at_a_time() -> None:
    """However long the journal is: nothing is read ahead."""
    read = 0

    def journal() -> Iterator[Event]:
        nonlocal read
        for event in EVENTS:
            read += 1
            yield event

    for made in (exports.write_ndjson(journal()), exports.write_ocsf(journal())):
        read = 0
        for count, _ in enumerate(made, start=1):
            assert read == count
        assert count == len(EVENTS)
    lines = 0

    def file() -> Iterator[str]:
        nonlocal lines
        for line in LINES:
            lines += 1
            yield line

    for count, _ in enumerate(exports.read_ndjson(file()), start=1):
        assert lines == count


def test_no_export_holds_a_key() -> None:
    everything = "\n".join([*LINES, *exports.write_ocsf(EVENTS)])
    for key in (RING.master(), journal_key(RING, TENANT), session_key(RING, SESSION)):
        assert bytes(key).hex() not in everything
        assert repr(bytes(key)) not in everything


# --- OCSF ------------------------------------------------------------------------------

REQUIRED = {
    "activity_id", "actor", "api", "category_uid", "class_uid", "metadata", "severity_id",
    "src_endpoint", "time", "type_uid",
}  # fmt: skip


def every_type() -> list[Event]:
    drafts = [
        EventDraft(kind, {}, SESSION if number % 2 else "", "crp_win_a" if number % 3 else "")
        for number, kind in enumerate(EventType)
    ]
    return chain_events(None, bytes(32), drafts, "2026-05-25T10:00:00.123456Z")


def test_an_event_has_what_class_6003_requires() -> None:
    for event in every_type():
        told = exports.map_to_ocsf(event, version="0.1.0")
        assert told.keys() >= REQUIRED
        assert (told["category_uid"], told["class_uid"]) == (6, 6003)
        assert told["activity_id"] in {1, 2, 3, 4, 99}
        assert told["type_uid"] == 600300 + told["activity_id"]
        assert told["time"] == 1779703200123
        assert 1 <= told["severity_id"] <= 5
        assert told["metadata"]["version"].startswith("1.")
        assert told["metadata"]["product"]["vendor_name"] and told["metadata"]["product"]["name"]
        assert told["api"]["operation"] == event.event_type.value
        assert ("session" in told["actor"]) == bool(event.session_id)
        # Of an endpoint and a user at least one attribute is required.
        assert told["src_endpoint"] == {"name": "Unknown"}
        assert told["actor"]["user"]["type_id"] == 0
        assert told["unmapped"]["not_known"] == ["actor.user", "src_endpoint"]


def test_what_became_of_a_window_is_a_status() -> None:
    states = {
        outcome: exports.map_to_ocsf(EVENTS[1].model_copy(update={"data": {"outcome": outcome}}))
        for outcome in ("released", "halted", "failed", "cancelled", "refused")
    }
    assert states.pop("released")["status"] == "Success"
    assert {told["status_id"] for told in states.values()} == {2}


def test_a_halt_weighs_more_than_what_is_usual() -> None:
    weights = {one.event_type: exports.map_to_ocsf(one)["severity_id"] for one in every_type()}
    assert weights[EventType.DISPATCH_COMPLETED] == 1
    assert weights[EventType.RE_DISPATCH] < weights[EventType.FABRICATION_DETECTED]
    assert weights[EventType.FABRICATION_DETECTED] < weights[EventType.SAFETY_HALT]
    assert weights[EventType.SAFETY_HALT] == weights[EventType.POLICY_VIOLATION] == 4
