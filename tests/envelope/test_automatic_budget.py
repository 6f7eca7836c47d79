"""What a question needs: the default budget, and the tier that is measured by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import pack
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.relay.settings import load
from crp_integrations.vocabulary import GroundingMode, QualityTier
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import LITERAL, SETTINGS, LetterCounter, candidates, fact

BOUNDS = SETTINGS.budget
FERRY = "The ferry to Brisk Island leaves Pier 9 at 06:40 on weekdays."
QUESTION = "When does the ferry to Brisk Island leave?"
NOTES = [
    f"Note {n} of the harbour office: berth {n % 40} was inspected by crew {n % 7}, who found "
    f"its fenders, ladders and lamps in order and asked for {n} metres of new rope before winter."
    for n in range(400)
]


def assembled(given_facts: Candidates, most: int, **fields: Any) -> Envelope:
    settings = fields.pop("settings", SETTINGS)
    return assemble(
        given_facts,
        budget_tokens=most,
        counter=LetterCounter(),
        grounding=GroundingMode.PREFERRED,
        settings=settings,
        now=NOON,
        **fields,
    )


def long(fact_id: str, relevance: float, length: int = 400, **fields: Any) -> Any:
    return fact(fact_id, relevance, tokens=length + 12, content=fact_id[0] * length, **fields)


def test_a_question_about_one_fact_sends_little_of_a_large_store_by_default() -> None:
    def packed(**fields: Any) -> Envelope:
        return pack(QUESTION, [*NOTES, FERRY], model="gpt-4o", embedder=HashEmbedder(), **fields)

    envelope = packed()
    assert FERRY in envelope.text
    assert envelope.token_count <= envelope.token_budget <= BOUNDS.most
    whole = packed(budget_tokens="window")
    assert whole.token_count > 4 * envelope.token_count
    assert whole.total_facts_included == len(NOTES) + 1
    assert packed(budget_tokens=600).token_budget == 600


def test_how_far_relevance_reaches_decides_the_budget() -> None:
    tail = [long(f"b{n}", 0.09) for n in range(30)]
    few = candidates(*(long(f"a{n}", 0.9) for n in range(3)), *tail)
    many = candidates(*(long(f"a{n}", 0.9) for n in range(9)), *tail)
    # Thirty facts at a tenth of the best add 30 times a thousandth of a fact.
    assert assembled(few, 100_000, automatic=True).token_budget == 909
    assert assembled(many, 100_000, automatic=True).token_budget == 2_709
    # A question of two needs takes three tenths more.
    two = replace(few, sub_queries=("one", "two"))
    assert assembled(two, 100_000, automatic=True).token_budget == 1_181
    # The window is the upper bound, and so are the settings.
    assert assembled(many, 700, automatic=True).token_budget == 700
    huge = candidates(*(long(f"a{n}", 0.9) for n in range(40)))
    assert assembled(huge, 100_000, automatic=True).token_budget == BOUNDS.most
    one = candidates(long("a0", 0.9, 100), *(long(f"b{n}", 0.09) for n in range(9)))
    assert assembled(one, 100_000, automatic=True).token_budget == BOUNDS.least
    assert assembled(huge, 9_000).token_budget == 9_000


def test_where_every_candidate_is_in_the_budget_is_what_they_take() -> None:
    envelope = assembled(candidates(fact("a", 0.9), fact("b", 0.2)), 5_000, automatic=True)
    assert envelope.total_facts_included == 2
    assert (envelope.token_budget, envelope.saturation) == (envelope.token_count, 1.0)
    assert envelope.quality_tier is QualityTier.S


def test_the_settings_and_the_literal_preset_have_another_default(tmp_path: Path) -> None:
    notes = [*NOTES[:60], FERRY]
    fixed = load(tmp_path, envelope={"budget": {"tokens": 700}})
    hashed = HashEmbedder()
    found = pack(QUESTION, notes, model="gpt-4o", settings=fixed, embedder=hashed)
    assert found.token_budget == 700
    assert LITERAL.budget.tokens == "window"
    letter = load(tmp_path, preset="literal")
    literal = pack(QUESTION, notes, model="gpt-4o", settings=letter, embedder=hashed)
    assert literal.total_facts_included == len(notes)


SCORES = st.lists(st.tuples(st.integers(1, 100), st.integers(20, 900)), min_size=1, max_size=25)


@given(SCORES, st.integers(0, 6_000))
def test_an_automatic_budget_is_never_exceeded_and_never_above_its_bounds(
    scores: list[tuple[int, int]], most: int
) -> None:
    chosen = candidates(
        *(long(f"{n:02d}", score / 100, size) for n, (score, size) in enumerate(scores))
    )
    envelope = assembled(chosen, most, automatic=True)
    assert envelope.token_count <= envelope.token_budget <= min(most, BOUNDS.most)


@given(SCORES, st.integers(1, 5_000), st.integers(1, 5_000))
def test_less_room_never_gives_a_better_tier_than_everything(
    scores: list[tuple[int, int]], one: int, other: int
) -> None:
    chosen = candidates(
        *(long(f"{n:02d}", score / 100, size) for n, (score, size) in enumerate(scores))
    )
    every = assembled(chosen, 1_000_000)
    for room in (one, other):
        assert assembled(chosen, room).quality_tier.place >= every.quality_tier.place


def test_the_tier_says_how_much_of_what_is_needed_is_in() -> None:
    chosen = candidates(
        *(long(f"a{n}", 0.9) for n in range(5)), *(long(f"b{n}", 0.1) for n in range(20))
    )
    rooms = {room: assembled(chosen, room) for room in (450, 900, 1_700, 2_575, 9_000)}
    tiers = [envelope.quality_tier.value for envelope in rooms.values()]
    assert tiers == sorted(tiers, key="DCBAS".index)
    assert (tiers[0], tiers[-1]) == ("D", "S")
    # What does not matter may be left out.
    assert rooms[2_575].quality_tier is QualityTier.S


def test_a_critical_fact_that_is_left_out_lowers_the_tier() -> None:
    rest = [long(f"a{n}", 0.9) for n in range(3)]
    vital = long("v0", 0.3, importance=0.95)
    settings = EnvelopeSettings(importance_factor=0.0)
    without = assembled(candidates(*rest), 1_300, settings=settings)
    with_it = assembled(candidates(*rest, vital), 1_300, settings=settings)
    assert without.quality_tier is QualityTier.S
    assert with_it.quality_tier is QualityTier.B


def test_a_context_about_something_else_is_deficient() -> None:
    floor = SETTINGS.relevant_floor * SETTINGS.floor_share
    for best, tier in ((floor - 0.01, QualityTier.D), (floor, QualityTier.S)):
        envelope = assembled(candidates(fact("a", best), fact("b", 0.1)), 5_000, automatic=True)
        assert envelope.quality_tier is tier
