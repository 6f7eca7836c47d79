""""""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from crp_integrations import Relay
from crp_integrations.audit import window_seals
from crp_integrations.audit.journal import verify_journal
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.errors import ModelError, ModelTimeout, RequestError
from crp_integrations.messages import Reply
from crp_integrations.relay.drive import adrive, drive, drive_stream
from crp_integrations.relay.steps import Dispatch, Fan, Refusal, Release
from crp_integrations.seals import window_hmac
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.vocabulary import ChainIntegrity, EventType, GroundingMode, RiskLevel
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS, KEY

SESSION = "crp_sess_7f3a9bc2d4e1f083"
QUESTION = "When was the Meridian reactor commissioned?"
RING = FixedKeyRing(bytes.fromhex(KEY))


def seals_of(relay: Relay, session: str = SESSION):
    with relay.fabric.begin(write=False) as transaction:
        return transaction.journal.seals(session)


def events_of(relay: Relay):
    with relay.fabric.begin(write=False) as transaction:
        return list(transaction.journal.events())


@pytest.mark.requirement("003-1.1-1", "003-4-1")
def test_the_envelope_is_complete_before_the_dispatch_exists(relay):
    turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
    dispatch = turn.begin()
    assert isinstance(dispatch, Dispatch)
    assert dispatch.envelope.text in dispatch.messages[0].content
    assert dispatch.envelope.facts[0].content == FACTS[0]
    assert seals_of(relay) == []


@pytest.mark.requirement("005-1.2-1")
def test_an_answer_is_released_with_its_verdict(relay):
    turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
    turn.begin()
    release = turn.receive(Reply(text=FACTS[0], model="extractive"))
    assert isinstance(release, Release)
    answer = release.answer
    assert answer.text == FACTS[0]
    assert answer.report.risk_level is RiskLevel.LOW
    assert answer.report.hmac == answer.headers["CRP-Provenance-HMAC"]
    assert answer.report.window_id == answer.window_id == seals_of(relay)[0].window_id


@pytest.mark.requirement("005-15.1-1")
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ModelTimeout("no answer"), "failed"),
        (ConnectionResetError("x"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
    ],
)
def test_a_failed_window_is_sealed_with_a_report_too(relay, error, outcome):
    turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
    turn.begin()
    refusal = turn.fail(error)
    assert isinstance(refusal, Refusal)
    (seal,) = seals_of(relay)
    assert seal.outcome == outcome
    assert seal.report_hash.startswith("sha256:")
    assert EventType.DISPATCH_FAILED in {event.event_type for event in events_of(relay)}


def test_windows_of_a_session_are_chained_and_the_journal_verifies(relay):
    for text in FACTS[:3]:
        turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
        turn.begin()
        last = turn.receive(Reply(text=text))
    seals = seals_of(relay)
    assert [seal.window_number for seal in seals] == [1, 2, 3]
    assert [seal.parent_hmac for seal in seals] == ["", seals[0].hmac, seals[1].hmac]
    assert window_seals.verify_seals(seals, session_key(RING, SESSION)) is ChainIntegrity.VALID
    assert last.answer.headers["CRP-Context-Window"] == "3/5"
    assert last.answer.headers["CRP-Provenance-Chain-Integrity"] == "VALID"
    events = events_of(relay)
    assert verify_journal(events, journal_key(RING, relay.fabric.subject.tenant)) == len(events)


@pytest.mark.requirement("003-16.1-3")
def test_no_text_of_facts_or_answers_enters_journal_or_headers(relay):
    turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
    turn.begin()
    answer = turn.receive(Reply(text=FACTS[0])).answer
    written = "".join(event.model_dump_json() for event in events_of(relay))
    shown = "".join(answer.headers.values())
    for word in ("Meridian", "megawatts", "commissioned"):
        assert word not in written
        assert word not in shown


