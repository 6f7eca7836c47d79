"""Conditional requests against a real fabric: what is reused, what invalidates, what wins.

An answer that is known is confirmed only where it meets what is demanded by now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import EnvelopeUnchanged, NoRelevantFacts, StoreError
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.view import FabricView
from crp_integrations.headers.codec import parse_request
from crp_integrations.messages import Reply
from crp_integrations.relay import window_envelope as turn_module
from crp_integrations.relay.settings import load
from crp_integrations.relay.steps import Dispatch, NotModified, Release, outcome_status
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import RiskLevel
from tests.doubles import NOON, FixedClock, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import HIGH, answered, opened, outcome

MINE, YOURS = "crp_sess_7f3a9bc2d4e1f083", "crp_sess_00000000000000ff"
QUESTION = "When was the Meridian reactor commissioned?"
UNKNOWN = "sha256:" + "0" * 64


class CountingEmbedder(HashEmbedder):
    """Notes every question that it embeds."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    def embed_query(self, text: str) -> FloatRows:
        self.questions.append(text)
        return super().embed_query(text)


class Watched:
    """Notes the calls of Select and of everything behind it, in their order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for name in ("gather", "assemble"):
            patch.setattr(turn_module, name, self._noting(name, getattr(turn_module, name)))
        evaluate = turn_module.ConditionalRequest.evaluate
        patch.setattr(
            turn_module.ConditionalRequest, "evaluate", self._noting("condition", evaluate)
        )

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **fields: Any) -> Any:
            self.calls.append(name)
            return function(*args, **fields)

        return noted


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def asked(relay: Relay, **fields: Any) -> str:
    """Ask once, and give the envelope's ETag."""
    answer = relay.ask(QUESTION, **{"session_id": MINE, **fields})
    etag = answer.headers["CRP-Context-ETag"]
    assert etag == answer.envelope.etag
    return etag


def began(relay: Relay, etag: str, **fields: Any) -> Dispatch | NotModified:
    step = relay.turn(QUESTION, **{"session_id": MINE, "if_match": etag, **fields}).begin()
    assert isinstance(step, Dispatch | NotModified)
    return step


def released(relay: Relay, etag: str, **fields: Any) -> Release:
    """Play a turn whose condition does not hold."""
    turn = relay.turn(QUESTION, **{"session_id": MINE, "if_match": etag, **fields})
    step = turn.begin()
    assert isinstance(step, Dispatch)
    done = turn.receive(Reply(text=FACTS[0]))
    assert isinstance(done, Release)
    return done


def cache_status(relay: Relay, etag: str, **fields: Any) -> str:
    return released(relay, etag, **fields).answer.headers["CRP-Context-Cache-Status"]


@pytest.mark.requirement("003-5.3-1", "003-11.1-1", "003-11.2-1")
@pytest.mark.requirement("003-11.2-2", "003-11.4-1", "003-15-6")
def test_a_match_reuses_the_envelope_and_nothing_is_done(
    open_relay: Opener, watched: Watched
) -> None:
    embedder, model = CountingEmbedder(), ScriptedModel(FACTS[0])
    relay = open_relay(embedder=embedder, models=model)
    relay.fabric.add(list(FACTS))
    first = relay.ask(QUESTION, session_id=MINE)
    embedder.questions.clear()
    watched.calls.clear()
    step = began(relay, first.envelope.etag)
    assert isinstance(step, NotModified)
    assert watched.calls == ["condition"]
    assert embedder.questions == []
    assert len(model.calls) == 1
    assert step.envelope == first.envelope
    assert step.headers == {**first.headers, "CRP-Context-Cache-Status": "HIT"}
    assert outcome_status(step) == 304
    # It is no window: nothing was sealed, and the session's next one is its second.
    assert relay.verify().windows == 1
    assert relay.ask(QUESTION, session_id=MINE).window_number == 2


