""""""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.audit.trail import AuditTrail, verify_trail
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.errors import ChainBroken, ModelError
from crp_integrations.seals import SEPARATOR
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import ChainIntegrity, EventType
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, KEY

KEYRING = FixedKeyRing(bytes.fromhex(KEY))
A, B, C = (f"crp_sess_{letter * 16}" for letter in "abc")
SESSIONS = (A, B, A, B, A)
QUESTION = "When was the Meridian reactor commissioned?"


def written(store: Any) -> Relay:
    """Two sessions in turns; the last window but one has failed."""
    model = ScriptedModel(
        FACTS[0], "It delivers 999 megawatts.", FACTS[1], ModelError("no"), "Yes."
    )
    relay = Relay.open(store, embedder=HashEmbedder(), key=KEY, clock=NOON, models=model)
    relay.fabric.add(list(FACTS))
    for session in SESSIONS:
        try:
            relay.ask(QUESTION, session_id=session)
        except ModelError:
            assert len(model.calls) == 4
    return relay


@dataclass(frozen=True)
class Stored:
    tenant: str
    events: tuple[Event, ...]
    seals: tuple[WindowSeal, ...]

    def check(self, events: Any = None, seals: Any = None) -> AuditTrail:
        return verify_trail(
            self.events if events is None else events,
            self.seals if seals is None else seals,
            journal_key=journal_key(KEYRING, self.tenant),
            session_key=lambda session: session_key(KEYRING, session),
        )

    def end(self, seal: WindowSeal) -> int:
        """Index of a window's last event."""
        (last,) = [
            index
            for index, event in enumerate(self.events)
            if event.data.get("window_hmac") == seal.hmac
        ]
        return last


def stored() -> Stored:
    relay = written(MemoryStore())
    with relay.fabric.begin(write=False) as transaction:
        events, seals = transaction.journal.events(), transaction.journal.all_seals()
        return Stored(relay.fabric.subject.tenant, tuple(events), tuple(seals))


WHOLE = stored()
SEALS = range(len(WHOLE.seals))
EVENTS = range(len(WHOLE.events))


def without(many: tuple[Any, ...], index: int) -> list[Any]:
    return [*many[:index], *many[index + 1 :]]


def changed(many: tuple[Any, ...], index: int, **fields: Any) -> list[Any]:
    return [*many[:index], many[index].model_copy(update=fields), *many[index + 1 :]]


def swapped(many: tuple[Any, ...], left: int, right: int) -> list[Any]:
    out = list(many)
    out[left], out[right] = out[right], out[left]
    return out


def other(value: Any) -> Any:
    """A near value of the same kind: one character or one number away."""
    if isinstance(value, EventType):
        return next(one for one in EventType if one is not value)
    if isinstance(value, dict):
        return {**value, "more": 1}
    return value + 1 if isinstance(value, int) else f"{value}x"


def test_a_trail_that_nobody_touched_is_whole() -> None:
    assert WHOLE.check() == AuditTrail(len(WHOLE.events), 5, 2, WHOLE.events[-1].hmac)
    assert {seal.outcome for seal in WHOLE.seals} == {"released", "failed"}
    assert WHOLE.check((), ()) == AuditTrail(0, 0, 0, "")


@pytest.mark.requirement("005-15.1-1")
def test_every_window_ends_with_an_event_that_says_what_its_seal_says() -> None:
    for seal in WHOLE.seals:
        event = WHOLE.events[WHOLE.end(seal)]
        said = {name: getattr(seal, name) for name in ("outcome", "etag", "risk_level")}
        assert said.items() <= event.data.items()
        assert (event.data["window_number"], event.data["session_id"], event.window_id) == (
            seal.window_number,
            seal.session_id,
            seal.window_id,
        )
        later = WHOLE.events[WHOLE.end(seal) + 1 :]
        assert seal.window_id not in {event.window_id for event in later}


