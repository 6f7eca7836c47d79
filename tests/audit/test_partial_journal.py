"""Trails of which a part is missing: what still verifies, and what it is called."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, verify_journal, verify_partial
from crp_integrations.audit.records import Event, Stub
from crp_integrations.audit.trail import seal_of_event, verify_events
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.errors import ChainBroken
from crp_integrations.vocabulary import ChainIntegrity, TrailState
from tests.audit.chain_graphs import RING, SESSION, TENANT, Memory, diamond, window

KEY = journal_key(RING, TENANT)
SECOND = "crp_sess_0000000000000000"


def written() -> Memory:
    journal = Memory()
    diamond(journal)
    diamond(journal, session=SECOND)
    return journal


WHOLE = written()
COUNT = len(WHOLE.written)


def without(left_out: set[int], events=None) -> list[Event | Stub]:
    chosen = WHOLE.written if events is None else events
    return [
        Stub(hmac=event.hmac) if place in left_out else event for place, event in enumerate(chosen)
    ]


def of_events(entries, before: str = ""):
    return verify_events(
        entries,
        journal_key=KEY,
        session_key=lambda session_id: session_key(RING, session_id),
        before=before,
    )


@given(st.sets(st.integers(0, COUNT - 1)))
def test_events_left_out_leave_a_chain_that_verifies(left_out: set[int]) -> None:
    found = verify_partial(without(left_out), KEY)
    assert (found.events, found.left_out) == (COUNT - len(left_out), len(left_out))
    assert found.tip == WHOLE.written[-1].hmac
    beginning = left_out == set(range(len(left_out)))
    wanted = TrailState.PARTIAL
    if len(left_out) == COUNT:
        wanted = TrailState.UNVERIFIED
    elif not left_out:
        wanted = TrailState.VALID
    elif beginning:
        wanted = TrailState.TRUNCATED
    assert found.state is wanted
    trail = of_events(without(left_out))
    assert (trail.events, trail.left_out, trail.state) == (found.events, len(left_out), wanted)


@given(st.sets(st.integers(0, COUNT - 1)), st.integers(0, COUNT - 1), st.data())
def test_what_is_there_is_checked_all_the_same(
    left_out: set[int], place: int, data: st.DataObject
) -> None:
    assume(place not in left_out)
    event = WHOLE.written[place]
    field, value = data.draw(
        st.sampled_from(
            [
                ("timestamp", "2026-05-25T10:00:00.5Z"),
                ("window_id", "crp_win_x"),
                ("session_id", "crp_sess_x"),
                ("data", {**event.data, "count": 1}),
                ("seq", event.seq + 1),
                ("hmac", event.hmac[:-1] + "x"),
            ]
        )
    )
    events = [*WHOLE.written]
    events[place] = event.model_copy(update={field: value})
    entries = without(left_out, events)
    first = not any(isinstance(entry, Event) for entry in entries[:place])
    # Where nothing but stubs stands before an event, there is nothing to count its place from.
    assume(not (field == "seq" and first and place))
    with pytest.raises(ChainBroken) as broken:
        verify_partial(entries, KEY)
    assert broken.value.index == place


@given(st.integers(0, COUNT - 2), st.sets(st.integers(0, COUNT - 1)))
def test_an_event_gone_without_a_stub_shows(place: int, left_out: set[int]) -> None:
    assume(place not in left_out and place + 1 not in left_out)
    entries = without(left_out)
    del entries[place]
    with pytest.raises(ChainBroken) as broken:
        verify_partial(entries, KEY)
    assert broken.value.index == place


def test_another_hmac_in_a_stub_shows_at_the_event_behind_it() -> None:
    entries = without({3, 4})
    entries[4] = Stub(hmac=WHOLE.written[3].hmac)
    with pytest.raises(ChainBroken) as broken:
        verify_partial(entries, KEY)
    assert broken.value.index == 5


def test_within_a_run_of_stubs_only_the_last_is_covered() -> None:
    """The honest limit: how many were left out is the word of whoever left them out."""
    entries = without({3, 4})
    entries[3] = Stub(hmac="sha256:" + "0" * 64)
    assert verify_partial(entries, KEY).state is TrailState.PARTIAL


@pytest.mark.parametrize("first", [1, 7, COUNT - 1])
def test_a_journal_from_the_middle_verifies_behind_a_noted_hmac(first: int) -> None:
    rest = WHOLE.written[first:]
    noted = WHOLE.written[first - 1].hmac
    found = verify_partial(rest, KEY, before=noted)
    assert (found.events, found.left_out, found.state) == (len(rest), 0, TrailState.TRUNCATED)
    assert found.state.integrity is ChainIntegrity.PARTIAL
    for wrong in ("", WHOLE.written[first].hmac):
        with pytest.raises(ChainBroken) as broken:
            verify_partial(rest, KEY, before=wrong)
        assert broken.value.index == 0
    with pytest.raises(ChainBroken):
        verify_journal(rest, KEY)


def test_after_the_erasure_of_what_is_old_a_trail_is_truncated_and_verifies() -> None:
    """The first windows of a session and their events are gone, for good."""
    journal = Memory()
    for number in range(1, 6):
        window(journal, f"w{number}", number)
    kept = [one for one in journal.seals(SESSION) if one.window_number > 2]
    noted = journal.written[3].hmac
    trail = journal.check(events=journal.written[4:], seals=kept, before=noted)
    assert (trail.events, trail.windows, trail.truncated) == (6, 3, True)
    assert trail.state is TrailState.TRUNCATED
    assert trail.state.integrity is ChainIntegrity.PARTIAL
    stub = Stub(hmac=noted)
    assert journal.check(events=[stub, *journal.written[4:]], seals=kept).state is trail.state
    # What is left is checked as it was.
    for seals in (kept[1:], [kept[0], kept[2]], [kept[0].model_copy(update={"etag": "x"})]):
        with pytest.raises(ChainBroken):
            journal.check(events=journal.written[4:], seals=seals, before=noted)
    with pytest.raises(ChainBroken):
        journal.check(events=journal.written[4:], seals=kept)


def test_an_erased_session_leaves_the_others_whole() -> None:
    gone = {place for place, event in enumerate(WHOLE.written) if event.session_id == SESSION}
    seals = WHOLE.seals(SECOND)
    trail = WHOLE.check(events=without(gone), seals=seals)
    assert (trail.windows, trail.sessions, trail.left_out) == (7, 1, len(gone))
    # The seals of the session whose events are gone still make a chain.
    assert WHOLE.check(events=without(gone)).sessions == 2
    broken = [one.model_copy(update={"report_hash": "x"}) for one in WHOLE.seals(SESSION)]
    with pytest.raises(ChainBroken, match="does not fit"):
        WHOLE.check(events=without(gone), seals=[*seals, *broken])


def test_a_seal_without_its_event_is_no_matter_only_where_events_were_left_out() -> None:
    with pytest.raises(ChainBroken, match="a seal but no event"):
        WHOLE.check(events=WHOLE.written[:-2])
    assert WHOLE.check(events=without({COUNT - 1})).windows == 13


def test_the_last_events_tell_the_windows_whole() -> None:
    told = [seal for event in WHOLE.written if (seal := seal_of_event(event)) is not None]
    assert sorted(told, key=lambda one: one.hmac) == sorted(
        WHOLE.all_seals(), key=lambda one: one.hmac
    )
    trail = of_events(WHOLE.written)
    assert (trail.windows, trail.sessions, trail.state) == (14, 2, TrailState.VALID)


def test_events_alone_show_a_window_that_its_chain_does_not_fit() -> None:
    """Whoever has the journal's key and not the session's cannot put a window into it."""
    other = Memory()
    window(other, "a", 1)
    forged = other.written[1].data | {"response_hash": "sha256:" + "0" * 64}
    again = Memory()
    for event, data in zip(other.written, (other.written[0].data, forged), strict=True):
        draft = EventDraft(event.event_type, data, event.session_id, event.window_id)
        append_events(again, KEY, [draft], event.timestamp)
    with pytest.raises(ChainBroken, match="does not fit the session's chain") as broken:
        of_events(again.written)
    assert broken.value.index == 1
    with pytest.raises(ChainBroken, match="does not fit the session's chain"):
        of_events([Stub(hmac=again.written[0].hmac), again.written[1]])
