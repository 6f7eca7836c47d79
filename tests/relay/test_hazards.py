"""What goes wrong while a window is open: it is sealed, nothing is lost, the loop stays free."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from crp_integrations import Relay
from crp_integrations.audit import windows
from crp_integrations.audit.journal import verify
from crp_integrations.audit.keys import journal_key, session_key
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.errors import (
    CRPError,
    EngineError,
    ModelNotFound,
    RequestError,
    StoreBusy,
)
from crp_integrations.messages import Reply
from crp_integrations.relay.drive import adrive, drive
from crp_integrations.relay.steps import Release
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import ChainIntegrity, FactStatus
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, KEY
from tests.relay.test_drive import Parent
from tests.relay.test_relay import ask_by

SESSION = "crp_sess_7f3a9bc2d4e1f083"
QUESTION = "When was the Meridian reactor commissioned?"
RING = FixedKeyRing(bytes.fromhex(KEY))


def outcomes_of(relay: Relay, session: str = SESSION) -> list[str]:
    with relay.fabric.begin(write=False) as transaction:
        return [seal.outcome for seal in transaction.journal.seals(session)]


class Failing(HashEmbedder):
    """Works until it is told not to."""

    broken = False

    def embed_passages(self, texts):
        if self.broken:
            raise EngineError("the embedder is gone")
        return super().embed_passages(texts)


class BusyStore(MemoryStore):
    """Refuses the next writes, as many as it is told."""

    refusals = 0

    def begin(self, namespace, *, write=True):
        if write and self.refusals:
            self.refusals -= 1
            raise StoreBusy("the store is being written by another process")
        return super().begin(namespace, write=write)


@pytest.mark.requirement("005-15.1-1")
@pytest.mark.parametrize("way", ["ask", "aask", "stream", "astream"])
async def test_a_reply_that_cannot_be_examined_is_sealed_as_failed(open_relay, way):
    embedder = Failing()
    relay = open_relay(models=ScriptedModel(""), embedder=embedder)
    relay.fabric.add(list(FACTS))

    def break_down(call):
        embedder.broken = True
        return "The gardens have been famous among painters for centuries."

    # This verifier's rule asks the embedder; the fitted one reads words alone.
    relay = open_relay(
        relay._store,
        models=ScriptedModel(break_down),
        embedder=embedder,
        verifier=AlignmentVerifier(),
    )
    with pytest.raises(EngineError, match="gone"):
        await ask_by(relay, way)
    assert outcomes_of(relay) == ["failed"]


def test_a_fact_that_vanished_during_the_call_does_not_lose_the_answer(relay):
    turn = relay.turn(QUESTION, session_id=SESSION)
    fitted = turn.begin()
    with relay.fabric.begin(write=True) as transaction:
        gone = [fact.fact_id for fact in fitted.envelope.facts]
        transaction.facts.set_status(gone, FactStatus.QUARANTINED, NOON)
    step = turn.receive(Reply(text=FACTS[0]))
    assert isinstance(step, Release)
    assert step.answer.report.grounding_pct == 1.0
    assert outcomes_of(relay) == ["released"]


def test_a_busy_store_keeps_the_turn_open_and_receive_may_be_called_again(open_relay):
    store = BusyStore()
    relay = open_relay(store)
    relay.fabric.add(list(FACTS))
    turn = relay.turn(QUESTION, session_id=SESSION)
    turn.begin()
    store.refusals = 1
    with pytest.raises(StoreBusy):
        turn.receive(Reply(text=FACTS[0]))
    assert outcomes_of(relay) == []
    assert isinstance(turn.receive(Reply(text=FACTS[0])), Release)
    assert outcomes_of(relay) == ["released"]


async def test_a_cancelled_task_stays_cancelled_when_its_window_cannot_be_sealed(open_relay):
    store = BusyStore()
    relay = open_relay(store)
    relay.fabric.add(list(FACTS))
    called = asyncio.Event()

    class Slow(ScriptedModel):
        async def acall(self, call):
            store.refusals = 1
            called.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(adrive(relay.turn(QUESTION, session_id=SESSION), Slow("")))
    await asyncio.wait_for(called.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert any("not be sealed" in note for note in caught.value.__notes__)
    assert store.refusals == 0


async def test_sealing_a_cancelled_window_leaves_the_loop_free(open_relay):
    released = threading.Event()

    class Held(MemoryStore):
        hold = False

        def begin(self, namespace, *, write=True):
            if write and self.hold:
                assert released.wait(20)
            return super().begin(namespace, write=write)

    store = Held()
    relay = open_relay(store)
    relay.fabric.add(list(FACTS))
    called = asyncio.Event()

    class Slow(ScriptedModel):
        async def acall(self, call):
            store.hold = True
            called.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(adrive(relay.turn(QUESTION, session_id=SESSION), Slow("")))
    await asyncio.wait_for(called.wait(), 20)
    task.cancel()
    # The store answers only after this coroutine has had its turn.
    await asyncio.sleep(0.05)
    assert not task.done()
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcomes_of(relay) == ["cancelled"]


async def test_when_one_of_a_fans_turns_breaks_the_others_end_too(relay):
    waiting = asyncio.Event()

    class Mixed(ScriptedModel):
        async def acall(self, call):
            if call.messages[-1].content.endswith("0"):
                await asyncio.wait_for(waiting.wait(), 20)
                raise ZeroDivisionError("1/0")
            waiting.set()
            await asyncio.sleep(60)

    children = [relay.turn(f"{QUESTION} {n}", model="any/model") for n in range(2)]
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(adrive(Parent(children), Mixed("")), 20)
    assert outcomes_of(relay, children[0].session_id) == ["failed"]
    assert outcomes_of(relay, children[1].session_id) == ["cancelled"]


def test_begin_seals_a_window_that_breaks_before_the_dispatch(relay, monkeypatch):
    turn = relay.turn(QUESTION, session_id=SESSION)

    def broken(*given, **named):
        raise ZeroDivisionError("1/0")

    monkeypatch.setattr("crp_integrations.relay.window_envelope.assemble", broken)
    with pytest.raises(ZeroDivisionError):
        drive(turn, ScriptedModel(""))
    assert outcomes_of(relay) == ["failed"]


def test_an_error_before_the_dispatch_is_not_hidden_by_a_busy_store(open_relay, monkeypatch):
    store = BusyStore()
    relay = open_relay(store)
    relay.fabric.add(list(FACTS))

    def interrupted(*given, **named):
        store.refusals = 1
        raise KeyboardInterrupt

    monkeypatch.setattr("crp_integrations.relay.window_envelope.assemble", interrupted)
    with pytest.raises(KeyboardInterrupt):
        relay.ask(QUESTION, session_id=SESSION)
    assert store.refusals == 0


def test_a_turn_that_has_ended_is_not_fitted_again(relay):
    turn = relay.turn(QUESTION, session_id=SESSION)
    turn.begin()
    turn.receive(Reply(text=FACTS[0]))
    with pytest.raises(RequestError, match="has ended"):
        turn.fit("gpt-4o")


def test_receive_and_fail_at_the_same_moment_seal_one_window(relay):
    for _ in range(8):
        turn = relay.turn(QUESTION)
        turn.begin()
        together = threading.Barrier(2)
        ends = []

        def receive(turn=turn, together=together, ends=ends):
            together.wait()
            try:
                ends.append(turn.receive(Reply(text=FACTS[0])))
            except RequestError:
                ends.append(None)

        def fail(turn=turn, together=together, ends=ends):
            together.wait()
            ends.append(turn.fail(asyncio.CancelledError()))

        threads = [threading.Thread(target=one) for one in (receive, fail)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ends) == 2
        assert len(outcomes_of(relay, turn.session_id)) == 1


@pytest.mark.requirement("005-1.2-1")
def test_only_the_text_that_was_examined_is_streamed(open_relay):
    class Lying(ScriptedModel):
        def stream(self, call):
            yield "Something that nobody examined."
            yield Reply(text=FACTS[0])

    relay = open_relay(models=Lying(""))
    relay.fabric.add(list(FACTS))
    *pieces, answer = relay.stream(QUESTION)
    assert "".join(pieces) == answer.text == FACTS[0]


async def test_the_quoting_model_leaves_the_loop_free(relay, monkeypatch):
    loops = []

    def note(*_):
        try:
            loops.append(asyncio.get_running_loop())
        except RuntimeError:
            loops.append(None)
        return [FACTS[0]]

    monkeypatch.setattr("crp_integrations.engines.extractive._pieces", note)
    await relay.aask(QUESTION)
    [part async for part in relay.astream(QUESTION)]
    assert loops == [None, None]


@pytest.mark.parametrize("count", [32])
def test_many_threads_ask_one_store_at_once(open_relay, tmp_path, count):
    relay = open_relay(SqliteStore(tmp_path / "kb", busy_seconds=60.0))
    relay.fabric.add(list(FACTS))
    together = threading.Barrier(count)
    answers, errors = [], []

    def ask():
        together.wait()
        try:
            answers.append(relay.ask(QUESTION, session_id=SESSION))
        except CRPError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(answer.window_number for answer in answers) == list(range(1, count + 1))
    with relay.fabric.begin(write=False) as transaction:
        seals = transaction.journal.seals(SESSION)
        events = list(transaction.journal.events())
    assert windows.verify(seals, session_key(RING, SESSION)) is ChainIntegrity.VALID
    assert verify(events, journal_key(RING, relay.fabric.subject.tenant)) == len(events)


async def test_many_tasks_ask_one_store_at_once(open_relay, tmp_path):
    relay = open_relay(SqliteStore(tmp_path / "kb", busy_seconds=60.0))
    relay.fabric.add(list(FACTS))
    answers = await asyncio.gather(*(relay.aask(QUESTION, session_id=SESSION) for _ in range(50)))
    assert sorted(answer.window_number for answer in answers) == list(range(1, 51))
    with relay.fabric.begin(write=False) as transaction:
        seals = transaction.journal.seals(SESSION)
    assert windows.verify(seals, session_key(RING, SESSION)) is ChainIntegrity.VALID


def test_an_unknown_model_is_refused_by_a_preview_too(tmp_path):
    relay = Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY)
    with pytest.raises(ModelNotFound, match="no-such-model"):
        relay.preview(QUESTION, model="no-such-model")
    assert not (tmp_path / "kb").exists()


def test_opening_asking_after_nothing_and_previewing_make_nothing_on_disk(tmp_path):
    relay = Relay.open(tmp_path / "kb", embedder=HashEmbedder())
    assert relay.preview(QUESTION).facts_available == 0
    assert relay.fabric.state_hash().startswith("sha256:")
    relay.close()
    assert list(tmp_path.iterdir()) == []


def test_vectors_of_the_store_and_fresh_ones_give_one_report(open_relay, monkeypatch):
    reports = []
    for given in (True, False):
        relay = open_relay()
        relay.fabric.add(list(FACTS))
        turn = relay.turn(QUESTION, session_id=SESSION)
        turn.begin()
        if not given:
            monkeypatch.setattr("crp_integrations.relay.examination.vectors_of", lambda *_: None)
        reports.append(turn.receive(Reply(text=FACTS[0])).answer.report)
    assert reports[0] == reports[1]
    assert np.isfinite(reports[0].composite_score)