@pytest.mark.parametrize("field", WindowSeal.model_fields)
@pytest.mark.parametrize("index", SEALS)
def test_a_changed_field_of_a_seal_is_found_at_its_window(index: int, field: str) -> None:
    seal = WHOLE.seals[index]
    for value in (other(getattr(seal, field)), *([SEPARATOR] if field.endswith("hash") else [])):
        with pytest.raises(ChainBroken, match=r"^(the seal of )?window ") as broken:
            WHOLE.check(seals=changed(WHOLE.seals, index, **{field: value}))
        assert broken.value.index == WHOLE.end(seal)


@pytest.mark.parametrize("field", Event.model_fields)
@pytest.mark.parametrize("index", EVENTS)
def test_a_changed_field_of_an_event_is_found_at_its_place(index: int, field: str) -> None:
    value = other(getattr(WHOLE.events[index], field))
    with pytest.raises(ChainBroken, match=r"event ") as broken:
        WHOLE.check(changed(WHOLE.events, index, **{field: value}))
    assert broken.value.index == index


@given(data=st.data())
def test_any_other_text_in_a_seal_is_found(data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(SEALS))
    texts = [name for name in WindowSeal.model_fields if name != "window_number"]
    field = data.draw(st.sampled_from(texts))
    words = st.sampled_from(["", "released", "failed", "halted", "LOW", "CRITICAL"])
    value = data.draw(words | st.text(max_size=8))
    assume(value != getattr(WHOLE.seals[index], field))
    with pytest.raises(ChainBroken) as broken:
        WHOLE.check(seals=changed(WHOLE.seals, index, **{field: value}))
    assert broken.value.index == WHOLE.end(WHOLE.seals[index])


@pytest.mark.parametrize("index", SEALS)
def test_a_missing_seal_is_found_also_a_session_s_last(index: int) -> None:
    with pytest.raises(ChainBroken, match="no seal of its own") as broken:
        WHOLE.check(seals=without(WHOLE.seals, index))
    assert broken.value.index == WHOLE.end(WHOLE.seals[index])


@pytest.mark.parametrize("index", EVENTS)
def test_a_missing_event_is_found_also_the_last(index: int) -> None:
    with pytest.raises(ChainBroken) as broken:
        WHOLE.check(without(WHOLE.events, index))
    assert broken.value.index == index


def test_a_seal_without_events_is_placed_behind_the_journal() -> None:
    first = WHOLE.seals[0]
    rest = WHOLE.events[: WHOLE.end(first)]
    with pytest.raises(ChainBroken, match="has a seal but no event") as broken:
        WHOLE.check(rest)
    assert broken.value.index == len(rest)


@given(st.sampled_from(EVENTS), st.sampled_from(EVENTS))
def test_two_events_in_each_other_s_place_are_found(left: int, right: int) -> None:
    assume(left != right)
    with pytest.raises(ChainBroken) as broken:
        WHOLE.check(swapped(WHOLE.events, left, right))
    assert broken.value.index == min(left, right)


def test_two_seals_in_each_other_s_place_are_found() -> None:
    for left in SEALS:
        for right in range(left):
            one, two = WHOLE.seals[left], WHOLE.seals[right]
            moved = changed(WHOLE.seals, left, window_number=two.window_number)
            moved = changed(tuple(moved), right, window_number=one.window_number)
            if one.session_id == two.session_id:
                with pytest.raises(ChainBroken, match="fit the session's chain"):
                    WHOLE.check(seals=swapped(WHOLE.seals, left, right))
            if one.window_number != two.window_number:
                with pytest.raises(ChainBroken):
                    WHOLE.check(seals=moved)


def test_a_seal_that_is_there_twice_or_in_another_session_is_found() -> None:
    with pytest.raises(ChainBroken, match="fit the session's chain"):
        WHOLE.check(seals=[*WHOLE.seals, WHOLE.seals[-1]])
    with pytest.raises(ChainBroken, match="has a seal but no event"):
        WHOLE.check(seals=[*WHOLE.seals, WHOLE.seals[0].model_copy(update={"session_id": C})])


