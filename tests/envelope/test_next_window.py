"""From window to window: what is shown again, deferred, summarised, and what pressure advises."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations.envelope.candidates import SUMMARY_SOURCE, Candidate, Candidates, RankedFact
from crp_integrations.envelope.continuation import (
    EARLIER,
    Pressure,
    assess_pressure,
    deferred_ids,
    degradation_advice,
    evolve,
    next_window_number,
    seen_hashes,
)
from crp_integrations.envelope.pack import PackResult
from crp_integrations.envelope.records import EarlierWindow, SeenFact
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import RequestError
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import render_headers
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import AdviceWord, DropReason, GroundingMode, QualityTier
from tests.envelope.builders import LITERAL, SETTINGS, LetterCounter, candidates, fact, made, ranked
from tests.headers.header_samples import report

ETAG = "sha256:" + "ab" * 32


def window(
    number: int = 1,
    *shown: Candidate,
    summary: str = "",
    left: tuple[str, ...] = (),
    tier: QualityTier = QualityTier.B,
) -> EarlierWindow:
    return EarlierWindow(
        window_number=number,
        etag=ETAG,
        facts_seen=tuple(
            SeenFact(fact_id=one.fact_id, content_hash=sha256(one.content)) for one in shown
        ),
        deferred=left,
        summary=summary,
        quality_tier=tier,
    )


def evolved(given: Candidates, *prior: EarlierWindow) -> Candidates:
    return evolve(given, prior, counter=LetterCounter(), settings=SETTINGS)


def ids(found: Candidates) -> list[str]:
    return [one.fact_id for one in found.facts]


A, B, C, D = (fact(name, content=f"The text of {name}.") for name in "abcd")


@pytest.mark.requirement("003-14.2-1")
def test_what_was_shown_goes_unless_its_text_has_changed() -> None:
    changed = fact("b", content="The text of b, as it is now.")
    found = evolved(candidates(A, changed, C), window(1, A, B))
    assert ids(found) == ["b", "c"]
    # What was changed and shown again is seen with its new text.
    assert ids(evolved(candidates(A, changed, C), window(1, A, B), window(2, changed))) == ["c"]
    assert ids(evolved(candidates(A, B, C), window(1, A, B), window(2, changed))) == ["b", "c"]


@pytest.mark.requirement("003-14.2-2")
def test_one_set_of_seen_facts_holds_for_all_windows_of_a_session() -> None:
    prior = (window(3, C), window(1, A), window(2, B))
    assert seen_hashes(prior) == {one.fact_id: sha256(one.content) for one in (A, B, C)}
    assert ids(evolved(candidates(A, B, C, D), *prior)) == ["d"]
    with pytest.raises(RequestError, match=r"windows \[1, 1\] repeat a number"):
        seen_hashes((window(1, A), window(1, B)))


@pytest.mark.requirement("003-14.1-3")
def test_deferred_facts_of_all_windows_wait_until_one_shows_them() -> None:
    prior = (window(1, A, left=("b", "c", "d")), window(2, C, left=("b", "e")))
    assert deferred_ids(prior) == ("b", "d", "e")
    assert deferred_ids(()) == ()
    assert next_window_number(prior) == 3
    assert next_window_number(()) == 1


def test_what_says_the_same_as_a_seen_fact_goes_with_it() -> None:
    given = candidates(A, B, C, D, duplicates=((0, 1), (2, 3)), conflicts=((1, 3),))
    found = evolved(given, window(1, A))
    # b stands for a; c and d are near each other alone, and are now at the places 0 and 1.
    assert ids(found) == ["c", "d"]
    assert list(found.duplicates) == [(0, 1)]
    assert list(found.conflicts) == []
    # A twin that was shown before with another text is kept: it says something new.
    changed = fact("b", content="Now b says more.")
    given = candidates(A, changed, duplicates=((0, 1),))
    assert ids(evolved(given, window(1, A, B))) == ["b"]


@pytest.mark.requirement("003-14.1-5")
def test_deferred_facts_summary_and_new_facts_are_packed_together() -> None:
    told = "The first answer named a."
    prior = window(1, A, summary=told, left=("b",))
    found = evolved(candidates(A, B, C), prior)
    (summary,) = [one for one in found.facts if one.source_id.startswith(SUMMARY_SOURCE)]
    assert summary.content == EARLIER + told
    assert summary.source_id == "crp:summary:1"
    assert summary.tokens == len("[10] " + EARLIER + told + "\n\n")
    assert (summary.relevance, summary.importance) == (SCALE, SCALE * 95 // 100)
    assert found.facts == tuple(sorted(found.facts, key=lambda one: one.fact_id))
    envelope = made(found, window_number=2)
    assert {one.content for one in envelope.facts} == {EARLIER + told, B.content, C.content}
    assert told in envelope.text
    # With room for one fact alone it is the summary that is kept.
    assert [one.content for one in made(found, budget_tokens=summary.tokens).facts] == [
        EARLIER + told
    ]


def _summary_ids(prior: EarlierWindow) -> set[str]:
    return {one.fact_id for one in evolved(candidates(), prior).facts}


def test_an_envelope_leaves_what_the_next_window_needs() -> None:
    envelope = made(candidates(A, B), window_number=4)
    prior = envelope.as_prior("Short.")
    assert prior.window_number == 4
    assert prior.etag == envelope.etag
    assert prior.quality_tier is envelope.quality_tier
    assert set(prior.facts_seen) == set(window(1, A, B).facts_seen)
    assert EarlierWindow.model_validate_json(prior.model_dump_json()) == prior
    with pytest.raises(ValidationError, match="fact a is both seen and deferred"):
        window(1, A, left=("a",))


@pytest.mark.requirement("003-14.2-1")
@given(
    st.dictionaries(st.integers(0, 15), st.booleans(), max_size=12),
    st.lists(st.integers(0, 15), unique=True, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6),
)
def test_any_windows_leave_exactly_what_is_new(
    shown: dict[int, bool], found: list[int], near: list[tuple[int, int]]
) -> None:
    pool = [fact(f"f{n:02d}", content=f"text {n}") for n in range(16)]
    given_facts = [pool[n] for n in sorted(found)]
    pairs = sorted({(i, j) for i, j in near if i < j < len(given_facts)})
    # True: the fact was shown with the text that it has now.
    prior = window(
        1, *(pool[n] if same else fact(f"f{n:02d}", content="old") for n, same in shown.items())
    )
    left = set(ids(evolved(candidates(*given_facts, duplicates=tuple(pairs)), prior)))
    same = {f"f{n:02d}" for n, unchanged in shown.items() if unchanged}
    names = [one.fact_id for one in given_facts]
    twins = {names[j] for i, j in pairs if names[i] in same} | {
        names[i] for i, j in pairs if names[j] in same
    }
    changed = {f"f{n:02d}" for n, unchanged in shown.items() if not unchanged}
    assert left == set(names) - same - (twins - changed)


WORDS = AdviceWord
TIERS = {tier.value: tier for tier in QualityTier}


def pressed(
    saturation: Fraction,
    *left: RankedFact,
    over_k: tuple[RankedFact, ...] = (),
    grounding: GroundingMode = GroundingMode.PREFERRED,
    settings: EnvelopeSettings = SETTINGS,
    floor: int | None = None,
) -> Pressure:
    given: Candidates = candidates(
        *(one.candidate for one in (*left, *over_k)), relevant_floor=floor
    )
    packing = PackResult((), left, over_k, (), "greedy@1")
    return assess_pressure(
        given, packing, saturation=saturation, grounding=grounding, settings=settings
    )


def words(found: Pressure) -> set[AdviceWord]:
    return {advice.word for advice in found.advice}


RELEVANT = ranked("r", 0.6, relevance=0.5)
IRRELEVANT = ranked("i", 0.6, relevance=0.499999)


@pytest.mark.requirement("003-10.3-1")
@pytest.mark.parametrize(
    ("saturation", "left", "under_pressure"),
    [
        (Fraction(98, 100), (RELEVANT,), True),
        (Fraction(1), (RELEVANT, IRRELEVANT), True),
        (Fraction(979_999, 1_000_000), (RELEVANT,), False),
        (Fraction(1), (), False),
        (Fraction(1), (IRRELEVANT,), False),
    ],
)
def test_pressure_is_a_full_window_with_relevant_facts_outside(
    saturation: Fraction, left: tuple[RankedFact, ...], under_pressure: bool
) -> None:
    assert (WORDS.PRESSURE in words(pressed(saturation, *left))) == under_pressure


@pytest.mark.requirement("003-9.3-2")
@pytest.mark.parametrize(
    ("saturation", "left", "goes_on"),
    [
        (Fraction(95, 100), (RELEVANT,), True),
        (Fraction(949_999, 1_000_000), (RELEVANT,), False),
        (Fraction(95, 100), (IRRELEVANT,), False),
        (Fraction(95, 100), (), False),
    ],
)
def test_a_continuation_is_suggested_when_the_question_needs_more_than_fits(
    saturation: Fraction, left: tuple[RankedFact, ...], goes_on: bool
) -> None:
    found = pressed(saturation, *left)
    assert (WORDS.CONTINUE in words(found)) == goes_on
    assert found.deferred == (("r",) if goes_on else ())


@pytest.mark.requirement("003-9.3-1")
@pytest.mark.parametrize(("hundredths", "suggested"), [(94, False), (95, True), (100, True)])
def test_reuse_is_suggested_from_a_saturation_on(hundredths: int, suggested: bool) -> None:
    found = pressed(Fraction(hundredths, 100))
    assert (WORDS.REUSE_CKF in words(found)) == suggested
    # A full envelope says so by itself; the words come with the number that they rest on.
    one = fact("a", content="x" * hundredths, tokens=hundredths + 4)
    whole = made(candidates(one), budget_tokens=104)
    assert whole.token_count == hundredths + 4
    assert whole.suggests(WORDS.REUSE_CKF) == (whole.saturation >= 0.95)
    assert all("saturation" in advice.reason for advice in whole.advice)


@pytest.mark.requirement("003-9.3-4")
@pytest.mark.parametrize("grounding", list(GroundingMode))
@pytest.mark.parametrize(("hundredths", "sparse"), [(69, True), (70, False), (90, False)])
def test_strict_grounding_on_a_sparse_envelope_is_warned_of(
    grounding: GroundingMode, hundredths: int, sparse: bool
) -> None:
    content = "x" * (hundredths - 4)
    whole = made(candidates(fact("a", content=content)), budget_tokens=100, grounding=grounding)
    assert whole.saturation == hundredths / 100
    strict = grounding is GroundingMode.STRICT
    assert whole.suggests(WORDS.INCOMPLETE) == (sparse and strict)
    if sparse and strict:
        (reason,) = [a.reason for a in whole.advice if a.word is WORDS.INCOMPLETE]
        assert reason == "saturation 0.690 is below 0.70 in context-strict"


@pytest.mark.requirement("003-9.3-5")
@pytest.mark.parametrize(("hundredths", "partial"), [(69, True), (70, False)])
def test_a_sparse_envelope_says_partial_in_its_header(hundredths: int, partial: bool) -> None:
    content = "x" * (hundredths - 4)
    whole = made(candidates(fact("a", content=content)), budget_tokens=100)
    headers = render_headers(
        whole, report(), session_id="crp_sess_0123456789abcdef", window_number=1, window_total=5
    )
    said = headers.get("CRP-Context-Cache-Status")
    assert said == ("PARTIAL; reason=limited-ckf-coverage" if partial else None)
    outcome = parse_response(headers).cache_status
    assert (outcome is not None and outcome.reason) == (partial and "limited-ckf-coverage")


@pytest.mark.requirement("003-10.3-3")
def test_what_is_relevant_and_did_not_fit_is_deferred_in_rank_order() -> None:
    given = candidates(
        fact("a", 0.9, content="x" * 95, tokens=99),
        *(
            fact(name, score, content="x" * 50)
            for name, score in zip("dcbe", (0.7, 0.8, 0.6, 0.4), strict=True)
        ),
    )
    for budget, full in ((100, True), (103, False)):
        whole = made(given, budget_tokens=budget)
        assert [one.fact_id for one in whole.facts] == ["a"]
        assert whole.saturation == 99 / budget
        assert whole.deferred == ("c", "d", "b")
        assert whole.suggests(WORDS.PRESSURE) == full
        left_out = {drop.fact_id for drop in whole.dropped if drop.reason is DropReason.BUDGET}
        assert left_out == {"b", "c", "d", "e"}


def test_the_embedders_floor_counts_unless_the_letter_is_asked_for() -> None:
    found = pressed(Fraction(1), RELEVANT, IRRELEVANT, floor=to_fixed(0.3))
    assert set(found.deferred) == {"r", "i"}
    literal = pressed(Fraction(1), RELEVANT, IRRELEVANT, floor=to_fixed(0.3), settings=LITERAL)
    assert literal.deferred == ("r",)


@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(1, 60)), min_size=1, max_size=12),
    st.integers(0, 300),
)
def test_deferred_facts_are_dropped_for_the_budget_and_relevant(
    rows: list[tuple[int, int]], budget: int
) -> None:
    facts = [
        fact(f"f{n:02d}", relevance / 10, content="x" * size)
        for n, (relevance, size) in enumerate(rows)
    ]
    whole = made(candidates(*facts), budget_tokens=budget)
    relevant = {one.fact_id for one in facts if one.relevance >= to_fixed(0.5)}
    dropped = [d.fact_id for d in whole.dropped if d.reason is DropReason.BUDGET]
    wanted = [fact_id for fact_id in dropped if fact_id in relevant]
    goes_on = bool(wanted) and whole.saturation >= 0.95
    assert whole.suggests(WORDS.CONTINUE) == goes_on
    assert sorted(whole.deferred) == (sorted(wanted) if goes_on else [])


@pytest.mark.parametrize(
    ("history", "falling"),
    [
        ("ABC", True),
        ("SAABC", True),
        ("SABCD", True),
        ("BC", False),
        ("AAB", False),
        ("ACB", False),
        ("ABCC", False),
        ("", False),
    ],
)
def test_three_falling_tiers_suggest_aggregation(history: str, falling: bool) -> None:
    advice = degradation_advice([TIERS[letter] for letter in history], SETTINGS)
    assert (advice is not None) == falling
    if advice:
        assert advice.word is WORDS.HIERARCHICAL
