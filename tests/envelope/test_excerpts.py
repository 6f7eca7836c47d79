"""Facts that are shown in part: what fills the budget that whole facts leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.verifier.values import read
from crp_integrations.envelope.candidates import Candidate, Candidates, ScoredSpan
from crp_integrations.envelope.continuation import evolve
from crp_integrations.envelope.prompt import ELLIPSIS, marker_text, render
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.screen import rerank_candidates
from crp_integrations.envelope.settings import EnvelopeSettings, HybridSettings
from crp_integrations.language.lexical_overlap import sentence_spans
from crp_integrations.language.memo import forget
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.seals import sha256, sha256_hex
from crp_integrations.vocabulary import DropReason
from tests.envelope.builders import LITERAL, SETTINGS, LetterCounter, candidates, fact, made

SENTENCES = (
    "The quay of granite was paid for by the harbour board in the end.",
    "Nobody had asked the ferry company whether it wanted a second pile.",
    "In winter the dredging costs 2,5 % more than it does in any summer.",
    "The licence of the northern tier was never renewed by the council.",
    "Zürich and 港务 sent their greetings, and 👍🏽 stood under the letter.",
    "A cat slept on the ledger while the treasurer counted the revenue.",
)


def parted(
    fact_id: str, content: str, scores: Sequence[float], merit: float = 0.5, **fields: Any
) -> Candidate:
    """A fact with a score for each of its stretches, none where it is one."""
    spans = sentence_spans(content)
    given = [scores[n % len(scores)] for n in range(len(spans))] if scores else []
    return replace(
        fact(fact_id, merit, content=content, **fields),
        score=to_fixed(merit),
        stretches=tuple(
            ScoredSpan(span.start, span.end, to_fixed(score))
            for span, score in zip(spans, given, strict=True)
        )
        if len(spans) > 1
        else (),
    )


def part_of(envelope: Envelope, fact_id: str) -> Any:
    return next(one for one in envelope.facts if one.fact_id == fact_id)


def using(**fields: Any) -> EnvelopeSettings:
    return SETTINGS.model_copy(update={"hybrid": HybridSettings(**fields)})


BEST = parted("a", SENTENCES[0], (), 0.9)
LONG = " ".join(SENTENCES[1:])
# About one sentence too little for both.
BUDGET = 300


# --- examples ------------------------------------------------------------------------------


def test_the_best_sentence_of_a_fact_that_does_not_fit_is_shown() -> None:
    given = candidates(BEST, parted("b", LONG, (0.1, 0.2, 0.9, 0.2, 0.1), 0.6))
    envelope = made(given, budget_tokens=200)
    assert {one.fact_id for one in envelope.facts} == {"a", "b"}
    shown = part_of(envelope, "b")
    assert shown.content == SENTENCES[3]
    ((start, end),) = shown.spans
    assert LONG[start:end] == shown.content
    assert shown.content_hash == sha256(LONG)
    assert shown.token_count == len(marker_text(shown.content))
    assert envelope.dropped == ()
    assert "excerpt@1" in envelope.algorithms
    whole = part_of(envelope, "a")
    assert (whole.spans, whole.content_hash, whole.content) == ((), "", SENTENCES[0])
    assert Envelope.model_validate_json(envelope.model_dump_json()) == envelope


def test_parts_that_do_not_adjoin_have_an_ellipsis_between_them_and_others_what_stands_there() -> (
    None
):
    apart = candidates(parted("b", LONG, (0.9, 0.0, 0.8, 0.0, 0.0)))
    shown = part_of(made(apart, budget_tokens=160), "b")
    assert shown.content == SENTENCES[1] + ELLIPSIS + SENTENCES[3]
    assert len(shown.spans) == 2
    adjoining = candidates(parted("b", LONG.replace(". In", ".\n In"), (0.9, 0.8, 0.0, 0.0, 0.0)))
    shown = part_of(made(adjoining, budget_tokens=160), "b")
    assert shown.content == f"{SENTENCES[1]}\n {SENTENCES[2]}"
    assert shown.spans == ((0, len(shown.content)),)


def test_a_fact_of_which_all_is_chosen_is_a_whole_one() -> None:
    both = " ".join(SENTENCES[:2])
    # Above the share that whole facts fill, and within the budget.
    given = candidates(parted("a", both, (0.9, 0.8)), parted("b", LONG, (0.1,), 0.2))
    envelope = made(given, budget_tokens=150)
    shown = part_of(envelope, "a")
    assert (shown.content, shown.spans, shown.content_hash) == (both, (), "")


def test_a_budget_that_holds_all_shows_whole_facts_alone() -> None:
    given = candidates(BEST, parted("b", LONG, (0.9,)))
    envelope = made(given, budget_tokens=1_000)
    assert not any(one.spans for one in envelope.facts)
    assert "excerpt@1" not in envelope.algorithms


def test_a_short_fact_far_down_does_not_go_before_the_best_sentences() -> None:
    long = [
        parted(f"b{n}", f"Number {n}. {LONG}", (0.9, 0.8, 0.7, 0.6, 0.5), 0.9 - n / 100)
        for n in range(4)
    ]
    far = parted("z", SENTENCES[0], (), 0.2)
    given = candidates(*long, far)
    assert "z" not in {one.fact_id for one in made(given, budget_tokens=300).facts}
    # As it was before.
    before = made(given, budget_tokens=300, settings=using(passed_over=None))
    assert "z" in {one.fact_id for one in before.facts}
    assert "greedy@1" in before.algorithms
    assert "patient@1" in made(given, budget_tokens=300).algorithms


@pytest.mark.parametrize(
    "fields",
    [{"settings": using(whole_share=1.0)}, {"settings": using(enabled=False)}, {"k": 5}],
    ids=["whole_share", "off", "k"],
)
def test_whole_facts_alone_where_parts_are_not_wanted(fields: dict[str, Any]) -> None:
    given = candidates(BEST, parted("b", LONG, (0.9,)))
    envelope = made(given, budget_tokens=200, **fields)
    assert [one.fact_id for one in envelope.facts] == ["a"]
    assert not any(one.spans for one in envelope.facts)
    assert "excerpt@1" not in envelope.algorithms


def test_what_is_left_of_a_vital_fact_caps_the_tier() -> None:
    vital = parted("b", LONG, (0.9, 0.0), 0.6, importance=0.95)
    envelope = made(candidates(BEST, vital), budget_tokens=200)
    assert part_of(envelope, "b").spans
    assert any(
        "1 fact of importance 0.90 or more did not fit" in cap.reason for cap in envelope.caps
    )
    whole = made(candidates(BEST, vital), budget_tokens=1_000)
    assert not any("did not fit" in cap.reason for cap in whole.caps)


def test_a_fact_that_was_shown_in_part_does_not_come_back() -> None:
    given = candidates(BEST, parted("b", LONG, (0.1, 0.2, 0.9, 0.2, 0.1), 0.6), fact("c", 0.1))
    envelope = made(given, budget_tokens=200)
    assert part_of(envelope, "b").spans
    prior = envelope.as_prior()
    assert {seen.fact_id: seen.content_hash for seen in prior.facts_seen}["b"] == sha256(LONG)
    after = evolve(given, [prior], counter=LetterCounter(), settings=SETTINGS)
    shown = {one.fact_id for one in envelope.facts}
    assert {one.fact_id for one in after.facts} == {"a", "b", "c"} - shown
    # One that was changed since says something new.
    changed = parted("b", LONG + " It has been amended since.", (0.9,))
    again = evolve(candidates(BEST, changed), [prior], counter=LetterCounter(), settings=SETTINGS)
    assert [one.fact_id for one in again.facts] == ["b"]


def test_a_reranker_decides_whose_parts_are_shown() -> None:
    one, other = (
        parted(name, " ".join(texts), scores, merit)
        for name, texts, scores, merit in (
            ("b", SENTENCES[1:4], (0.9, 0.1, 0.1), 0.9),
            ("c", SENTENCES[3:6], (0.1, 0.1, 0.8), 0.2),
        )
    )

    class Turned:
        identity = "turned/1"

        def scores(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.2 if text == one.content else 0.9 for text in texts]

    plain = candidates(one, other)
    given = rerank_candidates(plain, Turned(), SETTINGS)
    assert [(c.relevance, c.score) for c in given.facts] == [(200_000,) * 2, (900_000,) * 2]
    assert part_of(made(plain, budget_tokens=90), "b").content == SENTENCES[1]
    assert part_of(made(given, budget_tokens=90), "c").content == SENTENCES[5]


# --- laws ----------------------------------------------------------------------------------


class Capricious(LetterCounter):
    """Counts of parts and of the whole have nothing to do with each other."""

    def __init__(self, seed: int) -> None:
        self.identity = f"capricious:{seed}"

    def count(self, text: str) -> int:
        return int(sha256_hex(self.identity + text)[:2], 16)


COUNTERS = st.one_of(st.just(LetterCounter()), st.builds(Capricious, st.integers(0, 99)))
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=120),
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=5).map(" ".join),
    st.lists(st.sampled_from(SENTENCES), min_size=2, max_size=4).map("\n\n".join),
)
SCORES = st.lists(st.integers(0, 4).map(lambda n: n / 4), min_size=1, max_size=4)
USING = st.sampled_from(
    [
        SETTINGS,
        LITERAL,
        using(whole_share=0.0),
        using(whole_share=0.5, stretches_seen=3),
        EnvelopeSettings(ordering="rank"),
        EnvelopeSettings(packing="in_order", layout="cache-stable"),
    ]
)


@st.composite
def selections(draw: st.DrawFn) -> Candidates:
    rows = draw(st.lists(st.tuples(TEXT, SCORES, st.integers(0, 4)), max_size=8))
    facts = [
        parted(f"f{n:02d}", text, scores, merit / 4) for n, (text, scores, merit) in enumerate(rows)
    ]
    pairs = [(i, j) for j in range(len(facts)) for i in range(j)]
    near = draw(st.lists(st.sampled_from(pairs), max_size=3, unique=True)) if pairs else []
    return candidates(*facts, duplicates=tuple(sorted(near)))


LIMITS = st.one_of(st.none(), st.none(), st.integers(1, 6))


@pytest.mark.requirement("003-2-3", "003-7.3-4")
@settings(max_examples=200, deadline=None)
@given(selections(), st.integers(-5, 700), COUNTERS, USING, LIMITS)
def test_parts_stay_within_the_budget_verbatim_and_every_candidate_is_told_once(
    found: Candidates,
    budget: int,
    counter: TokenCounter,
    chosen: EnvelopeSettings,
    k: int | None,
) -> None:
    envelope = made(found, budget_tokens=budget, counter=counter, settings=chosen, k=k)
    assert envelope.text == render([one.content for one in envelope.facts])
    assert envelope.token_count == (counter.count(envelope.text) if envelope.facts else 0)
    assert envelope.token_count <= max(0, budget)
    contents = {one.fact_id: one.content for one in found.facts}
    told = [one.fact_id for one in (*envelope.facts, *envelope.dropped)]
    assert sorted(told) == sorted(contents)
    for one in envelope.facts:
        whole = contents[one.fact_id]
        if not one.spans:
            assert (one.content, one.content_hash) == (whole, "")
            continue
        assert one.content == ELLIPSIS.join(whole[start:end] for start, end in one.spans)
        assert one.content_hash == sha256(whole)
        assert one.token_count == max(0, counter.count(marker_text(one.content)))
        ends = [place for span in one.spans for place in span]
        assert ends == sorted(set(ends))
        assert ends[0] >= 0 and ends[-1] <= len(whole)
        assert k is None and chosen.hybrid.enabled
    seen = {seen.fact_id: seen.content_hash for seen in envelope.as_prior().facts_seen}
    assert seen == {one.fact_id: sha256(contents[one.fact_id]) for one in envelope.facts}
    assert not seen.keys() & set(envelope.deferred)
    assert all(drop.kept for drop in envelope.dropped if drop.reason is DropReason.DUPLICATE)


@settings(max_examples=40, deadline=None)
@given(selections(), st.integers(0, 700), st.randoms(use_true_random=False))
def test_the_candidates_alone_decide(found: Candidates, budget: int, dice: Any) -> None:
    facts = list(found.facts)
    dice.shuffle(facts)
    again = candidates(*facts, duplicates=found.duplicates)
    left, right = (made(one, budget_tokens=budget).model_dump_json() for one in (found, again))
    assert left == right


@given(selections())
def test_scores_of_stretches_stay_in_range_under_a_reranker(found: Candidates) -> None:
    class Halves:
        identity = "halves/1"

        def scores(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.5 for _ in texts]

    few = SETTINGS.model_copy(update={"rerank_top": 2})
    for before, after in zip(
        found.facts, rerank_candidates(found, Halves(), few).facts, strict=True
    ):
        assert after.score is not None and 0 <= after.score <= SCALE // 2
        assert [one[:2] for one in after.stretches] == [one[:2] for one in before.stretches]
        assert all(0 <= one.score <= SCALE // 2 for one in after.stretches)


def in_two(fact_id: str, relevance: float, size: int) -> Candidate:
    """A fact of two stretches."""
    text = (fact_id * size)[: size - 1] + "."
    half = size // 2
    whole = fact(fact_id, relevance, content=text)
    return replace(whole, stretches=(ScoredSpan(0, half, 9), ScoredSpan(half, size, 8)))


def test_the_budget_is_filled_with_whole_facts_where_no_part_fits() -> None:
    short = [fact(f"s{n}", 0.9 - n / 100, content=f"{n}" * 43) for n in range(10)]
    given = candidates(*short, in_two("z", 0.1, 900))
    envelope = made(given, budget_tokens=520)
    shown = {packed.fact_id for packed in envelope.facts}
    assert shown == {one.fact_id for one in short}
    assert envelope.token_count <= 520
    gone = {drop.fact_id for drop in envelope.dropped}
    assert shown | gone == {one.fact_id for one in given.facts}
    assert not shown & gone


def test_what_is_remembered_of_texts_is_forgotten_at_an_erasure() -> None:
    text = "Zebulon Quartz founded the Meridian reactor in 2019."
    reading = read(text)
    assert read(text) is reading
    forget()
    assert read(text) is not reading
