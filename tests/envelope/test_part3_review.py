"""What a review of the envelope found: each test failed before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.verifier.readings import read
from crp_integrations.envelope.candidates import ScoredSpan
from crp_integrations.envelope.records import Candidate
from crp_integrations.errors import FactRejected
from crp_integrations.language.memo import forget
from tests.envelope.builders import candidates, fact, made


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


def test_one_text_instead_of_a_list_of_facts_is_refused() -> None:
    with Relay.open() as relay, pytest.raises(FactRejected, match="into a list"):
        relay.fabric.add("The Meridian reactor delivers 412 megawatts to the grid of the north.")
