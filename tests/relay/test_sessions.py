"""Sessions over several questions: tokens, continuations, graphs, and two relays over one folder.

A session that the store has forgotten does not begin with a whole safety budget again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.continuation import EARLIER
from crp_integrations.errors import (
    LimitReached,
    PolicyRelaxed,
    StaleTip,
    TokenRefused,
    UnknownContinuation,
)
from crp_integrations.guard.decisions import Subject
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.messages import Reply
from crp_integrations.relay.delegation import asked_by
from crp_integrations.relay.records import Answer
from crp_integrations.session.records import SESSION_ID, WindowNode, session_id_of
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import EventType, Pattern, TransferType
from tests.doubles import CountingIds, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import (
    HIGH,
    LOW,
    OPERATOR,
    QUESTION,
    SESSION,
    answered,
    continued,
    opened,
    outcome,
    refusal,
    session_events,
)
from tests.session.graph_faults import find_faults

OTHER = "crp_sess_" + "b" * 16


def token_of(answer: Answer) -> str:
    """The session token that an answer's headers bring."""
    said = parse_response(answer.headers).set_session
    assert said is not None
    return said.token


def nodes(relay: Relay, session_id: str = SESSION) -> list[WindowNode]:
    """The stored graph of a session."""
    with relay.fabric.begin(write=False) as transaction:
        return transaction.sessions.windows(session_id)


# --- tokens ------------------------------------------------------------------------------


@pytest.mark.requirement("003-14.3-1")
def test_every_answer_brings_a_token_with_its_windows_history(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, FACTS[1])
    first = answered(relay)
    second = continued(relay, first)
    said = parse_response(second.headers).set_session
    assert said is not None
    assert said.window == 2
    assert said.quality_history == (first.envelope.quality_tier, second.envelope.quality_tier)
    history = ",".join(tier.value for tier in said.quality_history)
    assert f"QualityHistory={history}" in second.headers[names.SET_SESSION]
    assert said.max_age_seconds == 3_600


def test_a_token_is_brought_back_with_the_next_question(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, HIGH, LOW, LOW)
    first = answered(relay)
    second = answered(relay, session_token=token_of(first))
    assert second.window_number == 2
    assert second.headers[names.SAFETY_BUDGET] == "0.85"
    third = answered(relay, session_token=token_of(second))
    assert third.headers[names.WINDOW] == "3/5"


def test_a_token_of_an_earlier_window_is_stale(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    first = answered(relay)
    answered(relay, session_token=token_of(first))
    error = refusal(relay, session_token=token_of(first))
    assert isinstance(error, StaleTip)
    assert error.status_hint == 409
    assert len(model.calls) == 2


def test_what_was_refused_takes_no_token_away(open_relay: Opener) -> None:
    """A caller whose question was refused got no other token, so the one that he has holds."""
    relay, _ = opened(open_relay, LOW, RuntimeError("gone"), LOW, LOW)
    token = token_of(answered(relay))
    refusal(relay, policy="blok-pii")
    refusal(relay, session_token=token + "A")
    with pytest.raises(RuntimeError):
        relay.ask(QUESTION, session_id=SESSION, session_token=token)
    after = answered(relay, session_token=token)
    # A call that failed is followed, what was refused is not.
    assert after.window_number == 3
    # And once an answer was delivered it does not, however many windows lie between.
    assert isinstance(refusal(relay, session_token=token), StaleTip)
    assert answered(relay, session_token=token_of(after)).window_number == 4
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)