def test_a_window_that_ends_twice_is_found() -> None:
    relay = written(MemoryStore())
    end = WHOLE.events[-1]
    draft = EventDraft(end.event_type, end.data, end.session_id, end.window_id)
    key = journal_key(KEYRING, WHOLE.tenant)
    with relay.fabric.begin(write=True) as transaction:
        append_events(transaction.journal, key, [draft], end.timestamp)
    with pytest.raises(ChainBroken, match="no seal of its own") as broken:
        relay.verify()
    assert broken.value.index == len(WHOLE.events)


def test_another_key_verifies_nothing() -> None:
    for wrong in ("journal_key", "session_key"):
        keys: dict[str, Any] = {
            "journal_key": journal_key(KEYRING, WHOLE.tenant),
            "session_key": lambda session: session_key(KEYRING, session),
            wrong: bytes(32) if wrong == "journal_key" else lambda _: bytes(32),
        }
        with pytest.raises(ChainBroken):
            verify_trail(WHOLE.events, WHOLE.seals, **keys)


def test_an_end_cut_off_whole_shows_against_a_noted_tip_only() -> None:
    """The honest limit of ADR 42, held so that nobody claims more."""
    last = next(seal for seal in WHOLE.seals if WHOLE.end(seal) == len(WHOLE.events) - 1)
    rest = [event for event in WHOLE.events if event.window_id != last.window_id]
    trail = WHOLE.check(rest, [seal for seal in WHOLE.seals if seal != last])
    assert trail.windows == 4
    assert trail.tip != WHOLE.check().tip


def test_a_relay_verifies_its_namespace_and_goes_on() -> None:
    relay = written(MemoryStore())
    before = relay.verify()
    assert before == WHOLE.check()
    relay.ask(QUESTION, session_id=A)
    after = relay.verify()
    assert (after.windows, after.sessions) == (before.windows + 1, 2)
    with relay.fabric.begin(write=False) as transaction:
        events = list(transaction.journal.events())
    assert events[before.events - 1].hmac == before.tip
    assert Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY).verify().tip == ""


CHANGES = (
    f"UPDATE seals SET outcome = 'failed' WHERE session_id = '{A}' AND window_number = 2",
    f"UPDATE seals SET risk_level = 'LOWER' WHERE session_id = '{A}' AND window_number = 3",
    f"UPDATE seals SET etag = etag || 'x' WHERE session_id = '{B}' AND window_number = 1",
    f"UPDATE seals SET window_id = 'crp_win_x' WHERE session_id = '{B}'",
    f"DELETE FROM seals WHERE session_id = '{A}' AND window_number = 3",
    "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
    "UPDATE events SET timestamp = timestamp || '0' WHERE seq = 3",
)


@pytest.mark.parametrize("change", CHANGES)
def test_who_removes_the_triggers_of_a_database_is_still_seen(tmp_path: Path, change: str) -> None:
    with written(SqliteStore(tmp_path / "kb")) as relay:
        assert relay.verify() == WHOLE.check()
        (database,) = (tmp_path / "kb").rglob("*.sqlite")
        with closing(sqlite3.connect(database)) as raw:
            for table in ("events", "seals"):
                for verb in ("update", "delete"):
                    raw.execute(f"DROP TRIGGER {table}_{verb}")
            assert raw.execute(change).rowcount > 0
            raw.commit()
        with pytest.raises(ChainBroken):
            relay.verify()


def test_the_word_in_a_report_speaks_of_hmacs_only(tmp_path: Path) -> None:
    """What ADR 42 says of `chain_integrity`: the outcome is the whole trail's matter."""
    with written(SqliteStore(tmp_path / "kb")) as relay:
        (database,) = (tmp_path / "kb").rglob("*.sqlite")
        with closing(sqlite3.connect(database)) as raw:
            raw.execute("DROP TRIGGER seals_update")
            raw.execute(CHANGES[0])
            raw.commit()
        answer = relay.ask(QUESTION, session_id=A)
        assert answer.report.chain_integrity is ChainIntegrity.VALID
        with pytest.raises(ChainBroken, match="in outcome"):
            relay.verify()
