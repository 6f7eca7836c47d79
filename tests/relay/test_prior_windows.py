"""Windows that continue each other, with the earlier ones given as values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.envelope.candidates import SUMMARY_SOURCE
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.headers.codec import parse_response
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import NotModified
from crp_integrations.vocabulary import AdviceWord, QualityTier
from tests.doubles import NOON, CountingIds, HashEmbedder
from tests.relay.conftest import KEY, Opener

SESSION = "crp_sess_7f3a9bc2d4e1f083"
QUESTION = "What does each Meridian reactor unit deliver?"
UNITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Each holds most words of the question, so each is relevant, and none says what another says.
FACTS = tuple(
    f"Meridian reactor unit {name} does deliver {100 + 7 * n} megawatts each day."
    for n, name in enumerate(UNITS)
)
FLOWERS = (
    "Tulips grow in the valley gardens from early April until the end of May.",
    "Roses grow in the valley gardens, as far as the frost of winter lets them.",
)
SUMMARY = "So far the units were listed that the first window named."


@pytest.fixture
def relay(open_relay: Opener) -> Relay:
    made = open_relay(ids=CountingIds(), max_windows=4)
    made.fabric.add(list(FACTS))
    return made


def full_budget(relay: Relay, **fields: Any) -> int:
    """The smallest budget above 60 tokens that a first window fills to .98."""
    for budget in range(60, 200):
        found = relay.preview(QUESTION, budget_tokens=budget, **fields)
        if found.saturation >= 0.98:
            return budget
    raise AssertionError("no budget was filled")


def texts(answer: Answer) -> set[str]:
    """Facts of the fabric that the window showed."""
    facts = answer.envelope.facts
    return {f.content for f in facts if not f.source_id.startswith(SUMMARY_SOURCE)}


def ask(relay: Relay, budget: int, *prior: EarlierWindow, **fields: Any) -> Answer:
    return relay.ask(QUESTION, session_id=SESSION, budget_tokens=budget, prior=prior, **fields)


@pytest.mark.requirement("003-14.1-1")
def test_the_first_window_issues_an_id_when_not_everything_fits(relay: Relay) -> None:
    budget = full_budget(relay)
    answer = ask(relay, budget)
    envelope = answer.envelope
    assert envelope.suggests(AdviceWord.CONTINUE)
    assert envelope.suggests(AdviceWord.PRESSURE)
    continuation = answer.headers["CRP-Context-Continuation-Id"]
    assert continuation == parse_response(answer.headers).continuation_id
    assert continuation.startswith("crp_cont_")
    assert answer.headers["CRP-Context-Window"] == "1/4"
    # The full three phases ran: all ten were found, ranked, and packed or named as left out.
    assert envelope.total_facts_available == len(FACTS)
    assert set(envelope.deferred) <= {drop.fact_id for drop in envelope.dropped}
    # Every id is a new one, and a window that holds everything issues none.
    assert ask(relay, budget).headers["CRP-Context-Continuation-Id"] != continuation
    everything = ask(relay, 4_000)
    assert texts(everything) == set(FACTS)
    assert "CRP-Context-Continuation-Id" not in everything.headers


def test_the_last_window_issues_no_id(relay: Relay) -> None:
    budget = full_budget(relay)
    issued = ["CRP-Context-Continuation-Id" in ask(relay, budget).headers for _ in range(5)]
    # The fifth is above the maximum already.
    assert issued == [True, True, True, False, False]


@pytest.mark.requirement("003-14.1-3", "003-14.1-5", "003-14.2-1")
def test_the_second_window_packs_what_was_deferred_the_summary_and_what_is_new(
    relay: Relay,
) -> None:
    first = ask(relay, full_budget(relay))
    prior = first.envelope.as_prior(SUMMARY)
    new = "The Meridian reactor unit eleven does deliver nothing each winter."
    relay.fabric.add([new])
    second = ask(relay, 4_000, prior)
    assert second.envelope.window_number == 2
    assert texts(second) == {*FACTS, new} - texts(first)
    shown = {fact.fact_id for fact in second.envelope.facts}
    assert set(first.envelope.deferred) <= shown
    assert SUMMARY in second.envelope.text
    # The summary is examined like every other fact.
    assert second.report.claims_total > 0


@pytest.mark.requirement("003-14.1-3")
def test_deferred_facts_come_although_the_new_question_does_not_find_them(
    open_relay: Opener,
) -> None:
    relay = open_relay(envelope={"k_nearest": 2, "k_lexical": 0})
    relay.fabric.add([*FACTS, *FLOWERS])
    wide = open_relay()
    wide.fabric.add(list(FACTS))
    first = ask(wide, full_budget(wide))
    assert first.envelope.deferred
    prior = first.envelope.as_prior()
    asked = "Which flowers grow in the valley gardens?"
    alone = relay.turn(asked).preview()
    found = relay.turn(asked, prior=[prior]).preview()
    assert set(first.envelope.deferred) - {fact.fact_id for fact in alone.facts}
    assert set(first.envelope.deferred) <= {fact.fact_id for fact in found.facts}


@pytest.mark.requirement("003-14.2-1")
def test_a_fact_is_shown_again_once_it_was_updated(relay: Relay) -> None:
    first = ask(relay, full_budget(relay))
    prior = first.envelope.as_prior()
    one, *others = (fact.fact_id for fact in first.envelope.facts)
    again = "Meridian reactor unit one does deliver 512 megawatts each day."
    relay.fabric.update(one, content=again)
    second = ask(relay, 4_000, prior)
    shown = {fact.fact_id: fact.content for fact in second.envelope.facts}
    assert shown[one] == again
    assert not set(others) & set(shown)
    third = ask(relay, 4_000, prior, second.envelope.as_prior())
    assert third.envelope.facts == ()


@pytest.mark.requirement("003-14.2-2")
def test_over_a_whole_chain_every_fact_is_shown_exactly_once(relay: Relay) -> None:
    budget = full_budget(relay)
    windows: list[EarlierWindow] = []
    shown: list[str] = []
    while True:
        answer = ask(relay, budget, *windows)
        if not answer.envelope.facts:
            break
        shown += sorted(texts(answer))
        windows.append(answer.envelope.as_prior())
    assert sorted(shown) == sorted(FACTS)
    assert len(windows) >= 3
    assert [window.window_number for window in windows] == list(range(1, len(windows) + 1))


def test_falling_tiers_are_told_with_the_next_envelope(relay: Relay) -> None:
    first = ask(relay, full_budget(relay)).envelope.as_prior()
    windows = [
        first.changed(window_number=2, quality_tier=QualityTier.B),
        first.changed(window_number=1, quality_tier=QualityTier.A),
    ]
    answer = ask(relay, 1, *windows)
    assert answer.envelope.quality_tier is QualityTier.D
    (advice,) = [a for a in answer.envelope.advice if a.word is AdviceWord.HIERARCHICAL]
    assert "A, B, D" in advice.reason
    # What is advised is not done.
    assert answer.envelope.strategy.value == "push"


def test_prior_windows_decide_what_is_reused(relay: Relay) -> None:
    budget = full_budget(relay)
    first = ask(relay, budget)
    prior = first.envelope.as_prior(SUMMARY)
    second = ask(relay, budget, prior)
    etag = second.envelope.etag
    again = relay.turn(
        QUESTION, session_id=SESSION, budget_tokens=budget, prior=[prior], if_match=etag
    )
    assert isinstance(again.begin(), NotModified)
    plain = relay.turn(QUESTION, session_id=SESSION, budget_tokens=budget, if_match=etag)
    assert not isinstance(plain.begin(), NotModified)


@settings(max_examples=15, deadline=None)
@given(budgets=st.lists(st.integers(30, 120), min_size=2, max_size=4))
def test_no_window_repeats_another(budgets: list[int]) -> None:
    relay = Relay.open(embedder=HashEmbedder(), key=KEY, clock=NOON)
    relay.fabric.add(list(FACTS))
    windows: list[EarlierWindow] = []
    shown: list[str] = []
    for budget in budgets:
        envelope = relay.turn(QUESTION, budget_tokens=budget, prior=windows).preview()
        shown += [fact.fact_id for fact in envelope.facts]
        windows.append(envelope.as_prior(f"Window {len(windows) + 1} named some units."))
    assert len(shown) == len(set(shown))