def test_turns_that_end_together_get_different_numbers(relay):
    turns = [relay.turn(QUESTION, model="extractive", session_id=SESSION) for _ in range(8)]
    for turn in turns:
        turn.begin()
    threads = [
        threading.Thread(target=turn.receive, args=(Reply(text=FACTS[0]),)) for turn in turns
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seals = seals_of(relay)
    assert [seal.window_number for seal in seals] == list(range(1, 9))
    assert window_seals.verify_seals(seals, session_key(RING, SESSION)) is ChainIntegrity.VALID


def test_the_envelope_last_fitted_is_the_one_examined(relay):
    turn = relay.turn(QUESTION, model="gpt-4o", session_id=SESSION)
    turn.begin()
    second = turn.fit("mistral/mistral-small-latest")
    assert second.envelope.model == "mistral/mistral-small-latest"
    answer = turn.receive(Reply(text=FACTS[0])).answer
    assert answer.envelope.model == "mistral/mistral-small-latest"
    assert answer.envelope.tokenizer == second.envelope.tokenizer


def test_a_turn_ends_once(relay):
    turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
    with pytest.raises(RequestError, match="after begin"):
        turn.receive(Reply(text="x"))
    turn.begin()
    with pytest.raises(RequestError, match="has begun"):
        turn.begin()
    release = turn.receive(Reply(text=FACTS[0]))
    with pytest.raises(RequestError, match="has ended"):
        turn.receive(Reply(text="another"))
    assert turn.fail(ModelTimeout("late")) is release
    assert len(seals_of(relay)) == 1


@pytest.mark.requirement("003-13.2-1")
def test_the_grounding_mode_reaches_the_analysis(relay):
    scores = {}
    for mode in GroundingMode:
        turn = relay.turn(QUESTION, model="extractive", grounding=mode)
        dispatch = turn.begin()
        report = turn.receive(Reply(text="Things were generally fine around there.")).answer.report
        assert report.grounding_mode is mode
        assert dispatch.envelope.grounding_mode is mode
        scores[mode] = report.composite_score
    assert (
        scores[GroundingMode.OPEN]
        <= scores[GroundingMode.PREFERRED]
        <= scores[GroundingMode.STRICT]
    )
    assert scores[GroundingMode.OPEN] < scores[GroundingMode.STRICT]


def test_reading_leaves_the_state_hash_alone(relay):
    before = relay.fabric.state_hash()
    relay.ask(QUESTION)
    relay.preview(QUESTION)
    assert relay.fabric.state_hash() == before
    touched = relay.fabric.facts([fact.fact_id for fact in relay.turn(QUESTION).preview().facts])
    assert any(fact.access_count == 1 for fact in touched)


def test_the_unchained_hmac_needs_no_parent(relay):
    for text in FACTS[:2]:
        turn = relay.turn(QUESTION, model="extractive", session_id=SESSION)
        turn.begin()
        headers = turn.receive(Reply(text=text)).answer.headers
    (_, seal) = seals_of(relay)
    alone = window_hmac(
        session_key(RING, SESSION),
        session_id=SESSION,
        window_number=2,
        timestamp=seal.timestamp,
        response_hash=seal.response_hash,
        report_hash=seal.report_hash,
        parent_hmac="",
    )
    assert headers["CRP-Provenance-Window-HMAC"] == alone
    assert headers["CRP-Provenance-HMAC"] == seal.hmac != alone


CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Parent:
    """Fans out once and releases what its last child released."""

    def __init__(self, children):
        self.children = tuple(children)
        self.outcomes = None

    def begin(self):
        return Fan(self.children)

    def receive(self, result):
        assert not isinstance(result, Reply)
        self.outcomes = result
        return result[-1]

    def fail(self, error):
        return Refusal(ModelError("failed"), {})


def children(relay, count):
    return [relay.turn(f"{QUESTION} {n}", model="any/model") for n in range(count)]


def test_a_fans_children_play_together_and_come_back_in_order(relay):
    together = threading.Barrier(3, timeout=20)

    class Meeting(ScriptedModel):
        def call(self, call):
            # Each child waits for the others here: one after another would never pass.
            together.wait()
            assert CALLER.get() == "me"
            return Reply(text=call.messages[-1].content)

    CALLER.set("me")
    parent = Parent(children(relay, 3))
    assert isinstance(drive(parent, Meeting("")), Release)
    assert [o.answer.text for o in parent.outcomes] == [f"{QUESTION} {n}" for n in range(3)]


async def test_a_fans_children_are_awaited_together(relay):
    waiting = 0
    all_in = asyncio.Event()

    class Meeting(ScriptedModel):
        async def acall(self, call):
            nonlocal waiting
            waiting += 1
            if waiting == 3:
                all_in.set()
            await asyncio.wait_for(all_in.wait(), 20)
            return Reply(text=call.messages[-1].content)

    parent = Parent(children(relay, 3))
    await adrive(parent, Meeting(""))
    assert [o.answer.text for o in parent.outcomes] == [f"{QUESTION} {n}" for n in range(3)]


async def test_a_cancelled_task_seals_its_window(relay):
    class Slow(ScriptedModel):
        async def acall(self, call):
            await asyncio.sleep(60)

    turn = relay.turn(QUESTION, model="any/model")
    task = asyncio.create_task(adrive(turn, Slow("")))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(turn.session_id).outcome == "cancelled"


def test_an_error_that_is_not_ours_is_sealed_and_passed_on(relay):
    class Broken(ScriptedModel):
        def call(self, call):
            raise ZeroDivisionError("1/0")

    turn = relay.turn(QUESTION, model="any/model")
    with pytest.raises(ZeroDivisionError):
        drive(turn, Broken(""))
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(turn.session_id).outcome == "failed"


def test_a_stream_that_is_cut_off_gives_nothing_out(relay):
    class Cut(ScriptedModel):
        def stream(self, call):
            yield "The Meridian"
            raise ModelError("the stream broke off")

    parts = list(drive_stream(relay.turn(QUESTION, model="any/model"), Cut("")))
    assert len(parts) == 1
    assert isinstance(parts[0], Refusal)


def test_a_stream_that_is_abandoned_is_sealed_as_cancelled(relay):
    class Endless(ScriptedModel):
        def stream(self, call):
            raise GeneratorExit

    turn = relay.turn(QUESTION, model="any/model")
    with pytest.raises((GeneratorExit, RuntimeError)):
        list(drive_stream(turn, Endless("")))
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(turn.session_id).outcome == "cancelled"
