"""What goes wrong while a window is open: it is sealed, nothing is lost, the loop stays free.

A fabric that changes while a window reads it, and what a failed window leaves in memory.

Killed in the middle of windows: sessions go on, chains verify, nothing is charged twice.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from crp_integrations import Relay
from crp_integrations.audit import window_seals
from crp_integrations.audit.journal import verify_journal
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.envelope.retrieval import gather
from crp_integrations.errors import CRPError, EngineError, RequestError, StoreBusy
from crp_integrations.fabric.view import FabricView
from crp_integrations.language.lexical_overlap import profiles
from crp_integrations.messages import Reply
from crp_integrations.relay.drive import adrive, drive
from crp_integrations.relay.steps import Dispatch, Release
from crp_integrations.session.budget import charge
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import ChainIntegrity, FactStatus, RiskLevel
from tests.doubles import NOON, HashEmbedder, ScriptedModel, erase_all
from tests.envelope.builders import SETTINGS, LetterCounter
from tests.relay.asking_process import SESSIONS, opened
from tests.relay.conftest import FACTS, KEY, Opener
from tests.relay.test_ask_methods import ask_by
from tests.relay.test_turns import Parent

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
    step = turn.receive(Reply(text=FACTS[1]))
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

    monkeypatch.setattr("crp_integrations.engines.extractive._answered", note)
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
    assert window_seals.verify_seals(seals, session_key(RING, SESSION)) is ChainIntegrity.VALID
    assert verify_journal(events, journal_key(RING, relay.fabric.subject.tenant)) == len(events)


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
            monkeypatch.setattr(
                "crp_integrations.relay.examination.evidence_vectors", lambda *_: None
            )
        reports.append(turn.receive(Reply(text=FACTS[0])).answer.report)
    assert reports[0] == reports[1]
    assert np.isfinite(reports[0].composite_score)


def test_a_fabric_that_fills_while_it_is_read_is_not_taken_for_empty(open_relay: Opener) -> None:
    relay = open_relay()
    view = relay.fabric.view()
    empty = relay.fabric.state_hash()
    moment = view.moment

    @contextmanager
    def meanwhile() -> Iterator[FabricView]:
        with moment() as bound:
            if not relay.fabric.size():
                relay.fabric.add(list(FACTS))
            yield bound

    view.moment = meanwhile  # type: ignore[method-assign]
    found = gather(view, QUESTION, counter=LetterCounter(), settings=SETTINGS)
    # What was read is the state before, and says so; the next question reads the one after.
    assert (found.state_hash, found.facts) == (empty, ())
    found = gather(view, QUESTION, counter=LetterCounter(), settings=SETTINGS)
    assert found.state_hash == relay.fabric.state_hash() != empty
    assert len(found.facts) == len(FACTS)


def test_a_turn_that_failed_while_a_model_decomposed_is_not_answered_from_memory(
    relay: Relay,
) -> None:
    asked = {"session_id": SESSION, "decompose": "model"}
    reply = Reply(text='["Meridian reactor commissioned", "Meridian reactor date"]')
    turn = relay.turn(QUESTION, **asked)
    turn.begin()
    step = turn.receive(reply)
    assert isinstance(step, Dispatch)
    etag = turn.receive(Reply(text="On 4 March 2019.")).answer.envelope.etag
    late = relay.turn(QUESTION, if_match=etag, **asked)
    late.begin()
    failed = late.fail(TimeoutError())
    with pytest.raises(RequestError, match="has ended"):
        late.receive(reply)
    assert late.fail(TimeoutError()) is failed


@pytest.mark.parametrize("how", ["erase", "end_session"])
def test_what_is_gone_is_not_remembered_as_text_that_was_read(relay: Relay, how: str) -> None:
    held = "The held fact says that Ada Lovelace wrote about the Analytical Engine in 1843."
    relay.add([held], session_id=SESSION, cache="no-store")
    (before,) = profiles(FACTS[:1])
    assert profiles(FACTS[:1])[0] is before
    gone: Callable[[], object] = (
        (lambda: erase_all(relay.fabric))
        if how == "erase"
        else (lambda: relay.end_session(SESSION))
    )
    gone()
    assert profiles(FACTS[:1])[0] is not before


def test_a_turn_in_flight_during_an_erasure_leaves_no_erased_text(relay: Relay) -> None:
    turn = relay.turn(QUESTION, session_id=SESSION)
    turn.begin()
    erase_all(relay.fabric)
    etag = turn.receive(Reply(text="On 4 March 2019.")).answer.envelope.etag
    assert relay._world.memory.envelopes.bytes == 0
    # That it was known stays.
    late = relay.preview(QUESTION, session_id=SESSION, if_match=etag)
    assert late.facts_included == 0
    assert len(relay._world.memory.envelopes) == 2


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("answered", [1, 9])
def test_a_killed_relay_goes_on_where_it_was(tmp_path: Path, answered: int) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-m", "tests.relay.asking_process", str(tmp_path / "kb")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert asking.stdout is not None
    told = [asking.stdout.readline().strip() for _ in range(answered)]
    # Within the next window, at another point of it each time.
    time.sleep(0.003 * answered)
    asking.kill()
    told += asking.stdout.read().split()
    asking.wait()

    with opened(tmp_path / "kb") as relay:
        trail = relay.verify()
        costs = relay.settings.sessions.budget.costs
        with relay.fabric.begin(write=False) as transaction:
            windows, charged = set(), 0
            for session_id in SESSIONS:
                seals = transaction.journal.seals(session_id)
                nodes = transaction.sessions.windows(session_id)
                assert [node.window_id for node in nodes] == [seal.window_id for seal in seals]
                left = 1.0
                for seal in seals:
                    left = charge(left, RiskLevel(seal.risk_level), costs)
                session = transaction.sessions.session(session_id)
                assert left == (session.safety_budget if session else 1.0)
                charged += left < 1.0
                windows |= {seal.window_id for seal in seals}
        assert charged
        # What was told to the caller is there; one more may be that was not told any more.
        assert set(told) <= windows
        assert len(windows) - len(told) in (0, 1)
        assert trail.windows == len(windows)
        again = relay.ask("Who operates the reactor?", session_id=SESSIONS[0])
        assert again.window_number >= 1
        assert relay.verify().windows == len(windows) + 1