@pytest.mark.requirement("003-5.3-1")
def test_the_condition_is_evaluated_before_anything_is_selected(
    relay: Relay, watched: Watched
) -> None:
    released(relay, UNKNOWN)
    assert watched.calls == ["condition", "gather", "assemble"]


def test_an_envelope_is_not_reused_over_the_end_of_a_ttl(open_relay: Opener) -> None:
    clock = FixedClock()
    relay = open_relay(clock=clock)
    relay.fabric.add([Fact(content=FACTS[0], ttl="PT10M"), *FACTS[1:]])
    etag = asked(relay)
    clock.moment += timedelta(minutes=9)
    assert isinstance(began(relay, etag), NotModified)
    clock.moment += timedelta(minutes=2)
    done = released(relay, etag)
    assert done.answer.headers["CRP-Context-Cache-Status"] == "MISS; reason=facts-updated"
    scores = {fact.content: fact.freshness_score for fact in done.answer.envelope.facts}
    assert scores.pop(FACTS[0]) == 0.0
    assert min(scores.values()) > 0.0


def test_ask_raises_what_a_gateway_answers_with_304(relay: Relay) -> None:
    etag = asked(relay)
    with pytest.raises(EnvelopeUnchanged, match="its answer still holds") as caught:
        relay.ask(QUESTION, session_id=MINE, if_match=etag)
    assert caught.value.status_hint == 304
    assert caught.value.etag == etag
    assert caught.value.headers["CRP-Context-Cache-Status"] == "HIT"
    assert FACTS[0] not in str(caught.value)
    with pytest.raises(EnvelopeUnchanged):
        list(relay.stream(QUESTION, session_id=MINE, if_match="*"))


def ingest(relay: Relay, _: Sequence[str], folder: Path) -> None:
    page = folder / "more.txt"
    page.write_text("The Meridian reactor was inspected by Ada Quill on 9 May 2021.", "utf-8")
    assert relay.ingest(page).facts


def forget(relay: Relay, ids: Sequence[str], _: Path) -> None:
    relay.fabric.forget(facts=ids[:1])


def update(relay: Relay, ids: Sequence[str], _: Path) -> None:
    relay.fabric.update(ids[0], content="The Meridian reactor was commissioned on 5 March 2019.")


def quarantine(relay: Relay, ids: Sequence[str], _: Path) -> None:
    relay.fabric.quarantine(ids[:1])


def recluster(relay: Relay, _: Sequence[str], __: Path) -> None:
    relay.fabric.recluster()


@pytest.mark.requirement("003-11.2-3", "003-11.3-1", "003-11.4-2", "003-15-6")
@pytest.mark.parametrize("change", [ingest, forget, update, quarantine, recluster])
@pytest.mark.parametrize("on_disk", [False, True])
def test_every_change_of_the_fabric_invalidates_the_etag(
    open_relay: Opener,
    tmp_path: Path,
    change: Callable[[Relay, Sequence[str], Path], None],
    on_disk: bool,
) -> None:
    relay = open_relay(tmp_path / "kb" if on_disk else None)
    relay.fabric.add(list(FACTS))
    answer = relay.ask(QUESTION, session_id=MINE)
    etag = answer.envelope.etag
    # Reading, asking and previewing change nothing.
    relay.preview(QUESTION, session_id=MINE)
    relay.ask("Who operates the reactor?", session_id=YOURS)
    assert isinstance(began(relay, etag), NotModified)
    change(relay, [fact.fact_id for fact in answer.envelope.facts], tmp_path)
    assert cache_status(relay, etag) == "MISS; reason=facts-updated"
    # From the new state on there is a new envelope to hold on to.
    now = relay.ask(QUESTION, session_id=MINE).envelope.etag
    assert isinstance(began(relay, now), NotModified)