def test_a_forged_token_is_refused(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    token = token_of(answered(relay))
    payload, _, signature = token.partition(".")
    turned = signature[:-1] + ("A" if signature[-1] != "A" else "B")
    for forged in (f"{payload}.{turned}", payload, "x", f"{payload}.{signature}."):
        error = refusal(relay, session_token=forged)
        assert isinstance(error, TokenRefused)
        assert error.status_hint == 401
        assert token not in str(error)
    assert len(model.calls) == 1


def test_a_token_is_for_its_session_its_tenant_and_its_user(open_relay: Opener) -> None:
    store = MemoryStore()
    relay, _ = opened(open_relay, LOW, store=store)
    token = token_of(answered(relay))
    assert isinstance(refusal(relay, session_id=OTHER, session_token=token), TokenRefused)
    for subject in (Subject(tenant="local", name="eve"), Subject(tenant="other", name="local")):
        theirs = open_relay(store, subject=subject)
        assert isinstance(refusal(theirs, session_token=token), TokenRefused)


def test_a_token_lowers_a_budget_and_does_not_raise_it(open_relay: Opener) -> None:
    """What the store knows holds; a token of a time with more cannot bring it back."""
    relay, _ = opened(open_relay, HIGH, dpe=DpeSettings())
    token = token_of(answered(relay))
    with relay.fabric.begin(write=True) as transaction:
        kept = transaction.sessions.session(SESSION)
        transaction.sessions.keep(kept.changed(safety_budget=0.6))
    assert answered(relay, session_token=token).headers[names.SAFETY_BUDGET] == "0.45"


def test_a_token_does_not_open_a_policy(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    token = token_of(answered(relay, policy="halt-on HIGH"))
    error = refusal(relay, policy="halt-on CRITICAL", session_token=token)
    assert isinstance(error, PolicyRelaxed)
    assert error.status_hint == 403


@pytest.mark.parametrize("asking", [{}, {"cache": "no-store"}])
def test_a_session_takes_so_many_windows_and_no_more(
    open_relay: Opener, asking: dict[str, str]
) -> None:
    relay, model = opened(open_relay, LOW, sessions={"graph": {"nodes": 3}})
    for _ in range(3):
        answer = answered(relay, **asking)
    said = parse_response(answer.headers).set_session
    assert said is not None
    assert (len(said.quality_history), said.window) == (3, 3)
    asked = len(model.calls)
    error = refusal(relay, **asking)
    assert isinstance(error, LimitReached)
    assert "sessions.graph.nodes" in str(error)
    assert len(model.calls) == asked
    assert answered(relay, session_id=OTHER).window_number == 1


def test_fifty_windows_are_the_limit_of_the_protocol_alone(open_relay: Opener) -> None:
    for profile, limit in (("observe", None), ("protocol", 50)):
        relay, _ = opened(open_relay, LOW, profile=profile)
        assert relay.settings.sessions.graph.nodes == limit


# --- continuations -----------------------------------------------------------------------


@pytest.mark.requirement("003-14.1-2")
def test_a_continuation_id_loads_what_was_seen(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, FACTS[1])
    first = answered(relay, k=2)
    seen = {fact.fact_id for fact in first.envelope.facts}
    assert len(seen) == 2
    second = continued(relay, first)
    shown = {fact.fact_id for fact in second.envelope.facts}
    assert not seen & shown
    # The others are there, and would all be there in a session of its own.
    alone = answered(relay, OPERATOR, session_id=OTHER)
    assert seen <= {fact.fact_id for fact in alone.envelope.facts}


def test_a_summary_takes_no_facts_place(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, FACTS[1])
    first = answered(relay, k=1)
    second = continued(relay, first, k=1)
    (seen,), (summary, fact) = first.envelope.facts, second.envelope.facts
    assert summary.content == EARLIER + LOW
    assert fact.content in FACTS
    assert fact.fact_id != seen.fact_id
    assert second.envelope.total_facts_available == 2


@pytest.mark.requirement("003-14.1-4")
def test_the_answer_before_is_told_as_one_fact(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW, FACTS[1])
    second = continued(relay, answered(relay))
    told = [fact for fact in second.envelope.facts if fact.source_id.startswith("crp:summary")]
    (account,) = told
    assert account.content == EARLIER + LOW
    assert LOW in model.calls[1].messages[0].content
    node = nodes(relay)[1]
    assert node.transfer is TransferType.FULL_CONTEXT
    assert node.tokens_transferred > 0


@pytest.mark.requirement("003-14.1-4")
def test_a_long_answer_is_shortened_by_a_model_and_checked(open_relay: Opener) -> None:
    long = " ".join(
        f"Unit {number} of the plant has {number + 20} pumps and {number + 50} valves."
        for number in range(1, 60)
    )
    short = "Unit 1 of the plant has 21 pumps and 51 valves."
    limits = {"context_limits": {"extractive": 1_100}, "dispatch": {"continue_incomplete": False}}
    relay, model = opened(open_relay, long, short, FACTS[1], **limits)
    first = answered(relay, max_tokens=200)
    continued(relay, first, max_tokens=200)
    assert [call.purpose.value for call in model.calls] == ["answer", "summarise", "answer"]
    assert model.calls[1].temperature == 0.1
    assert short in model.calls[2].messages[0].content
    assert long not in model.calls[2].messages[0].content
    node = nodes(relay)[1]
    assert node.transfer is TransferType.SUMMARY
    assert node.summary_hash.startswith("sha256:")
    # A summary that says something else is not used: the end of the answer is, word for word.
    relay, model = opened(open_relay, long, "The pumps were sold to Peru in 1950.", LOW, **limits)
    continued(relay, answered(relay, max_tokens=200), max_tokens=200)
    assert nodes(relay)[1].transfer is TransferType.RESULT_ONLY
    assert "Peru" not in model.calls[2].messages[0].content
    assert "Unit 59 of the plant has 79 pumps" in model.calls[2].messages[0].content


def test_an_unknown_continuation_is_refused(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    first = answered(relay)
    wrong = [
        {"continuation_ids": ["crp_cont_" + "x" * 20]},
        {"continuation_ids": [first.continuation_id], "session_id": OTHER},
        {"continuation_ids": ["nonsense"]},
    ]
    for asking in wrong:
        error = refusal(relay, **asking)
        assert isinstance(error, UnknownContinuation)
        assert error.status_hint == 404
    assert len(model.calls) == 1


def test_of_one_window_several_may_go_on(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, FACTS[1])
    first = answered(relay)
    a = continued(relay, first)
    b = continued(relay, first)
    patterns = {node.window_id: node.pattern for node in nodes(relay)}
    assert patterns[first.window_id] is patterns[a.window_id] is Pattern.LINEAR
    assert patterns[b.window_id] is Pattern.BRANCH
    both = answered(relay, continuation_ids=[a.continuation_id, b.continuation_id])
    joined = nodes(relay)[-1]
    assert joined.pattern is Pattern.FAN_IN
    assert set(joined.parents) == {a.window_id, b.window_id}
    assert session_events(relay, EventType.FAN_IN_MERGED)[0].data["parents"]
    line = both.headers[names.LINEAGE].split(" -> ")
    assert (line[0], line[-1]) == (first.window_id, both.window_id)
    assert both.headers[names.DAG_ROOT] == f"dag:{first.window_id}"
    assert not find_faults(nodes(relay), relay.settings.sessions.graph)
    assert relay.verify().windows == 4


@pytest.mark.requirement("003-10.3-2", "003-10.3-4", "003-15-9")
def test_pressure_names_the_window_and_the_one_that_may_follow(open_relay: Opener) -> None:
    relay = open_relay(ids=CountingIds(), max_windows=5)
    units = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    relay.fabric.add(
        [
            f"Meridian reactor unit {name} does deliver {100 + 7 * n} megawatts each day."
            for n, name in enumerate(units)
        ]
    )
    question = "What does each Meridian reactor unit deliver?"
    for budget in range(60, 200):
        envelope = relay.preview(question, budget_tokens=budget)
        if envelope.saturation > 0.98:
            break
    asking = {"session_id": SESSION, "budget_tokens": budget}
    pressed = relay.turn(question, **asking)
    pressed.begin()
    from crp_integrations.messages import Reply

    ended = pressed.receive(Reply(text="Unit one does deliver 100 megawatts each day."))
    headers = ended.answer.headers  # type: ignore[union-attr]
    assert float(headers[names.SATURATION]) > 0.98
    assert headers[names.WINDOW] == "1/5"
    continuation = headers["CRP-Context-Continuation-Id"]
    # The id is that of the session's graph: it loads the window that is continued.
    (node,) = nodes(relay)
    assert node.continuation_id == continuation
    more = answered(relay, question, continuation_ids=[continuation], budget_tokens=budget)
    assert more.headers[names.WINDOW].startswith("2/")
    deferred = set(ended.answer.envelope.deferred)  # type: ignore[union-attr]
    assert deferred & {fact.fact_id for fact in more.envelope.facts}


# --- conditions --------------------------------------------------------------------------


# --- the store ---------------------------------------------------------------------------


def test_a_session_goes_on_after_a_restart(open_relay: Opener, tmp_path: Path) -> None:
    before, _ = opened(open_relay, HIGH, store=SqliteStore(tmp_path / "kb"))
    first = answered(before, policy="halt-on CRITICAL")
    before.close()
    after, _ = opened(open_relay, FACTS[1], store=SqliteStore(tmp_path / "kb"))
    second = continued(after, first, session_token=token_of(first))
    assert second.window_number == 2
    assert "halt-on CRITICAL" in second.headers[names.POLICY_APPLIED]
    assert float(second.headers[names.SAFETY_BUDGET]) <= 0.85
    # The answer before is known again, with what it showed.
    assert second.report.quality.flow.score < 1.0
    assert EARLIER + HIGH in [fact.content for fact in second.envelope.facts]
    assert after.verify().windows == 2


def test_two_relays_share_a_folder(open_relay: Opener, tmp_path: Path) -> None:
    one, _ = opened(open_relay, HIGH, store=SqliteStore(tmp_path / "kb"))
    two = open_relay(SqliteStore(tmp_path / "kb"), dpe=DpeSettings(), models=one._models)
    first = answered(one)
    second = answered(two, session_token=token_of(first))
    third = answered(one, session_token=token_of(second))
    assert [answer.window_number for answer in (first, second, third)] == [1, 2, 3]
    assert third.headers[names.SAFETY_BUDGET] == "0.55"
    assert isinstance(refusal(two, session_token=token_of(first)), StaleTip)
    # What one tightens binds the other.
    outcome(one, policy="halt-on MEDIUM")
    assert isinstance(refusal(two, policy="halt-on HIGH"), PolicyRelaxed)
    assert one.verify().windows == two.verify().windows == 6
    assert not find_faults(nodes(one), one.settings.sessions.graph)


FORGOTTEN_SESSION = "crp_sess_abcdefgh12345678"
FACT = "The Falcon bridge is 503 metres long and carries eight lanes of traffic."
WRONG = "The Falcon bridge is 977 metres long. It was built by Otto Brenner in 1871 for $9 million."


def test_its_seals_say_what_was_spent(open_relay, tmp_path):
    relay = open_relay(tmp_path / "kb", models=ScriptedModel(Reply(text=WRONG), Reply(text=FACT)))
    relay.add([FACT])
    first = relay.ask("How long is the Falcon bridge?", session_id=FORGOTTEN_SESSION)
    with relay.fabric.begin(write=False) as transaction:
        left = transaction.sessions.session(FORGOTTEN_SESSION).safety_budget
    assert first.report.risk_level in ("MEDIUM", "HIGH", "CRITICAL")
    assert left < 1.0
    relay.fabric.forget_session(FORGOTTEN_SESSION)
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.sessions.session(FORGOTTEN_SESSION) is None
    relay.ask("How long is the Falcon bridge?", session_id=FORGOTTEN_SESSION)
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.sessions.session(FORGOTTEN_SESSION).safety_budget <= left


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
