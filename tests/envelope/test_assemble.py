"""The whole path from candidates to an envelope."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from crp_integrations.envelope.assemble import preview
from crp_integrations.envelope.prompt import grounding_instruction, render
from crp_integrations.envelope.records import Envelope, EnvelopePreview, PackedFact
from crp_integrations.errors import RequestError
from crp_integrations.relay.prompt import reckon_room
from crp_integrations.relay.records import Request
from crp_integrations.vocabulary import DropReason, GroundingMode, QualityTier, Strategy
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import (
    LITERAL,
    SETTINGS,
    LetterCounter,
    build_candidates,
    candidates,
    fact,
    made,
)

# Each costs 30: 23 characters, a marker of 5 and a separator of 2.
TEN = candidates(
    *(fact(f"f{n}", 0.9 - n / 100, content=f"text number {n} of ten...") for n in range(10))
)

# The tier by all that is relevant, whatever a question needs.
RELEVANT = SETTINGS.model_copy(update={"coverage_of": "relevant"})


def ids(facts: Sequence[PackedFact]) -> list[str]:
    return [item.fact_id for item in facts]


@pytest.mark.requirement("003-3-1")
def test_an_envelope_carries_every_field_of_the_specification() -> None:
    envelope = made(
        TEN, session_id="crp_sess_x", window_number=2, strategy=Strategy.PUSH, model="m"
    )
    written = envelope.model_dump(mode="json")
    assert set(written) >= {
        "session_id",
        "window_number",
        "facts",
        "total_facts_available",
        "total_facts_included",
        "token_count",
        "token_budget",
        "saturation",
        "quality_tier",
        "etag",
        "strategy",
        "grounding_mode",
        "created_at",
        "ckf_communities",
        "memory_tier_hit",
    }
    assert written["session_id"] == "crp_sess_x"
    assert written["window_number"] == 2
    assert written["strategy"] == "push"
    assert written["grounding_mode"] == "context-preferred"
    assert Envelope.model_validate_json(envelope.model_dump_json()) == envelope
    with pytest.raises(ValidationError):
        Envelope.model_validate({**written, "extra": 1})


@pytest.mark.requirement("003-3-2")
def test_an_envelope_fact_carries_every_field_of_the_specification() -> None:
    given = candidates(fact("a", 0.8, 0.6, community="x", ingested_at=NOON))
    (written,) = made(given, settings=LITERAL).model_dump(mode="json")["facts"]
    expected = {
        "fact_id": "a",
        "content": "text of a",
        "source_id": "source",
        "relevance_score": 0.8,
        "importance_weight": 0.6,
        "composite_score": 0.8,
        "token_count": 16,
        "position": 1,
        "community": "x",
        "ingested_at": "2026-05-25T12:00:00Z",
    }
    assert {name: written[name] for name in expected} == expected


@pytest.mark.requirement("003-3-4", "003-3-7")
def test_positions_and_counts() -> None:
    envelope = made(TEN, budget_tokens=215)
    assert [item.position for item in envelope.facts] == list(range(1, 8))
    assert envelope.total_facts_included == len(envelope.facts) == 7
    # 7 × (23 + "[n] ") and 6 separators of two characters.
    assert envelope.token_count == len(envelope.text) == 7 * 27 + 6 * 2
    assert {item.token_count for item in envelope.facts} == {30}


@pytest.mark.requirement("003-3-8")
def test_created_at_is_iso_and_enters_no_hash() -> None:
    given = candidates(fact("a", ingested_at=None), fact("b", ingested_at=None))
    first, second = made(given), made(given, now=NOON + timedelta(days=40))
    written = first.model_dump(mode="json")["created_at"]
    assert datetime.fromisoformat(written) == NOON
    assert first.created_at != second.created_at
    assert first.etag == second.etag
    assert first == second.changed(created_at=first.created_at)


@pytest.mark.requirement("003-4-1", "003-7.1-1")
def test_rank_pack_order_and_tier_in_that_order() -> None:
    given = candidates(
        fact("vital", 0.2, 1.0, tokens=500),
        fact("best", 0.9, 0.8, tokens=40),
        fact("twin", 0.85, 0.8, tokens=40),
        fact("weak", 0.1, 0.1, tokens=40),
        duplicates=((0, 1),),
    )
    assert [item.fact_id for item in given.facts] == ["best", "twin", "vital", "weak"]
    envelope = made(given, budget_tokens=80)
    assert ids(envelope.facts) == ["best", "weak"]
    dropped = {item.fact_id: (item.reason, item.tokens, item.kept) for item in envelope.dropped}
    assert dropped == {
        "twin": (DropReason.DUPLICATE, 40, "best"),
        "vital": (DropReason.BUDGET, 500, None),
    }
    assert envelope.quality_tier is not QualityTier.S
    assert any("0.90 or more did not fit" in cap.reason for cap in envelope.caps)


@pytest.mark.requirement("003-6.6-4")
def test_every_duplicate_is_named_with_the_fact_that_stands_for_it() -> None:
    given = candidates(*TEN.facts, duplicates=((0, 1), (0, 2), (5, 6)))
    envelope = made(given)
    assert [(item.fact_id, item.reason.value, item.kept) for item in envelope.dropped] == [
        ("f1", "duplicate", "f0"),
        ("f2", "duplicate", "f0"),
        ("f6", "duplicate", "f5"),
    ]
    assert envelope.total_facts_available == 10


@pytest.mark.requirement("003-7.3-5")
def test_every_fact_that_does_not_fit_is_named() -> None:
    envelope = made(TEN, budget_tokens=100, settings=LITERAL)
    assert ids(envelope.facts) == ["f0", "f2", "f1"]
    assert [(item.fact_id, item.reason.value) for item in envelope.dropped] == [
        (f"f{n}", "budget") for n in range(3, 10)
    ]


def test_k_caps_the_facts_and_says_so() -> None:
    envelope = made(TEN, k=4, settings=LITERAL)
    assert envelope.total_facts_included == 4
    assert {item.reason for item in envelope.dropped} == {DropReason.K}
    assert envelope.total_facts_available == 4
    assert envelope.coverage_score == 1.0
    with pytest.raises(RequestError, match="k is 0"):
        made(TEN, k=0)


@pytest.mark.parametrize("wrong", [True, False, "12", 1.5, float("nan"), [3]])
@pytest.mark.parametrize("name", ["budget_tokens", "k"])
def test_a_number_of_tokens_or_facts_is_a_whole_number(name: str, wrong: Any) -> None:
    with pytest.raises(RequestError, match=f"^{name} is .*, wanted a whole number"):
        made(TEN, **{name: wrong})


@pytest.mark.requirement("003-7.2-6", "003-8.1-5", "003-9.1-1")
@pytest.mark.parametrize("budget_tokens", [0, -1, -10_000])
def test_no_budget_gives_an_empty_deficient_envelope(budget_tokens: int) -> None:
    envelope = made(TEN, budget_tokens=budget_tokens)
    assert envelope.facts == ()
    assert (envelope.text, envelope.token_count, envelope.token_budget) == ("", 0, 0)
    assert (envelope.saturation, envelope.quality_tier.value) == (0.0, "D")
    assert len(envelope.dropped) == 10
    assert envelope.caps[0].reason == "no fact is included"


@pytest.mark.requirement("003-7.2-2")
def test_system_tokens_are_measured_with_the_grounding_instruction() -> None:
    def left(mode: GroundingMode, system_prompt: str = "") -> int:
        request = Request(
            query="q",
            model="m",
            grounding=mode,
            system_prompt=system_prompt,
            budget_tokens="window",
        )
        return reckon_room(request, LetterCounter(), 10_000, SETTINGS).tokens

    free = left(GroundingMode.OPEN)
    for mode in (GroundingMode.STRICT, GroundingMode.PREFERRED):
        assert free - left(mode) == len(grounding_instruction(mode) + "\n\n")
    assert free - left(GroundingMode.OPEN, "Be brief.") == len("Be brief.\n\n")


@pytest.mark.requirement("003-8.2-6")
def test_the_tier_and_what_explains_it() -> None:
    # Ten facts of 23 characters with markers of 4 or 5, and nine separators.
    whole = made(TEN, budget_tokens=300, settings=RELEVANT)
    assert whole.token_count == 289
    assert whole.saturation == 289 / 300
    assert whole.coverage_score == 1.0
    assert whole.relevance_mean == 0.855
    assert whole.envelope_score == round(0.35 + 0.30 * 289 / 300 + 0.35 * 0.855, 6)
    assert whole.quality_tier.value == "A"
    assert [(cap.ceiling.value, cap.reason) for cap in whole.caps] == [
        ("A", "saturation 0.963 is below 0.99")
    ]


@pytest.mark.requirement("003-12.2-1", "003-12.1-3")
def test_the_preview_says_what_the_envelope_will_be() -> None:
    envelope = made(candidates(*(fact(f"f{n}", 0.9, community="x") for n in range(9))), k=7)
    found = preview(envelope)
    assert set(EnvelopePreview.model_fields) >= {
        "facts_available",
        "facts_included",
        "estimated_tokens",
        "quality_tier",
        "saturation",
        "etag",
        "communities",
        "memory_tier_hit",
    }
    assert (found.facts_available, found.facts_included) == (7, 7)
    assert found.estimated_tokens == envelope.token_count
    assert found.communities == ("x",)
    assert found.memory_tier_hit == 3
    again = made(candidates(*(fact(f"f{n}", 0.9, community="x") for n in range(9))), k=7)
    assert (found.quality_tier, found.saturation, found.etag) == (
        again.quality_tier,
        again.saturation,
        again.etag,
    )


@pytest.mark.requirement("003-2-3", "003-7.3-4")
def test_a_counter_whose_parts_do_not_add_up_never_breaks_the_budget() -> None:
    class Whole(LetterCounter):
        """Counts twice as much when there are several facts: parts never add up."""

        identity = "whole@1"

        def count(self, text: str) -> int:
            return len(text) * (2 if "[2]" in text else 1)

    envelope = made(TEN, budget_tokens=300, counter=Whole())
    assert envelope.token_count == Whole().count(envelope.text) <= 300
    assert envelope.saturation <= 1.0
    # The lowest-ranked facts went, one after another, and are named.
    assert sorted(ids(envelope.facts)) == [f"f{n}" for n in range(5)]
    assert [item.fact_id for item in envelope.dropped] == [f"f{n}" for n in range(5, 10)]
    assert {item.reason for item in envelope.dropped} == {DropReason.BUDGET}


def test_many_short_facts_are_fitted_in_few_counts() -> None:
    class Watched(LetterCounter):
        """Markers with three digits are longer than the typical one, so the sum is too low."""

        wholes = 0

        def count(self, text: str) -> int:
            self.wholes += "\n\n[2] " in text
            return len(text)

    many = candidates(
        *(fact(f"f{n:03}", 0.9 - n / 1000, content=f"note {n:03}") for n in range(800))
    )
    counter = Watched()
    total = sum(one.tokens for one in many.facts)
    envelope = made(many, budget_tokens=total, counter=counter)
    assert counter.wholes <= 15
    # None went that had room: the first of those left out, in the last place, is too much.
    kept = len(envelope.facts)
    assert sorted(ids(envelope.facts)) == [f"f{n:03}" for n in range(kept)]
    one_more = render([f"note {n:03}" for n in range(kept + 1)])
    assert envelope.token_count <= total < len(one_more)


def test_candidates_of_another_counter_are_counted_again() -> None:
    class Dear(LetterCounter):
        identity = "dear@1"

        def count(self, text: str) -> int:
            return 3 * len(text)

    envelope = made(TEN, budget_tokens=300, counter=Dear())
    assert {item.token_count for item in envelope.facts} == {90}
    assert envelope.total_facts_included == 3
    assert envelope.tokenizer == "dear@1"


@pytest.mark.requirement("003-10.1-3")
def test_the_envelope_says_how_its_tokens_were_counted() -> None:
    envelope = made(TEN)
    assert (envelope.tokenizer, envelope.token_exactness.value) == ("letters@1", "exact")


@pytest.mark.requirement("003-17.1-1")
def test_personal_data_is_ranked_like_everything_else() -> None:
    plain = "the tier of the file is A and nothing more"
    personal = "the tier of Ada Lovelace, ada@example.org, 078-05-1120, is A"
    found = build_candidates(
        "the tier of Ada Lovelace",
        [plain, personal],
        embedder=HashEmbedder(),
        counter=LetterCounter(),
        settings=SETTINGS,
    )
    envelope = made(found)
    assert envelope.facts[0].content == personal
    assert envelope.total_facts_included == 2
    assert personal in envelope.text


@pytest.mark.requirement("003-13.1-3", "003-6.4-8")
def test_mode_and_max_age_reach_ranking_and_tier() -> None:
    strict = made(TEN, budget_tokens=200, grounding=GroundingMode.STRICT)
    assert any("context-strict" in cap.reason for cap in strict.caps)
    assert strict.grounding_mode is GroundingMode.STRICT
    old = candidates(fact("a", ingested_at=NOON - timedelta(days=1)))
    assert made(old).facts[0].freshness_score > 0.99
    assert made(old, max_age_seconds=3600).facts[0].freshness_score == 0.0


def test_a_temporal_question_changes_weights_and_tier() -> None:
    old = fact("old", 0.9, ingested_at=datetime(2025, 5, 25, tzinfo=UTC))
    new = fact("new", 0.7, ingested_at=NOON)

    def of(query: str, *facts: object) -> Envelope:
        return made(candidates(*facts, query=query))  # type: ignore[arg-type]

    assert of("rule", old, new).facts[0].composite_score > 0
    plain, temporal = of("the rule", old), of("the latest rule", old)
    assert plain.caps == ()
    assert any("temporal" in cap.reason for cap in temporal.caps)
    assert not any("temporal" in cap.reason for cap in of("the latest rule", old, new).caps)
    # relevance 0.9×0.4, importance 0.5×0.25, freshness 0, diversity 0.1
    literal = made(candidates(old, query="the latest rule"), settings=LITERAL)
    assert literal.facts[0].composite_score == 0.585
    # By default the weight of diversity is relevance's: 0.9×0.5.
    assert temporal.facts[0].composite_score == 0.575