@pytest.mark.requirement("003-11.3-2")
def test_only_an_etag_of_the_same_session_is_known(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    etag = asked(relay)
    assert cache_status(relay, UNKNOWN) == "MISS; reason=unknown-etag"
    assert cache_status(relay, etag, session_id=YOURS) == "MISS; reason=unknown-etag"
    # Nor is it known to another relay, though the facts, and so the ETag, are the same.
    other = open_relay()
    other.fabric.add(list(FACTS))
    assert other.ask(QUESTION, session_id=YOURS).envelope.etag == etag
    assert cache_status(other, etag, session_id=MINE) == "MISS; reason=unknown-etag"


@pytest.mark.requirement("003-11.3-3", "003-5.3-3")
@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"sub_queries": ["Meridian reactor", "commissioned when"]}, "decomposition"),
        ({"budget_tokens": 4_000}, "budget"),
        ({"grounding": "context-strict"}, "grounding"),
        ({"k": 4}, "k"),
        ({"cache": "max-age=60"}, "max-age"),
        ({"model": "gpt-4o"}, "model"),
        ({"max_tokens": 2_048}, "prompt"),
        ({"seed": 2**60}, "prompt"),
        ({"policy": "warn-on HIGH"}, "policy"),
        ({"safety_mode": "strict"}, "policy"),
    ],
)
def test_a_known_etag_of_another_request_is_a_miss_that_says_why(
    open_relay: Opener, fields: dict[str, Any], word: str
) -> None:
    relay = open_relay(models=ScriptedModel(FACTS[0]))
    relay.fabric.add(list(FACTS))
    etag = asked(relay)
    assert isinstance(began(relay, etag), NotModified)
    done = released(relay, etag, **fields)
    assert done.answer.headers["CRP-Context-Cache-Status"] == f"MISS; reason={word}"
    flags = done.answer.report.flags
    assert any(flag.startswith(f"if-match=MISS:{word}") for flag in flags)


@pytest.mark.requirement("003-5.3-2")
def test_where_phase_1_would_find_the_same_it_is_skipped(
    open_relay: Opener, watched: Watched
) -> None:
    embedder = CountingEmbedder()
    relay = open_relay(embedder=embedder)
    relay.fabric.add(list(FACTS))
    etag = asked(relay)
    fresh = relay.turn(QUESTION, session_id=YOURS, budget_tokens=40).preview()
    embedder.questions.clear()
    watched.calls.clear()
    turn = relay.turn(QUESTION, session_id=MINE, if_match=etag, budget_tokens=40)
    step = turn.begin()
    assert isinstance(step, Dispatch)
    assert watched.calls == ["condition", "assemble"]
    assert embedder.questions == []
    assert step.envelope.facts == fresh.facts
    assert step.envelope.dropped == fresh.dropped
    assert step.envelope.etag == fresh.etag != etag
    done = turn.receive(Reply(text=FACTS[0]))
    assert isinstance(done, Release)
    assert "select=reused" in done.answer.report.flags
    assert done.answer.headers["CRP-Context-Cache-Status"] == "MISS; reason=budget"


@pytest.mark.requirement("003-5.3-3")
def test_another_decomposition_makes_phase_1_run(relay: Relay, watched: Watched) -> None:
    etag = asked(relay)
    watched.calls.clear()
    needs = ["Meridian reactor", "commissioned when"]
    done = released(relay, etag, sub_queries=needs)
    assert watched.calls == ["condition", "gather", "assemble"]
    assert done.answer.envelope.sub_queries == tuple(needs)
    watched.calls.clear()
    released(relay, etag, sub_queries=list(reversed(needs)))
    assert "gather" in watched.calls


