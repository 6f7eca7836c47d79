"""Privacy: `no-store` leaves no byte behind, warnings, salted ETags, communities unsaid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.envelope.continuation import EARLIER
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.headers import names
from crp_integrations.relay.memory import MOST_CHARACTERS, SessionMemories
from crp_integrations.relay.steps import Halt, NotModified
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, Purpose, QualityTier
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import (
    CRITICAL,
    HIGH,
    LOW,
    OPERATOR,
    QUESTION,
    SESSION,
    SOUND,
    answered,
    continued,
    opened,
    outcome,
    refusal,
    session_events,
)
from tests.session.graph_faults import find_faults

NO_STORE = {"cache": "no-store"}
# Words that stand nowhere but in what a test says.
SECRET = "The walruszq of Quimperley weighs 4711081516 kilograms."
ASKED = "How heavy is the walruszq of Quimperley?"
SAID = "It is the walruszq of Quimperley that weighs 4711081516 kilograms, and no other."
PERSONAL = f"{LOW} Write to hans.gruber@example.org."


def bytes_of(folder: Path) -> bytes:
    """Everything that lies in a folder, files that SQLite left open too."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def traces(folder: Path, *words: str) -> list[str]:
    """Which of some words stand anywhere in a folder, whatever their case."""
    held = bytes_of(folder).lower()
    return [word for word in words if word.lower().encode() in held]


@pytest.mark.requirement("003-17.1-3")
def test_a_session_without_a_store_leaves_no_byte_behind(
    open_relay: Opener, tmp_path: Path
) -> None:
    place = tmp_path / "kb"
    relay, _ = opened(open_relay, SAID, HIGH, FACTS[1], SOUND, SAID, store=SqliteStore(place))
    state = relay.fabric.state_hash()
    relay.add([SECRET], session_id=SESSION, cache="no-store")
    first = answered(relay, ASKED, **NO_STORE)
    assert SECRET in [fact.content for fact in first.envelope.facts]
    # A continuation, a re-dispatch and a halt, all of them unkept.
    continued(relay, first, QUESTION, policy="upgrade-on-risk reflexive", **NO_STORE)
    outcome(relay, ASKED, policy="halt-on MEDIUM; upgrade-on-risk reflexive", **NO_STORE)
    assert relay.end_session(SESSION) == 1
    assert relay.fabric.state_hash() == state
    held = {fact.fact_id for fact in first.envelope.facts if fact.content == SECRET}
    assert (
        traces(
            place, "walruszq", "quimperley", "4711081516", "900 megawatts", "how heavy", *held,
            first.report.claims[0].text,
        )
        == []
    )  # fmt: skip
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.sessions.session(SESSION) is None
        assert transaction.sessions.windows(SESSION) == []
        assert transaction.sessions.report(first.window_id) is None
    assert relay.report(first.window_id) is None
    # Hashes alone are sealed, and they verify.
    assert relay.verify().windows == 3
    relay.close()
    assert traces(place, "walruszq", "quimperley", "4711081516", "how heavy") == []


@pytest.mark.requirement("003-17.1-3")
def test_the_same_session_kept_would_leave_something(open_relay: Opener, tmp_path: Path) -> None:
    """The grep finds what is there: without `no-store` the answer and its report are."""
    place = tmp_path / "kb"
    relay, _ = opened(open_relay, SAID, store=SqliteStore(place))
    answered(relay, ASKED)
    relay.close()
    assert traces(place, "walruszq", "4711081516") == ["walruszq", "4711081516"]


def test_while_it_goes_on_the_session_knows_what_was_said(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, HIGH, OPERATOR, HIGH)
    first = answered(relay, **NO_STORE)
    assert first.headers[names.SAFETY_BUDGET] == "0.85"
    assert names.REPORT_URI not in first.headers
    second = continued(relay, first, **NO_STORE)
    assert second.window_number == 2
    assert EARLIER + HIGH in [fact.content for fact in second.envelope.facts]
    assert float(second.headers[names.SAFETY_BUDGET]) <= 0.85
    # The policy and the token hold as in any session.
    token = second.headers[names.SET_SESSION].partition("token=")[2].partition(";")[0]
    third = answered(relay, policy="halt-on CRITICAL", session_token=token, **NO_STORE)
    assert third.window_number == 3
    assert refusal(relay, policy="warn-on HIGH", **NO_STORE).status_hint == 403
    relay.end_session(SESSION)
    assert answered(relay, **NO_STORE).headers[names.SAFETY_BUDGET] != "0.0"


def test_a_session_that_was_kept_before_stays_as_strict(open_relay: Opener) -> None:
    """What was tightened or spent without a store binds the windows with one, and back."""
    relay, _ = opened(open_relay, HIGH)
    answered(relay)
    unkept = answered(relay, policy="halt-on CRITICAL", **NO_STORE)
    assert unkept.headers[names.SAFETY_BUDGET] == "0.7"
    assert refusal(relay, policy="warn-on HIGH").status_hint == 403
    # Also once what is held in memory is gone: a budget does not recover.
    relay.end_session(SESSION)
    kept = answered(relay)
    assert kept.headers[names.SAFETY_BUDGET] == "0.55"
    assert "halt-on CRITICAL" in kept.headers[names.POLICY_APPLIED]
    with relay.fabric.begin(write=False) as transaction:
        nodes = transaction.sessions.windows(SESSION)
        said = transaction.sessions.priors([node.window_id for node in nodes])
        report = transaction.sessions.report(unkept.window_id)
    assert not find_faults(nodes, relay.settings.sessions.graph)
    # Of the window in the middle there is its node, and nothing that it said.
    assert unkept.window_id in [node.window_id for node in nodes]
    assert kept.window_id in said
    assert unkept.window_id not in said
    assert report is None