@pytest.mark.requirement("003-11.4-3", "009-7.1-3")
def test_no_cache_makes_everything_anew(relay: Relay, watched: Watched) -> None:
    etag = asked(relay)
    assert isinstance(began(relay, etag), NotModified)
    for presented in (etag, "*"):
        watched.calls.clear()
        headers = {"CRP-Context-Cache": "no-cache", "CRP-Context-If-Match": presented}
        wanted = parse_request(headers)
        done = released(relay, presented, cache=wanted.cache, if_match=wanted.if_match)
        assert watched.calls == ["condition", "gather", "assemble"]
        assert done.answer.headers["CRP-Context-Cache-Status"] == "MISS; reason=no-cache"
        assert done.answer.envelope.etag == etag
    # Alone it changes nothing, since without a condition nothing is reused.
    assert "cache=no-cache" in relay.ask(QUESTION, cache="no-cache").report.flags


@pytest.mark.requirement("003-11.4-4", "009-7.1-1")
def test_reuse_ckf_reads_the_fabric_and_no_source(
    open_relay: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    page = tmp_path / "reactor.txt"
    page.write_text(FACTS[0], "utf-8")
    relay = open_relay()
    relay.ingest(page)
    etag = asked(relay)
    page.write_text(FACTS[1], "utf-8")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a source was read again")

    monkeypatch.setattr(relay, "_loader", never)
    before = relay.fabric.state_hash()
    watched.calls.clear()
    answer = relay.ask(QUESTION, session_id=MINE, cache="reuse-ckf")
    assert "gather" in watched.calls
    assert answer.envelope.etag == etag
    assert answer.envelope.text == f"[1] {FACTS[0]}"
    assert relay.fabric.state_hash() == before
    # It says nothing against a condition.
    assert isinstance(began(relay, etag, cache="reuse-ckf"), NotModified)


def test_what_was_previewed_is_dispatched_as_it_was(relay: Relay, watched: Watched) -> None:
    # Nobody has an answer to it yet, so it is no 304; but nothing is made a second time.
    etag = relay.preview(QUESTION, session_id=MINE).etag
    watched.calls.clear()
    done = released(relay, etag)
    assert watched.calls == ["condition"]
    assert done.answer.headers["CRP-Context-Cache-Status"] == "HIT"
    assert isinstance(began(relay, etag), NotModified)
    assert relay.preview(QUESTION, session_id=MINE, if_match=etag).etag == etag
    assert isinstance(began(relay, etag), NotModified)


def test_a_window_without_an_answer_leaves_no_304(open_relay: Opener) -> None:
    relay = open_relay(models=ScriptedModel(RuntimeError("no network")))
    relay.fabric.add(list(FACTS))
    with pytest.raises(RuntimeError):
        relay.ask(QUESTION, session_id=MINE)
    etag = relay.turn(QUESTION, session_id=YOURS).preview().etag
    assert isinstance(began(relay, etag), Dispatch)


SECRET = "The Meridian reactor was visited by inspector Ada Quill on 9 May 2021."


def test_facts_in_memory_alone_are_never_reused(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    etag = asked(relay)
    # The state hash does not show what a session holds; so a match would hide it.
    relay.add([SECRET], session_id=MINE, cache="no-store")
    done = released(relay, etag)
    assert done.answer.headers["CRP-Context-Cache-Status"] == "MISS; reason=session-facts"
    assert SECRET in done.answer.envelope.text
    known = relay._world.memory.envelopes
    assert all(
        entry.envelope is None or SECRET not in entry.envelope.text
        for entry in known._entries.values()
    )
    assert isinstance(began(relay, done.answer.envelope.etag), Dispatch)


def test_no_store_and_the_end_of_a_session_leave_nothing(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    etag = asked(relay, cache="no-store")
    assert cache_status(relay, etag, cache="no-store") == "MISS; reason=unknown-etag"
    assert len(relay._world.memory.envelopes) == 0
    etag = asked(relay)
    assert len(relay._world.memory.envelopes) == 1
    relay.end_session(MINE)
    assert len(relay._world.memory.envelopes) == 0
    assert cache_status(relay, etag) == "MISS; reason=unknown-etag"


def test_an_erased_text_leaves_the_memory_with_the_next_question(
    open_relay: Opener, tmp_path: Path
) -> None:
    page = tmp_path / "secret.txt"
    page.write_text(SECRET, "utf-8")
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    relay.ingest(page)
    asked(relay)
    (source,) = {f.source_id for f in relay.fabric.facts(held(relay)) if f.content == SECRET}
    relay.fabric.erase(source)
    relay.ask("Who operates the reactor?", session_id=YOURS)
    texts = [e.envelope.text for e in relay._world.memory.envelopes._entries.values() if e.envelope]
    assert texts
    assert not any("Ada Quill" in text for text in texts)


def held(relay: Relay) -> list[str]:
    return [hit.fact_id for hit in relay.fabric.nearest(relay.fabric.embedder.embed_query("a"), 99)]


def test_reuse_ends_with_its_time(open_relay: Opener) -> None:
    clock = FixedClock()
    relay = open_relay(clock=clock, envelope={"reuse": {"lifetime_seconds": 60}})
    relay.fabric.add(list(FACTS))
    etag = asked(relay)
    clock.moment = NOON + timedelta(seconds=60)
    assert isinstance(began(relay, etag), NotModified)
    clock.moment += timedelta(seconds=1)
    assert cache_status(relay, etag) == "MISS; reason=expired"


def test_salted_etags_hold_within_a_session_and_tell_nothing_outside(open_relay: Opener) -> None:
    plain = open_relay()
    relay = open_relay(envelope={"reuse": {"salt_etags": True}})
    for one in (plain, relay):
        one.fabric.add(list(FACTS))
    mine, yours = asked(relay), asked(relay, session_id=YOURS)
    assert len({mine, yours, asked(plain)}) == 3
    assert asked(relay) == mine
    assert isinstance(began(relay, mine), NotModified)
    assert relay.preview(QUESTION, session_id=MINE).etag == mine
    # The salt is the session's and the key's; without the key nobody can work it out.
    other = open_relay(envelope={"reuse": {"salt_etags": True}}, key="cd" * 32)
    other.fabric.add(list(FACTS))
    assert asked(other) != mine


def test_after_a_fallback_the_envelope_of_the_other_model_is_not_granted(
    open_relay: Opener,
) -> None:
    relay = open_relay(models=ScriptedModel(FACTS[0]))
    relay.fabric.add(list(FACTS))
    turn = relay.turn(QUESTION, session_id=MINE)
    turn.begin()
    etag = turn.fit("gpt-4o").envelope.etag
    turn.receive(Reply(text=FACTS[0]))
    assert cache_status(relay, etag).startswith("MISS; reason=model")
    assert isinstance(began(relay, etag, model="gpt-4o"), NotModified)


def test_an_answer_stands_whether_or_not_it_can_be_known(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = relay.turn(QUESTION, session_id=MINE)
    turn.begin()

    def busy(_: FabricView) -> list[str]:
        raise StoreError("busy")

    monkeypatch.setattr(FabricView, "held", busy)
    assert isinstance(turn.receive(Reply(text=FACTS[0])), Release)
    assert len(relay._world.memory.envelopes) == 0


def test_threads_that_ask_the_same_all_get_the_same(relay: Relay) -> None:
    etag = asked(relay)
    found: list[object] = []

    def ask() -> None:
        found.append(began(relay, etag))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(isinstance(step, NotModified) for step in found)


@pytest.mark.requirement("003-11.4-5", "009-7.1-4")
@pytest.mark.parametrize("question", ["Which flowers bloom in Peru?", ""])
def test_only_if_ckf_refuses_what_the_fabric_knows_nothing_of(
    open_relay: Opener, question: str
) -> None:
    relay = open_relay()
    if question:
        relay.fabric.add(list(FACTS))
    asking = question or QUESTION
    with pytest.raises(NoRelevantFacts, match=r"a relevance of at least 0\.50") as caught:
        relay.ask(asking, cache="only-if-ckf")
    assert caught.value.status_hint == 424
    assert relay.verify().windows == 1
    with pytest.raises(NoRelevantFacts):
        relay.preview(asking, cache="only-if-ckf")
    assert relay.ask(asking).text


def test_a_match_does_not_get_around_only_if_ckf(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    nothing = "Which flowers bloom in Peru?"
    etag = relay.ask(nothing, session_id=MINE).envelope.etag
    with pytest.raises(NoRelevantFacts):
        relay.ask(nothing, session_id=MINE, if_match=etag, cache="only-if-ckf")


def test_a_cache_stable_envelope_begins_with_the_previous_one(tmp_path: Path) -> None:
    settings = load(envelope={"layout": "cache-stable"})
    with Relay.open(tmp_path / "kb", settings=settings) as relay:
        relay.add(
            [f"The pump of line {number} was checked on day {number}." for number in range(8)]
        )
        first = relay.turn("Which pump was checked?", budget_tokens=90).preview()
        again = relay.turn(
            "Which line has a pump that was checked on day 3?", budget_tokens=200, previous=first
        ).preview()
        assert again.text.startswith(first.text)
        assert again.prefix_tokens > 0
        last = max(fact.fact_id for fact in again.facts)
        pinned = relay.turn("Which pump was checked?", budget_tokens=90, pinned=(last,)).preview()
        assert pinned.facts[0].fact_id == last


@pytest.mark.parametrize(
    "demanded",
    [
        {"policy": "halt-on MEDIUM"},
        {"safety_mode": "strict"},
        {"oversight": "human-review"},
        {"accept_risk": "LOW"},
        {"accept_quality": ["S"]},
    ],
)
def test_an_answer_is_not_confirmed_against_demands_that_it_was_not_held_against(
    open_relay: Opener, demanded: dict[str, Any]
) -> None:
    relay, model = opened(open_relay, HIGH)
    first = answered(relay)
    assert first.report.risk_level is RiskLevel.HIGH
    asked = len(model.calls)
    again = outcome(relay, if_match=first.envelope.etag, **demanded)
    assert not isinstance(again, NotModified)
    assert len(model.calls) > asked


@pytest.mark.parametrize("demanded", [{}, {"accept_risk": "HIGH"}, {"accept_quality": ["D"]}])
def test_an_answer_that_meets_what_is_demanded_is_confirmed(
    open_relay: Opener, demanded: dict[str, Any]
) -> None:
    relay, model = opened(open_relay, HIGH)
    first = answered(relay, policy="warn-on HIGH")
    asked = len(model.calls)
    again = outcome(relay, if_match=first.envelope.etag, **demanded)
    assert isinstance(again, NotModified)
    assert len(model.calls) == asked


@pytest.mark.requirement("003-14.2-1", "003-11.3-3")
@pytest.mark.parametrize("asking", [{}, {"policy": "warn-on HIGH"}, {"budget_tokens": 120}])
def test_a_window_that_continues_is_no_earlier_one(asking: dict[str, Any]) -> None:
    relay = Relay.open(embedder=HashEmbedder(), model="extractive")
    relay.add(
        f"The Meridian reactor number {n} was commissioned on {n} March 2019 and delivers power."
        for n in range(1, 30)
    )
    first = relay.ask(QUESTION, **asking)
    conditional = {**asking, "session_id": first.session_id, "if_match": first.envelope.etag}
    second = relay.ask(QUESTION, continuation_ids=[first.continuation_id], **conditional)
    assert second.window_number == 2
    shown = {fact.fact_id for fact in first.envelope.facts}
    assert shown.isdisjoint(fact.fact_id for fact in second.envelope.facts)
    # Where nothing is continued, the first window's answer is still the right one.
    with pytest.raises(EnvelopeUnchanged):
        relay.ask(QUESTION, **conditional)