def test_an_unkept_envelope_is_not_known_to_conditions(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    first = answered(relay, **NO_STORE)
    assert not isinstance(outcome(relay, if_match=first.envelope.etag), NotModified)


def test_an_unkept_halt_tells_its_operator_all_the_same(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, CRITICAL)
    ended = outcome(relay, policy="halt-on CRITICAL", **NO_STORE)
    assert isinstance(ended, Halt)
    (event,) = session_events(relay, EventType.SAFETY_HALT)
    assert event.data["reason"] == "CRITICAL_HALLUCINATION_RISK"


@pytest.mark.requirement("003-16.1-4", "005-13.3-2")
def test_personal_data_without_no_store_is_warned_of(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, PERSONAL)
    kept = answered(relay)
    assert kept.headers[names.PERSONAL] == "true"
    assert "personal-data-without-no-store" in kept.report.flags
    assert kept.report.personal.warning
    (event,) = session_events(relay, EventType.PII_DETECTED)
    assert event.data["count"] >= 1
    unkept = answered(relay, **NO_STORE)
    assert unkept.headers[names.PERSONAL] == "true"
    assert unkept.report.personal.warning == ""
    assert "personal-data-without-no-store" not in unkept.report.flags
    plain, _ = opened(open_relay, LOW)
    assert answered(plain).headers[names.PERSONAL] == "false"


@pytest.mark.requirement("003-16.1-4")
def test_facts_with_personal_data_are_warned_of_too(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    relay.fabric.add(["The Meridian reactor is led by anna.weber@example.org since 2020."])
    kept = answered(relay)
    assert any("anna.weber" in fact.content for fact in kept.envelope.facts)
    assert "personal-facts-without-no-store=1" in kept.report.flags
    unkept = answered(relay, **NO_STORE).report.flags
    assert not [flag for flag in unkept if flag.startswith("personal-facts")]
    # The flag says how many, and names nobody.
    assert "anna" not in " ".join(kept.report.flags)
    # What there is no time to search is said to be unsearched, however often it is asked for.
    slow, _ = opened(open_relay, LOW, dispatch={"searched_characters": 100})
    for _ in range(2):
        assert "facts-not-searched=4" in answered(slow).report.flags


@pytest.mark.requirement("003-16.2-1")
def test_salted_etags_differ_from_session_to_session(open_relay: Opener) -> None:
    other = "crp_sess_" + "b" * 16
    plain, _ = opened(open_relay, LOW)
    assert (
        answered(plain).headers[names.ETAG] == answered(plain, session_id=other).headers[names.ETAG]
    )
    salted, _ = opened(open_relay, LOW, envelope={"reuse": {"salt_etags": True}})
    first = answered(salted)
    assert first.headers[names.ETAG] != answered(salted, session_id=other).headers[names.ETAG]
    # Within a session it is the same one, and conditions hold as before.
    assert answered(salted).headers[names.ETAG] == first.headers[names.ETAG]
    assert isinstance(outcome(salted, if_match=first.envelope.etag), NotModified)
    # Nobody without the key can tell which content an ETag is of.
    again, _ = opened(open_relay, LOW, envelope={"reuse": {"salt_etags": True}}, key="cd" * 32)
    assert answered(again).headers[names.ETAG] != first.headers[names.ETAG]


@pytest.mark.requirement("003-16.3-1")
def test_the_community_can_be_left_unsaid(open_relay: Opener) -> None:
    def with_communities(**options: object) -> Relay:
        relay, _ = opened(open_relay, LOW, **options)
        relay.fabric.add(
            [f"The Meridian reactor unit {n} delivers 4{n}2 megawatts." for n in range(9)]
        )
        relay.fabric.recluster()
        return relay

    told = answered(with_communities())
    assert told.envelope.ckf_communities
    assert told.headers[names.CKF_COMMUNITY]
    silent = answered(with_communities(headers={"show_community": False}))
    assert names.CKF_COMMUNITY not in silent.headers
    assert silent.envelope.ckf_communities == told.envelope.ckf_communities


@pytest.mark.requirement("003-17.1-3")
def test_neither_journal_nor_provider_learns_what_is_not_theirs(
    open_relay: Opener, tmp_path: Path
) -> None:
    relay, model = opened(open_relay, SAID, store=SqliteStore(tmp_path / "kb"))
    relay.add([SECRET], session_id=SESSION, cache="no-store")
    answered(relay, ASKED, policy="warn-on HIGH", **NO_STORE)
    for event in session_events(relay):
        assert "walruszq" not in json.dumps(dict(event.data))
    (call,) = [call for call in model.calls if call.purpose is Purpose.ANSWER]
    sent = json.dumps(call.model_dump(mode="json"))
    assert "crp_" not in sent
    assert "CRP-" not in sent
    assert SESSION not in sent


def test_a_session_in_memory_alone_keeps_what_it_said_last_and_no_more_than_that() -> None:
    remembered = SessionMemories()
    for number in range(1, 30):
        remembered.keep_prior(SESSION, _said(number, "x" * (MOST_CHARACTERS // 10)))
    assert [*remembered.of(SESSION).priors] == [f"w{number}" for number in range(20, 30)]
    remembered.keep_prior(SESSION, _said(30, "x" * (2 * MOST_CHARACTERS)))
    assert [*remembered.of(SESSION).priors] == ["w30"]


def _said(number: int, answer: str) -> EarlierWindow:
    return EarlierWindow(
        window_number=number,
        window_id=f"w{number}",
        etag="",
        facts_seen=(),
        answer=answer,
        quality_tier=QualityTier.B,
    )
